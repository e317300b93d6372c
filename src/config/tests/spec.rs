//! What a valid file means: specs, settings, revision, fingerprints.

use std::time::Duration;

use gascity_actors::model::{Command, OnDrift, PoolSpec, RestartType, Stdin, Strategy};

use super::*;

#[test]
fn unexpanded_references_load_as_they_are() {
    // Row 18, the part of the config.
    let agent = first_agent(&format!("{AGENT}env = {{ T = \"${{NOPE}}\" }}\n"));
    assert_eq!(agent.launch.env["T"], "${NOPE}");
}

#[test]
fn every_key_reaches_the_spec() {
    let city = loaded(
        r#"
        workspace = { name = "lights", suspended = true, start_command = "fallback", max_agents = 12 }
        [daemon]
        patrol_interval = "1s"
        max_restarts = 1
        restart_window = "2s"
        restart_delay = "3s"
        restart_delay_max = "4s"
        shutdown_timeout = "0"
        start_parallelism = 6
        stop_parallelism = 7
        crash_capture_lines = 8
        restart_strategy = "rest_for_one"
        persist_crash_history = true
        check_timeout = "13s"
        on_drift = "drain"
        drift_drain_timeout = "14s"
        drift_idle_after = "15s"
        [session]
        provider = "subprocess"
        startup_timeout = "9s"
        stdin = "null"
        log_bytes = 10
        log_keep = 11
        env_passthrough = ["PATH"]
        [[agent]]
        name = "one"
        [[agent]]
        name = "two"
        provider = "demo"
        args = ["--fail", "a b"]
        env = { A = "1" }
        work_dir = "./sub//dir/"
        stdin = "fifo"
        restart = "transient"
        max_restarts = 20
        restart_window = "21s"
        suspended = true
        description = "second"
        dir = "team"
        session_live = ["true"]
        process_names = ["node"]
        idle_timeout = "22s"
        depends_on = ["one"]
        restart_strategy = "one_for_all"
        on_drift = "report"
        [agent.pool]
        min = 2
        max = 23
        check = "echo 3"
        check_timeout = "24s"
        drain_timeout = "25s"
        on_boot = "begin"
        on_death = "death"
        "#,
    );
    let secs = Duration::from_secs;
    let spec = &city.spec;
    assert_eq!(
        (spec.name.as_str(), spec.suspended, spec.startup_timeout),
        ("lights", true, secs(9))
    );
    let daemon = &spec.daemon;
    assert_eq!(
        (
            daemon.patrol_interval,
            daemon.restart_delay,
            daemon.restart_delay_max,
            daemon.shutdown_timeout
        ),
        (secs(1), secs(3), secs(4), secs(0))
    );
    assert_eq!(
        (
            daemon.start_parallelism,
            daemon.stop_parallelism,
            daemon.crash_capture_lines
        ),
        (6, 7, 8)
    );
    assert_eq!(
        city.session,
        SessionSettings {
            provider: "subprocess".into(),
            stdin: Stdin::Null,
            log_bytes: 10,
            log_keep: 11,
            env_passthrough: vec!["PATH".into()],
            ..SessionSettings::default()
        }
    );
    let [one, two] = &spec.agents[..] else {
        panic!("{spec:#?}")
    };
    assert_eq!(one.launch.command, Command::Words(vec!["fallback".into()]));
    assert_eq!(
        (one.launch.stdin, one.restart),
        (Stdin::Null, RestartType::Permanent)
    );
    assert_eq!((one.limit.max_restarts, one.limit.window), (1, secs(2)));
    assert_eq!(one.launch.work_dir, spec.root);
    assert_eq!(
        two.launch.command,
        Command::Words(
            ["/opt/gc", "demo-agent", "--fail", "a b"]
                .map(String::from)
                .to_vec()
        )
    );
    assert_eq!(two.launch.work_dir, spec.root.join("sub/dir"));
    assert_eq!(
        (two.launch.stdin, two.restart, two.suspended),
        (Stdin::Fifo, RestartType::Transient, true)
    );
    assert_eq!((two.limit.max_restarts, two.limit.window), (20, secs(21)));
    assert_eq!(two.launch.env["A"], "1");
    assert_eq!(spec.max_agents, Some(12));
    assert_eq!(
        (
            daemon.check_timeout,
            daemon.drift_drain_timeout,
            daemon.drift_idle_after,
            daemon.persist_crash_history
        ),
        (secs(13), secs(14), secs(15), true)
    );
    assert_eq!(
        (one.strategy, one.on_drift, one.idle_timeout),
        (Strategy::RestForOne, OnDrift::Drain, None)
    );
    assert_eq!(
        (two.strategy, two.on_drift, two.idle_timeout),
        (Strategy::OneForAll, OnDrift::Report, Some(secs(22)))
    );
    assert_eq!(
        (&two.live[..], &two.process_names[..]),
        (&["true".to_owned()][..], &["node".to_owned()][..])
    );
    assert_eq!(
        (two.name.as_str(), &two.depends_on[..]),
        ("team/two", &[one.name.clone()][..])
    );
    assert_eq!(
        two.pool.as_deref(),
        Some(&PoolSpec {
            min: 2,
            max: Some(23),
            check: Some("echo 3".into()),
            dir: spec.root.clone(),
            check_timeout: secs(24),
            drain_timeout: Some(secs(25)),
            on_boot: Some("begin".into()),
            on_death: Some("death".into()),
            names: Vec::new(),
        })
    );
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let (mut text, mut plain) = (String::new(), String::new());
    for section in keys::FILES[0].sections() {
        let header = match section.header {
            "[[agent]]" => AGENT.to_owned(),
            "[[rigs]]" => "[[rigs]]\nname = 'r'\npath = '/'\n".to_owned(),
            header if section.edits || header.contains('<') => continue,
            header => format!("{header}\n"),
        };
        for text in [&mut text, &mut plain] {
            text.push_str(&header);
        }
        for key in section.keys.iter().filter(|key| !key.default.is_empty()) {
            text.push_str(&format!("{} = {}\n", key.name, key.default));
        }
    }
    let (_dir, root) = city(&text);
    let documented = load(&root).unwrap_or_else(|error| panic!("{error}"));
    fs::write(root.join(FILE), plain).expect("written");
    let plain = load(&root).expect("valid");
    let revision = plain.spec.revision.clone();
    assert_eq!(
        CitySpec {
            revision,
            ..(*documented.spec).clone()
        },
        *plain.spec
    );
    assert_eq!(documented.session, plain.session);
}

