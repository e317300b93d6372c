//! Talking to agents, by what their sessions can do.

use super::{QUIET, refusal, sleeper, up};
use crate::util::Place;

const FAKE: &str = "[session]\nprovider = \"fake\"\n";

#[test]
fn messages_are_delivered_to_running_agents_only() {
    let place = Place::new();
    let idle = format!("{}suspended = true\n", sleeper("idle"));
    let city = up(&place, &format!("{QUIET}{FAKE}{}{idle}", sleeper("w")));
    let said = place
        .gc(&city, &["agent", "nudge", "w", "--", "look", "-x"])
        .ok();
    assert_eq!(said.out, "delivered\n");
    let said = place.gc(&city, &["session", "nudge", "w", "hi", "--json"]);
    let said = said.ok().json();
    assert_eq!(said["status"], "delivered");
    assert_eq!(
        (&said["agent"], &said["confirmed"]),
        (&"w".into(), &true.into())
    );
    let error = refusal(&place, &city, &["agent", "nudge", "idle", "hi"], 1);
    assert_eq!(error["code"], "conflict");
    assert_eq!(error["hint"], "gc agent show idle");
    let error = refusal(&place, &city, &["agent", "nudge", "nobody", "hi"], 1);
    assert_eq!(error["code"], "not_found");
    place.gc(&city, &["agent", "nudge", "w"]).fails(2);
    place.gc(&city, &["agent", "nudge", "w", ""]).fails(2);
}

#[test]
fn what_sessions_cannot_do_is_said_with_what_works_instead() {
    let place = Place::new();
    let subprocess = "[session]\nprovider = \"subprocess\"\n";
    let city = up(&place, &format!("{QUIET}{subprocess}{}", sleeper("w")));
    let error = refusal(&place, &city, &["agent", "attach", "w"], 8);
    assert_eq!(error["code"], "unsupported");
    assert_eq!(error["hint"], "gc agent logs w -f");
    assert_eq!(
        error["error"],
        "w has no attach: sessions of the provider subprocess cannot do this"
    );
    // The same without a supervisor.
    place
        .gc(&city, &["supervisor", "stop", "--keep-agents"])
        .ok();
    let error = refusal(&place, &city, &["agent", "attach", "w"], 8);
    assert_eq!(error["code"], "unsupported");
    let error = refusal(&place, &city, &["agent", "peek", "w"], 8);
    assert_eq!(error["hint"], "gc agent peek w --log");
}

#[test]
fn a_busy_agent_is_left_alone_unless_the_message_cannot_wait() {
    let place = Place::new();
    let toml = format!(
        "{QUIET}[session]\nprovider = \"fake\"\nstartup_timeout = \"100ms\"\n\
         nudge_ready_timeout = \"100ms\"\nnudge_retry_interval = \"10ms\"\n{}\
         ready_prompt_prefix = \"> \"\n",
        sleeper("w")
    );
    let city = up(&place, &toml);
    for busy in [
        &["agent", "nudge", "w", "hi"][..],
        &["agent", "nudge", "w", "hi", "--delivery", "wait-idle"],
    ] {
        let error = refusal(&place, &city, busy, 1);
        assert_eq!(error["code"], "conflict");
        let hint = "gc agent nudge w --delivery immediate TEXT";
        assert_eq!(error["hint"], hint);
    }
    let now = ["agent", "nudge", "w", "hi", "--delivery", "immediate"];
    assert_eq!(place.gc(&city, &now).ok().out, "delivered\n");
    // Nothing keeps a message for later yet.
    let later = ["agent", "nudge", "w", "hi", "--delivery", "queue"];
    let error = refusal(&place, &city, &later, 8);
    assert_eq!(error["code"], "unsupported");
    place
        .gc(&city, &["agent", "nudge", "w", "hi", "--delivery", "x"])
        .fails(2);
}
