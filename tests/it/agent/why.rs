//! `gc agent show` says why an agent does not run.

use super::{HASTY, QUIET, looper, quarantined, sleeper, up};
use crate::util::{Place, eventually};

#[track_caller]
fn why(place: &Place, city: &std::path::Path, agent: &str, parts: &[&str]) {
    let text = eventually("the state", || {
        let said = place.gc(city, &["agent", "show", agent]).ok();
        let first = said.out.lines().next()?.to_owned();
        first
            .starts_with(&format!("{agent}: {}", parts[0]))
            .then_some(first)
    });
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = place
        .gc(city, &["agent", "show", agent, "--json"])
        .ok()
        .json();
    let line = json["why"].as_str().unwrap();
    assert!(line.starts_with(parts[0]), "{json}");
    assert_eq!(json["state"], parts[0]);
}

#[test]
fn quarantine_blocking_suspension_and_completion_are_explained() {
    let place = Place::new();
    let waits =
        "[[agent]]\nname = \"waits\"\ndepends_on = [\"off\"]\nstart_command = \"exec sleep 600\"\n";
    let held_back = format!("{}suspended = true\n", sleeper("off"));
    let once = "[[agent]]\nname = \"once\"\nrestart = \"temporary\"\nstart_command = \"true\"\n";
    let agents = [
        looper("loops"),
        waits.to_owned(),
        held_back,
        once.to_owned(),
        sleeper("fine"),
    ];
    let city = up(&place, &format!("{HASTY}{}", agents.concat()));
    quarantined(&place, &city, "loops");
    why(&place, &city, "fine", &["running"]);
    let loops = [
        "quarantined",
        "crash loop",
        "until",
        "no such model",
        "gc agent unquarantine loops",
    ];
    why(&place, &city, "loops", &loops);
    why(
        &place,
        &city,
        "waits",
        &["blocked", "waits for off, which is not up"],
    );
    why(
        &place,
        &city,
        "off",
        &["suspended", "in the config", "gc agent resume off"],
    );
    why(&place, &city, "once", &["done", "restart = \"temporary\""]);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn backoff_limits_missing_rigs_and_stops_are_explained() {
    let place = Place::new();
    let slow = "[workspace]\nmax_agents = 2\n[daemon]\npatrol_interval = \"1h\"\nrestart_delay = \"1h\"\nrestart_delay_max = \"1h\"\nshutdown_timeout = \"60s\"\n";
    let crashes = "[[agent]]\nname = \"crashes\"\nstart_command = \"echo broken; exit 3\"\n";
    let rig = "[[rigs]]\nname = \"gone\"\npath = \"gone\"\n";
    let in_rig = "[[agent]]\nname = \"far\"\ndir = \"gone\"\nstart_command = \"exec sleep 600\"\n";
    let stubborn =
        "[[agent]]\nname = \"stubborn\"\nprovider = \"demo\"\nargs = [\"--ignore-interrupt\"]\n";
    let agents = [crashes, rig, in_rig, stubborn, &sleeper("late")].concat();
    let city = up(&place, &format!("{slow}{agents}"));
    why(
        &place,
        &city,
        "crashes",
        &["backoff", "next try", "exit 3: broken"],
    );
    why(&place, &city, "late", &["limited", "max_agents = 2"]);
    why(&place, &city, "gone/far", &["held", "gone"]);
    let log = city.join(".gc/runtime/logs/stubborn.log");
    eventually("its first words", || {
        log.metadata().ok().filter(|meta| meta.len() > 0)
    });
    place
        .gc(&city, &["agent", "restart", "stubborn", "--no-wait"])
        .ok();
    why(
        &place,
        &city,
        "stubborn",
        &["stopping", "being stopped: user"],
    );
    place.gc(&city, &["stop", "--force"]).ok();
}

#[test]
fn the_page_has_the_run_the_config_and_the_latest_events() {
    let place = Place::new();
    let city = up(&place, &format!("{QUIET}{}", sleeper("a")));
    let text = place.gc(&city, &["agent", "show", "a"]).ok().out;
    for word in [
        "Process",
        "pid",
        "Session",
        "subprocess",
        "Restarts",
        "0 of 5",
        "Config",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
    assert!(text.contains("agent.started"), "{text}");
    let json = place
        .gc(&city, &["agent", "show", "a", "--json"])
        .ok()
        .json();
    assert_eq!(json["provider"], "subprocess");
    assert_eq!(json["source"], "live");
    assert_eq!(json["events"][0]["type"], "agent.started");
    place.gc(&city, &["stop"]).ok();
}