#[test]
fn the_command_of_an_agent_goes_before_its_preset_and_the_citys() {
    let city = loaded(
        "[workspace]\nprovider = 'demo'\nstart_command = 'city'\n[[agent]]\nname = 'a'\nprovider = 'demo'\nstart_command = 'own'\n[[agent]]\nname = 'b'\n",
    );
    assert_eq!(city.spec.agents[0].launch.command.to_string(), "own");
    assert_eq!(
        city.spec.agents[1].launch.command.to_string(),
        "/opt/gc demo-agent"
    );
    assert_eq!(
        places(&city.warnings),
        ["ignored-key 6:12 agent[0].provider"]
    );
}

#[test]
fn the_revision_is_that_of_the_bytes_and_the_mode() {
    let (_dir, root) = city("[workspace]\nname = \"x\"\n");
    let revision = || load(&root).expect("valid").spec.revision.clone();
    let plain = revision();
    assert_eq!(
        plain,
        "41ab576a565eb9f3ba0b57ada3ecf71bb0ea182ccbad6390244dad8315d578c8"
    );
    fs::write(root.join(FILE), "[workspace]\nname = \"x\"\n").expect("written");
    assert_eq!(revision(), plain, "written again without a change");
    fs::set_permissions(root.join(FILE), fs::Permissions::from_mode(0o755)).expect("set");
    assert_ne!(revision(), plain);
}

#[test]
fn a_fingerprint_has_the_parts_that_need_a_new_run() {
    let keys = |text: &str| {
        first_agent(text)
            .fingerprint
            .fields
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(AGENT),
        ["command", "prompt.mode", "session.provider", "work_dir"]
    );
    let with = format!("[session]\nstdin = 'fifo'\n{AGENT}env = {{ A = '1' }}\n");
    assert_eq!(
        keys(&with),
        [
            "command",
            "env.A",
            "prompt.mode",
            "session.provider",
            "stdin",
            "work_dir"
        ]
    );
}

