//! Scripts that do little, and scripts that do harm. What a good one does is a matter of the
//! conformance list.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use gascity_actors::model::{AgentName, CityName, Command, FailureClass, Launch, StartFailure};
use gascity_actors::ports::{
    Delivery, Liveness, Note, SessionEventKind, Sessions, StartSpec, Stopped,
};

use super::*;

/// Upper bound of every wait; reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(60);

/// A city with a script of its own.
struct City {
    root: PathBuf,
    exec: Exec,
    _dir: tempfile::TempDir,
}

impl City {
    fn new(body: &str) -> Self {
        Self::with(body, |_| {})
    }

    fn with(body: &str, change: impl FnOnce(&mut ExecConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = root.join("script");
        fs::write(&path, format!("#!/bin/sh\nop=$1 name=$2\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let name = CityName::new("test").unwrap();
        let city = SubprocessConfig::new(root.clone(), name, "/opt/gc".into());
        let mut config = ExecConfig::new("./script", city);
        config.poll = Duration::from_millis(50);
        change(&mut config);
        let exec = Exec::new(config).unwrap();
        Self {
            root,
            exec,
            _dir: dir,
        }
    }

    fn spec(&self) -> StartSpec {
        StartSpec {
            session: name("a"),
            agent: AgentName::new("a").unwrap(),
            template: AgentName::new("a").unwrap(),
            generation: 1,
            launch: Arc::new(Launch {
                command: Command::Words(["run", "it's"].map(String::from).to_vec()),
                work_dir: self.root.clone(),
                ..Launch::default()
            }),
            setup_timeout: Duration::from_secs(10),
            process_names: Vec::new(),
            live: Vec::new(),
            notes: BTreeMap::new(),
        }
    }

    async fn start(&self) -> Result<RunToken, StartFailure> {
        let token = RunToken::new("run-1").unwrap();
        let started = self.exec.start(token.clone(), Arc::new(self.spec())).await;
        Ok(started.map(|_| token)?)
    }
}

impl Drop for City {
    /// Whatever a failing test left of its script.
    fn drop(&mut self) {
        let mark = self.root.to_string_lossy().into_owned();
        for stat in crate::sessions::proc::all().unwrap_or_default() {
            let ours = fs::read(format!("/proc/{}/environ", stat.pid)).unwrap_or_default();
            let ours = ours.windows(mark.len()).any(|part| part == mark.as_bytes());
            if ours && stat.pid != std::process::id().cast_signed() {
                let pid = rustix::process::Pid::from_raw(stat.pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn name(text: &str) -> SessionName {
    SessionName::new(text).unwrap()
}

/// The least a script can do: start, stop, is-running (row 43).
const MINIMAL: &str = "cd \"$GC_CITY\"; case $op in
    start) cat >json; touch up ;;
    stop) rm -f up ;;
    is-running) [ -e up ] && echo true || echo false ;;
    *) echo \"$op\" >>unknown; exit 2 ;;
    esac";

#[tokio::test]
async fn a_script_that_only_starts_stops_and_tells_is_enough() {
    let city = City::new(MINIMAL);
    let mut events = city.exec.subscribe();
    let token = city.start().await.unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(city.root.join("json")).unwrap()).unwrap();
    assert_eq!(json["command"], r"run 'it'\''s'");
    assert_eq!(json["work_dir"], city.root.display().to_string());
    assert_eq!(json["env"]["GC_SESSION_ID"], "run-1");
    assert!(json.get("pre_start").is_none(), "empty fields are left out");
    let look = city.exec.liveness(name("a"), token.clone()).await;
    assert_eq!(look, Ok(Liveness::Live { pid: None }));
    let set = city
        .exec
        .set_note(name("a"), Fence::Any, Note::Drain, Some("1".into()));
    set.await.unwrap();
    let listing = city.exec.snapshot().await.unwrap();
    assert_eq!(listing.owned[0].notes[&Note::Drain], "1");
    assert!(listing.owned[0].live && listing.owned[0].last_activity.is_none());
    assert_eq!(city.exec.interrupt(name("a"), Fence::Any).await, Ok(true));
    assert_eq!(city.exec.clear_scrollback(name("a")).await, Ok(()));
    let peeked = city.exec.peek(name("a"), 5).await;
    assert_eq!(peeked, Err(SessionError::Unsupported("peek")));
    let told = city.exec.nudge(name("a"), Fence::Any, "hi".into()).await;
    assert_eq!(told, Err(SessionError::Unsupported("nudge")));
    assert_eq!(
        city.exec.process_alive(name("a"), vec!["x".into()]).await,
        Ok(true)
    );
    let caps = city.exec.caps();
    assert!(!caps.log && !caps.nudge && !caps.process_tree && caps.exit_push && !caps.exit_status);
    // What the script does not know is not asked again.
    let unknown = || fs::read_to_string(city.root.join("unknown")).unwrap();
    let tried = |text: String| text.lines().filter(|op| *op != "watch").count();
    let before = tried(unknown());
    city.exec.snapshot().await.unwrap();
    city.exec
        .process_alive(name("a"), vec!["x".into()])
        .await
        .unwrap();
    assert_eq!(tried(unknown()), before, "{}", unknown());
    // Its end is found, once.
    fs::remove_file(city.root.join("up")).unwrap();
    let event = tokio::time::timeout(LIMIT, events.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(event.token, token);
    assert_eq!(event.kind, SessionEventKind::Exited(ExitStatus::Unknown));
    let stopped = city.exec.stop(name("a"), Fence::Token(token)).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn every_exit_code_of_a_start_means_what_it_says() {
    for (body, class, detail) in [
        (
            "exit 2",
            FailureClass::Provider,
            "the script knows no start",
        ),
        ("echo no dir >&2; exit 3", FailureClass::Agent, "no dir"),
        ("echo broken >&2; exit 1", FailureClass::Provider, "broken"),
        ("exit 77", FailureClass::Provider, "exit 77"),
        ("kill -9 $$", FailureClass::Provider, "start: signal 9"),
        (
            "echo It Already EXISTS >&2; exit 1",
            FailureClass::Provider,
            "a session of that name is not gc's",
        ),
    ] {
        let city = City::new(&format!(
            "echo $op >>$GC_CITY/ops; case $op in start) {body} ;; stop|is-running) ;; *) exit 2 ;; esac"
        ));
        let failure = city.start().await.unwrap_err();
        assert_eq!((failure.class, failure.detail.as_str()), (class, detail));
        // What failed half-way is cleared away; what is somebody else's is not.
        let undone = async || {
            let ops = fs::read_to_string(city.root.join("ops")).unwrap();
            ops.lines().any(|op| op == "stop")
        };
        if body.contains("EXISTS") {
            assert!(!undone().await, "stopped what is not ours");
        } else {
            let wait = async {
                while !undone().await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(LIMIT, wait).await.unwrap();
        }
        let listing = city.exec.snapshot().await.unwrap();
        assert!(listing.owned.is_empty(), "{body}: {listing:?}");
    }
}

// Row 13: cannot tell is not dead.
#[tokio::test]
async fn a_script_that_cannot_tell_says_nothing_about_a_session() {
    let city = City::new(
        "case $op in
         start) ;;
         *) [ -e $GC_CITY/broken ] && { cat $GC_CITY/broken; exit 1; }
            [ $op = is-running ] && cat $GC_CITY/answer ;;
         esac",
    );
    fs::write(city.root.join("answer"), "true").unwrap();
    let token = city.start().await.unwrap();
    for answer in ["maybe", "true false", "\u{fffd}\u{1b}[31m"] {
        fs::write(city.root.join("answer"), answer).unwrap();
        let look = city.exec.liveness(name("a"), token.clone()).await;
        assert!(
            matches!(look, Err(SessionError::Backend(_))),
            "{answer}: {look:?}"
        );
    }
    fs::write(city.root.join("broken"), "no").unwrap();
    let look = city.exec.liveness(name("a"), token.clone()).await;
    assert!(matches!(look, Err(SessionError::Backend(_))), "{look:?}");
    assert!(city.exec.snapshot().await.is_err());
    assert!(city.exec.stop(name("a"), Fence::Any).await.is_err());
    // The script itself disappears.
    fs::remove_file(city.root.join("script")).unwrap();
    let look = city.exec.liveness(name("a"), token).await;
    assert!(matches!(look, Err(SessionError::Backend(_))), "{look:?}");
}

// Row 44.
#[tokio::test]
async fn a_script_that_hangs_spews_or_leaves_something_on_its_pipe_is_survived() {
    let city = City::with(
        "case $op in
         start|is-running) echo true ;;
         peek) case $3 in
            1) echo partial; sleep 1000 ;;
            2) yes ;;
            3) head -c 20000000 /dev/zero | tr '\\0' x ;;
            4) echo quick; sleep 1000 & ;;
            5) head -c 100000 /dev/urandom ;;
            esac ;;
         nudge) exit 0 ;;
         *) exit 2 ;;
         esac",
        |config| config.timeout = Duration::from_millis(500),
    );
    city.start().await.unwrap();
    let peek = async |lines| city.exec.peek(name("a"), lines).await;
    assert_eq!(peek(1).await, Err(SessionError::Timeout));
    assert_eq!(peek(2).await, Err(SessionError::Timeout));
    assert!(peek(3).await.unwrap().len() <= 1 << 20);
    assert_eq!(peek(4).await.unwrap(), "quick");
    let garbage = peek(5).await.unwrap();
    assert!(!garbage.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
    // It does not read what it is given, and the pipe is smaller than that.
    let told = city
        .exec
        .nudge(name("a"), Fence::Any, "x".repeat(60 << 10))
        .await;
    assert_eq!(told, Ok(Delivery::Delivered { confirmed: true }));
}

