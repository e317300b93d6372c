//! One city never disturbs another: broken, slow, crashing and renamed ones (supervisor.md 5-8).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::util::{Place, QUIET, events, eventually, sleeper};

/// The machine's view of one city.
fn info(place: &Place, city: &Path) -> Value {
    let said = place.gc(city, &["cities", "--json"]).ok().json();
    let items = said["items"].as_array().cloned().unwrap_or_default();
    items
        .into_iter()
        .find(|item| item["path"] == city.to_str().unwrap())
        .unwrap_or(Value::Null)
}

fn wait_status(place: &Place, city: &Path, status: &str) -> Value {
    eventually(status, || {
        let info = info(place, city);
        (info["status"] == status).then_some(info)
    })
}

/// The machine's own events.
fn machine_events(place: &Place, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.home().join("events.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["type"] == kind)
        .collect()
}

/// Writes the registry as an editor would.
fn registry(place: &Place, cities: &[&Path]) {
    let entry = |city: &&Path| format!("[[cities]]\npath = {:?}\n", city.display().to_string());
    let text: String = cities.iter().map(entry).collect();
    fs::write(place.home().join("cities.toml"), text).unwrap();
}

// S13
#[test]
fn a_broken_city_says_why_and_starts_as_soon_as_it_is_mended() {
    let place = Place::new();
    let good = place.city("good", &format!("{QUIET}{}", sleeper("a")));
    let bad = place.city("bad", "[[agent]]\nnme = \"a\"\n");
    place.gc(&good, &["start"]).ok();
    let pid = place.pid(&good, "a").unwrap();
    registry(&place, &[&good, &bad]);
    let failed = wait_status(&place, &bad, "init_failed");
    assert!(
        failed["error"].as_str().unwrap().contains("nme"),
        "{failed}"
    );
    assert!(failed["next_retry_at"].is_string(), "{failed}");
    // Let its delay grow, so that only the edit can bring it back soon.
    eventually("a few attempts", || {
        (machine_events(&place, "city.init_failed").len() >= 4).then_some(())
    });
    let attempts = machine_events(&place, "city.init_failed").len();
    fs::write(bad.join("city.toml"), format!("{QUIET}{}", sleeper("b"))).unwrap();
    wait_status(&place, &bad, "running");
    assert_eq!(
        machine_events(&place, "city.init_failed").len(),
        attempts,
        "the mended config was taken at once"
    );
    assert_eq!(place.pid(&good, "a").unwrap(), pid);
}

// S14
#[test]
fn cities_that_hang_while_they_open_delay_nobody_and_no_stop() {
    let place = Place::new();
    let stuck: Vec<_> = (0..5)
        .map(|n| {
            // Nobody ever reads from it, so opening this city's log takes for ever.
            let root = place.city(&format!("stuck{n}"), QUIET);
            fs::create_dir_all(root.join(".gc")).unwrap();
            let made = Command::new("mkfifo")
                .arg(root.join(".gc/events.lock"))
                .status();
            assert!(made.unwrap().success());
            root
        })
        .collect();
    let good = place.city("zz-good", &format!("{QUIET}{}", sleeper("a")));
    fs::create_dir_all(place.home()).unwrap();
    let mut cities: Vec<&Path> = stuck.iter().map(AsRef::as_ref).collect();
    cities.push(&good);
    registry(&place, &cities);
    place.gc(&good, &["supervisor", "start"]).ok();
    wait_status(&place, &good, "running");
    assert_eq!(info(&place, &stuck[0])["status"], "loading_config");
    let stopped = place.gc(&good, &["supervisor", "stop"]).ok();
    assert!(stopped.out.contains("1 interrupted"), "{stopped:?}");
    assert_eq!(place.processes(), [0_i32; 0]);
}

// S12
#[test]
fn a_city_that_panics_returns_with_growing_delay_and_its_agents_never_notice() {
    let place = Place::with_faults();
    let one = place.city("one", &format!("{QUIET}{}", sleeper("a")));
    let two = place.city("two", &format!("{QUIET}{}", sleeper("b")));
    place.gc(&one, &["start"]).ok();
    place.gc(&two, &["start"]).ok();
    let pids = [place.pid(&one, "a"), place.pid(&two, "b")];
    for crash in 1..=2_u64 {
        place.gc(&one, &["actors", "crash", "one"]).ok();
        let crashed = eventually("the crash", || {
            let all = machine_events(&place, "city.crashed");
            (all.len() as u64 == crash)
                .then(|| all.last().cloned())
                .flatten()
        });
        assert_eq!(crashed["payload"]["restart_count"], crash);
        assert_eq!(crashed["payload"]["panic"], true);
        let time = |value: &Value| {
            let text = value.as_str().unwrap();
            chrono::DateTime::parse_from_rfc3339(text).unwrap()
        };
        let delay = time(&crashed["payload"]["next_retry_at"]) - time(&crashed["ts"]);
        // The event is stamped when it is written, a little after the decision.
        let planned = i64::try_from(crash).unwrap() * 1000;
        assert!(
            (planned - 500..=planned).contains(&delay.num_milliseconds()),
            "{delay}"
        );
        let back = wait_status(&place, &one, "running");
        assert_eq!(back["restart_count"], crash);
    }
    assert_eq!(
        events(&one)
            .iter()
            .filter(|e| e["type"] == "city.crashed")
            .count(),
        2
    );
    assert_eq!([place.pid(&one, "a"), place.pid(&two, "b")], pids);
    let log = fs::read_to_string(place.home().join("supervisor.log")).unwrap();
    assert!(
        log.contains("city one told to crash"),
        "where it panicked: {log}"
    );
    assert_eq!(
        events(&two)
            .iter()
            .filter(|e| e["type"] == "city.crashed")
            .count(),
        0
    );
}

// S16
#[test]
fn a_new_name_waits_until_it_is_asked_for_and_restarts_that_city_only() {
    let place = Place::new();
    let named = |name: &str| format!("{QUIET}[workspace]\nname = \"{name}\"\n{}", sleeper("a"));
    let city = place.city("town", &named("old-town"));
    let other = place.city("other", &format!("{QUIET}{}", sleeper("b")));
    place.gc(&city, &["start"]).ok();
    place.gc(&other, &["start"]).ok();
    let (before, bystander) = (
        place.pid(&city, "a").unwrap(),
        place.pid(&other, "b").unwrap(),
    );
    fs::write(city.join("city.toml"), named("new-town")).unwrap();
    eventually("the pending name", || {
        (info(&place, &city)["pending_name"] == "new-town").then_some(())
    });
    assert_eq!(info(&place, &city)["name"], "old-town");
    assert_eq!(
        place.pid(&city, "a").unwrap(),
        before,
        "nothing restarts by itself"
    );
    let head = events(&city).last().unwrap()["seq"].as_u64().unwrap();
    place.gc(&city, &["register"]).ok();
    let after = wait_status(&place, &city, "running");
    assert_eq!(after["name"], "new-town");
    assert_eq!(after["pending_name"], Value::Null);
    let renamed = machine_events(&place, "city.renamed");
    assert_eq!(renamed.len(), 1, "{renamed:?}");
    assert_eq!(renamed[0]["payload"]["from"], "old-town");
    assert_eq!(renamed[0]["payload"]["to"], "new-town");
    assert_ne!(place.awaited_pid(&city, "a"), before);
    assert_eq!(place.pid(&other, "b").unwrap(), bystander);
    assert!(events(&city).last().unwrap()["seq"].as_u64().unwrap() > head);
}

// S15
#[test]
fn a_port_of_a_supervised_city_is_ignored_with_one_warning_for_each_value() {
    let place = Place::new();
    let with_port = |port: u16| format!("{QUIET}[api]\nport = {port}\n{}", sleeper("a"));
    let city = place.city("town", &with_port(9443));
    place.gc(&city, &["start"]).ok();
    let warning = |port: u16| {
        let text =
            format!("city 'town' has [api] port={port} which is ignored under supervisor mode");
        let log = fs::read_to_string(place.home().join("supervisor.log")).unwrap();
        log.matches(&text).count()
    };
    assert_eq!(warning(9443), 1);
    place.gc(&city, &["reload"]).ok();
    assert_eq!(warning(9443), 1, "once for each value");
    fs::write(city.join("city.toml"), with_port(9444)).unwrap();
    eventually("the other value", || (warning(9444) == 1).then_some(()));
    assert_eq!(warning(9443), 1);
}

#[test]
fn a_city_whose_directory_is_gone_is_shown_so_at_once() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    fs::remove_dir_all(&city).unwrap();
    let here = place.path("");
    let shown = place.gc(&here, &["cities"]).ok().out;
    assert!(shown.contains("directory gone"), "{shown}");
    let said = place.gc(&here, &["cities", "--json"]).ok().json();
    assert_eq!(said["items"][0]["error"], "its directory is gone");
    let gone = place
        .gc(&here, &["unregister", city.to_str().unwrap()])
        .ok();
    assert!(gone.out.contains("1 agent stopped"), "{gone:?}");
    let shown = place.gc(&here, &["cities"]).ok();
    assert!(shown.err.contains("no cities"), "{shown:?}");
}
