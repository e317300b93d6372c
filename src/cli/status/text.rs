//! A city's status as people read it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use gascity_actors::age;

use crate::cli::values::table;
use crate::control::detail::Controller;
use crate::model::{
    AgentState, CityInfo, CityMode, CityStatus, CityView, ConfigState, ConfigView, InstanceView,
};

/// The whole page.
pub(in crate::cli) fn city(
    info: &CityInfo,
    view: Option<&CityView>,
    instances: &[InstanceView],
    controller: &Controller,
    now: DateTime<Utc>,
) -> String {
    let mut page = format!("{}  {}\n", info.name, info.path.display());
    let mut line = |label: &str, text: String| page.push_str(&format!("  {label:<10}  {text}\n"));
    line("Controller", controller_line(controller, view, now));
    if info.status != CityStatus::Running && (controller.running || info.error.is_some()) {
        line("Status", status_line(info, now));
    }
    let Some(view) = view else {
        agents(&mut page, instances, now);
        return page;
    };
    line("Mode", mode_line(view));
    if view.suspended {
        line("Suspended", "yes".to_owned());
    }
    line("Sessions", sessions_line(view));
    line("Config", config_line(&view.config));
    for problem in &view.config.diagnostics {
        let (file, at, column) = (&problem.file, problem.line, problem.column);
        line("", format!("{file}:{at}:{column}: {}", problem.message));
    }
    for text in &view.degraded {
        line("Degraded", text.clone());
    }
    if !view.foreign_sessions.is_empty() {
        line("Foreign", view.foreign_sessions.join(", "));
    }
    if view.instances.is_empty() {
        line("Agents", "none".to_owned());
    }
    agents(&mut page, instances, now);
    page
}

fn agents(page: &mut String, instances: &[InstanceView], now: DateTime<Utc>) {
    if instances.is_empty() {
        return;
    }
    page.push_str(&format!("  Agents      {}\n", agent_counts(instances)));
    let rows: Vec<Vec<String>> = instances.iter().map(|i| row(i, now)).collect();
    for row in table(&["NAME", "STATE", "UP", "RESTARTS", "NOTE"], &rows).lines() {
        page.push_str(&format!("    {row}\n"));
    }
}

fn controller_line(controller: &Controller, view: Option<&CityView>, now: DateTime<Utc>) -> String {
    if !controller.running {
        return "not running".to_owned();
    }
    let mut text = controller.mode.as_deref().unwrap_or("unknown").to_owned();
    if let Some(pid) = controller.pid {
        text.push_str(&format!(" (pid {pid})"));
    }
    if let Some(view) = view {
        text.push_str(&format!(
            ", up {}",
            age(Duration::from_secs(view.uptime_sec))
        ));
        if let Some(at) = view.last_tick_at {
            text.push_str(&format!(", last tick {} ago", span(now - at)));
        }
        if let Some(took) = view.last_tick_ms {
            text.push_str(&format!(" ({took}ms)"));
        }
    }
    text
}

fn status_line(info: &CityInfo, now: DateTime<Utc>) -> String {
    let mut text = plain_word(info.status.as_str());
    if let Some(error) = &info.error {
        text.push_str(&format!(": {}", error.replace('\n', "\n              ")));
    }
    if let Some(at) = info.next_retry_at {
        text.push_str(&format!("; retry in {}", span(at - now)));
    }
    text
}

/// What agents lack, and why.
fn mode_line(view: &CityView) -> String {
    match (view.mode, view.mode_reason.as_deref()) {
        (CityMode::Normal, _) => "normal".to_owned(),
        (CityMode::Degraded, why) => format!(
            "degraded: {}; agents have no screen and no input",
            why.unwrap_or("tmux cannot be used")
        ),
    }
}

/// The provider, and why this one if gc chose it.
fn sessions_line(view: &CityView) -> String {
    match view.provider_why.as_str() {
        "" => view.provider.clone(),
        why => format!("{} ({why})", view.provider),
    }
}

