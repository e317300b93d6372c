//! Another program in the running process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::Signal;

use crate::util::{GC, Place, QUIET, Said, count, eventually, is_alive, kill, sleeper};

const AGENTS: usize = 20;

fn city(place: &Place) -> std::path::PathBuf {
    let agents: String = (0..AGENTS).map(|n| sleeper(&format!("a{n}"))).collect();
    place.city("town", &format!("{QUIET}{agents}"))
}

fn pids(place: &Place, city: &Path) -> Vec<Option<i32>> {
    let status = place.status(city);
    let pid = |n: usize| {
        let name = format!("a{n}");
        let instances = status["instances"].as_array().unwrap();
        let found = instances.iter().find(|i| i["qualified_name"] == *name)?;
        found["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
    };
    (0..AGENTS).map(pid).collect()
}

/// A program that says it is another version, and is this one.
fn newer(place: &Place) -> std::path::PathBuf {
    let program = place.path("gc-new");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'gc 9.9.9'; exit; fi\nexec '{GC}' \"$@\"\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

// S18
#[test]
fn twenty_agents_do_not_notice_an_upgrade() {
    let place = Place::new();
    let city = city(&place);
    place.gc(&city, &["start"]).ok();
    let (before, supervisor) = (pids(&place, &city), place.supervisor_pid());
    assert!(before.iter().all(Option::is_some));
    for round in 1..=2 {
        let said = place.gc(&city, &["supervisor", "upgrade", "--json"]).ok();
        assert_eq!(said.json()["pid"], supervisor);
        assert_eq!(place.supervisor_pid(), supervisor);
        assert_eq!(pids(&place, &city), before);
        for n in 0..AGENTS {
            assert_eq!(count(&city, "agent.started", &format!("a{n}")), 1);
            assert_eq!(count(&city, "agent.adopted", &format!("a{n}")), round);
        }
    }
    let machine = fs::read_to_string(place.home().join("events.jsonl")).unwrap();
    assert_eq!(machine.matches("\"supervisor.upgraded\"").count(), 2);
    assert!(!place.home().join("handoff.json").exists());
    // The new program is the parent of the agents: it sees how they end.
    kill(before[0].unwrap(), Signal::KILL);
    place.replacement(&city, "a0", before[0].unwrap());
    let crashed = crate::util::events(&city);
    let crashed = crashed
        .iter()
        .find(|e| e["type"] == "agent.crashed")
        .unwrap();
    assert_eq!(crashed["payload"]["signal"], 9, "{crashed}");
    // And whoever waits for its lock still waits.
    place.gc(&city, &["supervisor", "run"]).fails(1);
    place.gc(&city, &["supervisor", "stop"]).ok();
    assert_eq!(place.processes(), [0_i32; 0]);
}

// S18
#[test]
fn agents_in_tmux_and_plain_ones_live_through_an_upgrade() {
    let Some(town) = crate::tmux::town::Town::new() else {
        return;
    };
    let place = &town.place;
    let screens = town.up(&format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    let plain = "[session]\nprovider = \"subprocess\"\n";
    let plain = place.city("plain", &format!("{QUIET}{plain}{}", sleeper("c")));
    place.gc(&plain, &["start"]).ok();
    let agents = [(&screens, "a"), (&screens, "b"), (&plain, "c")];
    let pids = || agents.map(|(city, agent)| place.pid(city, agent));
    let (before, supervisor) = (pids(), place.supervisor_pid());
    assert!(before.iter().all(Option::is_some));
    place.gc(&plain, &["supervisor", "upgrade"]).ok();
    assert_eq!(place.supervisor_pid(), supervisor);
    assert_eq!(pids(), before);
    for (city, agent) in agents {
        assert_eq!(count(city, "agent.started", agent), 1);
        assert_eq!(count(city, "agent.adopted", agent), 1);
        assert_eq!(count(city, "agent.stopped", agent), 0);
        assert_eq!(count(city, "agent.crashed", agent), 0);
    }
    place.gc(&plain, &["supervisor", "stop"]).ok();
}

#[test]
fn an_agent_killed_while_the_program_changes_is_restarted_and_leaves_no_zombie() {
    let place = Place::new();
    let city = city(&place);
    place.gc(&city, &["start"]).ok();
    let before = pids(&place, &city);
    // The new program waits for us before it begins, so the agent dies in between.
    let program = place.path("gc-slow");
    let (reached, go) = (place.path("reached"), place.path("go"));
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" != --version ]; then\n : > '{}'\n while [ ! -e '{}' ]; do sleep 0.01; done\nfi\nexec '{GC}' \"$@\"\n",
        reached.display(),
        go.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["supervisor", "upgrade", program.to_str().unwrap()];
    let mut upgrade = place.command(&city, &args).spawn().unwrap();
    eventually("the swap", || reached.exists().then_some(()));
    let victim = before[3].unwrap();
    kill(victim, Signal::KILL);
    eventually("its death", || (!is_alive(victim)).then_some(()));
    fs::write(&go, "").unwrap();
    assert!(upgrade.wait().unwrap().success());
    let after = place.replacement(&city, "a3", victim);
    let mut expected = before.clone();
    expected[3] = Some(after);
    assert_eq!(pids(&place, &city), expected, "and no other");
    let gone = || (!Path::new(&format!("/proc/{victim}")).exists()).then_some(());
    eventually("the last of it", gone);
}

#[test]
fn what_is_no_gc_is_refused_and_nothing_changes() {
    let place = Place::new();
    let city = city(&place);
    place.gc(&city, &["start"]).ok();
    let before = pids(&place, &city);
    for (program, why) in [
        ("/bin/true", "it is no gc"),
        ("/nonexistent", "No such file"),
    ] {
        let said = place
            .gc(&city, &["supervisor", "upgrade", program])
            .fails(1);
        assert!(said.err.contains(why), "{said:?}");
    }
    // It says the right words, and cannot be run when it matters.
    let program = place.path("gc-fickle");
    let script = format!("#!/bin/sh\necho 'gc 9.9.9'\nrm '{}'\n", program.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let said = place.gc(&city, &["supervisor", "upgrade", program.to_str().unwrap()]);
    let said: Said = said.fails(1);
    assert!(said.err.contains("runs on as before"), "{said:?}");
    eventually("all agents", || {
        (pids(&place, &city) == before).then_some(())
    });
    let status = place
        .gc(&city, &["supervisor", "status", "--json"])
        .ok()
        .json();
    assert!(
        status["degraded"].to_string().contains("upgrade failed"),
        "{status}"
    );
    // And it can still be upgraded.
    let program = newer(&place);
    let said = place
        .gc(&city, &["supervisor", "upgrade", program.to_str().unwrap()])
        .ok();
    assert!(said.out.contains("to 9.9.9"), "{said:?}");
    assert_eq!(pids(&place, &city), before);
}
