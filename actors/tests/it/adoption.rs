use gascity_actors::model::{AgentState, CityStatus, ExitStatus};
use gascity_actors::ports::SessionError;

use crate::util::{CRASH, MINUTE, Town, agent, agent_trace, city, pass, settle};

/// Invariant I25: all actors die, new ones take over; nothing is started or stopped.
#[tokio::test(start_paused = true)]
async fn adoption_is_free_after_every_actor_died() {
    let (mut town, city) = Town::with(city("a").agent(agent("db")).agent(agent("api"))).await;
    pass(MINUTE).await;
    let before = city.sessions.running();
    town.kill_all_actors().await;
    assert_eq!(city.sessions.running(), before, "agents live on");
    city.sessions.clear_calls();
    let events = city.journal.events().len();
    town.found().await;
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(city.sessions.running(), before, "same tokens");
    let since: Vec<String> = city.journal.trace().split_off(events);
    assert_eq!(
        since,
        [
            "controller.started",
            "agent.adopted api",
            "agent.adopted db"
        ]
    );
    let db = town.instance("a", "db").await;
    assert_eq!(
        (db.state, db.generation, db.uptime_ms),
        (AgentState::Running, 1, Some(60_000))
    );
}

#[tokio::test(start_paused = true)]
async fn an_adopted_agent_is_restarted_when_it_dies() {
    let (mut town, city) = Town::with(city("a").agent(agent("db"))).await;
    town.kill_all_actors().await;
    town.found().await;
    pass(MINUTE).await;
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(city.sessions.running().len(), 1);
    let expected = [
        "agent.started db",
        "agent.adopted db",
        "agent.crashed db",
        "agent.started db",
    ];
    assert_eq!(agent_trace(&city), expected);
    assert_eq!(town.instance("a", "db").await.generation, 2);
}

#[tokio::test(start_paused = true)]
async fn an_exit_while_nobody_watched_is_one_crash_and_one_restart() {
    let (mut town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    town.kill_all_actors().await;
    city.sessions.exit("db", ExitStatus::Unknown);
    town.found().await;
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
    assert!(!crashed.payload.contains_key("exit_code"));
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_removed_while_nobody_watched_is_an_orphan_and_foreign_sessions_are_left_alone() {
    let (mut town, city) = Town::with(city("a").agent(agent("db")).agent(agent("old"))).await;
    city.sessions.add_foreign("somebody-elses");
    town.kill_all_actors().await;
    city.desired.set(Ok(crate::util::city("a")
        .agent(agent("db"))
        .build()
        .unwrap()));
    town.found().await;
    let names: Vec<_> = city
        .sessions
        .running()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["db"]);
    let stopped = city
        .journal
        .events()
        .iter()
        .find(|e| e.kind == "agent.stopped")
        .cloned()
        .unwrap();
    assert_eq!(
        (stopped.subject.as_str(), &stopped.payload["reason"]),
        ("old", &"orphan".into())
    );
    let view = town.view("a").await;
    assert_eq!(view.instances.len(), 1, "the slot went with it");
    assert_eq!(view.foreign_sessions, ["somebody-elses"]);
    assert!(
        city.sessions
            .calls()
            .iter()
            .all(|call| call.session != "somebody-elses")
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_while_it_is_unknown_what_runs() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions
        .fail_listing(Some(SessionError::Backend("down".into())));
    settle().await;
    assert_eq!(town.status("a"), CityStatus::InitFailed);
    let error = town.door().view().cities[0].error.clone();
    assert_eq!(error.as_deref(), Some("failed to list sessions: down"));
    assert_eq!(city.sessions.count("start", None), 0);
    city.sessions.fail_listing(None);
    pass(MINUTE).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    assert_eq!(city.sessions.running().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_on_a_stop_intent_counts_as_planned() {
    let (mut town, city) = Town::with(city("a").agent(agent("db"))).await;
    let sessions: &dyn gascity_actors::ports::Sessions = &*city.sessions;
    let name = gascity_actors::model::SessionName::new("db").unwrap();
    let intent = Some("shutdown".to_owned());
    let (fence, note) = (
        gascity_actors::ports::Fence::Any,
        gascity_actors::ports::Note::StopIntent,
    );
    sessions.set_note(name, fence, note, intent).await.unwrap();
    town.kill_all_actors().await;
    city.sessions.exit("db", ExitStatus::Unknown);
    town.found().await;
    assert_eq!(
        agent_trace(&city),
        ["agent.started db", "agent.stopped db", "agent.started db"]
    );
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}
