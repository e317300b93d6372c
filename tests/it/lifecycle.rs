//! What a new user sees: init, start, kill, status, stop.

use std::fs;

use rustix::process::Signal;

use crate::util::{Place, QUIET, count, events, eventually, is_alive, kill, sleeper};

// C13
#[test]
fn a_demo_city_starts_survives_a_kill_and_stops_without_a_trace() {
    let place = Place::new();
    let here = place.path("");
    place.gc(&here, &["init", "demo-city"]).ok();
    let city = place.path("demo-city");
    let toml = fs::read_to_string(city.join("city.toml")).unwrap();
    fs::write(
        city.join("city.toml"),
        toml.replace("patrol_interval = \"30s\"", "patrol_interval = \"1h\""),
    )
    .unwrap();
    let started = place.gc(&city, &["start"]).ok();
    assert!(started.out.contains("is up"), "{started:?}");
    let status = place.status(&city);
    let agents = status["instances"].as_array().unwrap().clone();
    assert!(!agents.is_empty());
    assert!(
        agents.iter().all(|agent| agent["state"] == "running"),
        "{status}"
    );
    let victim = agents[0]["qualified_name"].as_str().unwrap().to_owned();
    let before = place.pid(&city, &victim).unwrap();
    kill(before, Signal::KILL);
    let after = place.replacement(&city, &victim, before);
    assert_eq!(count(&city, "agent.crashed", &victim), 1);
    assert_eq!(count(&city, "agent.started", &victim), 2);
    let tree = place.gc(&city, &["actors", "tree"]).ok().out;
    for word in ["machine", "demo-city", "tracker", &victim, "worker", "1/5"] {
        assert!(tree.contains(word), "{word} in\n{tree}");
    }
    place.gc(&city, &["stop"]).ok();
    assert!(!is_alive(after));
    let supervisor = place.supervisor_pid();
    assert_eq!(
        place.processes(),
        [supervisor],
        "nothing but the supervisor is left"
    );
    place.gc(&city, &["supervisor", "stop"]).ok();
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[test]
fn after_a_killed_supervisor_the_same_agents_are_adopted() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    place.gc(&city, &["start"]).ok();
    let pids = ["a", "b"].map(|agent| place.pid(&city, agent).unwrap());
    let supervisor = place.supervisor_pid();
    kill(supervisor, Signal::KILL);
    eventually("the supervisor's end", || {
        (!is_alive(supervisor)).then_some(())
    });
    assert!(pids.iter().all(|pid| is_alive(*pid)), "agents outlive it");
    place.gc(&city, &["start"]).ok();
    assert_ne!(place.supervisor_pid(), supervisor);
    assert_eq!(
        ["a", "b"].map(|agent| place.pid(&city, agent).unwrap()),
        pids
    );
    for agent in ["a", "b"] {
        assert_eq!(count(&city, "agent.started", agent), 1, "no second start");
        assert_eq!(count(&city, "agent.adopted", agent), 1);
    }
    // An adopted agent is watched like any other.
    kill(pids[0], Signal::KILL);
    place.replacement(&city, "a", pids[0]);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_crash_loop_is_started_three_times_and_quarantined_once() {
    let place = Place::new();
    let agent = "[[agent]]\nname = \"loops\"\nstart_command = \"echo no such model; exit 1\"\nmax_restarts = 3\n";
    let fast = "[daemon]\nrestart_delay = \"10ms\"\n";
    let city = place.city("town", &format!("{fast}{agent}{}", sleeper("fine")));
    place.gc(&city, &["start"]); // says that an agent is in trouble
    eventually("the quarantine", || {
        (count(&city, "agent.quarantined", "loops") > 0).then_some(())
    });
    let loops = place.instance(&city, "loops");
    assert_eq!(loops["state"], "quarantined");
    assert_eq!(
        (
            loops["restarts_in_window"].as_u64(),
            loops["max_restarts"].as_u64()
        ),
        (Some(3), Some(3))
    );
    let until = loops["quarantined_until"].as_str().unwrap();
    let quarantined = events(&city)
        .into_iter()
        .find(|e| e["type"] == "agent.quarantined")
        .unwrap();
    assert_eq!(quarantined["payload"]["until"], until);
    let text = place.gc(&city, &["status"]).ok().out;
    for word in ["quarantined", "3/3", "until", "exit 1: no such model"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert_eq!(count(&city, "agent.started", "loops"), 3);
    assert_eq!(count(&city, "agent.crashed", "loops"), 3);
    assert_eq!(count(&city, "agent.quarantined", "loops"), 1);
    assert_eq!(place.instance(&city, "fine")["state"], "running");
    place.gc(&city, &["status", "--check"]).fails(1);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn two_cities_share_a_supervisor_and_a_panic_in_one_leaves_the_other_alone() {
    let place = Place::with_faults();
    let a = place.city("a", &format!("{QUIET}{}", sleeper("w")));
    let b = place.city("b", &format!("{QUIET}{}", sleeper("w")));
    place.gc(&a, &["start"]).ok();
    place.gc(&b, &["start"]).ok();
    let pids = [&a, &b].map(|city| place.pid(city, "w").unwrap());
    let events_b = events(&b).len();
    place.gc(&a, &["actors", "crash", "a"]).ok();
    eventually("the crash", || {
        (count(&a, "city.crashed", "a") == 1).then_some(())
    });
    eventually("the return", || {
        (count(&a, "agent.adopted", "w") == 1).then_some(())
    });
    assert_eq!(place.pid(&a, "w"), Some(pids[0]));
    assert_eq!(count(&a, "agent.started", "w"), 1);
    assert_eq!(place.pid(&b, "w"), Some(pids[1]));
    assert_eq!(events(&b).len(), events_b, "the other city noticed nothing");
    let rows = place.gc(&a, &["cities"]).ok().out;
    assert!(rows.contains("a ") && rows.contains("b "), "{rows}");
    place.gc(&a, &["stop"]).ok();
    assert!(is_alive(pids[1]));
    place.gc(&b, &["stop"]).ok();
}

#[test]
fn fault_drills_are_denied_unless_the_supervisor_allows_them() {
    let place = Place::new();
    let city = place.city("a", &sleeper("w"));
    place.gc(&city, &["start"]).ok();
    let said = place.gc(&city, &["actors", "crash", "a"]).fails(1);
    assert!(
        said.err.contains("denied") && said.err.contains("GC_ALLOW_FAULTS"),
        "{said:?}"
    );
    assert_eq!(count(&city, "city.crashed", "a"), 0);
    place.gc(&city, &["stop"]).ok();
}

// C19
#[test]
fn a_broken_config_is_shown_with_its_line_and_nothing_changes() {
    let place = Place::new();
    let broken =
        "[daemon]\nmax_restart = 3\n\n[[agent]]\nname = \"w\"\nstart_command = \"sleep 1\"\n";
    let city = place.city("broken", broken);
    let said = place.gc(&city, &["start"]).fails(1);
    for part in [
        "unknown-key",
        "city.toml:2:1",
        "max_restart = 3",
        "^^^^^^^^^^^",
        "did you mean `max_restarts`?",
    ] {
        assert!(said.err.contains(part), "{part} in\n{}", said.err);
    }
    let left: Vec<_> = fs::read_dir(&city)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["city.toml"], "no state was made");
    assert_eq!(fs::read_to_string(city.join("city.toml")).unwrap(), broken);
    let registry = fs::read_to_string(place.home().join("cities.toml")).unwrap_or_default();
    assert!(!registry.contains("broken"), "{registry}");
    let json = place.gc(&city, &["start", "--json"]).fails(1);
    assert_eq!(json.out, "");
    let error: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!(
        (&error["code"], &error["exit"]),
        (&"config".into(), &1.into())
    );
}

// C19
#[test]
fn an_edit_is_applied_live_and_a_broken_one_keeps_the_old_config() {
    // Row 33 of config.md.
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let pid = place.pid(&city, "a").unwrap();
    let file = city.join("city.toml");
    fs::write(&file, format!("{QUIET}{}{}", sleeper("a"), sleeper("b"))).unwrap();
    eventually("the added agent", || place.pid(&city, "b"));
    assert_eq!(place.pid(&city, "a"), Some(pid));
    fs::write(&file, "[daemon]\npatrol_interval = 30\n").unwrap();
    eventually("the refusal", || {
        (place.status(&city)["config"]["state"] == "stale").then_some(())
    });
    let text = place.gc(&city, &["status"]).ok().out;
    for part in ["not in force", "city.toml:2:19"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!(place.pid(&city, "a"), Some(pid));
    fs::write(&file, format!("{QUIET}{}", sleeper("b"))).unwrap();
    eventually("the removal", || (!is_alive(pid)).then_some(()));
    eventually("the config in force", || {
        (place.status(&city)["config"]["state"] == "ok").then_some(())
    });
    place.gc(&city, &["stop"]).ok();
}

// C3
#[test]
fn starting_twice_and_at_once_gives_one_supervisor_and_one_registration() {
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| place.gc(&city, &["start"]).ok());
        }
    });
    place.gc(&city, &["start"]).ok();
    let registry = fs::read_to_string(place.home().join("cities.toml")).unwrap();
    assert_eq!(registry.matches("[[cities]]").count(), 1, "{registry}");
    assert_eq!(count(&city, "agent.started", "a"), 1);
    let said = place.gc(&city, &["supervisor", "start"]).fails(1);
    assert!(
        said.err.contains(&place.supervisor_pid().to_string()),
        "{said:?}"
    );
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn an_agent_that_ignores_the_interrupt_is_killed_and_named() {
    let place = Place::new();
    let toml = "[daemon]\nshutdown_timeout = \"300ms\"\n[[agent]]\nname = \"stubborn\"\nprovider = \"demo\"\nargs = [\"--ignore-interrupt\"]\n";
    let city = place.city("town", &format!("{toml}{}", sleeper("polite")));
    place.gc(&city, &["start"]).ok();
    let log = city.join(".gc/runtime/logs/stubborn.log");
    eventually("its first words", || {
        fs::metadata(&log).ok().filter(|meta| meta.len() > 0)
    });
    let said = place.gc(&city, &["stop", "--json"]).ok();
    assert_eq!(said.json()["killed"], serde_json::json!(["stubborn"]));
    assert_eq!(count(&city, "agent.stopped", "polite"), 1);
}

