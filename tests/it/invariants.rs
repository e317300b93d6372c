//! Invariants of supervision that need real processes, locks and files.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Place, QUIET, count, eventually, is_alive, kill, sleeper};

/// Invariant I1: one supervisor per user. A lock whose holder was killed holds nobody up, nor does
/// the socket it left behind.
#[test]
fn a_second_supervisor_is_refused_and_a_killed_one_is_succeeded_at_once() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let first = place.supervisor_pid();
    let said = place.gc(&city, &["supervisor", "start"]).fails(1);
    assert!(said.err.contains(&first.to_string()), "{said:?}");
    kill(first, Signal::KILL);
    assert!(place.home().join("supervisor.sock").exists());
    place.gc(&city, &["supervisor", "start"]).ok();
    assert_ne!(place.supervisor_pid(), first);
    assert_eq!(count(&city, "agent.started", "a"), 1);
}

/// Invariant I12: what is written down of a process decides nothing; the process does.
#[test]
fn a_forged_pid_neither_hides_an_agent_nor_endangers_a_stranger() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let alien = i64::from(stranger.id());
    for forged in [alien, 0x3f_fff0] {
        place.gc(&city, &["start"]).ok();
        let agent = place.awaited_pid(&city, "a");
        kill(place.supervisor_pid(), Signal::KILL);
        let file = city.join(".gc/runtime/sessions/a.json");
        let mut note: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(note["pid"], agent);
        note["pid"] = forged.into();
        fs::write(&file, note.to_string()).unwrap();
        place.gc(&city, &["start"]).ok();
        let now = place.awaited_pid(&city, "a");
        assert!(is_alive(now) && i64::from(now) != forged, "{now}");
        let sleepers = || {
            let all = place.processes().into_iter();
            let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm"));
            all.filter(|pid| name(pid).is_ok_and(|name| name.trim() == "sleep"))
                .collect::<Vec<_>>()
        };
        eventually("one agent", || (sleepers() == [now]).then_some(()));
        assert!(stranger.try_wait().unwrap().is_none());
        place.gc(&city, &["stop"]).ok();
        assert!(!is_alive(now));
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// Invariant I17: a burst of writes is one reload, and a config that does not load is looked at
/// again when it is written again, not before.
#[test]
fn a_burst_of_writes_is_one_reload_and_a_failed_load_waits_for_the_next_write() {
    let place = Place::new();
    let ticking = "[daemon]\npatrol_interval = \"100ms\"\n";
    let city = place.city("town", &format!("{ticking}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let file = city.join("city.toml");
    for number in 0..50 {
        let agent = sleeper(&format!("b{number}"));
        fs::write(&file, format!("{ticking}{}{agent}", sleeper("a"))).unwrap();
    }
    eventually("the last agent", || place.pid(&city, "b49"));
    assert_eq!(count(&city, "config.reloaded", ""), 1);
    fs::write(&file, "[daemon]\npatrol_interval = 30\n").unwrap();
    let failures = || count(&city, "config.reload_failed", "");
    eventually("the refusal", || (failures() > 0).then_some(()));
    let ticks = || place.status(&city)["last_tick_at"].clone();
    let before = ticks();
    eventually("a tick", || (ticks() != before).then_some(()));
    assert_eq!(failures(), 1);
    fs::write(&file, format!("{ticking}{}", sleeper("a"))).unwrap();
    eventually("the config in force", || {
        (place.status(&city)["config"]["state"] == "ok").then_some(())
    });
    place.gc(&city, &["stop"]).ok();
}
