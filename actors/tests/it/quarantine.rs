use std::time::Duration;

use gascity_actors::model::AgentState;

use crate::util::{HOUR, MINUTE, Town, agent, city, dies_at_once, pass, settle};

const TEN_MINUTES: Duration = Duration::from_secs(600);

async fn crash_looping() -> (Town, gascity_actors::memory::MemoryCity) {
    let town = Town::new().await;
    let spec = city("a").daemon(|d| d.patrol_interval = HOUR);
    let city = town.add(spec.agent(agent("db").max_restarts(3, TEN_MINUTES)));
    city.sessions.script("db", dies_at_once());
    (town, city)
}

/// The worked sequence "crash loop" of the patrol spec, as an event trace with times.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_is_quarantined_returns_and_is_quarantined_again() {
    let (town, city) = crash_looping().await;
    pass(Duration::from_secs(620)).await;
    let start = city.journal.events()[0].ts;
    let trace: Vec<String> = city
        .journal
        .events()
        .iter()
        .skip(1)
        .map(|e| format!("{}ms {}", (e.ts - start).num_milliseconds(), e.kind))
        .collect();
    let expected = [
        "0ms agent.started",
        "0ms agent.crashed",
        "0ms agent.started",
        "0ms agent.crashed",
        "1000ms agent.started",
        "1000ms agent.crashed",
        "1000ms agent.quarantined",
        "600001ms agent.unquarantined",
        "600001ms agent.started",
        "600001ms agent.crashed",
        "604001ms agent.started",
        "604001ms agent.crashed",
        "612001ms agent.started",
        "612001ms agent.crashed",
        "612001ms agent.quarantined",
    ];
    // tokio's timers have a resolution of one millisecond and never fire early.
    assert_eq!(trace.len(), expected.len(), "{trace:#?}");
    for (seen, expected) in trace.iter().zip(expected) {
        let (at, kind) = seen.split_once("ms ").unwrap();
        let (due, expected_kind) = expected.split_once("ms ").unwrap();
        let late = at.parse::<i64>().unwrap() - due.parse::<i64>().unwrap();
        assert_eq!(kind, expected_kind);
        assert!((0..=4).contains(&late), "{seen}, expected {expected}");
    }
    let view = town.instance("a", "db").await;
    assert_eq!(
        (view.state, view.restarts_in_window),
        (AgentState::Quarantined, 3)
    );
}

/// Invariant I6: at `until` not started, one millisecond later started.
#[tokio::test(start_paused = true)]
async fn quarantine_expires_one_millisecond_after_until() {
    let (town, city) = crash_looping().await;
    pass(MINUTE).await;
    let until = town.instance("a", "db").await.quarantined_until.unwrap();
    let now = city.journal.events()[0].ts + tokio::time::Duration::from_secs(60);
    let left = (until - now).to_std().unwrap();
    pass(left).await;
    assert_eq!(city.sessions.count("start", None), 3, "not at `until`");
    pass(Duration::from_millis(2)).await;
    assert_eq!(city.sessions.count("start", None), 4);
}

/// Invariant I5: an always-dying agent has at most N starts in any window.
#[tokio::test(start_paused = true)]
async fn an_always_dying_agent_is_started_at_most_n_times_in_any_window() {
    let (_town, city) = crash_looping().await;
    pass(6 * HOUR).await;
    let starts: Vec<_> = city
        .sessions
        .calls()
        .into_iter()
        .filter(|c| c.op == "start")
        .map(|c| c.at)
        .collect();
    assert!(
        starts.len() > 50,
        "quarantine is not the end: {}",
        starts.len()
    );
    for (i, start) in starts.iter().enumerate() {
        let within = starts[i..]
            .iter()
            .filter(|s| **s - *start <= TEN_MINUTES)
            .count();
        assert!(within <= 3, "{within} starts from {start:?}");
    }
}

/// Invariant I8: refused starts are silent.
#[tokio::test(start_paused = true)]
async fn a_thousand_ticks_in_quarantine_are_one_event() {
    let town = Town::new().await;
    let spec = city("a").daemon(|d| d.patrol_interval = Duration::from_secs(1));
    let city = town.add(spec.agent(agent("db").max_restarts(3, HOUR)));
    city.sessions.script("db", dies_at_once());
    pass(Duration::from_secs(1010)).await;
    assert!(city.sessions.count("snapshot", None) > 1000);
    assert_eq!(city.journal.count("agent.quarantined", "db"), 1);
    assert_eq!(
        city.sessions.count("start", None),
        3,
        "three starts, no fourth"
    );
    let event = city
        .journal
        .events()
        .iter()
        .find(|e| e.kind == "agent.quarantined")
        .cloned()
        .unwrap();
    assert_eq!(event.message, "crash loop detected");
    assert_eq!(event.payload["restarts"], 3);
    let view = town.instance("a", "db").await;
    let until = event.payload["until"].as_str().unwrap().to_owned();
    assert_eq!(
        gascity_actors::model::millis::format(&view.quarantined_until.unwrap()),
        until
    );
}

#[tokio::test(start_paused = true)]
async fn an_applied_reload_ends_quarantine_and_a_refused_one_does_not() {
    let (_town, city) = crash_looping().await;
    pass(MINUTE).await;
    let broken = gascity_actors::ports::LoadError {
        summary: "bad".into(),
        diagnostics: vec![],
    };
    city.desired.set(Err(broken));
    settle().await;
    assert_eq!(city.sessions.count("start", None), 3);
    let edited = crate::util::city("a").agent(agent("db").max_restarts(4, TEN_MINUTES));
    city.desired.set(Ok(edited.build().unwrap()));
    settle().await;
    assert_eq!(city.journal.count("agent.unquarantined", "db"), 1);
    let cause = city
        .journal
        .events()
        .iter()
        .find(|e| e.kind == "agent.unquarantined")
        .cloned();
    assert_eq!(cause.unwrap().payload["cause"], "reload");
    assert!(city.sessions.count("start", None) > 3);
}