fn config_line(config: &ConfigView) -> String {
    let revision: String = config.revision.chars().take(6).collect();
    let loaded = clock(config.loaded_at);
    let state = match config.state {
        ConfigState::Ok => "",
        ConfigState::Stale => "; the version on disk has errors and is not in force",
        ConfigState::Refused => "; the version on disk needs gc restart",
    };
    format!("{revision}, loaded {loaded}{state}")
}

/// `3 running, 1 quarantined`, in order of first appearance with the running ones ahead.
pub(in crate::cli) fn agent_counts(instances: &[InstanceView]) -> String {
    let mut counts: Vec<(AgentState, usize)> = Vec::new();
    for instance in instances {
        match counts
            .iter_mut()
            .find(|(state, _)| *state == instance.state)
        {
            Some((_, count)) => *count += 1,
            None => counts.push((instance.state, 1)),
        }
    }
    counts.sort_by_key(|(state, _)| *state != AgentState::Running);
    let parts = counts
        .iter()
        .map(|(state, n)| format!("{n} {}", state.as_str()));
    parts.collect::<Vec<_>>().join(", ")
}

/// Name, state, up time, restarts and note of an agent.
pub(in crate::cli) fn row(instance: &InstanceView, now: DateTime<Utc>) -> Vec<String> {
    let up = instance.uptime_ms.map(|ms| age(Duration::from_millis(ms)));
    let limit = match instance.max_restarts {
        0 => "∞".to_owned(),
        max => max.to_string(),
    };
    vec![
        instance.qualified_name.to_string(),
        instance.state.as_str().to_owned(),
        up.unwrap_or_else(|| "-".to_owned()),
        format!("{}/{limit}", instance.restarts_in_window),
        note(instance, now),
    ]
}

