//! The table of races (patrol.md 12). Three of its rows are elsewhere: idle and drift together in
//! `idle.rs`, a reload during a cascade in `cascades.rs`, a restart in quarantine in `commands.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use gascity_actors::AgentCommand::Restart;
use gascity_actors::memory::Behaviour;
use gascity_actors::model::{AgentName, AgentState, ExitStatus};

use crate::util::{
    CRASH, MINUTE, Town, agent, city, pass, save, settle, since, starts_in, story, up,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_exit_after_a_stop_intent_is_planned_whatever_the_status() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.script("db", crate::util::stubborn());
    settle().await;
    town.command("a", "db", Restart).await.unwrap();
    pass(SECOND).await;
    city.sessions.exit("db", ExitStatus::Signal(11));
    settle().await;
    assert_eq!(story(&city)[1..], ["stopped db user", "started db user"]);
    let stopped = city.journal.events();
    let stopped = stopped.iter().find(|e| e.kind == "agent.stopped").unwrap();
    assert_eq!(stopped.payload["signal"], 11);
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

/// The exit meets the restart at every point of the restart's way through the tree: before it is
/// known to anybody, before the Worker hears of it, after.
#[tokio::test(start_paused = true)]
async fn an_exit_around_the_arrival_of_an_intent_leads_to_one_start_per_end() {
    let mut stories = BTreeSet::new();
    // Last words at hand are taken at once; others leave time for the restart to arrive.
    let capture = [Duration::ZERO, Duration::from_millis(1)];
    for (steps, capture) in (0..40).flat_map(|steps| capture.map(|capture| (steps, capture))) {
        let (town, city) = Town::with(city("a").agent(agent("db"))).await;
        pass(MINUTE).await;
        if !capture.is_zero() {
            city.sessions.delay("peek", "db", capture);
        }
        let handle = town.city("a");
        let db = AgentName::new("db").unwrap();
        let restart = tokio::spawn(async move { handle.command(&db, Restart).await });
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        city.sessions.exit("db", CRASH);
        pass(SECOND).await;
        restart.await.unwrap().unwrap().unwrap();
        let told = story(&city);
        let ends = told.iter().filter(|l| !l.starts_with("started")).count();
        assert_eq!(told.len(), 2 * ends + 1, "{steps}: {told:?}");
        // The restart may meet the start after the crash, which then is given up for its own.
        let given_up = usize::from(told[1..] == ["crashed db", "started db user"]);
        assert_eq!(
            city.sessions.count("start", None),
            ends + 1 + given_up,
            "{steps}: {told:?}"
        );
        assert_eq!(up(&city), ["db"], "{steps}");
        stories.insert(told);
    }
    let merged = ["started db initial", "crashed db", "started db crash"];
    assert!(stories.iter().any(|told| *told == merged), "{stories:?}");
    assert!(stories.len() > 1, "{stories:?}");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_succeeds_after_its_timeout_is_stopped_and_ignored() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")).startup_timeout(10 * SECOND));
    let late = Behaviour {
        start_lingers: true,
        ..starts_in(12 * SECOND)
    };
    city.sessions.script("db", late);
    pass(10 * SECOND + Duration::from_millis(5)).await;
    assert_eq!(story(&city), ["start_failed db"]);
    city.sessions.script("db", Behaviour::default());
    pass(MINUTE).await;
    assert_eq!(story(&city)[1..], ["started db crash"]);
    let runs = city.sessions.running();
    assert_eq!(runs.len(), 1);
    assert_ne!(runs[0].1.as_str(), "run-1", "the given up run is gone");
}

#[tokio::test(start_paused = true)]
async fn an_agent_removed_while_starting_leaves_no_trace() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.script("db", starts_in(10 * SECOND));
    pass(SECOND).await;
    save(&city, crate::util::city("a")).await;
    pass(MINUTE).await;
    assert_eq!(story(&city).len(), 0);
    assert_eq!(up(&city).len(), 0);
    assert_eq!(town.view("a").await.instances.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_agent_suspended_while_starting_is_not_announced() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.script("db", starts_in(10 * SECOND));
    pass(SECOND).await;
    save(
        &city,
        crate::util::city("a").agent(agent("db").suspended(true)),
    )
    .await;
    pass(MINUTE).await;
    assert_eq!(story(&city).len(), 0);
    assert_eq!(town.state("a", "db").await.0, AgentState::Suspended);
}

/// Also invariant I16: nobody is started with the old config after the new one was applied.
#[tokio::test(start_paused = true)]
async fn a_reload_during_a_wave_plan_lets_starts_finish_and_plans_the_rest_anew() {
    let town = Town::new().await;
    let spec = |value: &str| {
        let api = agent("api").env("A", value).depends_on("db");
        city("a").agent(api).agent(agent("db").env("A", value))
    };
    let city = town.add(spec("1"));
    city.sessions.script("db", starts_in(10 * SECOND));
    pass(SECOND).await;
    save(&city, spec("2")).await;
    city.sessions.script("db", Behaviour::default());
    pass(MINUTE).await;
    let told = story(&city);
    let about_db: Vec<_> = told.iter().filter(|l| l.contains("db")).collect();
    assert_eq!(
        about_db,
        [
            "started db initial",
            "drifted db",
            "stopped db drift",
            "started db drift"
        ]
    );
    assert_eq!(
        city.journal.count("agent.started", "api"),
        1,
        "with the new config: {told:?}"
    );
    assert_eq!(city.journal.count("agent.drifted", "api"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_dies_while_the_dependent_starts_does_not_undo_the_start() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("api").depends_on("db"));
    let city = town.add(spec.agent(agent("db").max_restarts(1, MINUTE)));
    city.sessions.script("api", starts_in(10 * SECOND));
    pass(SECOND).await;
    city.sessions.exit("db", CRASH);
    pass(10 * SECOND).await;
    assert_eq!(up(&city), ["api"]);
}

#[tokio::test(start_paused = true)]
async fn two_configs_in_a_row_are_applied_as_the_newest() {
    let (_town, city) = Town::with(city("a").agent(agent("db"))).await;
    let told = story(&city).len();
    for value in ["1", "2"] {
        let edited = crate::util::city("a").agent(agent("db").env("A", value));
        city.desired.set(Ok(edited.build().unwrap()));
    }
    settle().await;
    assert_eq!(
        since(&city, told),
        ["drifted db", "stopped db drift", "started db drift"]
    );
}
