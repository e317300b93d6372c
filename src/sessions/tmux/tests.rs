//! With a real tmux, each test on a server of its own.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use gascity_actors::model::{AgentName, CityName, Command, ExitStatus, Launch};
use gascity_actors::ports::{Fence, Liveness, Note, SessionEvent, SessionEventKind, Stopped};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tokio::time::sleep;

use super::line::Line;
use super::server::KEEPER;
use super::*;

/// Upper bound against hanging; no test waits for it.
const LIMIT: Duration = Duration::from_secs(30);

/// A city with a tmux server, gone when dropped, also when a test fails.
pub(super) struct Town {
    dir: TempDir,
    config: TmuxConfig,
    pub(super) tmux: Tmux,
}

/// The program, or why there is nothing to test with.
pub(super) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("tmux"))
        .find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "tmux not installed");
        println!("skipped: tmux not installed");
    }
    found
}

impl Town {
    pub(super) fn new() -> Option<Self> {
        let program = program()?;
        let dir = tempfile::Builder::new()
            .prefix("gc-tmux-")
            .tempdir()
            .unwrap();
        let root = dir.path().canonicalize().unwrap().join("city");
        fs::create_dir_all(&root).unwrap();
        let name = CityName::new("town").unwrap();
        let city = SubprocessConfig::new(root, name, "/bin/gc".into());
        let mut config = TmuxConfig::new(city, program);
        config.socket_dir = Some(dir.path().to_owned());
        config.tmux_config = "none".to_owned();
        let tmux = Tmux::new(config.clone()).unwrap();
        Some(Self { dir, config, tmux })
    }

    /// A second provider for the same city.
    fn again(&self) -> Tmux {
        Tmux::new(self.config.clone()).unwrap()
    }

    fn spec(&self, name: &str, command: Command) -> Arc<StartSpec> {
        Arc::new(StartSpec {
            session: SessionName::new(name).unwrap(),
            agent: AgentName::new(name).unwrap(),
            template: AgentName::new(name).unwrap(),
            generation: 1,
            launch: Arc::new(Launch {
                command,
                env: BTreeMap::from([("ODD".into(), "' \" $$ ~ ; # % \\ \n é".into())]),
                work_dir: self.config.city.root.clone(),
                ..Launch::default()
            }),
            setup_timeout: Duration::from_secs(10),
            process_names: Vec::new(),
            live: Vec::new(),
            notes: BTreeMap::from([(Note::Generation, "1".to_owned())]),
        })
    }

    pub(super) async fn start(&self, name: &str, token: &str, line: &str) -> i32 {
        let spec = self.spec(name, Command::Shell(line.to_owned()));
        let started = self.tmux.start(self::token(token), spec).await.unwrap();
        started.pid.unwrap().cast_signed()
    }

