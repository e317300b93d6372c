use std::time::Duration;

use gascity_actors::memory::Behaviour;
use gascity_actors::model::{AgentState, ExitStatus, FailureClass, RestartType, StartFailure};

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, agent_trace, city, dies_at_once, pass, settle,
};

#[tokio::test(start_paused = true)]
async fn the_desired_set_is_started_and_the_city_runs() {
    let (town, city) = Town::with(city("a").agent(agent("db")).agent(agent("rig/api"))).await;
    assert_eq!(
        city.journal.trace(),
        [
            "controller.started",
            "agent.started db",
            "agent.started rig/api"
        ]
    );
    assert_eq!(town.status("a").as_str(), "running");
    let db = town.instance("a", "db").await;
    assert_eq!(
        (db.state, db.running, db.generation),
        (AgentState::Running, true, 1)
    );
}

/// Invariant I22: exits are events; no tick is needed.
#[tokio::test(start_paused = true)]
async fn exit_beats_tick_a_stable_agent_is_back_without_any_time_passing() {
    let spec = city("a")
        .daemon(|d| d.patrol_interval = HOUR)
        .agent(agent("db"));
    let (_town, city) = Town::with(spec).await;
    pass(10 * MINUTE).await;
    let before = city.sessions.running();
    let at = tokio::time::Instant::now();
    assert!(city.sessions.exit("db", CRASH));
    settle().await;
    assert_eq!(tokio::time::Instant::now(), at);
    let after = city.sessions.running();
    assert_eq!(after.len(), 1);
    assert_ne!(before, after, "a new run");
    assert_eq!(
        agent_trace(&city),
        ["agent.started db", "agent.crashed db", "agent.started db"]
    );
    let crashed = city
        .journal
        .events()
        .iter()
        .find(|e| e.kind == "agent.crashed")
        .cloned()
        .unwrap();
    assert_eq!(crashed.payload["exit_code"], 1);
    assert_eq!(crashed.payload["uptime_ms"], 600_000);
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_reported_with_the_last_words() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    let behaviour = Behaviour {
        output: "one\nno such model\n".into(),
        ..Behaviour::default()
    };
    city.sessions.script("db", behaviour);
    city.sessions.exit("db", CRASH); // the run after this one speaks
    settle().await;
    city.sessions.exit("db", CRASH);
    settle().await;
    let crashed = city
        .journal
        .events()
        .into_iter()
        .rfind(|e| e.kind == "agent.crashed")
        .unwrap();
    assert_eq!(crashed.message, "exit 1\none\nno such model");
    let db = town.instance("a", "db").await;
    assert_eq!(db.last_error.as_deref(), Some("exit 1: no such model"));
}

