use std::time::Duration;

use gascity_actors::StopMode;
use gascity_actors::memory::Behaviour;
use gascity_actors::model::StopSummary;

use crate::util::{CRASH, MINUTE, Town, agent, city, dies_at_once, pass, settle, stubborn};

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_interrupts_all_waits_and_forces_who_is_left() {
    let town = Town::new().await;
    let city = town.add(
        city("a")
            .agent(agent("db"))
            .agent(agent("web"))
            .agent(agent("api")),
    );
    city.sessions.script("web", stubborn());
    pass(MINUTE).await;
    let began = tokio::time::Instant::now();
    let summary = town.door().stop(StopMode::Graceful).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5, "the real grace, no more");
    let killed = summary
        .killed
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    assert_eq!((summary.interrupted, killed), (3, vec!["web".to_owned()]));
    assert_eq!(city.sessions.running(), []);
    let calls = city.sessions.calls();
    let at = |op: &str, name: &str| {
        calls
            .iter()
            .find(|c| c.op == op && c.session == name)
            .unwrap()
            .at
    };
    let last_interrupt = ["db", "web", "api"]
        .map(|name| at("interrupt", name))
        .into_iter()
        .max()
        .unwrap();
    assert_eq!(
        at("stop", "web") - last_interrupt,
        Duration::from_secs(5),
        "forced after the grace"
    );
    for name in ["db", "web", "api"] {
        assert_eq!(city.journal.count("agent.stopped", name), 1, "{name}");
    }
    assert_eq!(city.journal.trace().last().unwrap(), "controller.stopped");
    assert_eq!(town.journal.trace().last().unwrap(), "supervisor.stopped");
}

#[tokio::test(start_paused = true)]
async fn a_forced_stop_has_no_grace() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("web")));
    city.sessions.script("web", stubborn());
    settle().await;
    let began = tokio::time::Instant::now();
    town.door().stop(StopMode::Force).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(city.sessions.count("interrupt", None), 0);
    assert_eq!(city.sessions.running(), []);
}

#[tokio::test(start_paused = true)]
async fn a_second_forced_stop_cuts_the_grace_short() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("web")));
    city.sessions.script("web", stubborn());
    settle().await;
    let began = tokio::time::Instant::now();
    let patient = town.door();
    let first = tokio::spawn(async move { patient.stop(StopMode::Graceful).await });
    pass(Duration::from_secs(1)).await;
    town.door().stop(StopMode::Force).await.unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(began.elapsed().as_secs(), 1);
    assert_eq!(city.sessions.running(), []);
}

#[tokio::test(start_paused = true)]
async fn detaching_leaves_every_agent_running() {
    let (mut town, city) = Town::with(city("a").agent(agent("db")).agent(agent("api"))).await;
    let before = city.sessions.running();
    city.sessions.clear_calls();
    let summary = town.door().stop(StopMode::Detach).await.unwrap();
    assert_eq!(summary.killed, []);
    assert_eq!(city.sessions.mutating(), []);
    town.found().await;
    assert_eq!(city.sessions.running(), before);
    assert_eq!(city.journal.count("agent.adopted", "db"), 1);
}

/// Invariant I31 for what exists: nothing runs after a stop, whatever arrives late.
#[tokio::test(start_paused = true)]
async fn a_stop_is_final_for_crashes_and_starts_under_way() {
    let town = Town::new().await;
    let city = town.add(
        city("a")
            .agent(agent("slow"))
            .agent(agent("loops"))
            .agent(agent("db")),
    );
    let slow = Behaviour {
        start_after: Duration::from_secs(3),
        ..Behaviour::default()
    };
    city.sessions.script("slow", slow);
    city.sessions.script("loops", dies_at_once());
    settle().await;
    let stop = tokio::spawn({
        let door = town.door();
        async move { door.stop(StopMode::Graceful).await }
    });
    settle().await;
    city.sessions.exit("db", CRASH);
    pass(5 * MINUTE).await;
    stop.await.unwrap().unwrap();
    assert_eq!(city.sessions.running(), []);
    assert_eq!(city.journal.count("agent.started", "slow"), 0);
    let starts = city.sessions.count("start", None);
    pass(MINUTE).await;
    assert_eq!(city.sessions.count("start", None), starts);
}

#[tokio::test(start_paused = true)]
async fn an_empty_machine_stops_at_once() {
    let town = Town::new().await;
    let summary = town.door().stop(StopMode::Graceful).await.unwrap();
    assert_eq!(summary, StopSummary::default());
}

#[tokio::test(start_paused = true)]
async fn a_worker_lost_during_the_stop_does_not_hold_it_up() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("web")));
    city.sessions.script("web", stubborn());
    settle().await;
    let stop = tokio::spawn({
        let door = town.door();
        async move { door.stop(StopMode::Graceful).await }
    });
    settle().await;
    assert!(town.door().crash("a/web").await);
    pass(MINUTE).await;
    assert_eq!(stop.await.unwrap().unwrap().interrupted, 1);
    assert_eq!(city.sessions.running(), []);
    assert_eq!(city.journal.count("agent.stopped", "web"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_under_way_does_not_prolong_the_grace_of_a_shutdown() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("web")).agent(agent("db")));
    for name in ["web", "db"] {
        city.sessions.script(name, stubborn());
    }
    settle().await;
    let restart = gascity_actors::AgentCommand::Restart;
    town.command("a", "web", restart).await.unwrap();
    pass(Duration::from_secs(2)).await;
    let began = tokio::time::Instant::now();
    town.door().stop(StopMode::Graceful).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);
}
