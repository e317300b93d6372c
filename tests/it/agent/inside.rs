//! What agents do for themselves, from inside their sessions.

use std::fs;

use super::{QUIET, refusal, sleeper, up};
use crate::util::{GC, Place, count, events, eventually, is_alive};

fn agent(name: &str, line: &str) -> String {
    let line = line.replace("GC ", &format!("{GC} "));
    format!("[[agent]]\nname = \"{name}\"\nstart_command = '''{line}'''\n")
}

#[test]
fn an_agent_finishes_its_drain_itself() {
    let place = Place::new();
    let line = "until GC agent drain-check; do sleep 0.05; done; echo finishing; GC agent drain-ack; sleep 600";
    let city = up(&place, &format!("{QUIET}{}", agent("w", line)));
    let pid = place.pid(&city, "w").unwrap();
    place.gc(&city, &["agent", "drain-check", "w"]).fails(1);
    let said = place
        .gc(&city, &["agent", "drain", "w", "--json"])
        .ok()
        .json();
    assert_eq!(said["items"][0]["state"], "draining", "{said}");
    let next = eventually("a fresh run", || {
        place
            .pid(&city, "w")
            .filter(|new| *new != pid && is_alive(*new))
    });
    assert!(!is_alive(pid) && is_alive(next));
    assert_eq!(count(&city, "agent.draining", "w"), 1);
    let stopped = events(&city);
    let stopped = stopped
        .iter()
        .find(|event| event["type"] == "agent.stopped")
        .unwrap();
    assert_eq!(stopped["payload"]["reason"], "drained");
    assert_eq!(place.instance(&city, "w")["restarts_in_window"], 0);
    let log = place.gc(&city, &["agent", "logs", "w"]).ok().out;
    assert!(log.contains("finishing"), "{log}");
    // The fresh one is not asked for anything.
    let check = place
        .gc(&city, &["agent", "drain-check", "w", "--json"])
        .fails(1)
        .json();
    assert_eq!(check["draining"], false);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_drain_can_be_taken_back_and_ends_at_its_timeout() {
    let place = Place::new();
    let city = up(&place, &format!("{QUIET}{}", sleeper("w")));
    let pid = place.pid(&city, "w").unwrap();
    place.gc(&city, &["agent", "drain", "w"]).ok();
    let check = place.gc(&city, &["agent", "drain-check", "w"]).ok();
    assert_eq!((check.out.as_str(), check.err.as_str()), ("", ""));
    let shown = place.gc(&city, &["agent", "show", "w"]).ok().out;
    assert!(
        shown.starts_with("w: draining: asked to finish: user\n"),
        "{shown}"
    );
    let again = place.gc(&city, &["runtime", "drain", "w"]).ok().out;
    assert!(again.contains("draining already"), "{again}");
    place.gc(&city, &["agent", "undrain", "w"]).ok();
    place.gc(&city, &["runtime", "drain-check", "w"]).fails(1);
    assert_eq!(count(&city, "agent.undrained", "w"), 1);
    assert_eq!(place.pid(&city, "w"), Some(pid), "it runs on");
    place
        .gc(&city, &["agent", "drain", "w", "--timeout", "300ms"])
        .ok();
    eventually("the force", || {
        place
            .pid(&city, "w")
            .filter(|new| *new != pid && is_alive(*new))
    });
    let all = events(&city);
    let stopped = all
        .iter()
        .find(|event| event["type"] == "agent.stopped")
        .unwrap();
    assert_eq!(stopped["payload"]["reason"], "drain_timeout");
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_fresh_session_is_asked_for_from_inside_only() {
    let place = Place::new();
    let mark = place.path("asked");
    let line = format!(
        "test -e {0} && exec sleep 600; touch {0}; GC agent request-restart; echo never",
        mark.display()
    );
    let city = up(&place, &format!("{QUIET}{}", agent("w", &line)));
    let instance = eventually("the second run", || {
        Some(place.instance(&city, "w")).filter(|i| i["generation"] == 2 && i["state"] == "running")
    });
    // So soon after the start it is charged, lest it goes on for ever; a crash it is not.
    assert_eq!(instance["restarts_in_window"], 1);
    let all = events(&city);
    let stopped = all
        .iter()
        .find(|event| event["type"] == "agent.stopped")
        .unwrap();
    assert_eq!(stopped["payload"]["reason"], "requested");
    assert_eq!(count(&city, "agent.crashed", "w"), 0);
    let log = fs::read_to_string(city.join(".gc/runtime/logs/w.log")).unwrap();
    assert!(
        !log.contains("never"),
        "it blocks until it is stopped: {log}"
    );
    let error = refusal(&place, &city, &["agent", "request-restart"], 1);
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .contains("not inside a session"),
        "{error}"
    );
    for command in ["drain-check", "drain-ack"] {
        let error = refusal(&place, &city, &["agent", command], 2);
        assert_eq!(error["code"], "usage");
    }
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn the_word_of_an_earlier_run_does_not_count() {
    let place = Place::new();
    let city = up(&place, &format!("{QUIET}{}", sleeper("w")));
    let pid = place.pid(&city, "w");
    let mut late = place.command(&city, &["agent", "drain-ack", "--json"]);
    late.env("GC_AGENT", "w").env("GC_SESSION_NAME", "w");
    let said = late
        .env("GC_SESSION_ID", "of-an-earlier-run")
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(1));
    let error: serde_json::Value = serde_json::from_slice(&said.stderr).unwrap();
    assert_eq!(error["code"], "conflict");
    assert_eq!(place.pid(&city, "w"), pid);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn the_demo_agent_honours_a_drain_between_steps() {
    let place = Place::new();
    let demo =
        "[[agent]]\nname = \"demo\"\nprovider = \"demo\"\nargs = [\"--work-time\", \"50ms\"]\n";
    let city = up(&place, &format!("{QUIET}{demo}"));
    let pid = place.pid(&city, "demo").unwrap();
    place.gc(&city, &["agent", "drain", "demo"]).ok();
    eventually("a fresh run", || {
        place
            .pid(&city, "demo")
            .filter(|new| *new != pid && is_alive(*new))
    });
    let log = fs::read_to_string(city.join(".gc/runtime/logs/demo.log")).unwrap();
    assert_eq!(log.matches("demo: draining, finishing").count(), 1, "{log}");
    let all = events(&city);
    let stopped = all
        .iter()
        .find(|event| event["type"] == "agent.stopped")
        .unwrap();
    assert_eq!(stopped["payload"]["reason"], "drained");
    assert_eq!(count(&city, "agent.crashed", "demo"), 0);
    place.gc(&city, &["stop"]).ok();
}
