//! Agents of a city whose supervisor is gone.

use std::path::PathBuf;

use rustix::process::Signal;

use super::{QUIET, refusal, sleeper, up};
use crate::util::{Place, count, eventually, is_alive, kill};

/// A city with two live agents that nobody watches.
fn abandoned(place: &Place) -> (PathBuf, [i32; 2]) {
    let city = up(place, &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    let pids = ["a", "b"].map(|agent| place.pid(&city, agent).unwrap());
    let supervisor = place.supervisor_pid();
    kill(supervisor, Signal::KILL);
    eventually("the supervisor's end", || {
        (!is_alive(supervisor)).then_some(())
    });
    (city, pids)
}

#[test]
fn they_are_listed_shown_and_killed_by_themselves() {
    let place = Place::new();
    let (city, pids) = abandoned(&place);
    let all = place.gc(&city, &["agent", "list", "--json"]).ok().json();
    assert_eq!(
        (&all["source"], &all["total"]),
        (&"files".into(), &2.into())
    );
    assert_eq!(all["items"][0]["pid"], pids[0]);
    assert_eq!(all["items"][0]["state"], "running");
    let shown = place
        .gc(&city, &["agent", "show", "a", "--json"])
        .ok()
        .json();
    assert_eq!(shown["source"], "files");
    assert!(!shown["events"].as_array().unwrap().is_empty());
    for verb in ["restart", "unquarantine"] {
        let error = refusal(&place, &city, &["agent", verb, "a"], 1);
        assert_eq!(
            (&error["code"], &error["hint"]),
            (&"not_running".into(), &"gc start".into())
        );
    }
    place.gc(&city, &["agent", "kill", "a"]).ok();
    assert!(!is_alive(pids[0]) && is_alive(pids[1]));
    let shown = place.gc(&city, &["agent", "show", "a"]).ok().out;
    assert!(
        shown.starts_with("a: stopped: nobody runs the city\n"),
        "{shown}"
    );
    assert_eq!(
        refusal(&place, &city, &["agent", "kill", "a"], 1)["code"],
        "conflict"
    );
    // A broken file does not hide what runs.
    std::fs::write(city.join("city.toml"), "[nonsense").unwrap();
    let left = place.gc(&city, &["agent", "list", "--json"]).ok().json();
    assert_eq!(
        (&left["total"], &left["items"][0]["qualified_name"]),
        (&1.into(), &"b".into())
    );
    place.gc(&city, &["agent", "kill", "b"]).ok();
    assert_eq!(place.processes(), [0_i32; 0]);
    assert_eq!(
        refusal(&place, &city, &["agent", "list"], 1)["code"],
        "config"
    );
}

#[test]
fn a_drain_set_meanwhile_is_carried_on_by_the_next_supervisor() {
    let place = Place::new();
    let (city, pids) = abandoned(&place);
    place.gc(&city, &["agent", "drain-check", "a"]).fails(1);
    let said = place
        .gc(&city, &["agent", "drain", "a", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["source"], &said["items"][0]["state"]),
        (&"files".into(), &"draining".into())
    );
    place.gc(&city, &["agent", "drain-check", "a"]).ok();
    place.gc(&city, &["agent", "drain", "b"]).ok();
    place.gc(&city, &["agent", "undrain", "b"]).ok();
    place.gc(&city, &["agent", "drain-check", "b"]).fails(1);
    place.gc(&city, &["agent", "drain-ack", "a"]).ok();
    place.gc(&city, &["start"]).ok();
    eventually("the fresh run", || {
        place.pid(&city, "a").filter(|pid| *pid != pids[0])
    });
    assert!(!is_alive(pids[0]));
    assert_eq!(place.pid(&city, "b"), Some(pids[1]));
    assert_eq!(count(&city, "agent.adopted", "b"), 1);
    place.gc(&city, &["stop"]).ok();
}

/// Sessions are found by the names the city gives them, with and without a supervisor.
#[test]
fn sessions_with_names_of_their_own_are_reached_too() {
    let place = Place::new();
    let named = "[workspace]\nsession_template = \"{{.City}}-{{.Agent}}\"\n";
    let loud = |name: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\nstart_command = \"echo said $GC_SESSION_NAME; sleep 600\"\n"
        )
    };
    let text = format!("{named}{QUIET}{}", loud("a"));
    let city = up(&place, &format!("{text}{}", loud("gone")));
    let prints = |agent: &str| {
        let expected = format!("said town-{agent}");
        eventually("its output", || {
            let said = place.gc(&city, &["agent", "logs", agent]).ok().out;
            said.contains(&expected).then_some(())
        });
    };
    prints("a");
    prints("gone");
    // One that left the config keeps what it printed.
    std::fs::write(city.join("city.toml"), &text).unwrap();
    eventually("its end", || {
        place.instance(&city, "gone").is_null().then_some(())
    });
    prints("gone");
    let pid = place.pid(&city, "a").unwrap();
    let supervisor = place.supervisor_pid();
    kill(supervisor, Signal::KILL);
    eventually("the supervisor's end", || {
        (!is_alive(supervisor)).then_some(())
    });
    prints("a");
    prints("gone");
    let shown = place
        .gc(&city, &["agent", "show", "a", "--json"])
        .ok()
        .json();
    assert_eq!(shown["session"], "town-a", "{shown}");
    place.gc(&city, &["agent", "kill", "a"]).ok();
    assert!(!is_alive(pid));
    prints("a");
}

#[test]
fn suspension_is_kept_for_the_next_start() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    let said = place
        .gc(&city, &["agent", "suspend", "a", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["source"], &said["items"][0]["state"]),
        (&"files".into(), &"suspended".into())
    );
    let shown = place.gc(&city, &["agent", "show", "a"]).ok().out;
    let expected = "a: suspended: suspended in the config; gc agent resume a\n";
    assert!(shown.starts_with(expected), "{shown}");
    place.gc(&city, &["start"]).ok();
    assert_eq!(place.instance(&city, "a")["state"], "suspended");
    assert!(place.pid(&city, "b").is_some());
    place.gc(&city, &["stop"]).ok();
    let said = place.gc(&city, &["suspend"]).ok().out;
    assert!(said.contains("takes effect at the next gc start"), "{said}");
}
