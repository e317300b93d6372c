//! Who runs when not everybody may: limits, held agents, suspension.

use gascity_actors::model::{AgentState, PoolSpec};

use crate::util::{HOUR, MINUTE, Town, agent, city, pass, pool, save, settle, since, story, up};

#[tokio::test(start_paused = true)]
async fn agents_beyond_the_limit_are_left_out() {
    let spec = city("a").max_agents(1);
    let (town, city) = Town::with(spec.agent(agent("one")).agent(agent("two"))).await;
    pass(10 * MINUTE).await;
    assert_eq!(up(&city), ["one"]);
    assert_eq!(
        town.state("a", "two").await,
        (AgentState::Limited, "left out by max_agents = 1".into())
    );
}

#[tokio::test(start_paused = true)]
async fn fixed_agents_come_before_pools_wherever_they_stand() {
    let pair = PoolSpec {
        min: 2,
        check: None,
        ..pool()
    };
    let spec = city("a").max_agents(2).agent(agent("w").pool(pair));
    let (town, city) = Town::with(spec.agent(agent("db"))).await;
    assert_eq!(up(&city), ["db", "w-1"]);
    assert_eq!(town.state("a", "w-2").await.0, AgentState::Limited);
}

#[tokio::test(start_paused = true)]
async fn running_instances_keep_their_place() {
    let spec = || city("a").max_agents(1).agent(agent("two"));
    let (_town, city) = Town::with(spec()).await;
    let first = crate::util::city("a").max_agents(1).agent(agent("one"));
    save(&city, first.agent(agent("two"))).await;
    pass(MINUTE).await;
    assert_eq!(up(&city), ["two"], "although one stands before it");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_agent_pushed_out_is_stopped_and_a_member_of_a_pool_drains() {
    let town = Town::new().await;
    let spec = |max| {
        let city = city("a").max_agents(max);
        city.agent(agent("one"))
            .agent(agent("two"))
            .agent(agent("w").pool(pool()))
    };
    let city = town.add(spec(3));
    city.shell.prints("count", "1");
    settle().await;
    let told = story(&city).len();
    save(&city, spec(1)).await;
    let expected = ["draining w-1 pool-excess", "stopped two limited"];
    let mut seen = since(&city, told);
    seen.sort();
    assert_eq!(seen, expected);
    pass(6 * MINUTE).await;
    assert_eq!(up(&city), ["one"]);
    assert_eq!(town.state("a", "w-1").await.0, AgentState::Limited);
}

#[tokio::test(start_paused = true)]
async fn who_was_left_out_starts_when_there_is_room() {
    let spec = |max| {
        city("a")
            .max_agents(max)
            .agent(agent("one"))
            .agent(agent("two"))
    };
    let (_town, city) = Town::with(spec(1)).await;
    save(&city, spec(2)).await;
    assert_eq!(up(&city), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn held_agents_are_neither_started_nor_stopped() {
    let held = || city("a").agent(agent("db").held("rig directory missing"));
    let (town, city) = Town::with(held()).await;
    pass(HOUR).await;
    assert_eq!(
        town.state("a", "db").await,
        (AgentState::Held, "rig directory missing".into())
    );
    save(&city, crate::util::city("a").agent(agent("db"))).await;
    assert_eq!(up(&city), ["db"]);
    city.sessions.clear_calls();
    save(&city, held()).await;
    pass(HOUR).await;
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(up(&city), ["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_agent_that_dies_stays_down_until_it_can_run() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    save(
        &city,
        crate::util::city("a").agent(agent("db").held("gone")),
    )
    .await;
    city.sessions.exit("db", crate::util::CRASH);
    pass(HOUR).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Held);
    save(&city, crate::util::city("a").agent(agent("db"))).await;
    assert_eq!(up(&city), ["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_city_runs_nobody_and_checks_no_pool() {
    let spec = |suspended| {
        let agents = city("a").agent(agent("db")).agent(agent("w").pool(pool()));
        agents.suspended(suspended)
    };
    let town = Town::new().await;
    let city = town.add(spec(false));
    city.shell.prints("count", "2");
    settle().await;
    let told = story(&city).len();
    save(&city, spec(true)).await;
    let mut seen = since(&city, told);
    seen.sort();
    assert_eq!(seen, ["suspended db", "suspended w-1", "suspended w-2"]);
    let checks = city.shell.count("count");
    pass(HOUR).await;
    assert_eq!(city.shell.count("count"), checks);
    assert_eq!(
        town.state("a", "db").await,
        (AgentState::Suspended, "the city is suspended".into())
    );
    save(&city, spec(false)).await;
    assert_eq!(up(&city), ["db", "w-1", "w-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_pool_is_stopped_without_a_drain() {
    let town = Town::new().await;
    let spec = |suspended| city("a").agent(agent("w").pool(pool()).suspended(suspended));
    let city = town.add(spec(false));
    city.shell.prints("count", "2");
    settle().await;
    let told = story(&city).len();
    save(&city, spec(true)).await;
    let mut seen = since(&city, told);
    seen.sort();
    assert_eq!(seen, ["suspended w-1", "suspended w-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_agent_is_forced_at_once_and_its_slot_goes() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")).agent(agent("old")));
    city.sessions.script("old", crate::util::stubborn());
    settle().await;
    let told = story(&city).len();
    save(&city, crate::util::city("a").agent(agent("db"))).await;
    assert_eq!(since(&city, told), ["stopped old orphan"]);
    assert_eq!(city.sessions.count("interrupt", None), 0);
    assert_eq!(town.view("a").await.instances.len(), 1);
}
