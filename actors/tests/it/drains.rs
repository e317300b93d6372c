use std::time::Duration;

use gascity_actors::AgentCommand::{Drain, DrainAck, Undrain};
use gascity_actors::CommandError;
use gascity_actors::memory::MemoryCity;
use gascity_actors::model::{AgentState, ExitStatus, OnDrift, PoolSpec};
use gascity_actors::ports::Note;

use crate::util::{HOUR, MINUTE, Town, agent, city, pass, pool, save, settle, since, story, up};

const SECOND: Duration = Duration::from_secs(1);
const BY_USER: gascity_actors::AgentCommand = Drain { timeout: None };

/// A pool of two that wants one: the second drains.
async fn shrunk(spec: PoolSpec) -> (Town, MemoryCity, usize) {
    let town = Town::new().await;
    let spec = city("a")
        .daemon(|d| d.patrol_interval = HOUR)
        .agent(agent("w").pool(spec));
    let city = town.add(spec);
    city.shell.prints("count", "2");
    settle().await;
    let told = story(&city).len();
    count(&town, &city, "1").await;
    assert_eq!(since(&city, told), ["draining w-2 pool-excess"]);
    (town, city, told + 1)
}

async fn count(town: &Town, city: &MemoryCity, text: &str) {
    city.shell.prints("count", text);
    town.city("a").poke().await.unwrap();
    settle().await;
}

