use std::time::Duration;

use gascity_actors::AgentCommand;
use gascity_actors::memory::MemoryCity;
use gascity_actors::model::{AgentSpecBuilder, PoolSpec};
use gascity_actors::ports::{Note, SessionError};

use crate::util::{HOUR, MINUTE, Town, agent, chain, city, pass, save, settle, since, story};

const LIMIT: Duration = Duration::from_secs(1800);
const SECOND: Duration = Duration::from_secs(1);

fn db() -> AgentSpecBuilder {
    agent("db").idle_timeout(LIMIT)
}

/// Ticks every hour: whatever happens in between was not the patrol.
async fn patient() -> (Town, MemoryCity) {
    Town::with(city("a").daemon(|d| d.patrol_interval = HOUR).agent(db())).await
}

#[tokio::test(start_paused = true)]
async fn idle_means_strictly_longer_than_the_limit() {
    let (_town, city) = patient().await;
    pass(LIMIT).await;
    assert_eq!(story(&city).len(), 1);
    pass(Duration::from_millis(3)).await;
    assert_eq!(story(&city)[1..], ["idle_killed db", "started db idle"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_started_between_ticks_is_watched_too() {
    let (_town, city) = patient().await;
    pass(2 * LIMIT - 2 * MINUTE).await;
    assert_eq!(city.journal.count("agent.idle_killed", "db"), 1);
    pass(3 * MINUTE).await;
    assert_eq!(city.journal.count("agent.idle_killed", "db"), 2);
}

#[tokio::test(start_paused = true)]
async fn activity_keeps_an_agent_alive() {
    let (_town, city) = patient().await;
    for _ in 0..10 {
        pass(LIMIT - SECOND).await;
        city.sessions.touch("db");
    }
    assert_eq!(story(&city).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unknown_activity_is_not_idleness() {
    let (_town, city) = patient().await;
    city.sessions.hide_activity("db");
    pass(10 * HOUR).await;
    assert_eq!(story(&city).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_observed_is_not_idle() {
    let (_town, city) = Town::with(city("a").agent(db())).await;
    city.sessions
        .fail_listing(Some(SessionError::Backend("down".into())));
    pass(10 * HOUR).await;
    assert_eq!(story(&city).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_left_out_of_a_listing_is_not_idle() {
    let (_town, city) = Town::with(city("a").agent(db())).await;
    city.sessions.partial_listing(Some("*"));
    pass(10 * HOUR).await;
    assert_eq!(story(&city).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn idle_kills_are_not_charged_and_clear_the_scrollback() {
    let (town, city) = patient().await;
    pass(5 * LIMIT).await;
    assert!(city.journal.count("agent.idle_killed", "db") >= 4);
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
    let kills = city.journal.count("agent.idle_killed", "db");
    assert_eq!(city.sessions.count("clear_scrollback", Some("db")), kills);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_fresh_session_comes_before_idleness() {
    let (_town, city) = Town::with(city("a").agent(db())).await;
    pass(LIMIT - SECOND).await;
    city.sessions.note("db", Note::RestartRequested, Some("1"));
    pass(SECOND + Duration::from_millis(5)).await;
    assert_eq!(
        story(&city)[1..],
        ["stopped db requested", "started db requested"]
    );
}

/// Race: idle and drift together. Idle acts, and the new run has the new config.
#[tokio::test(start_paused = true)]
async fn idle_and_drifted_is_one_restart() {
    let (_town, city) = patient().await;
    city.sessions.set_attached("db", true);
    pass(LIMIT + MINUTE).await;
    city.sessions.set_attached("db", false);
    let edited = crate::util::city("a").agent(db().env("A", "1"));
    save(&city, edited).await;
    pass(MINUTE).await;
    assert_eq!(story(&city)[1..], ["idle_killed db", "started db idle"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_that_drains_is_left_to_its_drain() {
    let (town, city) = patient().await;
    let drain = AgentCommand::Drain { timeout: None };
    town.command("a", "db", drain).await.unwrap();
    pass(10 * HOUR).await;
    assert_eq!(story(&city)[1..], ["draining db user"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_is_restarted_alone() {
    let town = Town::new().await;
    let city = town.add(
        chain()
            .agent(agent("lazy").idle_timeout(MINUTE))
            .daemon(|d| d.patrol_interval = HOUR),
    );
    settle().await;
    let told = story(&city).len();
    pass(MINUTE + SECOND).await;
    assert_eq!(
        since(&city, told),
        ["idle_killed lazy", "started lazy idle"]
    );
}

/// Each check of a pool looks at its members again; what cannot be done must not ask for a tick
/// that begins the next check.
#[tokio::test(start_paused = true)]
async fn idle_members_that_cannot_be_stopped_do_not_make_ticks_chase_each_other() {
    let pool = PoolSpec {
        min: 1,
        max: Some(2),
        check: Some("count".into()),
        ..PoolSpec::default()
    };
    let crew = agent("crew").pool(pool).idle_timeout(MINUTE);
    let town = Town::new().await;
    let city = town.add(city("a").agent(crew).daemon(|d| d.patrol_interval = MINUTE));
    city.shell.prints("count", "2");
    settle().await;
    city.sessions
        .fail_stops(Some(SessionError::Backend("busy".into())));
    pass(5 * MINUTE).await;
    let listings = city.sessions.count("snapshot", None);
    assert!((5..15).contains(&listings), "{listings} listings");
}