#[tokio::test]
async fn a_start_that_hangs_is_ended_and_taken_back() {
    let city = City::with(
        "case $op in
         start) sleep 1000 & echo $! >$GC_CITY/child; wait ;;
         stop) touch $GC_CITY/stopped ;;
         is-running) echo false ;;
         *) exit 2 ;;
         esac",
        |config| config.start_timeout = Duration::from_millis(300),
    );
    let failure = city.start().await.unwrap_err();
    assert_eq!(failure.detail, "timed out");
    let wait = async {
        while !city.root.join("stopped").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.unwrap();
    let child = fs::read_to_string(city.root.join("child")).unwrap();
    assert!(!crate::sessions::is_alive(child.trim().parse().unwrap()));
    assert!(city.exec.snapshot().await.unwrap().owned.is_empty());
}

#[tokio::test]
async fn what_watch_says_is_told_at_once_and_nonsense_is_not() {
    let city = City::with(
        "case $op in
         start) touch $GC_CITY/up ;;
         stop) rm -f $GC_CITY/up ;;
         is-running) [ -e $GC_CITY/up ] && echo true || echo false ;;
         watch) echo nonsense; echo '{\"name\":\"b\",\"event\":\"exited\"}'
             while [ ! -e $GC_CITY/go ]; do sleep 0.02; done; rm -f $GC_CITY/up
             echo '{\"name\":\"a\",\"event\":\"activity\"}'
             echo '{\"name\":\"a\",\"event\":\"exited\",\"signal\":11}'
             echo '{\"name\":\"a\",\"event\":\"exited\",\"code\":1}'; sleep 1000 ;;
         *) exit 2 ;;
         esac",
        |config| config.poll = Duration::from_secs(1000),
    );
    let mut events = city.exec.subscribe();
    let token = city.start().await.unwrap();
    fs::write(city.root.join("go"), "").unwrap();
    for kind in [
        SessionEventKind::Activity,
        SessionEventKind::Exited(ExitStatus::Signal(11)),
    ] {
        let event = tokio::time::timeout(LIMIT, events.recv()).await;
        assert_eq!(event.unwrap().unwrap().kind, kind);
    }
    let look = city.exec.liveness(name("a"), token).await;
    assert_eq!(look, Ok(Liveness::Dead(ExitStatus::Signal(11))));
    assert!(events.try_recv().is_err(), "told once");
}

