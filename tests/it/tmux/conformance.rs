//! The contract of session providers, on tmux.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use gascity::conformance::{self, Backend};
use gascity::model::CityName;
use gascity::ports::Sessions;
use gascity::sessions::{SubprocessConfig, Tmux, TmuxConfig};
use rustix::process::Signal;

use crate::util::kill;

/// A server of its own, with its socket beside the city, gone when dropped.
struct Panes {
    program: PathBuf,
    dir: tempfile::TempDir,
    /// Let go in the end, so that nobody brings the server back.
    providers: Mutex<Vec<Tmux>>,
}

impl Panes {
    fn new(program: &Path) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("gc-conf-")
            .tempdir_in(std::env::temp_dir().canonicalize().unwrap());
        Self {
            program: program.to_owned(),
            dir: dir.unwrap(),
            providers: Mutex::default(),
        }
    }

    fn tmux(&self, args: &[&str]) -> bool {
        self.run(args).status.success()
    }

    fn said(&self, args: &[&str]) -> String {
        String::from_utf8(self.run(args).stdout).unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.env("TMUX_TMPDIR", self.dir.path());
        command.args(["-L", "conformance"]).args(args);
        command.output().unwrap()
    }
}

impl Drop for Panes {
    fn drop(&mut self) {
        for provider in self.providers.lock().unwrap().drain(..) {
            provider.close();
        }
        crate::util::kill_all_of(self.dir.path());
    }
}

impl Panes {
    /// The provider of a city in this directory; all of them have one name.
    fn city(&self, root: &Path) -> Arc<dyn Sessions> {
        std::fs::create_dir_all(root).unwrap();
        let name = CityName::new("conformance").unwrap();
        let gc = env!("CARGO_BIN_EXE_gc").into();
        let city = SubprocessConfig::new(root.to_owned(), name, gc);
        let mut config = TmuxConfig::new(city, self.program.clone());
        config.tmux_config = "none".to_owned();
        config.socket_dir = Some(self.dir().to_owned());
        let provider = Tmux::new(config).unwrap();
        self.providers.lock().unwrap().push(provider.clone());
        Arc::new(provider)
    }
}

impl Backend for Panes {
    fn provider(&self) -> Arc<dyn Sessions> {
        self.city(self.dir())
    }

    fn neighbour(&self) -> Option<Arc<dyn Sessions>> {
        Some(self.city(&self.dir().join("next")))
    }

    /// A server that is stopped answers nobody.
    fn break_down(&self) -> bool {
        let pid = self.said(&["display-message", "-p", "#{pid}"]);
        kill(pid.trim().parse().unwrap(), Signal::STOP);
        true
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn plant_foreign(&self, name: &str) -> bool {
        // On the server of the city: one without its mark would be left alone.
        let mark = self.dir().to_str().unwrap();
        self.tmux(&["new-session", "-d", "-s", name, "sleep 600"])
            && self.tmux(&["set-option", "-s", "@gc_city", mark])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tmux_conforms() {
    let Some(program) = super::program() else {
        return;
    };
    let report = conformance::verify(|| Panes::new(&program)).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.passed.len() > 20, "{report}");
}