/// Until when and why an agent is in its state, or which process it is.
pub(in crate::cli) fn note(instance: &InstanceView, now: DateTime<Utc>) -> String {
    let until = instance
        .quarantined_until
        .map(|at| format!("until {} ({})", clock(at), span(at - now)));
    let retry = instance
        .retry_at
        .map(|at| format!("retry in {}", span(at - now)));
    let troubled = matches!(
        instance.state,
        AgentState::Quarantined | AgentState::Backoff
    );
    // A healthy run has left its predecessor's failure behind.
    let error = (instance.last_error.as_ref()).filter(|_| !instance.running);
    let reason = error.or(instance.reason.as_ref());
    let reason = reason.and_then(|text| text.lines().next()).map(clipped);
    let pid = instance.pid.map(|pid| format!("pid {pid}"));
    let parts = match troubled {
        true => [until, retry, reason],
        false => [None, reason, pid],
    };
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// `init failed` for `init_failed`.
pub(in crate::cli) fn plain_word(word: &str) -> String {
    word.replace('_', " ")
}

/// A time of day.
pub(in crate::cli) fn clock(at: DateTime<Utc>) -> String {
    at.format("%H:%M:%SZ").to_string()
}

/// A distance in time that may have passed already.
pub(in crate::cli) fn span(delta: chrono::TimeDelta) -> String {
    age(delta.to_std().unwrap_or_default())
}

fn clipped(line: &str) -> String {
    if line.chars().count() <= 60 {
        return line.to_owned();
    }
    line.chars().take(59).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2026-03-18T13:51:10Z")
            .unwrap()
            .into()
    }

    fn info(status: &str) -> CityInfo {
        serde_json::from_value(json!({
            "name": "bright-lights", "path": "/home/user/bright-lights",
            "running": status == "running", "status": status
        }))
        .unwrap()
    }

    fn instance(name: &str, state: &str) -> InstanceView {
        serde_json::from_value(json!({
            "name": name, "qualified_name": format!("hello/{name}"), "state": state,
            "running": state == "running", "suspended": false, "session": name,
            "generation": 1, "restarts_in_window": 1, "max_restarts": 5,
            "restart_window_ms": 3_600_000
        }))
        .unwrap()
    }

    fn view(instances: Vec<InstanceView>) -> CityView {
        let mut view: CityView = serde_json::from_value(json!({
            "name": "bright-lights", "path": "/home/user/bright-lights", "provider": "subprocess",
            "provider_why": "auto: tmux not found", "mode": "degraded", "mode_reason": "tmux not found", "suspended": false, "uptime_sec": 187_200, "last_tick_at": "2026-03-18T13:50:58Z",
            "last_tick_ms": 41, "ticks_missed": 0, "instances": [],
            "config": {"revision": "3f9ac1deadbeef", "loaded_at": "2026-03-18T10:02:11Z", "state": "ok"}
        }))
        .unwrap();
        view.instances = instances;
        view
    }

    fn supervisor() -> Controller {
        Controller {
            running: true,
            pid: Some(4021),
            mode: Some("supervisor".into()),
        }
    }

    #[test]
    fn a_running_city_shows_controller_config_and_agents() {
        let mut one = instance("worker-1", "running");
        one.uptime_ms = Some(2_400_000);
        one.pid = Some(77);
        one.last_error = Some("exit 1".into());
        let mut two = instance("worker-2", "quarantined");
        two.restarts_in_window = 5;
        two.quarantined_until = Some("2026-03-18T14:32:10Z".parse().unwrap());
        two.last_error = Some("exit 1: no such model\nmore".into());
        let mut three = instance("worker-3", "suspended");
        three.max_restarts = 0;
        let view = view(vec![two, one, three]);
        let page = city(
            &info("running"),
            Some(&view),
            &view.instances,
            &supervisor(),
            now(),
        );
        let expected = "\
bright-lights  /home/user/bright-lights
  Controller  supervisor (pid 4021), up 2d4h, last tick 12s ago (41ms)
  Mode        degraded: tmux not found; agents have no screen and no input
  Sessions    subprocess (auto: tmux not found)
  Config      3f9ac1, loaded 10:02:11Z
  Agents      1 running, 1 quarantined, 1 suspended
    NAME            STATE        UP   RESTARTS  NOTE
    hello/worker-2  quarantined  -    5/5       until 14:32:10Z (41m); exit 1: no such model
    hello/worker-1  running      40m  1/5       pid 77
    hello/worker-3  suspended    -    1/∞
";
        assert_eq!(page, expected);
    }

    #[test]
    fn a_failed_city_shows_why_and_when_it_is_tried_again() {
        let mut info = info("init_failed");
        info.error = Some("no such provider".into());
        info.next_retry_at = Some("2026-03-18T13:51:18Z".parse().unwrap());
        let page = city(&info, None, &[], &supervisor(), now());
        let expected = "\
bright-lights  /home/user/bright-lights
  Controller  supervisor (pid 4021)
  Status      init failed: no such provider; retry in 8s
";
        assert_eq!(page, expected);
    }

    #[test]
    fn a_city_that_nobody_runs_says_so() {
        let nobody = Controller {
            running: false,
            pid: None,
            mode: None,
        };
        let page = city(&info("stopped"), None, &[], &nobody, now());
        assert!(page.ends_with("\n  Controller  not running\n"), "{page}");
        assert_eq!(json!(nobody), json!({"running": false}));
    }

    #[test]
    fn a_config_that_is_not_in_force_is_pointed_at() {
        let mut view = view(Vec::new());
        view.config.state = ConfigState::Stale;
        view.config.diagnostics = vec![crate::ports::Diagnostic {
            file: "city.toml".into(),
            line: 3,
            column: 5,
            message: "unknown key".into(),
            ..Default::default()
        }];
        let page = city(
            &info("running"),
            Some(&view),
            &view.instances,
            &supervisor(),
            now(),
        );
        assert!(page.contains("has errors"), "{page}");
        assert!(page.contains("city.toml:3:5: unknown key"), "{page}");
        assert!(page.contains("Agents      none"), "{page}");
    }
}
