//! Starting, listing, reading output, keeping notes.

use gascity_actors::model::FailureClass;
use gascity_actors::ports::{SessionError, StartError};

use super::*;

#[tokio::test]
async fn a_started_session_is_listed_with_the_kernels_facts() {
    let city = City::new();
    let (token, pid) = city.idle("a").await;
    let facts = city.facts("a").await.unwrap();
    assert!(facts.live);
    assert_eq!((facts.token, facts.pid), (token, Some(pid.cast_unsigned())));
    assert_eq!(facts.agent.as_str(), "a");
    assert!(facts.last_activity >= Some(facts.started_at));
    let stat = proc::stat(pid).unwrap().unwrap();
    let note = fs::read(city.note("a")).unwrap();
    let note: super::super::NoteFile = serde_json::from_slice(&note).unwrap();
    assert_eq!((note.pid, note.start), (pid, stat.start));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_concurrent_starts_exactly_one_wins() {
    let city = City::new();
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let spec = Arc::new(city.spec("a", words(&["sleep", "1000"])));
        let provider = city.provider.clone();
        starts.spawn(async move { provider.start(token(), spec).await });
    }
    let results = starts.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.into_iter().filter_map(Result::err) {
        let (owned, live) = (true, true);
        assert_eq!(error, StartError::Exists { owned, live });
    }
    assert_eq!(city.processes().len(), 1);
}

#[tokio::test]
async fn an_owned_dead_session_is_replaced() {
    let city = City::new();
    let (first, _) = city.shell("a", "exit 1").await;
    until("first run over", async || !city.is_running("a").await).await;
    let (second, pid) = city.idle("a").await;
    let facts = city.facts("a").await.unwrap();
    assert_ne!(first, second);
    assert_eq!(
        (facts.token, facts.pid, facts.live),
        (second, Some(pid.cast_unsigned()), true)
    );
}

#[tokio::test]
async fn a_live_session_of_another_city_is_listed_and_left_alone() {
    let (city, other) = (City::new(), City::new());
    let (_, pid) = other.idle("a").await;
    fs::create_dir_all(city.note("a").parent().unwrap()).unwrap();
    fs::copy(other.note("a"), city.note("a")).unwrap();

    let failure = city
        .start_spec(city.spec("a", words(&["true"])))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.stage, failure.class),
        ("session", FailureClass::Provider)
    );
    let listing = city.provider.snapshot().await.unwrap();
    assert_eq!(
        (listing.owned.len(), listing.foreign),
        (0, vec!["a".to_owned()])
    );
    let stopped = city.provider.stop(session("a"), Fence::Any).await.unwrap();
    assert_eq!(stopped, gascity_actors::ports::Stopped::Absent);
    assert!(is_alive(pid) && city.note("a").exists());
}

#[tokio::test]
async fn a_start_that_cannot_work_names_its_stage_and_leaves_nothing() {
    let city = City::new();
    let missing = city
        .start_spec(city.spec("a", words(&["no-such-program"])))
        .await;
    let missing = missing.unwrap_err();
    assert_eq!(
        (missing.stage, missing.class),
        ("spawn", FailureClass::Agent)
    );
    assert!(missing.detail.contains("no-such-program"), "{missing}");

    let launch = |work_dir: &str, value: &str| Launch {
        command: words(&["true"]),
        work_dir: work_dir.into(),
        env: BTreeMap::from([("KEY".to_owned(), value.to_owned())]),
        ..Launch::default()
    };
    let root = city.root.to_str().unwrap();
    let cases = [
        (launch("/no/such/dir", ""), "work_dir", "/no/such/dir"),
        (launch(root, "${GC_TEST_UNSET}"), "env", "GC_TEST_UNSET"),
    ];
    for (launch, stage, named) in cases {
        let mut spec = city.spec("a", Command::default());
        spec.launch = Arc::new(launch);
        let failure = city.start_spec(spec).await.unwrap_err();
        assert_eq!((failure.stage, failure.class), (stage, FailureClass::Agent));
        assert!(failure.detail.contains(named), "{failure}");
    }
    assert!(city.facts("a").await.is_none() && city.processes().is_empty());
}

#[tokio::test]
async fn a_missing_program_in_a_shell_is_exit_127() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let (token, _) = city.shell("a", "no-such-program; exit $?").await;
    assert_eq!(next_exit(&mut events).await, (token, ExitStatus::Code(127)));
    assert!(city.peek("a", 5).await.contains("no-such-program"));
}

