//! `gc agent …` as people and agents use it.

mod inside;
mod offline;
mod why;

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Place, count, events, eventually, is_alive, kill};

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
fn output_is_shown_followed_and_kept_after_the_end() {
    let place = Place::new();
    let talker = "[[agent]]\nname = \"talks\"\nrestart = \"temporary\"\nstart_command = \"for i in 1 2 3; do echo line $i; done; exec sleep 600\"\n";
    let city = up(&place, &format!("{QUIET}{talker}"));
    let lines = eventually("three lines", || {
        let said = place.gc(&city, &["agent", "logs", "talks"]).ok();
        said.out.contains("line 3").then_some(said.out)
    });
    assert_eq!(lines, "line 1\nline 2\nline 3\n");
    let said = place
        .gc(&city, &["agent", "logs", "talks", "-n", "1", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["text"], &said["lines"]),
        (&"line 3".into(), &1.into())
    );
    let said = place.gc(&city, &["agent", "peek", "talks"]).fails(8);
    assert!(
        said.err.contains("hint: gc agent peek talks --log"),
        "{said:?}"
    );
    assert_eq!(
        refusal(&place, &city, &["agent", "peek", "talks"], 8)["code"],
        "unsupported"
    );
    let said = place
        .gc(&city, &["agent", "peek", "talks", "--log", "-n", "2"])
        .ok();
    assert_eq!(said.out, "line 2\nline 3\n");
    let error = refusal(&place, &city, &["agent", "logs", "talks", "--crash"], 1);
    assert_eq!(error["code"], "not_found");
    // What comes later is followed.
    let followed = place.path("followed");
    let mut follow = place.command(&city, &["agent", "logs", "talks", "-f", "-n", "1"]);
    let out = std::fs::File::create(&followed).unwrap();
    let mut follow = follow.stdout(out).spawn().unwrap();
    let read = || std::fs::read_to_string(&followed).unwrap();
    eventually("the tail", || (read() == "line 3\n").then_some(()));
    let log = city.join(".gc/runtime/logs/talks.log");
    let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
    std::io::Write::write_all(&mut log, b"line 4\n").unwrap();
    eventually("the new line", || {
        (read() == "line 3\nline 4\n").then_some(())
    });
    follow.kill().unwrap();
    follow.wait().unwrap();
    place.gc(&city, &["stop"]).ok();
    let after = place.gc(&city, &["agent", "logs", "talks", "-n", "1"]).ok();
    assert_eq!(after.out, "line 4\n");
}

#[test]
fn crash_captures_are_shown_by_age() {
    let place = Place::new();
    let city = place.city("town", &sleeper("w"));
    let captures = city.join(".gc/runtime/captures");
    std::fs::create_dir_all(&captures).unwrap();
    for (stamp, text) in [
        ("20260318T100000.000Z", "older\n"),
        ("20260318T110000.000Z", "newer\n"),
    ] {
        std::fs::write(captures.join(format!("w-{stamp}.txt")), text).unwrap();
    }
    let crash = |args: &[&str]| {
        let args = [&["agent", "logs", "w", "--crash"], args].concat();
        place.gc(&city, &args)
    };
    assert_eq!(crash(&[]).ok().out, "newer\n");
    assert_eq!(crash(&["2"]).ok().out, "older\n");
    let said = crash(&["3"]).fails(1);
    assert!(said.err.contains("only 2 crashes"), "{said:?}");
    let shown = place
        .gc(&city, &["agent", "show", "w", "--json"])
        .ok()
        .json();
    assert_eq!(shown["captures"].as_array().unwrap().len(), 2);
}

#[test]
fn agents_and_cities_are_suspended_and_resumed_in_the_file() {
    let place = Place::new();
    let toml = format!("{QUIET}# kept\n{}{}", sleeper("a"), sleeper("b"));
    let city = up(&place, &toml);
    let pid = place.pid(&city, "a").unwrap();
    place
        .gc(
            &city,
            &["agent", "suspend", "a", "--reason", "model is down"],
        )
        .ok();
    eventually("the stop", || (!is_alive(pid)).then_some(()));
    eventually("the state", || {
        (place.instance(&city, "a")["state"] == "suspended").then_some(())
    });
    let file = std::fs::read_to_string(city.join("city.toml")).unwrap();
    assert!(
        file.contains("suspended = true") && file.contains("# kept"),
        "{file}"
    );
    let noted = events(&city);
    let noted = noted
        .iter()
        .find(|event| event["type"] == "agent.state")
        .unwrap();
    assert_eq!(noted["payload"]["reason"], "model is down");
    assert_eq!(noted["actor"], "human");
    let again = place.gc(&city, &["agent", "suspend", "a"]).ok().out;
    assert!(again.contains("suspended already"), "{again}");
    let error = refusal(&place, &city, &["agent", "restart", "a"], 1);
    assert_eq!(error["hint"], "gc agent resume a");
    let said = place
        .gc(&city, &["agent", "resume", "a", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["items"][0]["ok"], &said["source"]),
        (&true.into(), &"live".into())
    );
    eventually("the start", || {
        place.pid(&city, "a").filter(|pid| is_alive(*pid))
    });
    assert_eq!(
        std::fs::read_to_string(city.join("city.toml")).unwrap(),
        toml
    );
    // The whole city.
    let said = place.gc(&city, &["suspend", "--json"]).ok().json();
    assert_eq!(
        (&said["suspended"], &said["changed"]),
        (&true.into(), &true.into())
    );
    eventually("silence", || {
        ["a", "b"]
            .iter()
            .all(|agent| place.pid(&city, agent).is_none())
            .then_some(())
    });
    let shown = place.gc(&city, &["agent", "show", "b"]).ok().out;
    assert!(
        shown.starts_with("b: suspended: the city is suspended; gc resume\n"),
        "{shown}"
    );
    let again = place.gc(&city, &["suspend", "--json"]).ok().json();
    assert_eq!(again["changed"], false);
    place.gc(&city, &["resume"]).ok();
    eventually("both", || place.pid(&city, "a").zip(place.pid(&city, "b")));
    let name = refusal(&place, &city, &["agent", "suspend", "zzz"], 1);
    assert_eq!(name["code"], "not_found");
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