#[tokio::test]
async fn sessions_that_lost_their_record_are_known_by_the_scripts_metadata() {
    let city = City::new(
        "m=$GC_CITY/meta-$name; case $op in
         start) touch $GC_CITY/up ;;
         stop) rm -f $GC_CITY/up ;;
         is-running) [ -e $GC_CITY/up ] && echo true || echo false ;;
         list-running) echo stranger; [ ! -e $GC_CITY/up ] || echo a ;;
         set-meta) cat >$m-$3 ;;
         get-meta) [ ! -e $m-$3 ] || cat $m-$3 ;;
         *) exit 2 ;;
         esac",
    );
    let token = city.start().await.unwrap();
    fs::remove_file(city.root.join(".gc/runtime/sessions/a.exec.json")).unwrap();
    let listing = city.exec.snapshot().await.unwrap();
    assert_eq!(
        (&listing.owned[0].token, listing.owned[0].live),
        (&token, true)
    );
    assert_eq!(listing.foreign, ["stranger"]);
    let stopped = city.exec.stop(name("stranger"), Fence::Any).await;
    assert_eq!(stopped, Ok(Stopped::Absent), "never ours to stop");
}

#[test]
fn a_script_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let city = || {
        let name = CityName::new("test").unwrap();
        SubprocessConfig::new(dir.path().to_owned(), name, "gc".into())
    };
    for script in ["./missing", "no-such-script-on-path"] {
        let error = Exec::new(ExecConfig::new(script, city())).unwrap_err();
        assert!(error.to_string().contains(script), "{error}");
    }
    fs::write(dir.path().join("plain"), "").unwrap();
    let error = Exec::new(ExecConfig::new("./plain", city())).unwrap_err();
    assert!(error.to_string().contains("./plain"), "{error}");
}