async fn one() -> (Town, MemoryCity) {
    Town::with(city("a").agent(agent("db"))).await
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_written_into_the_sessions_metadata() {
    let (_town, city, _) = shrunk(pool()).await;
    let note = |note| city.sessions.noted("w-2", note);
    assert_eq!(note(Note::DrainReason).as_deref(), Some("pool-excess"));
    assert_eq!(note(Note::Drain).as_deref(), Some("1767225600"));
}

#[tokio::test(start_paused = true)]
async fn an_ack_stops_at_once() {
    let (town, city, told) = shrunk(pool()).await;
    city.sessions.note("w-2", Note::DrainAck, Some("1")); // as `gc agent drain-ack` does
    town.city("a").poke().await.unwrap();
    settle().await;
    assert_eq!(since(&city, told), ["stopped w-2 drained"]);
    assert_eq!(town.view("a").await.instances.len(), 1, "its slot is gone");
}

#[tokio::test(start_paused = true)]
async fn an_exit_of_a_draining_run_is_planned_even_without_an_ack() {
    let (_town, city, told) = shrunk(pool()).await;
    city.sessions.exit("w-2", ExitStatus::Code(3));
    settle().await;
    assert_eq!(since(&city, told), ["stopped w-2 drained"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_forced_strictly_after_its_timeout() {
    let (_town, city, told) = shrunk(pool()).await;
    pass(5 * MINUTE).await;
    assert_eq!(since(&city, told).len(), 0, "at the timeout not yet");
    pass(Duration::from_millis(2)).await;
    assert_eq!(since(&city, told), ["stopped w-2 drain_timeout"]);
    assert_eq!(city.sessions.count("interrupt", Some("w-2")), 0, "forced");
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_a_drain_is_never_forced() {
    let endless = PoolSpec {
        drain_timeout: None,
        ..pool()
    };
    let (_town, city, told) = shrunk(endless).await;
    pass(24 * HOUR).await;
    assert_eq!(since(&city, told).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_wanted_again_is_undrained() {
    let (town, city, told) = shrunk(pool()).await;
    count(&town, &city, "2").await;
    assert_eq!(since(&city, told), ["undrained w-2"]);
    assert_eq!(city.sessions.noted("w-2", Note::Drain), None);
    pass(10 * MINUTE).await;
    assert_eq!(up(&city), ["w-1", "w-2"], "the old timeout means nothing");
}

#[tokio::test(start_paused = true)]
async fn an_ack_wins_over_a_slot_that_is_wanted_again() {
    let (town, city, told) = shrunk(pool()).await;
    city.sessions.note("w-2", Note::DrainAck, Some("1"));
    count(&town, &city, "2").await;
    assert_eq!(
        since(&city, told),
        ["stopped w-2 drained", "started w-2 scale_up"],
        "drained, and since it is wanted, fresh"
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_drain_changes_nothing() {
    let (town, city) = one().await;
    town.command("a", "db", BY_USER).await.unwrap();
    settle().await;
    let first = city.sessions.noted("db", Note::Drain);
    pass(10 * SECOND).await;
    let again = Drain {
        timeout: Some(SECOND),
    };
    town.command("a", "db", again).await.unwrap();
    pass(MINUTE).await;
    assert_eq!(city.sessions.noted("db", Note::Drain), first);
    assert_eq!(city.journal.count("agent.draining", "db"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_by_a_user_of_a_fixed_agent_has_no_timeout_unless_given() {
    let (town, city) = one().await;
    town.command("a", "db", BY_USER).await.unwrap();
    pass(24 * HOUR).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Draining);
    town.command("a", "db", Undrain).await.unwrap();
    let told = story(&city).len();
    let brief = Drain {
        timeout: Some(MINUTE),
    };
    town.command("a", "db", brief).await.unwrap();
    pass(MINUTE + SECOND).await;
    assert_eq!(
        since(&city, told),
        [
            "draining db user",
            "stopped db drain_timeout",
            "started db user"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_by_a_user_of_a_pool_has_the_pools_timeout() {
    let (town, city, _) = shrunk(pool()).await;
    town.command("a", "w-1", BY_USER).await.unwrap();
    let told = story(&city).len();
    pass(5 * MINUTE + SECOND).await;
    assert!(since(&city, told).contains(&"stopped w-1 drain_timeout".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_drain_by_a_user_ends_by_undrain_only() {
    let (town, city) = one().await;
    town.command("a", "db", BY_USER).await.unwrap();
    pass(10 * MINUTE).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Draining);
    town.command("a", "db", Undrain).await.unwrap();
    pass(MINUTE).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Running);
    assert_eq!(city.journal.count("agent.undrained", "db"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drained_agent_that_is_still_desired_starts_fresh() {
    let (town, city) = one().await;
    town.command("a", "db", BY_USER).await.unwrap();
    town.command("a", "db", DrainAck).await.unwrap();
    settle().await;
    assert_eq!(
        story(&city)[1..],
        ["draining db user", "stopped db drained", "started db user"]
    );
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn an_ack_without_a_drain_means_finished() {
    let (town, city) = one().await;
    town.command("a", "db", DrainAck).await.unwrap();
    settle().await;
    assert_eq!(story(&city)[1], "stopped db drained");
    assert_eq!(up(&city), ["db"]);
}

#[tokio::test(start_paused = true)]
async fn stopped_agents_can_neither_be_drained_nor_undrained() {
    let (town, _city) = Town::with(city("a").agent(agent("db").suspended(true))).await;
    for command in [BY_USER, Undrain, DrainAck] {
        let error = town.command("a", "db", command).await.unwrap_err();
        assert!(matches!(error, CommandError::NotRunning(_)), "{command:?}");
    }
}

async fn draining_drift() -> (Town, MemoryCity) {
    let spec = |value: &str| city("a").agent(agent("db").env("A", value).on_drift(OnDrift::Drain));
    let (town, city) = Town::with(spec("1")).await;
    save(&city, spec("2")).await;
    assert_eq!(
        story(&city)[1..],
        ["drifted db", "draining db config-drift"]
    );
    (town, city)
}

#[tokio::test(start_paused = true)]
async fn a_drain_because_of_drift_is_forced_after_two_minutes() {
    let (_town, city) = draining_drift().await;
    pass(2 * MINUTE + SECOND).await;
    assert_eq!(
        story(&city)[3..],
        ["stopped db drain_timeout", "started db drift"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_finished_because_of_drift_has_the_new_config() {
    let (town, city) = draining_drift().await;
    town.command("a", "db", DrainAck).await.unwrap();
    settle().await;
    assert_eq!(
        story(&city)[3..],
        ["stopped db drained", "started db drift"]
    );
    assert_eq!(town.instance("a", "db").await.drifted_from, None);
}

#[tokio::test(start_paused = true)]
async fn a_drain_because_of_drift_ends_when_the_edit_is_reverted() {
    let (_town, city) = draining_drift().await;
    let reverted = crate::util::city("a").agent(agent("db").env("A", "1").on_drift(OnDrift::Drain));
    save(&city, reverted).await;
    assert_eq!(story(&city)[3..], ["undrained db"]);
    pass(HOUR).await;
    assert_eq!(city.sessions.count("start", None), 1);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_drain_goes_on_from_its_original_time() {
    let (mut town, city, told) = shrunk(pool()).await;
    pass(3 * MINUTE).await;
    town.kill_all_actors().await;
    town.found().await;
    assert_eq!(town.state("a", "w-2").await.0, AgentState::Draining);
    pass(2 * MINUTE - SECOND).await;
    assert_eq!(up(&city), ["w-1", "w-2"]);
    pass(2 * SECOND).await;
    assert_eq!(
        since(&city, told),
        ["adopted w-1", "adopted w-2", "stopped w-2 drain_timeout"],
        "five minutes in all"
    );
}
