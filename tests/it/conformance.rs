//! Every session provider keeps the same contract.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gascity::conformance::{self, Act, Backend, Report};
use gascity::memory::{Behaviour, Times};
use gascity::model::{AgentName, CityName, Command, ExitStatus};
use gascity::ports::{SessionError, Sessions};
use gascity::sessions::{Exec, ExecConfig, Fake, Subprocess, SubprocessConfig};

/// A directory of its own, and who cares for what is left in it.
struct Ground {
    dir: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("gc-conf-")
            .tempdir_in(std::env::temp_dir().canonicalize().unwrap());
        Self { dir: dir.unwrap() }
    }
}

impl Drop for Ground {
    /// Also of a case that hung: whoever carries the mark of this city goes.
    fn drop(&mut self) {
        crate::util::kill_all_of(self.dir.path());
    }
}

fn expect_clean(report: &Report) {
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.passed.len() > 20, "{report}");
}

struct Memory {
    ground: Ground,
    fake: Arc<Fake>,
}

impl Backend for Memory {
    fn provider(&self) -> Arc<dyn Sessions> {
        self.fake.clone()
    }

    fn dir(&self) -> &Path {
        self.ground.dir.path()
    }

    fn prepare(&self, agent: &AgentName, act: &Act) -> Command {
        let counted = |to: u32| (1..=to).map(|n| format!("line {n}\n")).collect::<String>();
        let mut behaviour = Behaviour::default();
        let ends = |status| Some((Duration::from_millis(1), status));
        match act {
            Act::Exit(code) => behaviour.exits = ends(ExitStatus::Code(*code)),
            Act::Die(signal) => behaviour.exits = ends(ExitStatus::Signal(*signal)),
            Act::Trap(code) => {
                behaviour.output = "ready\n".into();
                behaviour.interrupted = Some(ExitStatus::Code(*code));
            }
            Act::Stubborn => {
                behaviour.output = "ready\n".into();
                behaviour.ignores_interrupt = true;
            }
            Act::Lines(count) => behaviour.output = counted(*count),
            Act::LastWords(count) => {
                behaviour.output = counted(*count);
                behaviour.exits = ends(ExitStatus::Code(1));
            }
            Act::Echo => {
                behaviour.output = "ready\n".into();
                behaviour.echoes = true;
            }
            Act::Bytes => {
                behaviour.output = "ready\n".into();
                behaviour.echoes_keys = true;
            }
            _ => {}
        }
        self.fake.memory().script(agent.as_str(), behaviour);
        act.command()
    }

    fn runs_commands(&self) -> bool {
        false
    }

    fn plant_foreign(&self, name: &str) -> bool {
        self.fake.memory().add_foreign(name);
        true
    }

    fn break_down(&self) -> bool {
        for op in ["snapshot", "liveness", "stop"] {
            let down = SessionError::Backend("down".into());
            self.fake.memory().fail(op, "*", down, Times::Always);
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_in_memory_conform() {
    let report = conformance::verify(|| Memory {
        ground: Ground::new(),
        fake: Arc::default(),
    })
    .await;
    expect_clean(&report);
}

/// Settings of a city that may share everything with others but its directory.
fn city(root: &Path) -> SubprocessConfig {
    std::fs::create_dir_all(root).unwrap();
    let name = CityName::new("conformance").unwrap();
    SubprocessConfig::new(root.to_owned(), name, env!("CARGO_BIN_EXE_gc").into())
}

struct Processes(Ground);

impl Backend for Processes {
    fn provider(&self) -> Arc<dyn Sessions> {
        Arc::new(Subprocess::new(city(self.dir())).unwrap())
    }

    fn neighbour(&self) -> Option<Arc<dyn Sessions>> {
        let provider = Subprocess::new(city(&self.dir().join("next")));
        Some(Arc::new(provider.unwrap()))
    }

    fn dir(&self) -> &Path {
        self.0.dir.path()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subprocess_conforms() {
    let report = conformance::verify(|| Processes(Ground::new())).await;
    expect_clean(&report);
}

/// The script from the documentation.
struct Scripted {
    ground: Ground,
    script: std::path::PathBuf,
}

impl Scripted {
    /// With a copy of the script, which can be broken.
    fn new() -> Self {
        let ground = Ground::new();
        let script = ground.dir.path().join("provider");
        let original = crate::util::repository().join("docs/exec-provider");
        std::fs::copy(original, &script).unwrap();
        Self { ground, script }
    }

    fn exec(&self, root: &Path) -> Arc<dyn Sessions> {
        let mut config = ExecConfig::new(self.script.display().to_string(), city(root));
        config.poll = Duration::from_millis(100);
        Arc::new(Exec::new(config).unwrap())
    }
}

impl Backend for Scripted {
    fn provider(&self) -> Arc<dyn Sessions> {
        self.exec(self.dir())
    }

    fn dir(&self) -> &Path {
        self.ground.dir.path()
    }

    fn neighbour(&self) -> Option<Arc<dyn Sessions>> {
        Some(self.exec(&self.dir().join("next")))
    }

    fn break_down(&self) -> bool {
        std::fs::write(&self.script, "#!/bin/sh\necho down >&2\nexit 1\n").unwrap();
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_exec_script_conforms() {
    if crate::util::lacks(&["jq", "setsid", "pgrep"]) {
        return;
    }
    // A hundred at once, row 17, take a script too long for every day.
    let report = conformance::verify_some(Scripted::new, |case| case.row != 17).await;
    expect_clean(&report);
}
