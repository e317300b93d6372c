use std::time::Duration;

use gascity_actors::model::{AgentState, CityStatus};

use crate::util::{CRASH, MINUTE, Town, agent, agent_trace, city, pass, settle};

/// Invariant I26: a Worker that panics costs a look at the session, nothing else.
#[tokio::test(start_paused = true)]
async fn a_worker_panic_is_harmless() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    let before = city.sessions.running();
    city.sessions.clear_calls();
    assert!(town.door().crash("a/db").await);
    settle().await;
    assert_eq!(city.sessions.running(), before);
    let ops: Vec<_> = city.sessions.calls().iter().map(|call| call.op).collect();
    assert_eq!(ops, ["liveness"]);
    let db = town.instance("a", "db").await;
    assert_eq!((db.state, db.restarts_in_window), (AgentState::Running, 0));
    assert_eq!(agent_trace(&city), ["agent.started db"]);
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(
        city.sessions.running().len(),
        1,
        "the new worker does its job"
    );
    assert_eq!(city.journal.count("agent.crashed", "db"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_exit_between_a_workers_panic_and_its_replacement_is_not_lost() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    for _ in 0..4 {
        assert!(town.door().crash("a/db").await); // paced from the second on
        settle().await;
        pass(Duration::from_secs(9)).await;
    }
    assert!(town.door().crash("a/db").await);
    settle().await;
    city.sessions.exit("db", CRASH); // nobody is there to hear it
    pass(MINUTE).await;
    assert_eq!(city.sessions.running().len(), 1);
    assert_eq!(city.journal.count("agent.crashed", "db"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_city_panic_leaves_the_other_city_and_all_agents_untouched() {
    let town = Town::new().await;
    let a = town.add(city("a").agent(agent("db")));
    let b = town.add(city("b").agent(agent("db")));
    pass(MINUTE).await;
    let (agents_a, agents_b) = (a.sessions.running(), b.sessions.running());
    let events_b = b.journal.trace();
    a.sessions.clear_calls();
    b.sessions.clear_calls();
    assert!(town.door().crash("a").await);
    settle().await;
    assert_eq!(town.status("a"), CityStatus::Crashed);
    assert_eq!(town.status("b"), CityStatus::Running);
    assert_eq!(a.journal.trace().last().unwrap(), "city.crashed a");
    assert_eq!(town.journal.count("city.crashed", "a"), 1);
    assert!(town.door().view().cities[0].next_retry_at.is_some());
    pass(Duration::from_millis(1100)).await;
    assert_eq!(
        town.status("a"),
        CityStatus::Running,
        "back after one second"
    );
    assert_eq!(a.sessions.mutating(), []);
    assert_eq!(
        (a.sessions.running(), b.sessions.running()),
        (agents_a, agents_b)
    );
    assert_eq!(b.journal.trace(), events_b);
    assert_eq!(b.sessions.mutating(), []);
}

#[tokio::test(start_paused = true)]
async fn a_city_that_keeps_crashing_is_retried_with_doubling_delays() {
    let (town, _city) = Town::with(city("a").agent(agent("db"))).await;
    let mut delays = Vec::new();
    for _ in 0..4 {
        assert!(town.door().crash("a").await);
        settle().await;
        let crashed = tokio::time::Instant::now();
        while town.status("a") != CityStatus::Running {
            pass(Duration::from_millis(50)).await;
        }
        delays.push(crashed.elapsed().as_secs());
    }
    assert_eq!(delays, [1, 2, 4, 8]);
}

#[tokio::test(start_paused = true)]
async fn the_crashes_of_a_city_are_forgotten_after_ten_minutes() {
    let (town, _city) = Town::with(city("a").agent(agent("db"))).await;
    for _ in 0..3 {
        assert!(town.door().crash("a").await);
        pass(MINUTE).await;
    }
    pass(10 * MINUTE).await;
    assert!(town.door().crash("a").await);
    pass(Duration::from_millis(1100)).await;
    assert_eq!(town.status("a"), CityStatus::Running, "after one second");
}

#[tokio::test(start_paused = true)]
async fn a_lost_tracker_is_replaced_and_one_that_keeps_failing_takes_the_city_along() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    for _ in 0..5 {
        assert!(town.door().crash("a/tracker").await);
        settle().await;
    }
    assert_eq!(town.status("a"), CityStatus::Running);
    let before = city.sessions.running();
    assert!(town.door().crash("a/tracker").await);
    settle().await;
    assert_eq!(town.status("a"), CityStatus::Crashed);
    pass(Duration::from_secs(2)).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    assert_eq!(city.sessions.running(), before);
}

/// Invariant I24: registry edits start and stop exactly those cities.
#[tokio::test(start_paused = true)]
async fn cities_come_and_go_with_the_registry() {
    let town = Town::new().await;
    let a = town.add(city("a").agent(agent("db")));
    settle().await;
    let b = town.add(city("b").agent(agent("db")));
    settle().await;
    let agents_a = a.sessions.running();
    assert_eq!(b.sessions.running().len(), 1);
    town.cities.unregister("b");
    settle().await;
    assert_eq!(b.sessions.running(), []);
    assert_eq!(b.journal.trace().last().unwrap(), "controller.stopped");
    assert_eq!(a.sessions.running(), agents_a);
    assert_eq!(town.status("a"), CityStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn unregistering_a_crashed_city_still_stops_its_agents() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    assert!(town.door().crash("a").await);
    settle().await;
    town.cities.unregister("a");
    settle().await;
    assert_eq!(city.sessions.running(), []);
    assert_eq!(town.status("a"), CityStatus::Stopped);
}

#[tokio::test(start_paused = true)]
async fn the_tree_shows_machine_city_and_workers_and_says_what_is_down() {
    let (town, city) = Town::with(city("a").agent(agent("db").max_restarts(1, MINUTE))).await;
    city.sessions.exit("db", CRASH);
    settle().await;
    let tree = town.door().tree().await.unwrap();
    let rows: Vec<String> = tree
        .root
        .walk()
        .map(|n| format!("{} {} {}", n.kind.as_str(), n.path, n.state))
        .collect();
    assert_eq!(
        rows,
        [
            "machine machine running",
            "city a running",
            "tracker a/tracker running",
            "worker a/db quarantined"
        ]
    );
    assert!(tree.to_string().contains("1/1"), "{tree}");
    assert!(town.door().crash("a").await);
    settle().await;
    let tree = town.door().tree().await.unwrap();
    assert_eq!(tree.root.children[0].state, "crashed");
    assert_eq!(tree.root.children[0].restarts_in_window, Some(1));
}
