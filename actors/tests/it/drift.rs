use std::time::Duration;

use gascity_actors::memory::MemoryCity;
use gascity_actors::model::{AgentSpecBuilder, OnDrift};
use gascity_actors::ports::Note;

use crate::util::{MINUTE, Town, agent, city, pass, pool, save, settle, story, up};

const SECOND: Duration = Duration::from_secs(1);

fn db(value: &str, on_drift: OnDrift) -> AgentSpecBuilder {
    agent("db").env("A", value).on_drift(on_drift)
}

async fn edited(on_drift: OnDrift) -> (Town, MemoryCity) {
    let (town, city) = Town::with(city("a").agent(db("1", on_drift))).await;
    save(&city, crate::util::city("a").agent(db("2", on_drift))).await;
    (town, city)
}

#[tokio::test(start_paused = true)]
async fn a_drifted_agent_is_restarted_by_default() {
    let (_town, city) = edited(OnDrift::Restart).await;
    assert_eq!(
        story(&city)[1..],
        ["drifted db", "stopped db drift", "started db drift"]
    );
    assert_eq!(city.sessions.count("clear_scrollback", None), 1);
}

#[tokio::test(start_paused = true)]
async fn drift_can_merely_be_reported_once() {
    let (town, city) = edited(OnDrift::Report).await;
    pass(10 * MINUTE).await;
    assert_eq!(story(&city)[1..], ["drifted db"]);
    assert!(town.instance("a", "db").await.drifted_from.is_some());
}

#[tokio::test(start_paused = true)]
async fn each_edit_is_told_once_per_run() {
    let (_town, city) = edited(OnDrift::Report).await;
    save(
        &city,
        crate::util::city("a").agent(db("3", OnDrift::Report)),
    )
    .await;
    pass(10 * MINUTE).await;
    assert_eq!(story(&city)[1..], ["drifted db", "drifted db"]);
}

#[tokio::test(start_paused = true)]
async fn drift_can_wait_until_the_agent_is_quiet() {
    let (_town, city) = edited(OnDrift::Idle).await;
    for _ in 0..10 {
        pass(30 * SECOND).await;
        city.sessions.touch("db");
    }
    assert_eq!(story(&city)[1..], ["drifted db"], "busy for five minutes");
    pass(2 * MINUTE + 31 * SECOND).await;
    assert_eq!(story(&city)[2..], ["stopped db drift", "started db drift"]);
}

#[tokio::test(start_paused = true)]
async fn an_attached_terminal_defers_drift_but_not_its_report() {
    let (_town, city) = Town::with(city("a").agent(db("1", OnDrift::Restart))).await;
    city.sessions.set_attached("db", true);
    save(
        &city,
        crate::util::city("a").agent(db("2", OnDrift::Restart)),
    )
    .await;
    pass(10 * MINUTE).await;
    assert_eq!(story(&city)[1..], ["drifted db"]);
    city.sessions.set_attached("db", false);
    pass(MINUTE).await;
    assert_eq!(story(&city)[2..], ["stopped db drift", "started db drift"]);
}

#[tokio::test(start_paused = true)]
async fn changed_live_lines_are_run_again_without_a_restart() {
    let live = |line: &str| city("a").agent(agent("db").live([line]));
    let (_town, city) = Town::with(live("one")).await;
    assert_eq!(city.shell.count("one"), 1, "after the start");
    save(&city, live("two")).await;
    pass(10 * MINUTE).await;
    assert_eq!(story(&city)[1..], ["updated db"]);
    assert_eq!((city.shell.count("one"), city.shell.count("two")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn drift_comes_before_live_drift() {
    let spec = |value: &str| city("a").agent(agent("db").env("A", value).live([value]));
    let (_town, city) = Town::with(spec("1")).await;
    save(&city, spec("2")).await;
    assert_eq!(
        story(&city)[1..],
        ["drifted db", "stopped db drift", "started db drift"]
    );
    assert_eq!(city.shell.count("2"), 1, "by the new run alone");
}

#[tokio::test(start_paused = true)]
async fn drift_is_found_on_adopted_runs() {
    let (mut town, city) = Town::with(city("a").agent(db("1", OnDrift::Restart))).await;
    town.kill_all_actors().await;
    let edited = crate::util::city("a").agent(db("2", OnDrift::Restart));
    city.desired.set(Ok(edited.build().unwrap()));
    town.found().await;
    assert_eq!(
        story(&city)[1..],
        [
            "adopted db",
            "drifted db",
            "stopped db drift",
            "started db drift"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_stored_hash_has_not_drifted() {
    let (mut town, city) = Town::with(city("a").agent(db("1", OnDrift::Restart))).await;
    town.kill_all_actors().await;
    city.sessions.note("db", Note::ConfigHash, None);
    town.found().await;
    pass(MINUTE).await;
    assert_eq!(story(&city)[1..], ["adopted db"]);
    let stored = city.sessions.noted("db", Note::ConfigHash);
    let current = town.instance("a", "db").await.config_hash;
    assert_eq!(stored, Some(current), "backfilled");
}

#[tokio::test(start_paused = true)]
async fn every_instance_of_a_drifted_pool_is_restarted() {
    let town = Town::new().await;
    let spec = |value: &str| city("a").agent(agent("w").pool(pool()).env("A", value));
    let city = town.add(spec("1"));
    city.shell.prints("count", "2");
    settle().await;
    let before = city.sessions.running();
    save(&city, spec("2")).await;
    assert_eq!(up(&city), ["w-1", "w-2"]);
    assert_eq!(city.journal.count("agent.drifted", "w-1"), 1);
    let kept = city
        .sessions
        .running()
        .iter()
        .any(|run| before.contains(run));
    assert!(!kept);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_fails_starts_nothing_and_is_tried_again() {
    let (town, city) = Town::with(city("a").agent(db("1", OnDrift::Restart))).await;
    city.sessions.script("db", crate::util::stubborn());
    city.sessions.exit("db", crate::util::CRASH);
    settle().await;
    let error = gascity_actors::ports::SessionError::Backend("busy".into());
    city.sessions.fail_stops(Some(error));
    save(
        &city,
        crate::util::city("a").agent(db("2", OnDrift::Restart)),
    )
    .await;
    pass(MINUTE).await;
    assert_eq!(city.sessions.count("start", None), 2);
    let db = town.instance("a", "db").await;
    assert_eq!(db.last_error.as_deref(), Some("stop failed: busy"));
    city.sessions.fail_stops(None);
    pass(MINUTE).await;
    assert_eq!(city.sessions.count("start", None), 3);
}
