//! What the config means for agents that run.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Place, QUIET, Said, count, events, eventually, is_alive, kill, sleeper};

const PROCESSES: &str = "[session]\nprovider = \"subprocess\"\n";
const TICKING: &str = "[daemon]\npatrol_interval = \"200ms\"\n";

/// Waits until so many ticks have completed.
fn ticks(place: &Place, city: &Path, times: usize) {
    let mut seen = Vec::new();
    eventually("ticks", || {
        let at = place.status(city)["last_tick_at"].clone();
        if !seen.contains(&at) {
            seen.push(at);
        }
        (seen.len() > times).then_some(())
    });
}

fn reload(place: &Place, city: &Path) -> String {
    let said = place.gc(city, &["reload", "--json"]).ok().json();
    said["status"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_pool_keeps_its_size_while_its_check_says_nothing_of_use() {
    // Row 14.
    let place = Place::new();
    let pool = "[agent.pool]\nmax = 5\ncheck = \"sh ./check.sh\"\n";
    let text = format!("{TICKING}{PROCESSES}{}{pool}", sleeper("w"));
    let city = place.city("town", &text);
    fs::write(city.join("check.sh"), "echo 7\n").unwrap();
    place.gc(&city, &["start"]).ok();
    let pids = || -> Vec<Value> {
        let status = place.status(&city);
        let all = status["instances"].as_array().unwrap().clone();
        all.iter().map(|i| i["pid"].clone()).collect()
    };
    let full = || {
        let pids = pids();
        (pids.len() == 5 && pids.iter().all(Value::is_i64)).then_some(pids)
    };
    let five = eventually("five instances", full);
    fs::write(city.join("check.sh"), "echo x\n").unwrap();
    eventually("the failure", || {
        (count(&city, "pool.check_failed", "w") == 1).then_some(())
    });
    ticks(&place, &city, 3);
    assert_eq!(pids(), five);
    fs::write(city.join("check.sh"), "echo $$ >hung; exec sleep 600\n").unwrap();
    eventually("the check that hangs", || {
        fs::read_to_string(city.join("hung"))
            .ok()
            .filter(|pid| !pid.is_empty())
    });
    // Ticks go on meanwhile, and nobody is stopped or started.
    ticks(&place, &city, 5);
    assert_eq!(pids(), five);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_variable_that_is_not_set_fails_that_start_and_is_named() {
    // Row 18.
    let place = Place::new();
    let text = |value: &str| {
        format!(
            "{QUIET}{PROCESSES}{}env = {{ T = \"{value}\" }}\n{}",
            sleeper("a"),
            sleeper("b")
        )
    };
    let city = place.city("town", &text("${NOPE}"));
    place.gc(&city, &["config", "validate"]).ok();
    place.gc(&city, &["start"]);
    let failed = eventually("the failed start", || {
        let all = events(&city).into_iter();
        all.rev().find(|e| e["type"] == "agent.start_failed")
    });
    assert!(failed.to_string().contains("NOPE"), "{failed}");
    assert!(place.pid(&city, "b").is_some(), "others are not concerned");
    fs::write(city.join("city.toml"), text("${NOPE:-}")).unwrap();
    let pid = eventually("its start", || place.pid(&city, "a"));
    assert_eq!(
        crate::util::environment(pid).get("T").map(String::as_str),
        Some("")
    );
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn agents_of_a_rig_wait_for_its_directory_while_the_city_runs() {
    // Row 28.
    let place = Place::new();
    let text = format!(
        "{QUIET}{PROCESSES}[[rigs]]\nname = \"r\"\npath = \"app\"\n{}dir = \"r\"\n{}",
        sleeper("w"),
        sleeper("b")
    );
    let city = place.city("town", &text);
    place.gc(&city, &["start"]).ok();
    assert!(place.pid(&city, "b").is_some());
    assert_eq!(place.instance(&city, "r/w")["state"], "held");
    fs::create_dir(city.join("app")).unwrap();
    eventually("its start", || place.pid(&city, "r/w"));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_restart_applies_a_new_name_and_leaves_other_cities_alone() {
    // Row 34.
    let place = Place::new();
    let named = |name: &str| {
        format!(
            "{QUIET}{PROCESSES}[workspace]\nname = \"{name}\"\n{}",
            sleeper("a")
        )
    };
    let city = place.city("town", &named("before"));
    let other = place.city("other", &format!("{QUIET}{PROCESSES}{}", sleeper("b")));
    place.gc(&city, &["start"]).ok();
    place.gc(&other, &["start"]).ok();
    let (pid, bystander) = (place.pid(&city, "a").unwrap(), place.pid(&other, "b"));
    let supervisor = place.supervisor_pid();
    fs::write(city.join("city.toml"), named("after")).unwrap();
    let refused = eventually("the refusal", || {
        let config = place.status(&city)["config"].clone();
        (config["state"] == "refused").then_some(config)
    });
    assert_eq!(refused["diagnostics"][0]["help"], "gc restart before");
    assert_eq!(place.pid(&city, "a"), Some(pid));
    place.gc(&city, &["restart"]).ok();
    assert_eq!(place.status(&city)["name"], "after");
    assert_eq!(place.status(&city)["config"]["state"], "ok");
    assert!(!is_alive(pid));
    assert_eq!(place.pid(&other, "b"), bystander);
    assert_eq!(place.supervisor_pid(), supervisor);
    place.gc(&city, &["stop"]).ok();
    place.gc(&other, &["stop"]).ok();
}

#[test]
fn a_touch_without_a_change_is_no_event() {
    // Row 35.
    let place = Place::new();
    let city = place.city("town", &format!("{TICKING}{PROCESSES}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let pid = place.pid(&city, "a").unwrap();
    let (file, before) = (city.join("city.toml"), events(&city).len());
    let text = fs::read(&file).unwrap();
    fs::write(&file, &text).unwrap();
    let open = fs::File::options().append(true).open(&file).unwrap();
    open.set_modified(std::time::SystemTime::now()).unwrap();
    fs::write(city.join("new"), &text).unwrap();
    fs::rename(city.join("new"), &file).unwrap();
    ticks(&place, &city, 5);
    assert_eq!(reload(&place, &city), "unchanged");
    let after = events(&city).split_off(before);
    assert!(after.is_empty(), "{after:?}");
    assert_eq!(place.pid(&city, "a"), Some(pid));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn another_environment_of_the_supervisor_is_no_drift() {
    // Row 42.
    let place = Place::new();
    let agent = format!("{}env = {{ T = \"${{SEEN:-}}\" }}\n", sleeper("a"));
    let city = place.city("town", &format!("{TICKING}{PROCESSES}{agent}"));
    place.gc(&city, &["start"]).ok();
    let (pid, supervisor) = (place.pid(&city, "a").unwrap(), place.supervisor_pid());
    kill(supervisor, Signal::KILL);
    eventually("its end", || (!is_alive(supervisor)).then_some(()));
    let path = format!("{}:/nowhere", std::env::var("PATH").unwrap());
    let mut start = place.command(&city, &["start"]);
    Said::by(
        start
            .env("PATH", path)
            .env("SEEN", "other")
            .env("LANG", "C"),
    )
    .ok();
    assert_eq!(place.awaited_pid(&city, "a"), pid);
    ticks(&place, &city, 3);
    assert_eq!(count(&city, "agent.drifted", "a"), 0);
    assert_eq!(place.instance(&city, "a")["drifted_from"], Value::Null);
    assert_eq!(place.pid(&city, "a"), Some(pid));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_busy_agent_that_drifted_is_restarted_once_it_is_quiet() {
    // Row 49; with the documented two minutes in the tests of the actors.
    let place = Place::new();
    let text = |n: u32| {
        format!(
            "{TICKING}on_drift = \"idle\"\ndrift_idle_after = \"5s\"\n{PROCESSES}\
             [[agent]]\nname = \"a\"\nenv = {{ N = \"{n}\" }}\n\
             start_command = \"while [ -e busy ]; do echo .; sleep 0.1; done; sleep 600\"\n"
        )
    };
    let city = place.city("town", &text(1));
    fs::write(city.join("busy"), "").unwrap();
    place.gc(&city, &["start"]).ok();
    let pid = place.pid(&city, "a").unwrap();
    fs::write(city.join("city.toml"), text(2)).unwrap();
    eventually("the drift", || {
        (count(&city, "agent.drifted", "a") == 1).then_some(())
    });
    ticks(&place, &city, 10);
    assert_eq!(place.pid(&city, "a"), Some(pid), "it is busy");
    fs::remove_file(city.join("busy")).unwrap();
    place.replacement(&city, "a", pid);
    assert!(!is_alive(pid));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn what_agents_inherit_follows_the_config_and_only_that_in_force() {
    let place = Place::new();
    let text = |globs: &str, more: &str| {
        format!(
            "{QUIET}[session]\nprovider = \"subprocess\"\nenv_passthrough = [\"PATH\"{globs}]\n{more}{}",
            sleeper("a")
        )
    };
    let city = place.city("town", &text("", ""));
    let mut start = place.command(&city, &["start"]);
    Said::by(start.env("INHERITED", "yes")).ok();
    let inherits = || {
        let before = place.pid(&city, "a").unwrap();
        place.gc(&city, &["agent", "restart", "a"]).ok();
        let pid = place.replacement(&city, "a", before);
        crate::util::environment(pid).contains_key("INHERITED")
    };
    assert!(!inherits());
    let pid = place.pid(&city, "a");
    let write = |text: String| fs::write(city.join("city.toml"), text).unwrap();
    // What is refused has no effect at all.
    write(text(", \"INHERITED\"", "[beads]\nprovider = \"file\"\n"));
    place.gc(&city, &["reload"]).fails(1);
    assert!(!inherits());
    assert_ne!(place.pid(&city, "a"), pid);
    let pid = place.pid(&city, "a");
    write(text(", \"INHERITED\"", ""));
    place.gc(&city, &["reload"]).ok();
    assert_eq!(place.pid(&city, "a"), pid, "it is no drift");
    assert!(inherits());
    place.gc(&city, &["stop"]).ok();
}
