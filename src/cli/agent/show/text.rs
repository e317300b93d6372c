//! The page of an agent as people read it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use gascity_actors::age;

use super::Page;
use crate::cli::events::row;
use crate::cli::status::text::{clock, span};
use crate::model::{AgentState, InstanceView};

/// The page; its first line says how the agent is, and why.
pub(super) fn page(page: &Page<'_>, now: DateTime<Utc>) -> String {
    let agent = page.agent;
    let mut text = format!("{}: {}\n", agent.qualified_name, why(agent, now));
    let mut line = |label: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {label:<10}  {value}\n"));
        }
    };
    line("Process", process(agent));
    line(
        "Session",
        Some(format!("{} ({})", agent.session, page.provider)),
    );
    let run = agent.session_id.as_ref();
    line(
        "Run",
        run.map(|id| format!("{id}, number {}", agent.generation)),
    );
    line("Restarts", Some(restarts(agent)));
    for warning in &agent.warnings {
        line("Warning", Some(indented(warning)));
    }
    line(
        "Last error",
        agent.last_error.clone().map(|error| indented(&error)),
    );
    line(
        "Active",
        agent
            .last_activity
            .map(|at| format!("{} ago", span(now - at))),
    );
    line("Pool", pool(agent));
    let needs: Vec<&str> = agent.depends_on.iter().map(|on| on.as_str()).collect();
    line("Needs", (!needs.is_empty()).then(|| needs.join(", ")));
    line("Config", config(agent));
    let newest = page.captures.first();
    line(
        "Capture",
        newest.map(|capture| capture.path.display().to_string()),
    );
    if !page.events.is_empty() {
        text.push_str("  Events\n");
    }
    for event in &page.events {
        text.push_str(&format!("    {}\n", row(event)));
    }
    text
}

/// How the agent is, and why it does not run if it does not; with what to do about it.
pub(super) fn why(agent: &InstanceView, now: DateTime<Utc>) -> String {
    let name = &agent.qualified_name;
    let reason = agent.reason.clone();
    let state = agent.state.as_str();
    let error = agent
        .last_error
        .as_ref()
        .and_then(|error| error.lines().next());
    let error = error.map(|error| format!("last: {error}"));
    let until = agent
        .quarantined_until
        .map(|at| format!("until {} ({})", clock(at), span(at - now)));
    let retry = agent
        .retry_at
        .map(|at| format!("next try {} (in {})", clock(at), span(at - now)));
    let todo = |command: &str| Some(format!("gc agent {command} {name}"));
    let parts = match agent.state {
        AgentState::Running | AgentState::Draining => [reason, None, None, None],
        AgentState::Quarantined => [reason, until, error, todo("unquarantine")],
        AgentState::Backoff => [reason, retry, error, None],
        AgentState::Suspended if is_city(agent) => [reason, Some("gc resume".into()), None, None],
        AgentState::Suspended => [reason, todo("resume"), None, None],
        AgentState::Done => [reason, error, todo("restart"), None],
        AgentState::Stopped => {
            let reason = reason.or(Some("the next patrol tick decides about it".into()));
            [reason, error, None, None]
        }
        AgentState::Starting => {
            let reason = reason.or(Some("its run is just being started".into()));
            [reason, error, None, None]
        }
        _ => [reason, error, None, None],
    };
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => state.to_owned(),
        false => format!("{state}: {}", parts.join("; ")),
    }
}

/// Held back together with everybody else.
fn is_city(agent: &InstanceView) -> bool {
    let reason = agent.reason.as_deref();
    reason.is_some_and(|reason| reason.contains("city"))
}

