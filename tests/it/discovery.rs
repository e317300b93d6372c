//! Which city is meant, and what still works while nobody runs.

use std::fs;

use rustix::process::Signal;

use crate::util::{Place, QUIET, Said, eventually, is_alive, kill, sleeper};

#[test]
fn a_city_is_found_from_below_by_path_by_name_and_by_environment() {
    let place = Place::new();
    let city = place.city("town", "");
    let deep = city.join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let elsewhere = place.path("else");
    fs::create_dir_all(&elsewhere).unwrap();
    let found = |said: Said| assert_eq!(said.ok().json()["path"], city.to_str().unwrap());
    found(place.gc(&deep, &["status", "--json"]));
    found(place.gc(&elsewhere, &["status", "--json", "../town"]));
    let mut env = place.command(&elsewhere, &["status", "--json"]);
    found(Said::by(env.env("GC_CITY", &city)));
    place.gc(&elsewhere, &["status", "town"]).fails(1); // not registered, no such directory
    place.gc(&city, &["start"]).ok();
    found(place.gc(&elsewhere, &["status", "--json", "town"]));
    found(place.gc(&elsewhere, &["--city", "town", "status", "--json"]));
    let sole = place.gc(&elsewhere, &["status"]).ok();
    assert!(
        sole.err.contains("using town, the only registered city"),
        "{sole:?}"
    );
    // Guessing is for looking only.
    let said = place.gc(&elsewhere, &["stop"]).fails(1);
    assert!(
        said.err.contains("hint: create one with gc init"),
        "{said:?}"
    );
    let two = place
        .gc(&city, &["--city", "town", "status", ".."])
        .fails(2);
    assert!(two.err.contains("two cities"), "{two:?}");
    place.gc(&elsewhere, &["stop", "town"]).ok();
}

// C5
#[test]
fn a_slip_of_the_finger_is_answered_and_never_run() {
    let place = Place::new();
    let city = place.city("bright-lights", &sleeper("a"));
    let here = place.path("");
    for (args, code, hint) in [
        (vec!["statsu"], 2, "hint: did you mean `status`?"),
        (vec!["strat"], 2, "hint: did you mean `start`?"),
        (
            vec!["supervisor", "strat"],
            2,
            "hint: did you mean `start`?",
        ),
        (vec!["stop", "--forec"], 2, "--force"),
        (vec!["help", "evnets"], 2, "did you mean `events`?"),
        (vec!["frobnicate"], 2, "hint: gc --help"),
    ] {
        let said = place.gc(&here, &args).fails(code);
        assert!(said.err.contains(hint), "{args:?}: {said:?}");
        assert_eq!(said.out, "");
    }
    assert_eq!(place.processes(), [0_i32; 0]);
    place.gc(&city, &["start"]).ok();
    let said = place.gc(&here, &["status", "bright-lihgts"]).fails(1);
    assert!(
        said.err.contains("did you mean `bright-lights`?"),
        "{said:?}"
    );
}

// C10
#[test]
fn while_nobody_runs_files_answer() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    place.gc(&city, &["supervisor", "stop"]).ok();
    let status = place.status(&city);
    assert_eq!(status["source"], "files");
    assert_eq!(status["controller"]["running"], false);
    place.gc(&city, &["status", "--check"]).fails(1);
    let cities = place.gc(&city, &["cities", "--json"]).ok().json();
    assert_eq!(
        (&cities["total"], &cities["items"][0]["name"]),
        (&1.into(), &"town".into())
    );
    let rows = place.gc(&city, &["cities"]).ok().out;
    assert!(rows.lines().nth(1).unwrap().ends_with('-'), "{rows}");
    assert!(
        place
            .gc(&city, &["events"])
            .ok()
            .out
            .contains("agent.started")
    );
    let said = place.gc(&city, &["actors", "tree"]).fails(1);
    assert_eq!(
        said.err,
        "gc actors tree: supervisor is not running\nhint: gc start\n"
    );
    place.gc(&city, &["unregister"]).ok();
    assert_eq!(
        place.gc(&city, &["cities", "--json"]).ok().json()["total"],
        0
    );
}

#[test]
fn a_stop_without_a_supervisor_ends_the_agents_it_left() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    place
        .gc(&city, &["supervisor", "stop", "--keep-agents"])
        .ok();
    assert_eq!(place.processes().len(), 1);
    place.gc(&city, &["stop"]).ok();
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[test]
fn after_the_supervisor_was_killed_the_status_tells_which_agents_still_run() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    place.gc(&city, &["start"]).ok();
    let (a, b) = (
        place.pid(&city, "a").unwrap(),
        place.pid(&city, "b").unwrap(),
    );
    let supervisor = place.supervisor_pid();
    for pid in [supervisor, b] {
        kill(pid, Signal::KILL);
        eventually("its end", || (!is_alive(pid)).then_some(()));
    }
    let status = place.status(&city);
    assert_eq!(status["source"], "files");
    assert_eq!(status["controller"]["running"], false);
    assert_eq!(status["running"], false);
    let find = |name: &str| place.instance(&city, name);
    assert_eq!(
        (&find("a")["state"], &find("a")["pid"]),
        (&"running".into(), &a.into())
    );
    assert_eq!(find("b")["running"], false);
    let said = place.gc(&city, &["status"]).ok();
    assert!(said.out.contains("Controller  not running"), "{said:?}");
    assert!(said.out.contains("1 running, 1 stopped"), "{said:?}");
    assert_eq!(said.err, "hint: gc start\n");
    place.gc(&city, &["status", "--check"]).fails(1);
    place.gc(&city, &["start"]).ok();
    assert_eq!(
        place.pid(&city, "a"),
        Some(a),
        "and that hint takes it over"
    );
}
