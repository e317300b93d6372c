use std::sync::Arc;
use std::time::Duration;

use gascity_actors::memory::{MemoryCity, MemorySessions};
use gascity_actors::model::{CitySpecBuilder, ConfigState};
use gascity_actors::{AgentCommand, CommandError, ReloadOutcome};

use crate::util::{
    MINUTE, Town, agent, chain, pass, pool, save, settle, since, story, stubborn, up,
};

fn under(provider: &str) -> CitySpecBuilder {
    chain().provider(provider)
}

/// A city with another provider at hand.
async fn with_other() -> (Town, MemoryCity, Arc<MemorySessions>) {
    let town = Town::new().await;
    let city = town.add(under("old"));
    let other = Arc::new(MemorySessions::new(city.clock.clone()));
    city.providers.add("new", other.clone());
    settle().await;
    (town, city, other)
}

fn names(sessions: &MemorySessions) -> Vec<String> {
    sessions
        .running()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_swap_stops_all_agents_under_the_old_and_starts_them_under_the_new() {
    let (_town, city, other) = with_other().await;
    let told = city.journal.trace().len();
    save(&city, under("new")).await;
    assert_eq!((up(&city).len(), names(&other).len()), (0, 3));
    let mut trace = city.journal.trace().split_off(told);
    let mut stops: Vec<String> = trace.drain(..3).collect();
    stops.sort();
    let stopped = ["agent.stopped api", "agent.stopped db", "agent.stopped web"];
    assert_eq!(stops, stopped);
    let rest = [
        "config.reloaded",
        "provider.swapped",
        "agent.started db",
        "agent.started api",
        "agent.started web",
    ];
    assert_eq!(trace, rest);
}

#[tokio::test(start_paused = true)]
async fn a_swap_says_so_as_reason_and_as_cause_and_charges_nobody() {
    let (town, city, _other) = with_other().await;
    let told = story(&city).len();
    save(&city, under("new")).await;
    let told = since(&city, told);
    assert!(
        told[..3].iter().all(|line| line.ends_with("swap")),
        "{told:?}"
    );
    assert!(
        told[3..].iter().all(|line| line.ends_with("swap")),
        "{told:?}"
    );
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

/// Invariant I20 for a swap: it is a graceful shutdown under the old provider.
#[tokio::test(start_paused = true)]
async fn a_swap_interrupts_everybody_before_it_forces_anybody() {
    let (_town, city, other) = with_other().await;
    for name in ["web", "api", "db"] {
        city.sessions.script(name, stubborn());
        city.sessions.exit(name, crate::util::CRASH);
        settle().await;
    }
    city.sessions.clear_calls();
    save(&city, under("new")).await;
    pass(Duration::from_secs(6)).await;
    assert_eq!(names(&other).len(), 3, "one grace for all");
    let calls = city.sessions.calls();
    let first_force = calls.iter().position(|c| c.op == "stop").unwrap();
    let last_interrupt = calls.iter().rposition(|c| c.op == "interrupt").unwrap();
    assert!(last_interrupt < first_force);
    assert_eq!(crate::util::calls_of(&city, "stop"), ["web", "api", "db"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_used_changes_nothing() {
    let (town, city, _other) = with_other().await;
    city.sessions.clear_calls();
    let before = city.sessions.running();
    save(&city, under("broken").agent(agent("extra"))).await;
    assert_eq!(city.sessions.running(), before);
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(town.view("a").await.config.state, ConfigState::Stale);
    assert_eq!(city.journal.count("provider.swapped", ""), 0);
    let outcome = town.city("a").reload().await.unwrap();
    assert!(matches!(outcome, ReloadOutcome::Failed(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_new_provider_holds_already_is_adopted() {
    let (_town, city, _other) = with_other().await;
    let back = city.sessions.clone();
    city.providers.add("old", back);
    save(&city, under("new")).await;
    let told = story(&city).len();
    save(&city, under("old")).await;
    assert_eq!(up(&city), ["api", "db", "web"]);
    assert_eq!(since(&city, told).len(), 6, "three stops, three starts");
    pass(10 * MINUTE).await;
    assert_eq!(since(&city, told).len(), 6, "and then nothing");
}

#[tokio::test(start_paused = true)]
async fn commands_wait_for_the_end_of_a_swap() {
    let (town, city, _other) = with_other().await;
    city.sessions.script("db", stubborn());
    city.sessions.exit("db", crate::util::CRASH);
    settle().await;
    save(&city, under("new")).await;
    let refused = town.command("a", "db", AgentCommand::Restart).await;
    assert_eq!(refused.unwrap_err(), CommandError::Busy);
}

#[tokio::test(start_paused = true)]
async fn a_swap_is_no_city_start_for_pools() {
    let town = Town::new().await;
    let booting = gascity_actors::model::PoolSpec {
        on_boot: Some("begin".into()),
        ..pool()
    };
    let spec = |provider: &str| {
        let pool = agent("w").pool(booting.clone());
        crate::util::city("a").provider(provider).agent(pool)
    };
    let city = town.add(spec("old"));
    let other = Arc::new(MemorySessions::new(city.clock.clone()));
    city.providers.add("new", other.clone());
    city.shell.prints("count", "2");
    settle().await;
    save(&city, spec("new")).await;
    assert_eq!(names(&other), ["w-1", "w-2"]);
    assert_eq!(city.shell.count("begin"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_stopped_is_not_started_a_second_time() {
    let (_town, city, other) = with_other().await;
    city.sessions.script("db", stubborn());
    city.sessions.exit("db", crate::util::CRASH);
    settle().await;
    let busy = gascity_actors::ports::SessionError::Backend("busy".into());
    city.sessions.fail_stops(Some(busy));
    save(&city, under("new")).await;
    pass(10 * MINUTE).await;
    assert_eq!(up(&city), ["db"], "where it was");
    assert_eq!(names(&other), ["api", "web"]);
}

#[tokio::test(start_paused = true)]
async fn another_setting_of_the_provider_is_a_swap_too() {
    let (_town, city, other) = with_other().await;
    city.providers.add("old", other.clone());
    save(
        &city,
        under("old").provider_setting("session.socket", "here"),
    )
    .await;
    assert_eq!((up(&city).len(), names(&other).len()), (0, 3));
    let events = city.journal.events();
    let swapped = events
        .iter()
        .find(|e| e.kind == "provider.swapped")
        .unwrap();
    assert_eq!(
        swapped.payload["keys"],
        serde_json::json!(["session.socket"])
    );
    assert_eq!(swapped.payload["from"], swapped.payload["to"]);
}

#[tokio::test(start_paused = true)]
async fn an_edit_in_the_midst_of_a_swap_comes_into_force_after_it() {
    let (town, city, other) = with_other().await;
    city.sessions.script("db", stubborn());
    city.sessions.exit("db", crate::util::CRASH);
    settle().await;
    save(&city, under("new")).await;
    save(&city, under("new").agent(agent("extra"))).await;
    assert_eq!(
        names(&other),
        [""; 0],
        "it still waits for the stubborn one"
    );
    pass(Duration::from_secs(6)).await;
    assert_eq!(names(&other), ["api", "db", "extra", "web"]);
    assert_eq!(town.view("a").await.config.state, ConfigState::Ok);
    assert_eq!(city.journal.count("provider.swapped", ""), 1);
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_is_taken_back_in_its_midst_leads_back() {
    let (_town, city, other) = with_other().await;
    city.providers.add("old", city.sessions.clone());
    city.sessions.script("db", stubborn());
    city.sessions.exit("db", crate::util::CRASH);
    settle().await;
    save(&city, under("new")).await;
    save(&city, under("old")).await;
    pass(MINUTE).await;
    assert_eq!((up(&city).len(), names(&other).len()), (3, 0));
    assert_eq!(city.journal.count("provider.swapped", ""), 2);
}
