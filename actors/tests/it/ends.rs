//! Ends of runs (patrol.md 5): classes, charges, events.

use std::time::Duration;

use gascity_actors::AgentCommand;
use gascity_actors::memory::Behaviour;
use gascity_actors::model::{AgentState, ExitStatus};
use gascity_actors::ports::Note;

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, cannot_start, chain, city, dies_at_once, pass, settle, since,
    story, up,
};

#[tokio::test(start_paused = true)]
async fn crashes_are_told_with_code_or_signal_and_charged() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    for status in [
        ExitStatus::Code(3),
        ExitStatus::Signal(9),
        ExitStatus::Vanished,
    ] {
        pass(MINUTE).await;
        city.sessions.exit("db", status);
        settle().await;
    }
    let events = city.journal.events();
    let crashes: Vec<_> = events
        .iter()
        .filter(|e| e.kind == "agent.crashed")
        .collect();
    assert_eq!(crashes.len(), 3);
    assert_eq!(crashes[0].payload["exit_code"], 3);
    assert_eq!(crashes[1].payload["signal"], 9);
    assert!(!crashes[2].payload.contains_key("exit_code"));
    assert!(crashes.iter().all(|e| e.payload["class"] == "crash"));
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 3);
}

#[tokio::test(start_paused = true)]
async fn a_clean_exit_is_charged_only_if_the_run_was_not_stable() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    let charged = async || town.instance("a", "db").await.restarts_in_window;
    city.sessions.exit("db", ExitStatus::Code(0));
    settle().await;
    assert_eq!(charged().await, 1);
    pass(MINUTE).await;
    city.sessions.exit("db", ExitStatus::Code(0));
    settle().await;
    assert_eq!(charged().await, 1);
    assert_eq!(
        story(&city),
        [
            "started db initial",
            "stopped db exited",
            "started db exit",
            "stopped db exited",
            "started db exit"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_backend_restarts_all_at_once_and_charges_nobody() {
    let (town, city) = Town::with(chain()).await;
    city.sessions.lose_backend(Duration::ZERO, false);
    settle().await;
    assert_eq!(up(&city), ["api", "db", "web"]);
    assert_eq!(city.journal.count("agent.crashed", "db"), 0);
    for name in ["db", "api", "web"] {
        assert_eq!(town.instance("a", name).await.restarts_in_window, 0);
        let of_name: Vec<_> = since(&city, 3)
            .into_iter()
            .filter(|line| line.contains(name))
            .collect();
        let expected = ["stopped", "started"].map(|kind| format!("{kind} {name} provider_lost"));
        assert_eq!(of_name, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_panics_is_a_failed_start() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db").max_restarts(1, HOUR)));
    let panics = Behaviour {
        start_panics: true,
        ..Behaviour::default()
    };
    city.sessions.script("db", panics);
    settle().await;
    assert_eq!(story(&city), ["start_failed db", "quarantined db"]);
}

/// A failed start must not hide that the run before it ended.
#[tokio::test(start_paused = true)]
async fn the_remains_of_a_crash_are_not_adopted_after_a_failed_start() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    city.sessions.script("db", cannot_start());
    city.sessions.exit("db", CRASH);
    pass(2 * MINUTE).await;
    assert_eq!(city.journal.count("agent.crashed", "db"), 1);
    assert_eq!(city.journal.count("agent.adopted", "db"), 0);
    let starts = city.sessions.count("start", None) - 1;
    let charged = town.instance("a", "db").await.restarts_in_window as usize;
    assert_eq!(charged, starts + 1, "one crash, and each failed start");
}

/// Nor must the removal of the agent: what is left of the crash is cleared away, not adopted.
#[tokio::test(start_paused = true)]
async fn the_remains_of_a_crash_are_not_adopted_after_the_agent_was_removed() {
    let (_town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    city.sessions.script("db", crate::util::starts_in(MINUTE));
    city.sessions.exit("db", CRASH);
    settle().await;
    crate::util::save(&city, crate::util::city("a")).await;
    city.sessions.clear_calls();
    pass(10 * MINUTE).await;
    assert_eq!(story(&city), ["started db initial", "crashed db"]);
    assert_eq!(city.sessions.count("stop", Some("db")), 1, "cleared away");
}

#[tokio::test(start_paused = true)]
async fn an_agent_removed_while_a_listing_is_under_way_ends_once() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    city.sessions
        .delay_listing(std::time::Duration::from_secs(5));
    crate::util::save(&city, crate::util::city("a")).await;
    pass(MINUTE).await;
    assert_eq!(story(&city), ["started db initial", "stopped db orphan"]);
    assert_eq!(town.view("a").await.instances.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stable_run_breaks_the_row_of_crashes() {
    let (_town, city) = Town::with(city("a").agent(agent("db").max_restarts(0, HOUR))).await;
    for _ in 0..3 {
        city.sessions.exit("db", CRASH);
        pass(10 * std::time::Duration::from_secs(1)).await;
    }
    pass(MINUTE).await;
    let at = tokio::time::Instant::now();
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(up(&city), ["db"]);
    assert_eq!(at.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_dead_session_with_an_open_drain_ended_as_planned() {
    let (mut town, city) = Town::with(city("a").agent(agent("db"))).await;
    let drain = AgentCommand::Drain { timeout: None };
    town.command("a", "db", drain).await.unwrap();
    settle().await;
    town.kill_all_actors().await;
    city.sessions.exit("db", CRASH);
    town.found().await;
    assert_eq!(story(&city)[2..], ["stopped db drained", "started db user"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_found_on_an_adopted_session_is_honoured() {
    let (mut town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(2 * MINUTE).await;
    town.kill_all_actors().await;
    city.sessions.note("db", Note::RestartRequested, Some("1"));
    town.found().await;
    assert_eq!(
        story(&city)[1..],
        ["adopted db", "stopped db requested", "started db requested"]
    );
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn a_leftover_stop_intent_of_a_live_run_is_removed() {
    let (mut town, city) = Town::with(city("a").agent(agent("db"))).await;
    town.kill_all_actors().await;
    city.sessions.note("db", Note::StopIntent, Some("shutdown"));
    town.found().await;
    assert_eq!(city.sessions.noted("db", Note::StopIntent), None);
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(city.journal.count("agent.crashed", "db"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_removed_from_quarantine_leaves_it() {
    let town = Town::new().await;
    let city = town.add(
        city("a")
            .agent(agent("db"))
            .agent(agent("bad").max_restarts(1, HOUR)),
    );
    city.sessions.script("bad", dies_at_once());
    settle().await;
    assert_eq!(town.state("a", "bad").await.0, AgentState::Quarantined);
    let told = story(&city).len();
    crate::util::save(&city, crate::util::city("a").agent(agent("db"))).await;
    assert_eq!(since(&city, told), ["unquarantined bad removed"]);
    assert_eq!(town.view("a").await.instances.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_planned_stop_is_forced_after_the_grace_and_says_so() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.script("db", crate::util::stubborn());
    settle().await;
    let restart = AgentCommand::Restart;
    town.command("a", "db", restart).await.unwrap();
    settle().await;
    assert_eq!(
        city.sessions.noted("db", Note::StopIntent).as_deref(),
        Some("user")
    );
    pass(std::time::Duration::from_millis(4990)).await;
    assert_eq!(story(&city).len(), 1);
    pass(std::time::Duration::from_millis(20)).await;
    assert_eq!(story(&city)[1..], ["stopped db user", "started db user"]);
    let events = city.journal.events();
    let stopped = events.iter().find(|e| e.kind == "agent.stopped").unwrap();
    assert_eq!(stopped.payload["forced"], true);
}