#[tokio::test]
async fn long_commands_and_odd_values_arrive_unchanged() {
    let city = City::new();
    let odd = "' \" $$ ~ ; # % \\ \n end";
    let long = "v".repeat(64 << 10);
    let line = format!("sleep 1000 # {}", "c".repeat(100 << 10));
    let mut spec = city.spec("a", Command::Shell(line.clone()));
    let mut launch = (*spec.launch).clone();
    launch.env.insert("ODD".into(), odd.into());
    launch.env.insert("LONG".into(), long.clone());
    spec.launch = Arc::new(launch);
    let (_, started) = city.start_spec(spec).await.unwrap();
    let pid = started.pid.unwrap().cast_signed();

    let environ = Environ::of(pid).unwrap().unwrap();
    assert_eq!(environ.text("ODD"), Some(odd.replace("$$", "$").as_str()));
    assert_eq!(environ.text("LONG"), Some(long.as_str()));
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert_eq!(cmdline, format!("sh\0-c\0{line}\0").into_bytes());
}

#[tokio::test]
async fn the_environment_is_exactly_what_was_asked_for() {
    let mut city = City::new();
    let mut config = SubprocessConfig::new(
        city.root.clone(),
        CityName::new("test").unwrap(),
        "/opt/gc".into(),
    );
    config.home = Some("/home/gc".into());
    let runner = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("SECRET", "x")];
    let runner = runner.map(|(name, value)| (name.into(), value.into()));
    city.provider = Subprocess::with_runner_env(config, runner).unwrap();
    let mut spec = city.spec("a", words(&["sleep", "1000"]));
    spec.session = session("rig--a");
    spec.agent = AgentName::new("rig/a-2").unwrap();
    spec.template = AgentName::new("rig/a").unwrap();
    let mut launch = (*spec.launch).clone();
    launch.env.insert("MINE".into(), "${SECRET}".into());
    launch.env.insert("GC_AGENT".into(), "forged".into());
    launch.work_dir = city.root.join("new/dir");
    spec.launch = Arc::new(launch);
    let (token, started) = city.start_spec(spec).await.unwrap();
    let pid = started.pid.unwrap();

    let root = city.root.display();
    let mut want = [
        "GC_AGENT=rig/a-2".to_owned(),
        "GC_BIN=/opt/gc".to_owned(),
        format!("GC_CITY={root}"),
        "GC_CITY_NAME=test".to_owned(),
        format!("GC_CITY_RUNTIME_DIR={root}/.gc/runtime"),
        format!("GC_DIR={root}/new/dir"),
        "GC_HOME=/home/gc".to_owned(),
        format!("GC_SESSION_ID={token}"),
        "GC_SESSION_NAME=rig--a".to_owned(),
        "GC_TEMPLATE=rig/a".to_owned(),
        "LC_ALL=C".to_owned(),
        "MINE=x".to_owned(),
        format!("PATH={root}/.gc/bin:/usr/bin:/bin"),
    ];
    Environ::of(pid.cast_signed()).unwrap(); // waits until the program is loaded
    let environ = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let mut got: Vec<&str> = environ.split_terminator('\0').collect();
    got.sort_unstable();
    want.sort_unstable();
    assert_eq!(got, want);
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(cwd, city.root.join("new/dir"));
}

#[tokio::test]
async fn an_agent_is_one_process_with_private_files() {
    use std::os::unix::fs::PermissionsExt;
    let city = City::new();
    let (_, pid) = city.idle("a").await;
    let processes = city.processes();
    assert_eq!(processes.len(), 1);
    assert_eq!((processes[0].pid, processes[0].pgid), (pid, pid));
    // Of the files of gc, only the standard streams are inherited.
    let mut open: Vec<PathBuf> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| target.starts_with(&city.root))
        .collect();
    open.sort();
    let runtime = city.root.join(".gc/runtime");
    let want = ["logs/a.log", "logs/a.log", "sessions/a.in"].map(|file| runtime.join(file));
    assert_eq!(open, want);
    for file in ["sessions/a.json", "sessions/a.in", "logs/a.log"] {
        let meta = fs::metadata(city.root.join(".gc/runtime").join(file)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn standard_input_stays_open_or_is_empty_as_configured() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let (_, open) = city.launch("open", words(&["cat"])).await;
    let mut spec = city.spec("empty", words(&["cat"]));
    let mut launch = (*spec.launch).clone();
    launch.stdin = Stdin::Null;
    spec.launch = Arc::new(launch);
    let (token, _) = city.start_spec(spec).await.unwrap();
    assert_eq!(next_exit(&mut events).await, (token, ExitStatus::Code(0)));
    assert!(is_alive(open));
    // Any process may open the writing end.
    fs::write(city.root.join(".gc/runtime/sessions/open.in"), "hello\n").unwrap();
    until("echo", async || city.peek("open", 1).await == "hello").await;
}

#[tokio::test]
async fn peek_shows_the_last_lines_also_after_death() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    city.shell(
        "a",
        "seq 1 5000; printf 'bad \\377\\033[1mlast\\033[0m\\n\\n\\n'",
    )
    .await;
    next_exit(&mut events).await;
    assert_eq!(city.peek("a", 1).await, "bad \u{fffd}last");
    let fifty = city.peek("a", 50).await;
    assert_eq!(fifty.lines().count(), 50);
    assert!(fifty.starts_with("4952\n4953\n"), "{fifty}");
    assert_eq!(city.peek("a", 0).await.lines().count(), 5001);
    let absent = city.provider.peek(session("b"), 5).await;
    assert_eq!(absent, Err(SessionError::NotFound));
}

