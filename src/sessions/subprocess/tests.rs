//! The provider on real processes, each test in a city of its own.

mod adoption;
mod exits;
mod launch;
mod logs;
mod metadata;
mod nudges;
mod prepare;
mod programs;
mod stop;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gascity_actors::model::{
    AgentName, CityName, Command, ExitStatus, Launch, RunToken, SessionName, StartFailure, Stdin,
};
use gascity_actors::ports::{
    Facts, Fence, Note, SessionEventKind, SessionEvents, Sessions, StartSpec, Started,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use super::{Subprocess, SubprocessConfig};
use crate::sessions::proc::{self, Environ, Stat};

/// Upper bound of every wait; reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(60);

/// A city in a temporary directory. All its processes end with it.
struct City {
    root: PathBuf,
    provider: Subprocess,
    _dir: TempDir,
}

impl City {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let provider = provider(root.clone());
        Self {
            root,
            provider,
            _dir: dir,
        }
    }

    fn spec(&self, name: &str, command: Command) -> StartSpec {
        StartSpec {
            session: session(name),
            agent: AgentName::new(name).unwrap(),
            template: AgentName::new(name).unwrap(),
            generation: 1,
            launch: Arc::new(Launch {
                command,
                work_dir: self.root.clone(),
                ..Launch::default()
            }),
            setup_timeout: Duration::from_secs(10),
            process_names: Vec::new(),
            live: Vec::new(),
            notes: BTreeMap::new(),
        }
    }

    async fn start_spec(&self, spec: StartSpec) -> Result<(RunToken, Started), StartFailure> {
        let token = token();
        let started = self.provider.start(token.clone(), Arc::new(spec)).await?;
        Ok((token, started))
    }

    /// Starts a shell line and returns its token and pid.
    async fn shell(&self, name: &str, line: &str) -> (RunToken, i32) {
        self.launch(name, Command::Shell(line.to_owned())).await
    }

    /// Starts a process that does nothing.
    async fn idle(&self, name: &str) -> (RunToken, i32) {
        self.launch(name, words(&["sleep", "1000"])).await
    }

    async fn launch(&self, name: &str, command: Command) -> (RunToken, i32) {
        let (token, started) = self.start_spec(self.spec(name, command)).await.unwrap();
        (token, started.pid.unwrap().cast_signed())
    }

    async fn facts(&self, name: &str) -> Option<Facts> {
        facts(&self.provider, name).await
    }

    async fn is_running(&self, name: &str) -> bool {
        self.facts(name).await.is_some_and(|facts| facts.live)
    }

    async fn peek(&self, name: &str, lines: u32) -> String {
        self.provider.peek(session(name), lines).await.unwrap()
    }

    /// Every live process that carries this city's mark.
    fn processes(&self) -> Vec<Stat> {
        let files = super::Files::new(self.root.clone(), String::new());
        let is_ours = |stat: &Stat| {
            !stat.dead && matches!(Environ::of(stat.pid), Ok(Some(env)) if files.mark.is_ours(&env))
        };
        proc::all().unwrap().into_iter().filter(is_ours).collect()
    }

    fn note(&self, name: &str) -> PathBuf {
        self.root.join(format!(".gc/runtime/sessions/{name}.json"))
    }
}

impl Drop for City {
    fn drop(&mut self) {
        for _ in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            left.iter().for_each(|stat| kill(stat.pid));
        }
    }
}

fn provider(root: PathBuf) -> Subprocess {
    let name = CityName::new("test").unwrap();
    Subprocess::new(SubprocessConfig::new(root, name, "/opt/gc".into())).unwrap()
}

async fn facts(provider: &Subprocess, name: &str) -> Option<Facts> {
    let listing = provider.snapshot().await.unwrap();
    listing
        .owned
        .into_iter()
        .find(|facts| facts.session.as_str() == name)
}

fn session(name: &str) -> SessionName {
    SessionName::new(name).unwrap()
}

fn words(words: &[&str]) -> Command {
    Command::Words(words.iter().map(ToString::to_string).collect())
}

fn token() -> RunToken {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    RunToken::new(format!("t-{}-{count}", process::id())).unwrap()
}

/// Kills a process for good, by a descriptor so that it is no other.
fn kill(pid: i32) {
    if let Ok(pidfd) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
}

fn is_alive(pid: i32) -> bool {
    proc::stat(pid).unwrap().is_some_and(|stat| !stat.dead)
}

/// Waits until `condition` holds.
async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(LIMIT, wait).await;
    assert!(done.is_ok(), "never happened: {what}");
}

/// The next exit among `events`.
async fn next_exit(events: &mut SessionEvents) -> (RunToken, ExitStatus) {
    let event = tokio::time::timeout(LIMIT, events.recv()).await;
    let event = event.expect("an event in time").expect("a provider");
    match event.kind {
        SessionEventKind::Exited(status) => (event.token, status),
        other => panic!("unexpected {other:?}"),
    }
}