    async fn facts(&self, name: &str) -> Option<gascity_actors::ports::Facts> {
        let listing = self.tmux.snapshot().await.unwrap();
        let mut owned = listing.owned.into_iter();
        owned.find(|facts| facts.session.as_str() == name)
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        self.tmux.close();
        let mark = self.dir.path().to_string_lossy().into_owned();
        for stat in super::super::proc::all().unwrap_or_default() {
            let environ = fs::read(format!("/proc/{}/environ", stat.pid)).unwrap_or_default();
            let ours = environ.windows(mark.len()).any(|w| w == mark.as_bytes());
            let me = std::process::id().cast_signed();
            if let Some(pid) = rustix::process::Pid::from_raw(stat.pid)
                && ours
                && stat.pid != me
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

pub(super) fn name(text: &str) -> SessionName {
    SessionName::new(text).unwrap()
}

pub(super) fn token(text: &str) -> RunToken {
    RunToken::new(text).unwrap()
}

async fn next(events: &mut SessionEvents) -> SessionEvent {
    tokio::time::timeout(LIMIT, events.recv())
        .await
        .expect("an event")
        .unwrap()
}

async fn eventually<F: Future<Output = bool>>(what: &str, mut ready: impl FnMut() -> F) {
    let deadline = Instant::now() + LIMIT;
    while !ready().await {
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_session_is_started_listed_watched_and_stopped() {
    let Some(town) = Town::new() else { return };
    let mut events = town.tmux.subscribe();
    let pid = town.start("w", "t1", "echo hello; exec sleep 600").await;
    let facts = town.facts("w").await.unwrap();
    assert_eq!((facts.live, facts.pid), (true, Some(pid.cast_unsigned())));
    assert_eq!(facts.notes.get(&Note::Generation).unwrap(), "1");
    eventually("the greeting", || async {
        town.tmux.peek(name("w"), 10).await.unwrap() == "hello"
    })
    .await;
    let live = town.tmux.liveness(name("w"), token("t1")).await;
    assert!(matches!(live, Ok(Liveness::Live { .. })), "{live:?}");
    let fenced = town.tmux.stop(name("w"), Fence::Token(token("t9"))).await;
    assert_eq!(fenced, Err(SessionError::Fenced));
    let stopped = town.tmux.stop(name("w"), Fence::Token(token("t1"))).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
    let event = next(&mut events).await;
    assert_eq!(event.kind, SessionEventKind::Exited(ExitStatus::Signal(15)));
    assert_eq!(town.facts("w").await, None);
    let again = town.tmux.stop(name("w"), Fence::Any).await;
    assert_eq!(again, Ok(Stopped::Absent));
    town.tmux.retire().await.unwrap();
    let sockets = town
        .dir
        .path()
        .join(format!("tmux-{}", rustix::process::getuid().as_raw()));
    assert_eq!(
        fs::read_dir(sockets).unwrap().count(),
        0,
        "no socket is left"
    );
}

#[tokio::test]
async fn ends_are_told_with_their_status() {
    let Some(town) = Town::new() else { return };
    let mut events = town.tmux.subscribe();
    for (at, (line, status)) in [
        ("exit 3", ExitStatus::Code(3)),
        ("true", ExitStatus::Code(0)),
        ("kill -9 $$", ExitStatus::Signal(9)),
        ("sleep 0.05; kill -11 $$", ExitStatus::Signal(11)),
        ("sleep 0.05; exit 9", ExitStatus::Code(9)),
    ]
    .into_iter()
    .enumerate()
    {
        let run = format!("t{at}");
        town.start("w", &run, line).await;
        let event = next(&mut events).await;
        assert_eq!(event.token, token(&run));
        assert_eq!(event.kind, SessionEventKind::Exited(status), "{line}");
    }
    assert!(events.try_recv().is_err(), "each end is told once");
}

#[tokio::test]
async fn environment_and_command_arrive_unchanged() {
    let Some(town) = Town::new() else { return };
    let line = "printf %s \"$ODD\" >odd; env | cut -d= -f1 | sort >names; \
                echo \"$GC_AGENT $GC_SESSION_ID $(pwd) ~\"; exec sleep 600";
    town.start("w", "t1", line).await;
    let root = town.config.city.root.clone();
    let expected = format!("w t1 {} ~", root.display());
    eventually("the output", || async {
        town.tmux.peek(name("w"), 10).await.unwrap() == expected
    })
    .await;
    let odd = fs::read_to_string(root.join("odd")).unwrap();
    assert_eq!(odd, "' \" $ ~ ; # % \\ \n é");
    let names = fs::read_to_string(root.join("names")).unwrap();
    assert!(
        !names.contains("TMUX_TMPDIR") && !names.contains("CARGO"),
        "{names}"
    );
}

#[tokio::test]
async fn another_provider_adopts_what_runs() {
    let Some(town) = Town::new() else { return };
    let pid = town.start("w", "t1", "exec sleep 600").await;
    let next_one = town.again();
    let mut events = next_one.subscribe();
    let listing = next_one.snapshot().await.unwrap();
    assert_eq!(listing.owned.len(), 1);
    assert_eq!(listing.owned[0].token, token("t1"));
    assert_eq!(listing.owned[0].notes.get(&Note::Generation).unwrap(), "1");
    kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let event = next(&mut events).await;
    assert_eq!(event.kind, SessionEventKind::Exited(ExitStatus::Signal(9)));
}

#[tokio::test]
async fn the_death_of_the_server_is_no_fault_of_its_agents() {
    let Some(town) = Town::new() else { return };
    let mut events = town.tmux.subscribe();
    for at in 0..20 {
        // One ignores the hang-up that comes with the death of its terminal.
        let line = if at == 7 {
            "trap '' HUP; sleep 600"
        } else {
            "exec sleep 600"
        };
        town.start(&format!("w{at}"), &format!("t{at}"), line).await;
    }
    let server = town.tmux.0.server().await.unwrap().pid;
    kill_process(
        rustix::process::Pid::from_raw(server).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    let why = format!("the tmux server (pid {server}) has died");
    for _ in 0..20 {
        let lost = SessionEventKind::BackendLost(why.clone());
        assert_eq!(next(&mut events).await.kind, lost);
    }
    let back = SessionEventKind::BackendBack { same_server: false };
    assert_eq!(next(&mut events).await.kind, back);
    assert_eq!(town.tmux.snapshot().await.unwrap().owned, []);
    town.start("w0", "u0", "exec sleep 600").await;
    assert!(town.facts("w0").await.unwrap().live);
}

#[tokio::test]
async fn a_graceful_end_of_the_server_is_no_fault_either() {
    let Some(town) = Town::new() else { return };
    let mut events = town.tmux.subscribe();
    for at in 0..5 {
        town.start(&format!("w{at}"), &format!("t{at}"), "exec sleep 600")
            .await;
    }
    let server = town.tmux.0.server().await.unwrap();
    let _ = server.link.ask(Line::new(["kill-server"])).await;
    for _ in 0..5 {
        let kind = next(&mut events).await.kind;
        assert!(matches!(kind, SessionEventKind::BackendLost(_)), "{kind:?}");
    }
}

#[tokio::test]
async fn a_lost_connection_or_keeper_costs_no_agent() {
    let Some(town) = Town::new() else { return };
    let mut events = town.tmux.subscribe();
    let pid = town.start("w", "t1", "exec sleep 600").await;
    for command in [
        ["detach-client", "-s", KEEPER],
        ["kill-session", "-t", "=_gc:"],
    ] {
        let server = town.tmux.0.server().await.unwrap();
        let _ = server.link.ask(Line::new(command)).await;
        server.link.lost().await;
        let facts = town.facts("w").await.unwrap();
        assert_eq!((facts.live, facts.pid), (true, Some(pid.cast_unsigned())));
        let back = SessionEventKind::BackendBack { same_server: true };
        assert_eq!(next(&mut events).await.kind, back);
    }
    assert!(events.try_recv().is_err(), "nobody ended");
}

#[tokio::test]
async fn how_long_a_message_waits_for_others_may_change_at_any_time() {
    let Some(town) = Town::new() else { return };
    town.start("a", "run-1", "exec sleep 1000").await;
    let name = SessionName::new("a").unwrap();
    let slot = town.tmux.0.slot(&name);
    let _typing = slot.typing.lock().await;
    town.tmux.set_nudging(Duration::ZERO, Duration::ZERO);
    let told = town.tmux.nudge(name, Fence::Any, "hi".to_owned()).await;
    assert_eq!(told, Err(SessionError::Busy));
}

#[tokio::test]
async fn terminals_that_come_and_go_are_told() {
    let Some(town) = Town::new() else { return };
    let mut events = town.tmux.subscribe();
    town.start("w", "t1", "exec sleep 600").await;
    town.start("other", "t2", "exec sleep 600").await;
    let plan = town.tmux.attach(name("w"), false).await.unwrap();
    let mut client = std::process::Command::new(&plan.argv[0])
        .arg("-C") // needs no terminal
        .args(&plan.argv[1..])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let event = next(&mut events).await;
    assert_eq!(event.session, name("w"));
    assert_eq!(event.kind, SessionEventKind::Attached(true));
    assert!(town.facts("w").await.unwrap().attached);
    client.kill().unwrap();
    client.wait().unwrap();
    let event = next(&mut events).await;
    assert_eq!(event.session, name("w"));
    assert_eq!(event.kind, SessionEventKind::Attached(false));
    assert!(events.try_recv().is_err(), "each is told once");
}
