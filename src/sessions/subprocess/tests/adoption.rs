//! Sessions outlive the provider that started them.

use gascity_actors::ports::Stopped;

use super::super::NoteFile;
use super::*;

/// A supervisor in a process of its own, to be killed.
struct Supervisor(process::Child);

/// Variables that turn the test `as_a_supervisor` into one.
const ROOT: &str = "GC_TEST_SUPERVISOR_ROOT";
const LINE: &str = "GC_TEST_SUPERVISOR_LINE";

impl Supervisor {
    /// Runs `line` as the session `a` of `city`.
    async fn start(city: &City, line: &str) -> Self {
        let this = "sessions::subprocess::tests::adoption::as_a_supervisor";
        let child = process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this])
            .env(ROOT, &city.root)
            .env(LINE, line)
            .stdout(process::Stdio::null())
            .spawn()
            .unwrap();
        let supervisor = Self(child);
        until("supervisor up", async || city.root.join("up").exists()).await;
        supervisor
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn as_a_supervisor() {
    let (Some(root), Ok(line)) = (std::env::var_os(ROOT), std::env::var(LINE)) else {
        return; // only of use as a process of its own
    };
    let root = PathBuf::from(root);
    let spec = StartSpec {
        session: session("a"),
        agent: AgentName::new("a").unwrap(),
        template: AgentName::new("a").unwrap(),
        generation: 1,
        launch: Arc::new(Launch {
            command: Command::Shell(line),
            work_dir: root.clone(),
            ..Launch::default()
        }),
        setup_timeout: std::time::Duration::from_secs(10),
        process_names: Vec::new(),
        live: Vec::new(),
        notes: BTreeMap::from([(Note::ConfigHash, "h".to_owned())]),
    };
    let provider = provider(root.clone());
    provider.start(token(), Arc::new(spec)).await.unwrap();
    fs::write(root.join("up"), "").unwrap();
    tokio::time::sleep(LIMIT).await;
}

fn leader(city: &City) -> i32 {
    let leaders = city.processes();
    leaders
        .iter()
        .find(|stat| stat.pid == stat.pgid)
        .unwrap()
        .pid
}

#[tokio::test]
async fn a_new_provider_in_the_same_process_takes_over() {
    let mut city = City::new();
    let (token, pid) = city.idle("a").await;
    let before = city.facts("a").await.unwrap();
    city.provider = provider(city.root.clone());
    let mut events = city.provider.subscribe();
    let after = city.facts("a").await.unwrap();
    assert_eq!(
        (after.token, after.pid, after.live),
        (token.clone(), before.pid, true)
    );
    assert_eq!(
        after.started_at.timestamp_millis(),
        before.started_at.timestamp_millis()
    );
    kill(pid);
    assert_eq!(next_exit(&mut events).await, (token, ExitStatus::Signal(9)));
}

#[tokio::test]
async fn an_agent_survives_its_supervisor_and_its_exit_is_seen() {
    let city = City::new();
    let line = "trap 'exit 7' TERM; while :; do sleep 1; done";
    Supervisor::start(&city, line).await.kill();
    let mut events = city.provider.subscribe();
    let facts = city.facts("a").await.unwrap();
    assert!(facts.live);
    assert_eq!(facts.notes[&Note::ConfigHash], "h");
    let pid = Pid::from_raw(leader(&city)).unwrap();
    assert_eq!(facts.pid, Some(pid.as_raw_nonzero().get().cast_unsigned()));
    rustix::process::kill_process_group(pid, Signal::TERM).unwrap();
    let (token, status) = next_exit(&mut events).await;
    assert_eq!(token, facts.token);
    // Exact where the kernel tells, and never something else.
    assert!(matches!(status, ExitStatus::Code(7) | ExitStatus::Unknown));
    assert!(!city.is_running("a").await);
}