#[tokio::test]
async fn peek_shows_only_the_present_run() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    for word in ["one", "two"] {
        city.shell("a", &format!("echo {word}")).await;
        next_exit(&mut events).await;
        assert_eq!(city.peek("a", 10).await, word);
    }
    let again = provider(city.root.clone());
    assert_eq!(again.peek(session("a"), 10).await.unwrap(), "two");
}

#[tokio::test]
async fn notes_are_kept_per_run_and_die_with_it() {
    let city = City::new();
    let notes = async |name: &str| city.facts(name).await.unwrap().notes;
    let mut spec = city.spec("a", words(&["sleep", "1000"]));
    spec.notes = BTreeMap::from([(Note::Generation, "1".to_owned())]);
    let (token, _) = city.start_spec(spec).await.unwrap();
    city.idle("b").await;
    let fence = Fence::Token(token);
    let set = async |note, value: Option<&str>| {
        let value = value.map(str::to_owned);
        city.provider
            .set_note(session("a"), fence.clone(), note, value)
            .await
    };
    let bytes: String = (1..=127_u8).map(char::from).chain("ä€".chars()).collect();
    let long = "x".repeat(64 << 10);
    for value in ["", "plain", &bytes, &long] {
        set(Note::ConfigHash, Some(value)).await.unwrap();
        assert_eq!(notes("a").await[&Note::ConfigHash], value);
        let again = facts(&provider(city.root.clone()), "a").await.unwrap();
        assert_eq!(again.notes[&Note::ConfigHash], value);
        assert_eq!(again.notes[&Note::Generation], "1");
    }
    set(Note::ConfigHash, None).await.unwrap();
    assert_eq!(notes("a").await.get(&Note::ConfigHash), None);
    assert!(notes("b").await.is_empty());

    let stranger = Fence::Token(token_of_nobody());
    let wrong = city
        .provider
        .set_note(session("a"), stranger, Note::StopIntent, None)
        .await;
    assert_eq!(wrong, Err(SessionError::Fenced));
    let absent = city
        .provider
        .set_note(session("c"), Fence::Any, Note::StopIntent, None)
        .await;
    assert_eq!(absent, Err(SessionError::NotFound));
    city.provider.stop(session("a"), Fence::Any).await.unwrap();
    city.idle("a").await;
    assert!(notes("a").await.is_empty());
}

fn token_of_nobody() -> RunToken {
    RunToken::new("nobody").unwrap()
}

#[tokio::test]
async fn activity_follows_output_and_never_precedes_the_start() {
    let city = City::new();
    fs::create_dir_all(city.root.join(".gc/runtime/logs")).unwrap();
    let log = city.root.join(".gc/runtime/logs/a.log");
    fs::write(&log, "old\n").unwrap();
    let touch = |at| {
        let file = fs::File::options().append(true).open(&log).unwrap();
        file.set_modified(at).unwrap();
    };
    touch(std::time::SystemTime::UNIX_EPOCH);
    city.idle("a").await;
    let facts = city.facts("a").await.unwrap();
    assert_eq!(facts.last_activity, Some(facts.started_at));
    let later = std::time::SystemTime::now() + LIMIT;
    touch(later);
    let facts = city.facts("a").await.unwrap();
    assert_eq!(facts.last_activity, Some(later.into()));
}