fn process(agent: &InstanceView) -> Option<String> {
    let up = agent.uptime_ms.map(|ms| age(Duration::from_millis(ms)));
    let pid = agent.pid.map(|pid| format!("pid {pid}"));
    let up = up.map(|up| format!("up {up}"));
    let parts: Vec<String> = pid.into_iter().chain(up).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn restarts(agent: &InstanceView) -> String {
    let window = age(Duration::from_millis(agent.restart_window_ms));
    match agent.max_restarts {
        0 => format!(
            "{} within {window}, never quarantined",
            agent.restarts_in_window
        ),
        max => format!("{} of {max} within {window}", agent.restarts_in_window),
    }
}

fn pool(agent: &InstanceView) -> Option<String> {
    let pool = agent.pool.as_ref()?;
    let max = pool
        .max
        .map_or_else(|| "∞".to_owned(), |max| max.to_string());
    let count = pool.count.map(|count| format!(", now {count}"));
    let (template, min) = (&pool.template, pool.min);
    Some(format!(
        "{template}, {min} to {max}{}",
        count.unwrap_or_default()
    ))
}

fn config(agent: &InstanceView) -> Option<String> {
    let short = |hash: &str| hash.chars().take(15).collect::<String>();
    if agent.config_hash.is_empty() {
        return None;
    }
    let now = short(&agent.config_hash);
    Some(match &agent.drifted_from {
        Some(then) => format!("{now}; the run was started with {}", short(then)),
        None => now,
    })
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n              ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn now() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2026-03-18T13:51:10Z")
            .unwrap()
            .into()
    }

    fn agent(state: &str, more: Value) -> InstanceView {
        let mut agent = json!({
            "name": "w", "qualified_name": "hello/w", "state": state,
            "running": state == "running", "suspended": false, "session": "hello--w",
            "generation": 2, "restarts_in_window": 5, "max_restarts": 5,
            "restart_window_ms": 3_600_000
        });
        for (key, value) in more.as_object().unwrap() {
            agent[key] = value.clone();
        }
        serde_json::from_value(agent).unwrap()
    }

    #[test]
    fn the_first_line_says_why_for_every_state() {
        let check = |state: &str, more: Value, expected: &str| {
            assert_eq!(why(&agent(state, more), now()), expected);
        };
        check("running", json!({}), "running");
        check(
            "quarantined",
            json!({"reason": "crash loop", "quarantined_until": "2026-03-18T14:32:10Z",
                   "last_error": "exit 1: no such model\nmore"}),
            "quarantined: crash loop; until 14:32:10Z (41m); last: exit 1: no such model; \
             gc agent unquarantine hello/w",
        );
        check(
            "backoff",
            json!({"reason": "waiting", "retry_at": "2026-03-18T13:51:18Z", "last_error": "exit 1"}),
            "backoff: waiting; next try 13:51:18Z (in 8s); last: exit 1",
        );
        let held = json!({"reason": "suspended in the config"});
        check(
            "suspended",
            held,
            "suspended: suspended in the config; gc agent resume hello/w",
        );
        let city = json!({"reason": "the city is suspended"});
        check(
            "suspended",
            city,
            "suspended: the city is suspended; gc resume",
        );
        check(
            "stopped",
            json!({}),
            "stopped: the next patrol tick decides about it",
        );
        check(
            "starting",
            json!({}),
            "starting: its run is just being started",
        );
        for state in [
            "blocked", "limited", "held", "frozen", "stopping", "draining",
        ] {
            check(
                state,
                json!({"reason": "because"}),
                &format!("{state}: because"),
            );
        }
        let done = "done: because; gc agent restart hello/w";
        check("done", json!({"reason": "because"}), done);
    }

    #[test]
    fn the_page_has_what_there_is() {
        let more = json!({
            "pid": 7, "uptime_ms": 60_000, "session_id": "abc", "depends_on": ["db"],
            "config_hash": "v1:0123456789abcdef", "drifted_from": "v1:fedcba9876543210",
            "pool": {"template": "hello/w", "min": 0, "max": 2, "count": 1},
            "last_activity": "2026-03-18T13:51:00Z",
            "warnings": ["session_setup failed: exit 1: no\nsuch thing"]
        });
        let agent = agent("running", more);
        let shown = page(
            &Page {
                agent: &agent,
                provider: "subprocess",
                source: "live",
                events: Vec::new(),
                captures: Vec::new(),
            },
            now(),
        );
        let expected = "\
hello/w: running
  Process     pid 7, up 1m
  Session     hello--w (subprocess)
  Run         abc, number 2
  Restarts    5 of 5 within 1h0m
  Warning     session_setup failed: exit 1: no
              such thing
  Active      10s ago
  Pool        hello/w, 0 to 2, now 1
  Needs       db
  Config      v1:0123456789ab; the run was started with v1:fedcba987654
";
        assert_eq!(shown, expected);
    }
}