#[tokio::test]
async fn an_exit_while_no_supervisor_ran_is_found_as_a_dead_session() {
    let city = City::new();
    Supervisor::start(&city, "sleep 1000").await.kill();
    let pid = leader(&city);
    kill(pid);
    until("gone", async || !is_alive(pid)).await;
    let facts = city.facts("a").await.unwrap();
    assert!(!facts.live);
    let (token, _) = city.idle("a").await;
    assert_eq!(city.facts("a").await.unwrap().token, token);
}

#[tokio::test]
async fn leftovers_of_a_run_that_died_unseen_do_not_double_with_its_successor() {
    let city = City::new();
    let line = "(set -m; sleep 1000 & setsid sleep 1000 & ) ; sleep 1000";
    Supervisor::start(&city, line).await.kill();
    let pid = leader_by_note(&city);
    until("children", async || city.processes().len() >= 4).await;
    kill(pid);
    until("gone", async || !is_alive(pid)).await;
    assert!(!city.is_running("a").await, "a child is not the leader");
    let (_, successor) = city.idle("a").await;
    let left: Vec<i32> = city.processes().iter().map(|stat| stat.pid).collect();
    assert_eq!(left, [successor]);
}

fn leader_by_note(city: &City) -> i32 {
    let note: NoteFile = serde_json::from_slice(&fs::read(city.note("a")).unwrap()).unwrap();
    note.pid
}

#[tokio::test]
async fn a_deleted_note_changes_no_answer() {
    let mut city = City::new();
    // Its children have groups and sessions of their own, but are not the leader.
    let line = "set -m; sleep 1000 & setsid sleep 1000 & wait";
    let (token, pid) = city.shell("a", line).await;
    until("children", async || city.processes().len() == 3).await;
    fs::remove_file(city.note("a")).unwrap();
    city.provider = provider(city.root.clone());
    let facts = city.facts("a").await.unwrap();
    assert_eq!((facts.token, facts.live), (token, true));
    assert_eq!(facts.pid, Some(pid.cast_unsigned()));
    assert_eq!(facts.agent.as_str(), "a");
    let spec = city.spec("a", words(&["true"]));
    assert!(city.start_spec(spec).await.is_err(), "still running");
    let stopped = city.provider.stop(session("a"), Fence::Any).await;
    assert!(matches!(stopped, Ok(Stopped::Clean | Stopped::Forced)));
    assert!(city.processes().is_empty());
}

#[tokio::test]
async fn a_forged_note_changes_no_answer_and_harms_nobody() {
    let mut city = City::new();
    let victims = City::new();
    let (_, victim) = victims.idle("v").await;
    let (token, pid) = city.idle("a").await;
    let mut note: NoteFile = serde_json::from_slice(&fs::read(city.note("a")).unwrap()).unwrap();
    note.pid = victim;
    note.start = proc::stat(victim).unwrap().unwrap().start;
    fs::write(city.note("a"), serde_json::to_vec(&note).unwrap()).unwrap();
    city.provider = provider(city.root.clone());
    let facts = city.facts("a").await.unwrap();
    assert_eq!(
        (facts.token, facts.pid, facts.live),
        (token, Some(pid.cast_unsigned()), true)
    );
    city.provider.stop(session("a"), Fence::Any).await.unwrap();
    assert!(!is_alive(pid) && is_alive(victim));
}

#[tokio::test]
async fn a_run_whose_note_was_never_written_is_found() {
    let mut city = City::new();
    let mut events = city.provider.subscribe();
    city.shell("a", "exit 0").await;
    next_exit(&mut events).await;
    let old = fs::read(city.note("a")).unwrap();
    let (token, pid) = city.idle("a").await;
    fs::write(city.note("a"), old).unwrap(); // as if killed between spawn and note
    city.provider = provider(city.root.clone());
    let facts = city.facts("a").await.unwrap();
    assert_eq!(
        (facts.token, facts.pid, facts.live),
        (token, Some(pid.cast_unsigned()), true)
    );
}

