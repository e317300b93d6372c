use gascity_actors::memory::MemoryCity;
use gascity_actors::model::{AgentState, CitySpecBuilder};

use crate::util::{HOUR, MINUTE, Town, agent, city, dies_at_once, pass, settle, stubborn, up};

fn looping(persist: bool, max: u32) -> CitySpecBuilder {
    city("a")
        .daemon(|d| d.persist_crash_history = persist)
        .agent(agent("db").max_restarts(max, HOUR))
}

async fn quarantined(persist: bool) -> (Town, MemoryCity) {
    let town = Town::new().await;
    let city = town.add(looping(persist, 3));
    city.sessions.script("db", dies_at_once());
    pass(MINUTE).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Quarantined);
    city.sessions.script("db", stubborn());
    (town, city)
}

async fn respawned(town: &mut Town) {
    town.kill_all_actors().await;
    town.found().await;
}

/// Invariant I7, first half.
#[tokio::test(start_paused = true)]
async fn without_persistence_a_new_city_actor_forgets_quarantine() {
    let (mut town, city) = quarantined(false).await;
    respawned(&mut town).await;
    assert_eq!(up(&city), ["db"]);
    assert_eq!(city.notes.crash_history(), None);
}

/// Invariant I7, second half.
#[tokio::test(start_paused = true)]
async fn with_persistence_a_new_city_actor_refuses_the_start() {
    let (mut town, city) = quarantined(true).await;
    let until = town.instance("a", "db").await.quarantined_until;
    respawned(&mut town).await;
    assert_eq!(city.sessions.count("start", None), 3);
    let db = town.instance("a", "db").await;
    assert_eq!(
        (db.state, db.quarantined_until),
        (AgentState::Quarantined, until)
    );
    assert_eq!(city.journal.count("agent.quarantined", "db"), 1, "silent");
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_from_the_file_expires_like_any_other() {
    let (mut town, city) = quarantined(true).await;
    respawned(&mut town).await;
    pass(HOUR).await;
    assert_eq!(up(&city), ["db"]);
    assert_eq!(city.journal.count("agent.unquarantined", "db"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_file_follows_reload_and_pardon() {
    let (town, city) = quarantined(true).await;
    assert!(city.notes.crash_history().unwrap().contains("\"db\""));
    let pardon = gascity_actors::AgentCommand::Unquarantine;
    town.command("a", "db", pardon).await.unwrap();
    settle().await;
    assert!(!city.notes.crash_history().unwrap().contains("\"db\""));
}

#[tokio::test(start_paused = true)]
async fn entries_of_the_file_beyond_a_smaller_limit_are_the_oldest() {
    let (mut town, city) = quarantined(true).await;
    town.kill_all_actors().await;
    city.desired.set(Ok(looping(true, 2).build().unwrap()));
    town.found().await;
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 2);
}

#[tokio::test(start_paused = true)]
async fn a_tracker_lost_meanwhile_costs_no_entry() {
    let (mut town, city) = quarantined(true).await;
    assert!(town.door().crash("a/tracker").await);
    settle().await;
    respawned(&mut town).await;
    assert_eq!(city.sessions.count("start", None), 3);
}
