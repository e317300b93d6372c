//! Supervisors started by an agent do not belong to that agent.

use std::process::{Command, Stdio};

use crate::util::{Place, QUIET, Said, environment, is_alive, sleeper};

/// A running city, and the `GC_*` variables its agent `a` has.
fn session(place: &Place) -> (std::path::PathBuf, Vec<(String, String)>) {
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let all = environment(place.pid(&city, "a").unwrap());
    let ours: Vec<_> = all
        .into_iter()
        .filter(|(k, _)| k.starts_with("GC_"))
        .collect();
    assert!(
        ours.iter().any(|(name, _)| name == "GC_SESSION_ID"),
        "{ours:?}"
    );
    (city, ours)
}

/// The command as that agent would run it, on a home of its own.
fn inside(command: &mut Command, session: &[(String, String)], other: &Place) -> Said {
    let command = command.envs(session.iter().cloned());
    Said::by(command.env("GC_HOME", other.home()))
}

#[test]
fn a_supervisor_started_inside_a_session_outlives_the_agent() {
    let (place, other) = (Place::new(), Place::new());
    let (city, session) = session(&place);
    let mut start = other.command(&city, &["supervisor", "start"]);
    inside(&mut start, &session, &other).ok();
    let started = other.supervisor_pid();
    let left: Vec<String> = environment(started)
        .into_keys()
        .filter(|name| name.starts_with("GC_"))
        .collect();
    assert_eq!(left, ["GC_HOME", "GC_TMUX"]);
    place.gc(&city, &["stop"]).ok();
    assert!(is_alive(started), "it was swept with the agent");
    other.gc(&city, &["supervisor", "stop"]).ok();
}

#[test]
fn a_controller_run_inside_a_session_is_no_part_of_it_and_finds_its_city() {
    let (place, other) = (Place::new(), Place::new());
    let (city, mut session) = session(&place);
    let everything = "[session]\nenv_passthrough = [\"*\"]\n";
    let alone = other.city("alone", &format!("{everything}{QUIET}{}", sleeper("b")));
    session.retain(|(name, _)| name != "GC_CITY");
    session.push(("GC_RIG".to_owned(), "inherited".to_owned()));
    let mut running = other
        .command(&other.path(""), &["start", "--standalone"])
        .envs(session)
        .env("GC_CITY", &alone)
        .env("GC_HOME", other.home())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = other.awaited_pid(&alone, "b");
    let controller = environment(i32::try_from(running.id()).unwrap());
    assert_eq!(controller.get("GC_SESSION_ID"), None);
    let agent = environment(pid);
    assert_eq!(agent["GC_AGENT"], "b");
    assert_eq!(agent.get("GC_RIG"), None, "passed on to the agent");
    place.gc(&city, &["stop"]).ok();
    assert!(is_alive(pid) && running.try_wait().unwrap().is_none());
    other.gc(&alone, &["stop"]).ok();
    assert!(running.wait().unwrap().success());
}
