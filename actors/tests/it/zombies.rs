use std::time::Duration;

use gascity_actors::memory::{Behaviour, MemoryCity};
use gascity_actors::model::{AgentState, RestartType};

use crate::util::{HOUR, MINUTE, Town, agent, city, pass, settle, story, up};

fn shell_with(programs: &[&str], output: &str) -> Behaviour {
    Behaviour {
        processes: programs.iter().map(|name| (*name).to_owned()).collect(),
        output: output.into(),
        ..Behaviour::default()
    }
}

async fn named() -> (Town, MemoryCity) {
    let town = Town::new().await;
    let spec = city("a").agent(agent("db").process_names(["model"]));
    let city = town.add(spec);
    city.sessions
        .script("db", shell_with(&["sh", "model"], "one\nout of memory\n"));
    settle().await;
    (town, city)
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_program_runs_is_healthy() {
    let (_town, city) = named().await;
    pass(10 * MINUTE).await;
    assert_eq!(story(&city), ["started db initial"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_its_program_is_a_crash_with_its_last_words() {
    let (town, city) = named().await;
    pass(MINUTE).await;
    city.sessions.set_processes("db", &["sh"]);
    pass(31 * Duration::from_secs(1)).await;
    assert_eq!(story(&city)[1..], ["crashed db", "started db crash"]);
    let events = city.journal.events();
    let crashed = events.iter().find(|e| e.kind == "agent.crashed").unwrap();
    assert!(crashed.message.ends_with("one\nout of memory"));
    assert!(!crashed.payload.contains_key("exit_code"));
    assert_eq!(crashed.payload["capture"], "captures/db-1.txt");
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 1);
}

#[tokio::test(start_paused = true)]
async fn the_capture_holds_who_when_and_what() {
    let (_town, city) = named().await;
    city.sessions.set_processes("db", &["sh"]);
    pass(MINUTE).await;
    let (session, text) = city.notes.captures().remove(0);
    assert_eq!(session, "db");
    for part in [
        "agent: db",
        "token: run-1",
        "source: screen",
        "out of memory",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_session_of_a_zombie_is_destroyed_before_its_successor_starts() {
    let (_town, city) = named().await;
    city.sessions.clear_calls();
    city.sessions.set_processes("db", &[]);
    pass(MINUTE).await;
    let ops: Vec<_> = city.sessions.mutating().iter().map(|c| c.op).collect();
    assert_eq!(ops, ["stop", "start"]);
}

#[tokio::test(start_paused = true)]
async fn a_zombie_is_told_once_also_when_it_cannot_be_destroyed() {
    let (_town, city) = named().await;
    city.sessions.set_processes("db", &[]);
    let busy = gascity_actors::ports::SessionError::Backend("busy".into());
    city.sessions.fail_stops(Some(busy));
    pass(10 * MINUTE).await;
    assert_eq!(story(&city).len(), 1, "its end is not seen yet");
    city.sessions.fail_stops(None);
    pass(MINUTE).await;
    assert_eq!(city.journal.count("agent.crashed", "db"), 1);
    assert_eq!(up(&city), ["db"]);
}

#[tokio::test(start_paused = true)]
async fn zombies_in_a_row_end_in_quarantine_and_are_cleared_away() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("db").process_names(["model"]).max_restarts(2, HOUR));
    let city = town.add(spec);
    city.sessions.script("db", shell_with(&["sh", "model"], ""));
    for _ in 0..2 {
        pass(MINUTE).await;
        city.sessions.set_processes("db", &["sh"]);
        pass(MINUTE).await;
    }
    assert_eq!(town.state("a", "db").await.0, AgentState::Quarantined);
    assert_eq!(city.journal.count("agent.crashed", "db"), 2);
    assert_eq!(up(&city).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_zombie_among_adopted_sessions_is_found_at_once() {
    let (mut town, city) = named().await;
    pass(MINUTE).await;
    town.kill_all_actors().await;
    city.sessions.set_processes("db", &["sh"]);
    town.found().await;
    assert_eq!(
        story(&city)[1..],
        ["adopted db", "crashed db", "started db crash"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_temporary_zombie_is_done() {
    let town = Town::new().await;
    let job = agent("job").process_names(["model"]);
    let city = town.add(city("a").agent(job.restart(RestartType::Temporary)));
    pass(MINUTE).await;
    assert_eq!(town.state("a", "job").await.0, AgentState::Done);
    assert_eq!(up(&city).len(), 0);
}