#[tokio::test]
async fn a_script_is_told_all_that_it_may_need() {
    let city = City::new(MINIMAL);
    let mut spec = city.spec();
    let mut launch = (*spec.launch).clone();
    launch.pre_start = vec!["one".into()];
    launch.session_setup = vec!["two".into()];
    launch.session_setup_script = Some("/setup".into());
    launch.overlays = vec!["/overlay".into()];
    launch.ready_delay = Some(Duration::from_millis(1500));
    launch.ready_prompt_prefix = Some("> ".into());
    launch.nudge = "hello".into();
    spec.launch = Arc::new(launch);
    spec.process_names = vec!["node".into()];
    spec.live = vec!["three".into()];
    let token = RunToken::new("run-1").unwrap();
    city.exec.start(token, Arc::new(spec)).await.unwrap();
    let json = fs::read(city.root.join("json")).unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let fields = json.as_object_mut().unwrap();
    fields.remove("env").unwrap();
    let want = serde_json::json!({
        "command": r"run 'it'\''s'",
        "work_dir": city.root.display().to_string(),
        "process_names": ["node"],
        "ready_prompt_prefix": "> ",
        "ready_delay_ms": 1500,
        "pre_start": ["one"],
        "session_setup": ["two"],
        "session_setup_script": "/setup",
        "session_live": ["three"],
        "pack_overlay_dirs": ["/overlay"],
    });
    assert_eq!(json, want);
}

#[tokio::test]
async fn files_are_copied_by_the_script_if_it_can() {
    let city = City::new(
        "cd \"$GC_CITY\"; case $op in start|stop) ;; is-running) echo true ;;
         copy-to) echo \"$@\" >>copied ;; *) exit 2 ;; esac",
    );
    city.start().await.unwrap();
    let file = city.root.join("file");
    fs::write(&file, "x").unwrap();
    let copied = city.exec.copy_to(name("a"), file.clone(), "to/it".into());
    assert_eq!(copied.await, Ok(1));
    let missing = city
        .exec
        .copy_to(name("a"), city.root.join("none"), "x".into());
    assert_eq!(missing.await, Ok(0), "nothing to copy");
    let said = fs::read_to_string(city.root.join("copied")).unwrap();
    assert_eq!(said, format!("copy-to a {} to/it\n", file.display()));
    let plain = City::new(MINIMAL);
    plain.start().await.unwrap();
    let copied = plain.exec.copy_to(name("a"), file, "to".into()).await;
    assert_eq!(copied, Ok(0), "one that does not know how copies nothing");
}

#[tokio::test]
async fn other_limits_hold_from_the_next_call_on() {
    let city = City::new(
        "case $op in start|stop) ;; is-running) echo true ;;
         peek) sleep 600 ;; *) exit 2 ;; esac",
    );
    city.start().await.unwrap();
    let limit = Duration::from_millis(50);
    city.exec.set_timeouts(limit, limit);
    let peeked = tokio::time::timeout(LIMIT, city.exec.peek(name("a"), 1)).await;
    assert_eq!(peeked.unwrap(), Err(SessionError::Timeout));
}