#[test]
fn a_fingerprint_follows_the_published_encoding() {
    let (_dir, root) = city(
        "[[agent]]\nname = 'a'\nstart_command = \"sh -c 'sleep 60'\"\nwork_dir = '/c'\nenv = { B = '${TOKEN}', A = '1' }\n",
    );
    let parts = [
        ("command", "sh -c 'sleep 60'"),
        ("env.A", "1"),
        ("env.B", "${TOKEN}"),
        ("prompt.mode", "none"),
        ("session.provider", "auto"),
        ("work_dir", "/c"),
    ];
    let expected = gascity_actors::model::canonical_hash("gc-fingerprint-v1", parts);
    assert_eq!(
        load(&root).expect("valid").spec.agents[0].fingerprint.hash,
        format!("v1:{expected}")
    );
}

#[test]
fn only_the_agent_that_changed_drifts_and_names_the_variable() {
    let (_dir, root) = city("");
    let agents = |value: &str, rest: &str| {
        let other = AGENT.replace("\"a\"", "\"b\"");
        fs::write(
            root.join(FILE),
            format!("{rest}{AGENT}env = {{ A = '{value}' }}\n{other}"),
        )
        .expect("written");
        load(&root).expect("valid").spec.agents.clone()
    };
    let (old, new) = (agents("1", ""), agents("2", ""));
    assert_eq!(
        new[0].fingerprint.differing_keys(&old[0].fingerprint),
        ["env.A"]
    );
    assert_eq!(new[1].fingerprint, old[1].fingerprint);
    let hot = agents(
        "1",
        "[daemon]\nmax_restarts = 9\n[session]\nlog_keep = 1\nprovider = ''\n",
    );
    assert_eq!(hot[0].fingerprint, old[0].fingerprint);
}

#[test]
fn another_gc_binary_is_no_drift() {
    let (_dir, root) = city("[[agent]]\nname = 'a'\nprovider = 'demo'\n");
    let load = |exe| {
        Loader::new(&root)
            .gc_exe(exe)
            .load()
            .expect("valid")
            .spec
            .agents[0]
            .clone()
    };
    let (old, new) = (load("/old/gc"), load("/new/gc"));
    assert_eq!(old.fingerprint, new.fingerprint);
    assert_ne!(old.launch.command, new.launch.command);
}

#[test]
fn supervision_keys_never_change_a_fingerprint() {
    let (_dir, root) = city("");
    let agent = |hot: &str| {
        let text = format!("{AGENT}{hot}\n[[agent]]\nname = 'db'\nstart_command = 'x'\n");
        fs::write(root.join(FILE), text).expect("written");
        let city = load(&root).unwrap_or_else(|error| panic!("{error}"));
        city.spec.agents[0].clone()
    };
    let plain = agent("");
    for hot in [
        "idle_timeout = '5m'",
        "depends_on = ['db']",
        "process_names = ['node']",
        "restart = 'transient'",
        "max_restarts = 1\nrestart_window = '1s'",
        "restart_strategy = 'one_for_all'",
        "on_drift = 'idle'",
        "suspended = true",
        "pool = { max = 3, check = 'echo 1', drain_timeout = '1s' }",
        "pool = { max = 4, on_boot = 'x', on_death = 'y', check_timeout = '1s' }",
    ] {
        let changed = agent(hot);
        assert_ne!(changed, plain, "{hot}");
        assert_eq!(changed.fingerprint, plain.fingerprint, "{hot}");
        assert_eq!(changed.live_hash(), plain.live_hash(), "{hot}");
    }
}

#[test]
fn live_lines_change_the_live_hash_alone() {
    let with =
        |lines: &str| first_agent(&format!("{AGENT}work_dir = '/c'\nsession_live = {lines}\n"));
    let (one, two) = (with("['a']"), with("['a', 'b']"));
    assert_eq!(one.fingerprint, two.fingerprint);
    assert_ne!(one.live_hash(), two.live_hash());
    assert_eq!(with("[]").live_hash(), "");
}