#[tokio::test]
async fn a_note_of_an_earlier_boot_means_a_dead_run() {
    let mut city = City::new();
    let (_, pid) = city.idle("a").await;
    let mut note: NoteFile = serde_json::from_slice(&fs::read(city.note("a")).unwrap()).unwrap();
    kill(pid);
    until("dead", async || !city.is_running("a").await).await;
    note.boot = "another".to_owned();
    note.pid = i32::try_from(process::id()).unwrap();
    fs::write(city.note("a"), serde_json::to_vec(&note).unwrap()).unwrap();
    city.provider = provider(city.root.clone());
    assert!(!city.facts("a").await.unwrap().live);
    let stopped = city.provider.stop(session("a"), Fence::Any).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
}

#[tokio::test]
async fn a_session_of_another_process_is_noticed_later_too() {
    let city = City::new();
    assert!(city.facts("a").await.is_none());
    let other = provider(city.root.clone());
    let spec = Arc::new(city.spec("a", words(&["sleep", "1000"])));
    let token = token();
    other.start(token.clone(), spec.clone()).await.unwrap();
    assert!(city.provider.start(super::token(), spec).await.is_err());
    assert_eq!(city.facts("a").await.unwrap().token, token);
    let stopped = city.provider.stop(session("a"), Fence::Token(token)).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
}

#[tokio::test]
async fn a_dropped_start_leaves_nothing_and_a_dropped_provider_ends_nothing() {
    let city = City::new();
    let spec = Arc::new(city.spec("a", words(&["sleep", "1000"])));
    let start = city.provider.start(token(), spec);
    drop(start);
    assert!(city.processes().is_empty());
    let other = provider(city.root.clone());
    let spec = Arc::new(city.spec("b", words(&["sleep", "1000"])));
    let pid = other.start(token(), spec).await.unwrap().pid.unwrap();
    drop(other);
    assert!(is_alive(pid.cast_signed()));
}

/// Row 38, in a pid namespace, where a number can be given out again.
#[tokio::test]
async fn a_number_that_was_given_out_again_is_nobody_of_ours() {
    const INSIDE: &str = "GC_TEST_PID_NAMESPACE";
    let unshare = |program: &std::ffi::OsStr, words: &[&str]| {
        let mut command = process::Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]);
        command.arg(program).args(words).env(INSIDE, "1").output()
    };
    if std::env::var_os(INSIDE).is_none() {
        let may = unshare(
            "sh".as_ref(),
            &["-c", "echo 300 >/proc/sys/kernel/ns_last_pid"],
        );
        if !may.is_ok_and(|done| done.status.success()) {
            println!("skipped: pid namespaces cannot be had here");
            return;
        }
        let path = module_path!().split_once("::").unwrap().1;
        let name = format!("{path}::a_number_that_was_given_out_again_is_nobody_of_ours");
        let exe = std::env::current_exe().unwrap();
        let done = unshare(exe.as_os_str(), &["--exact", &name, "--nocapture"]).unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && said.contains("1 passed"),
            "{done:?}"
        );
        return;
    }
    let mut city = City::new();
    let (_, pid) = city.idle("a").await;
    kill(pid);
    until("dead", async || !city.is_running("a").await).await;
    until("reaped", async || proc::stat(pid).unwrap().is_none()).await;
    // Threads take numbers too, so more than one try may be needed.
    let mut stranger = None;
    for _ in 0..100 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let mut child = process::Command::new("sleep").arg("1000").spawn().unwrap();
        if child.id().cast_signed() == pid {
            stranger = Some(child);
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut stranger = stranger.expect("the number again");
    city.provider = provider(city.root.clone());
    assert!(!city.facts("a").await.unwrap().live);
    let stopped = city.provider.stop(session("a"), Fence::Any).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
    assert_eq!(stranger.try_wait().unwrap(), None, "it was signalled");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
