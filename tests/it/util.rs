//! A home and cities of one's own, cleaned up also when a test fails.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;

/// One generous limit against hanging; no test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The program under test.
pub(crate) const GC: &str = env!("CARGO_BIN_EXE_gc");

/// A config without ticks, so that whatever happens is not their doing.
pub(crate) const QUIET: &str = "[daemon]\npatrol_interval = \"1h\"\n";

/// An agent that only sleeps.
pub(crate) fn sleeper(name: &str) -> String {
    format!("[[agent]]\nname = \"{name}\"\nstart_command = \"sleep 600\"\n")
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Waits until `ready` gives something.
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A machine of its own: a temporary directory with a home for the supervisor and room for
/// cities. Ends every process that belongs to it when dropped.
pub(crate) struct Place {
    dir: TempDir,
    faults: bool,
    /// What `auto` may find; empty: nothing, as where none is installed.
    tmux: PathBuf,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Runs a command to its end.
    pub(crate) fn by(command: &mut Command) -> Self {
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        Self {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The error object of `--json`: alone on stderr, with nothing on stdout.
    #[track_caller]
    pub(crate) fn json_error(&self) -> Value {
        assert_eq!(self.out, "", "{self:#?}");
        let error: Value =
            serde_json::from_str(&self.err).unwrap_or_else(|e| panic!("{e}: {self:#?}"));
        assert_eq!(error["exit"].as_i64(), self.code.map(i64::from), "{error}");
        assert!(
            error["error"].is_string() && error["code"].is_string(),
            "{error}"
        );
        error
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::Builder::new().prefix("gc-it-").tempdir().unwrap(),
            faults: false,
            tmux: PathBuf::new(),
        }
    }

    /// A place whose supervisor allows fault drills.
    pub(crate) fn with_faults() -> Self {
        let mut place = Self::new();
        place.faults = true;
        place
    }

    /// Has gc use this tmux from now on; its servers stay in this place.
    pub(crate) fn use_tmux(&mut self, program: PathBuf) {
        self.tmux = program;
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Makes a city with this config.
    pub(crate) fn city(&self, name: &str, toml: &str) -> PathBuf {
        let root = self.path(name);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("city.toml"), toml).unwrap();
        root
    }

    /// The command, not yet run, in `dir`.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, dir: &Path, args: &[A]) -> Command {
        let mut command = Command::new(GC);
        command
            .args(args)
            .current_dir(dir)
            .env("GC_HOME", self.home())
            .env("GC_TMUX", &self.tmux)
            .env("TMUX_TMPDIR", self.dir.path());
        for name in [
            "GC_CITY",
            "GC_AGENT",
            "GC_RIG",
            "GC_SESSION_NAME",
            "GC_SESSION_ID",
            "GC_LOG",
            "XDG_RUNTIME_DIR",
            "TMUX",
            "CLICOLOR_FORCE",
        ] {
            command.env_remove(name);
        }
        if self.faults {
            command.env("GC_ALLOW_FAULTS", "1");
        }
        command
    }

    /// Runs `gc` in `dir`.
    pub(crate) fn gc<A: AsRef<OsStr>>(&self, dir: &Path, args: &[A]) -> Said {
        Said::by(&mut self.command(dir, args))
    }

    pub(crate) fn status(&self, dir: &Path) -> Value {
        self.gc(dir, &["status", "--json"]).ok().json()
    }

    /// The instance of that name in the city's status.
    pub(crate) fn instance(&self, dir: &Path, name: &str) -> Value {
        let status = self.status(dir);
        let instances = status["instances"].as_array().cloned().unwrap_or_default();
        instances
            .into_iter()
            .find(|i| i["qualified_name"] == name)
            .unwrap_or(Value::Null)
    }

    pub(crate) fn pid(&self, dir: &Path, agent: &str) -> Option<i32> {
        self.instance(dir, agent)["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
    }

    /// The same, as soon as somebody runs the city and the agent has a process.
    pub(crate) fn awaited_pid(&self, dir: &Path, agent: &str) -> i32 {
        eventually("the agent", || {
            let answers = self.gc(dir, &["status", "--json"]).code == Some(0);
            answers.then(|| self.pid(dir, agent)).flatten()
        })
    }

    /// Waits until another process has taken the place of `before`.
    pub(crate) fn replacement(&self, dir: &Path, agent: &str, before: i32) -> i32 {
        eventually("a replacement", || {
            let pid = self.pid(dir, agent);
            pid.filter(|pid| *pid != before && is_alive(*pid))
        })
    }

    pub(crate) fn supervisor_pid(&self) -> i32 {
        let said = self
            .gc(self.dir.path(), &["supervisor", "status", "--json"])
            .ok();
        i32::try_from(said.json()["pid"].as_i64().unwrap()).unwrap()
    }

    /// Processes that carry this place in their environment, but for this test itself.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_of(self.dir.path())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        kill_all_of(self.dir.path());
    }
}

/// Processes with this path in their environment, but for this test itself.
pub(crate) fn processes_of(path: &Path) -> Vec<i32> {
    let mark = path.to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).unwrap();
    pids.filter(|pid| *pid != own && is_alive(*pid))
        .filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ
                .windows(mark.len())
                .any(|window| window == mark.as_bytes())
        })
        .collect()
}

/// Kills them.
pub(crate) fn kill_all_of(path: &Path) {
    // Again and again: a supervisor may have started something between the look and the kill.
    for _ in 0..10 {
        let found = processes_of(path);
        if found.is_empty() {
            return;
        }
        for pid in found {
            kill(pid, Signal::KILL);
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Whether a program that a test needs is missing. Says so; where everything must be there, fails.
pub(crate) fn lacks(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let Some(missing) = programs.iter().find(|name| !found(name)) else {
        return false;
    };
    println!("skipped: {missing} not installed");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{missing} must be there"
    );
    true
}

/// Whether this test runs as root, whom no permission stops.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The environment a process was started with.
pub(crate) fn environment(pid: i32) -> BTreeMap<String, String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// Every file below `dir` with its content, to see that nothing changed.
pub(crate) fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            match entry.file_type().unwrap().is_dir() {
                true => {
                    found.insert(path.clone(), Vec::new());
                    open.push(path);
                }
                false => drop(found.insert(path.clone(), fs::read(&path).unwrap_or_default())),
            }
        }
    }
    found
}

/// Sends a signal to a process; one that is gone is fine.
pub(crate) fn kill(pid: i32, signal: Signal) {
    let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(pidfd) = pidfd {
        let _ = pidfd_send_signal(pidfd, signal);
    }
}

/// Not gone and not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Events of a city's log, complete lines only.
pub(crate) fn events(city: &Path) -> Vec<Value> {
    let text = fs::read_to_string(city.join(".gc/events.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// How many events of that type about that subject there are.
pub(crate) fn count(city: &Path, kind: &str, subject: &str) -> usize {
    events(city)
        .iter()
        .filter(|e| e["type"] == kind && e["subject"].as_str().unwrap_or("") == subject)
        .count()
}
