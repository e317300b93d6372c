//! `gc agent …` as people and agents use it.

mod hold;
mod inside;
mod logs;
mod offline;
mod talk;
mod why;

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Place, count, eventually, is_alive, kill};

pub(crate) const QUIET: &str = "[daemon]\npatrol_interval = \"1h\"\nshutdown_timeout = \"1s\"\n";
pub(crate) const HASTY: &str =
    "[daemon]\npatrol_interval = \"1h\"\nrestart_delay = \"10ms\"\nshutdown_timeout = \"1s\"\n";

pub(crate) fn sleeper(name: &str) -> String {
    format!("[[agent]]\nname = \"{name}\"\nstart_command = \"exec sleep 600\"\n")
}

pub(crate) fn looper(name: &str) -> String {
    format!(
        "[[agent]]\nname = \"{name}\"\nstart_command = \"echo no such model; exit 1\"\nmax_restarts = 2\n"
    )
}

/// A city that is up with these agents.
pub(crate) fn up(place: &Place, toml: &str) -> PathBuf {
    let city = place.city("town", toml);
    let _ = place.gc(&city, &["start"]); // agents in trouble fail it
    city
}

/// The error object of a failed `--json` command, whose stdout is one document or nothing.
#[track_caller]
pub(crate) fn refusal(place: &Place, city: &Path, args: &[&str], exit: i32) -> Value {
    let args = [args, &["--json"]].concat();
    let said = place.gc(city, &args).fails(exit);
    if !said.out.is_empty() {
        let _: Value = said.json();
    }
    let error: Value =
        serde_json::from_str(said.err.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!(error["exit"], exit);
    error
}

fn quarantined(place: &Place, city: &Path, agent: &str) -> Value {
    eventually("the quarantine", || {
        Some(place.instance(city, agent)).filter(|i| i["state"] == "quarantined")
    })
}

#[test]
fn agents_are_listed_and_filtered() {
    let place = Place::new();
    let city = up(
        &place,
        &format!("{HASTY}{}{}", sleeper("fine"), looper("loops")),
    );
    quarantined(&place, &city, "loops");
    let text = place.gc(&city, &["agent", "list"]).ok().out;
    assert!(text.starts_with("NAME"), "{text}");
    for word in [
        "fine",
        "running",
        "loops",
        "quarantined",
        "2/2",
        "no such model",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    let wide = place.gc(&city, &["agent", "list", "--wide"]).ok().out;
    assert!(wide.contains("SESSION") && wide.contains("PID"), "{wide}");
    let all = place.gc(&city, &["agent", "list", "--json"]).ok().json();
    assert_eq!((&all["total"], &all["source"]), (&2.into(), &"live".into()));
    let running = place.gc(&city, &["agent", "list", "--state", "running", "--json"]);
    assert_eq!(running.ok().json()["items"][0]["qualified_name"], "fine");
    let none = place.gc(&city, &["agent", "list", "--state", "done"]).ok();
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", "no agents\n"));
    let error = refusal(&place, &city, &["agent", "list", "--state", "runing"], 2);
    assert!(
        error["hint"].as_str().unwrap().contains("running"),
        "{error}"
    );
    // Older names of the same commands.
    let session = place.gc(&city, &["session", "list", "--json"]).ok().json();
    assert_eq!(session["total"], 2);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_restart_is_planned_and_waited_for() {
    let place = Place::new();
    let city = up(&place, &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    let before = place.pid(&city, "a").unwrap();
    let said = place
        .gc(&city, &["agent", "restart", "a", "--json"])
        .ok()
        .json();
    assert_eq!(said["items"][0]["ok"], true, "{said}");
    assert_eq!(said["items"][0]["state"], "running");
    let after = place.pid(&city, "a").unwrap();
    assert_ne!(before, after);
    assert!(!is_alive(before) && is_alive(after));
    assert_eq!(count(&city, "agent.crashed", "a"), 0);
    assert_eq!(count(&city, "agent.stopped", "a"), 1);
    assert_eq!(place.instance(&city, "a")["restarts_in_window"], 0);
    // Several at once, all are attempted, one of them fails.
    let said = place
        .gc(&city, &["agent", "restart", "a", "b", "wroker", "-y"])
        .fails(1);
    assert!(
        said.out.contains("a: restarted") && said.out.contains("b: restarted"),
        "{said:?}"
    );
    assert!(
        said.err.contains("1 of 3 agents") && said.err.contains("wroker"),
        "{said:?}"
    );
    place
        .gc(&city, &["agent", "restart", "--all", "-y", "--no-wait"])
        .ok();
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn names_are_found_suggested_or_ambiguous() {
    let place = Place::new();
    for rig in ["x", "y"] {
        std::fs::create_dir_all(place.path("town").join(rig)).unwrap();
    }
    let in_rig = |rig: &str, name: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\ndir = \"{rig}\"\nstart_command = \"exec sleep 600\"\n"
        )
    };
    let rigs = "[[rigs]]\nname = \"x\"\npath = \"x\"\n[[rigs]]\nname = \"y\"\npath = \"y\"\n";
    let agents = [
        in_rig("x", "w"),
        in_rig("y", "w"),
        in_rig("x", "lone"),
        sleeper("worker"),
    ];
    let city = up(&place, &format!("{QUIET}{rigs}{}", agents.concat()));
    let error = refusal(&place, &city, &["agent", "show", "wroker"], 1);
    assert_eq!(error["code"], "not_found");
    assert!(
        error["hint"].as_str().unwrap().contains("`worker`"),
        "{error}"
    );
    let error = refusal(&place, &city, &["agent", "show", "w"], 1);
    assert_eq!(error["code"], "ambiguous");
    assert!(
        error["error"].as_str().unwrap().contains("x/w\ny/w"),
        "{error}"
    );
    let shown = place
        .gc(&city, &["agent", "show", "lone", "--json"])
        .ok()
        .json();
    assert_eq!(shown["qualified_name"], "x/lone");
    let mut in_y = place.command(&city, &["agent", "show", "w", "--json"]);
    let said = in_y.env("GC_RIG", "y").output().unwrap();
    let shown: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(shown["qualified_name"], "y/w");
    place.gc(&city, &["stop"]).ok();
}

// C22
#[test]
fn several_are_not_killed_unless_somebody_says_yes() {
    let place = Place::new();
    let city = up(
        &place,
        &format!("{QUIET}{}{}", sleeper("w-1x"), sleeper("w-2x")),
    );
    let pids = ["w-1x", "w-2x"].map(|agent| place.pid(&city, agent).unwrap());
    for verb in ["kill", "restart", "drain", "suspend"] {
        let error = refusal(&place, &city, &["agent", verb, "w-*"], 2);
        assert_eq!(error["code"], "usage");
        assert_eq!(error["hint"], "add -y");
    }
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    assert_eq!(
        ["w-1x", "w-2x"].map(|agent| place.pid(&city, agent).unwrap()),
        pids
    );
    place.gc(&city, &["agent", "kill", "w-*", "-y"]).ok();
    for (agent, pid) in ["w-1x", "w-2x"].into_iter().zip(pids) {
        eventually("a replacement", || {
            place
                .pid(&city, agent)
                .filter(|new| *new != pid && is_alive(*new))
        });
        assert!(!is_alive(pid));
        // Not charged, and no crash.
        assert_eq!(place.instance(&city, agent)["restarts_in_window"], 0);
        assert_eq!(count(&city, "agent.crashed", agent), 0);
        assert_eq!(count(&city, "agent.stopped", agent), 1);
    }
    place.gc(&city, &["stop"]).ok();
}

// C14
#[test]
fn a_quarantined_agent_is_unquarantined_and_starts_at_once() {
    let place = Place::new();
    let switch = place.path("switch");
    let agent = format!(
        "[[agent]]\nname = \"loops\"\nstart_command = \"test -e {} || {{ echo no such model; exit 1; }}; exec sleep 600\"\nmax_restarts = 2\n",
        switch.display()
    );
    let city = up(&place, &format!("{HASTY}{agent}"));
    let state = quarantined(&place, &city, "loops");
    let until = state["quarantined_until"].as_str().unwrap();
    let clock = format!("until {}Z", &until[11..19]);
    for args in [
        &["agent", "list"][..],
        &["agent", "show", "loops"],
        &["status"],
    ] {
        let text = place.gc(&city, args).ok().out;
        assert!(text.contains(&clock), "{clock} in\n{text}");
        assert!(text.contains("quarantined"), "{text}");
    }
    let shown = place
        .gc(&city, &["agent", "show", "loops", "--json"])
        .ok()
        .json();
    assert_eq!(shown["quarantined_until"], until);
    let error = refusal(&place, &city, &["agent", "restart", "loops"], 1);
    assert_eq!(error["code"], "conflict");
    assert_eq!(error["hint"], "gc agent unquarantine loops");
    std::fs::write(&switch, "").unwrap();
    let said = place
        .gc(&city, &["agent", "unquarantine", "loops", "--json"])
        .ok()
        .json();
    assert_eq!(said["items"][0]["ok"], true);
    eventually("the start", || {
        place.pid(&city, "loops").filter(|pid| is_alive(*pid))
    });
    let state = place.instance(&city, "loops");
    assert_eq!(state["restarts_in_window"], 0);
    assert_eq!(state["quarantined_until"], Value::Null);
    assert_eq!(count(&city, "agent.unquarantined", "loops"), 1);
    // Asked for again there is nothing to do, and that is fine.
    let again = place.gc(&city, &["session", "wake", "loops"]).ok().out;
    assert!(again.contains("was not quarantined"), "{again}");
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn an_agent_that_was_killed_from_outside_is_charged_but_one_that_gc_killed_is_not() {
    let place = Place::new();
    let city = up(&place, &format!("{HASTY}{}", sleeper("a")));
    let pid = place.pid(&city, "a").unwrap();
    kill(pid, Signal::KILL);
    let second = eventually("a replacement", || {
        place
            .pid(&city, "a")
            .filter(|new| *new != pid && is_alive(*new))
    });
    assert_eq!(place.instance(&city, "a")["restarts_in_window"], 1);
    place.gc(&city, &["agent", "kill", "a"]).ok();
    eventually("another one", || {
        place
            .pid(&city, "a")
            .filter(|new| *new != second && is_alive(*new))
    });
    assert_eq!(place.instance(&city, "a")["restarts_in_window"], 1);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_rig_is_restarted_as_a_whole_and_alone() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("backend")).unwrap();
    let rig = "[[rigs]]\nname = \"backend\"\npath = \"../backend\"\n";
    let of_rig = |name: &str| format!("{}dir = \"backend\"\n", sleeper(name));
    let agents = [sleeper("other"), of_rig("w"), of_rig("x")].concat();
    let city = up(&place, &format!("{QUIET}{rig}{agents}"));
    let names = ["backend/w", "backend/x", "other"];
    let before = names.map(|name| place.pid(&city, name).unwrap());
    place.gc(&city, &["rig", "restart", "backend"]).fails(2);
    place.gc(&city, &["rig", "restart", "backend", "-y"]).ok();
    let after = names.map(|name| place.pid(&city, name).unwrap());
    assert!(before[0] != after[0] && before[1] != after[1]);
    assert_eq!(before[2], after[2]);
    place.gc(&city, &["stop"]).ok();
    let none = place.gc(&city, &["rig", "restart", "backend", "-y"]).ok();
    assert_eq!(none.err, "none of its agents run\n");
}

#[test]
fn a_removed_rig_stops_its_agents_and_keeps_its_directory() {
    let place = Place::new();
    let backend = place.path("backend");
    std::fs::create_dir_all(&backend).unwrap();
    std::fs::write(backend.join("mine"), "work").unwrap();
    let head = format!("{QUIET}# my agents\n{}\n", sleeper("other"));
    let rig = "[[rigs]]\nname = \"backend\"\npath = \"../backend\"\nincludes = [\"p\"]\n";
    let city = place.city("town", &format!("{head}{rig}\n# the end\n"));
    std::fs::create_dir(city.join("p")).unwrap();
    let pack = "[pack]\nname = \"p\"\nschema = 1\n";
    let of_pack = |name: &str| format!("{}scope = \"rig\"\n", sleeper(name));
    let pack = [pack, &of_pack("w"), &of_pack("x")].concat();
    std::fs::write(city.join("p/pack.toml"), pack).unwrap();
    place.gc(&city, &["start"]).ok();
    let other = place.pid(&city, "other").unwrap();
    let pids = ["backend/w", "backend/x"].map(|name| place.pid(&city, name).unwrap());

    // It would stop two, so it asks.
    place.gc(&city, &["rig", "remove", "backend"]).fails(2);
    let file = || std::fs::read_to_string(city.join("city.toml")).unwrap();
    let text = file();
    assert!(text.contains(rig), "{text}");
    let member = format!("{text}{}dir = \"backend\"\n", sleeper("own"));
    std::fs::write(city.join("city.toml"), &member).unwrap();
    let error = place
        .gc(&city, &["rig", "remove", "backend", "-y", "--json"])
        .fails(1)
        .json_error();
    assert_eq!(error["code"], "conflict");
    assert_eq!(
        error["error"],
        "agents belong to the rig `backend`: backend/own"
    );
    assert_eq!(file(), member);
    std::fs::write(city.join("city.toml"), &text).unwrap();

    let said = place
        .gc(&city, &["rig", "remove", "backend", "-y", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["removed"], &said["source"]),
        (&"backend".into(), &"live".into())
    );
    assert_eq!(file(), format!("{head}# the end\n"));
    eventually("its agents gone", || {
        pids.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
    assert_eq!(place.pid(&city, "other"), Some(other));
    assert_eq!(
        std::fs::read_to_string(backend.join("mine")).unwrap(),
        "work"
    );
    let error = place
        .gc(&city, &["rig", "remove", "backend", "--json"])
        .fails(1);
    assert_eq!(error.json_error()["code"], "not_found");
    place.gc(&city, &["stop"]).ok();
}