#[test]
fn a_standalone_city_runs_without_a_supervisor() {
    let place = Place::new();
    let city = place.city("alone", &format!("{QUIET}{}", sleeper("a")));
    let mut running = place
        .command(&city, &["start", "--standalone"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = place.awaited_pid(&city, "a");
    let refused = place.gc(&city, &["register"]).fails(1);
    assert!(
        refused.err.contains(&running.id().to_string()),
        "{refused:?}"
    );
    place.gc(&city, &["stop"]).ok();
    assert!(running.wait().unwrap().success());
    assert!(!is_alive(pid));
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[test]
fn a_stop_signal_stops_the_agents_and_detach_leaves_them() {
    for (args, survives) in [(vec![], false), (vec!["--on-sigterm", "detach"], true)] {
        let place = Place::new();
        let city = place.city("town", &sleeper("a"));
        place.gc(&city, &["register", "--no-wait"]); // may start a supervisor of its own
        let _ = place.gc(&city, &["supervisor", "stop", "--force"]);
        let args = [vec!["supervisor", "run"], args].concat();
        let mut supervisor = place
            .command(&city, &args)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = place.awaited_pid(&city, "a");
        kill(i32::try_from(supervisor.id()).unwrap(), Signal::TERM);
        assert!(supervisor.wait().unwrap().success());
        assert_eq!(is_alive(pid), survives);
    }
}