#[tokio::test(start_paused = true)]
async fn restarts_in_a_row_are_paced_and_ticks_do_not_shorten_the_delay() {
    let spec = city("a")
        .daemon(|d| d.patrol_interval = Duration::from_millis(100))
        .agent(agent("db").max_restarts(0, HOUR));
    let (town, city) = Town::with(spec).await;
    city.sessions.script("db", dies_at_once());
    city.sessions.clear_calls();
    let t0 = tokio::time::Instant::now();
    city.sessions.exit("db", CRASH);
    pass(70 * Duration::from_secs(1)).await;
    let starts: Vec<u64> = city
        .sessions
        .calls()
        .iter()
        .filter(|call| call.op == "start")
        .map(|call| (call.at - t0).as_secs())
        .collect();
    assert_eq!(starts, [0, 1, 3, 7, 15, 31, 61]);
    let db = town.instance("a", "db").await;
    assert_eq!(db.state, AgentState::Backoff);
    assert!(db.retry_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_transient_agent_that_exits_cleanly_is_done() {
    let spec = city("a")
        .agent(agent("job").restart(RestartType::Transient))
        .agent(agent("once").restart(RestartType::Temporary));
    let (town, city) = Town::with(spec).await;
    city.sessions.exit("job", ExitStatus::Code(0));
    city.sessions.exit("once", CRASH);
    pass(HOUR).await;
    for name in ["job", "once"] {
        let view = town.instance("a", name).await;
        assert_eq!(view.state, AgentState::Done, "{name}");
        assert!(view.reason.is_some(), "{name}");
    }
    assert_eq!(city.sessions.count("start", None), 2);
    assert_eq!(city.sessions.running(), []);
    assert_eq!(city.journal.count("agent.stopped", "job"), 1);
    assert_eq!(city.journal.count("agent.crashed", "once"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_charged_to_the_agent_but_never_to_it_for_the_backend() {
    let failure = |class| StartFailure::new("spawn", class, "nope");
    let fails = |class| Behaviour {
        start_fails: Some(failure(class)),
        ..Behaviour::default()
    };
    let town = Town::new().await;
    let spec = city("a").agent(agent("bad")).agent(agent("unlucky"));
    let city = town.add(spec);
    city.sessions.script("bad", fails(FailureClass::Agent));
    city.sessions
        .script("unlucky", fails(FailureClass::Provider));
    pass(5 * MINUTE).await;
    let bad = town.instance("a", "bad").await;
    assert_eq!(bad.state, AgentState::Quarantined);
    assert_eq!(city.journal.count("agent.start_failed", "bad"), 5);
    assert_eq!(city.sessions.count("start", Some("bad")), 5);
    let unlucky = town.instance("a", "unlucky").await;
    assert_eq!(
        (unlucky.state, unlucky.restarts_in_window),
        (AgentState::Backoff, 0)
    );
    assert_eq!(
        city.journal.count("agent.start_failed", "unlucky"),
        1,
        "first of a streak"
    );
    assert!(
        city.sessions.count("start", Some("unlucky")) > 10,
        "retried for ever"
    );
    assert_eq!(city.journal.count("agent.started", "bad"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_hangs_is_given_up_and_its_session_stopped() {
    let hangs = Behaviour {
        start_after: HOUR,
        ..Behaviour::default()
    };
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("slow")).startup_timeout(MINUTE));
    city.sessions.script("slow", hangs);
    pass(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(city.journal.count("agent.start_failed", "slow"), 1);
    assert!(city.sessions.count("stop", Some("slow")) >= 1);
    assert_eq!(city.journal.count("agent.started", "slow"), 0);
}

#[tokio::test(start_paused = true)]
async fn starts_in_flight_are_bounded_and_a_freed_permit_is_used_at_once() {
    let town = Town::new().await;
    let mut spec = city("a").daemon(|d| d.start_parallelism = 3);
    for i in 0..10 {
        spec = spec.agent(agent(&format!("w{i}")));
    }
    let city = town.add(spec);
    for i in 0..10 {
        let takes = Duration::from_secs(if i == 0 { 60 } else { 1 });
        city.sessions.script(
            &format!("w{i}"),
            Behaviour {
                start_after: takes,
                ..Behaviour::default()
            },
        );
    }
    settle().await;
    assert_eq!(city.sessions.count("start", None), 3);
    pass(Duration::from_millis(4500)).await;
    // Two permits serve nine agents at one per second each, while the slow one holds the third.
    assert_eq!(city.sessions.count("start", None), 10);
    assert_eq!(town.status("a").as_str(), "starting_agents");
    pass(MINUTE).await;
    assert_eq!(town.status("a").as_str(), "running");
}

#[tokio::test(start_paused = true)]
async fn a_lost_exit_notification_is_caught_by_the_next_tick() {
    let (_town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    city.sessions.exit_unnoticed("db", ExitStatus::Code(3));
    settle().await;
    assert_eq!(city.sessions.running(), []);
    pass(Duration::from_secs(31)).await;
    assert_eq!(city.sessions.running().len(), 1);
    let crashed = city
        .journal
        .events()
        .iter()
        .find(|e| e.kind == "agent.crashed")
        .cloned()
        .unwrap();
    assert_eq!(crashed.payload["exit_code"], 3);
}
