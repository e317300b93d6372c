use std::time::Duration;

use gascity_actors::StopMode;
use gascity_actors::model::AgentState;

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, calls_of, cannot_start, chain, city, dies_at_once, pass,
    pool, save, settle, since, starts_in, story, stubborn, up,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_wave_begins_when_all_starts_of_the_one_before_have_returned() {
    let town = Town::new().await;
    let spec = city("a")
        .agent(agent("top").depends_on("fast"))
        .agent(agent("fast"))
        .agent(agent("slow"));
    let city = town.add(spec);
    city.sessions.script("slow", starts_in(10 * SECOND));
    pass(9 * SECOND).await;
    assert_eq!(up(&city), ["fast"], "the barrier holds");
    pass(2 * SECOND).await;
    assert_eq!(up(&city), ["fast", "slow", "top"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_blocks_its_dependents_only_and_charges_them_nothing() {
    let town = Town::new().await;
    let city = town.add(chain().agent(agent("other")));
    city.sessions.script("api", cannot_start());
    pass(SECOND).await;
    assert_eq!(up(&city), ["db", "other"]);
    let web = town.instance("a", "web").await;
    assert_eq!(
        (web.state, web.restarts_in_window),
        (AgentState::Blocked, 0)
    );
    assert_eq!(
        web.reason.as_deref(),
        Some("waits for api, which is not up")
    );
}

#[tokio::test(start_paused = true)]
async fn the_outcomes_of_a_wave_are_applied_in_plan_order() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("a1")).agent(agent("a2"));
    let city = town.add(spec.agent(agent("a3")));
    for (name, takes) in [("a1", 3), ("a2", 2), ("a3", 1)] {
        let mut fails = cannot_start();
        fails.start_after = takes * SECOND;
        city.sessions.script(name, fails);
    }
    pass(Duration::from_millis(3100)).await;
    let failed = ["start_failed a1", "start_failed a2", "start_failed a3"];
    assert_eq!(
        story(&city)[..3],
        failed,
        "although they failed in the other order"
    );
}

#[tokio::test(start_paused = true)]
async fn a_blocked_agent_starts_as_soon_as_its_dependency_is_up() {
    let town = Town::new().await;
    let spec = chain().daemon(|d| d.patrol_interval = HOUR);
    let city = town.add(spec);
    city.sessions.script("db", cannot_start());
    settle().await;
    city.sessions.script("db", starts_in(Duration::ZERO));
    pass(SECOND + Duration::from_millis(5)).await; // its second try, after a second
    assert_eq!(up(&city), ["api", "db", "web"], "no tick was needed");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_wants_nobody_blocks_nobody() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("w").pool(pool()));
    let city = town.add(spec.agent(agent("db").depends_on("w")));
    city.shell.prints("count", "0");
    settle().await;
    assert_eq!(up(&city), ["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_agent_starts_as_soon_as_the_size_of_a_pool_becomes_known() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("w").pool(pool()));
    let city = town.add(spec.agent(agent("db").depends_on("w")));
    let slow = gascity_actors::memory::Answer {
        after: 5 * SECOND,
        result: Ok("0".into()),
    };
    city.shell.script("count", slow);
    settle().await;
    assert_eq!(
        town.state("a", "db").await,
        (AgentState::Blocked, "waits for w, which is not up".into())
    );
    pass(5 * SECOND).await;
    assert_eq!(up(&city), ["db"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_done_or_quarantined_dependency_is_not_satisfied() {
    let suspended = chain();
    let (town, city) = Town::with(suspended).await;
    let without = crate::util::city("a")
        .agent(agent("web").depends_on("api"))
        .agent(agent("api").depends_on("db"))
        .agent(agent("db").suspended(true));
    save(&city, without).await;
    pass(MINUTE).await;
    assert_eq!(
        up(&city),
        ["api", "web"],
        "running dependents are never stopped for that"
    );
    city.sessions.exit("api", CRASH);
    pass(MINUTE).await;
    assert_eq!(town.state("a", "api").await.0, AgentState::Blocked);
    assert_eq!(town.state("a", "web").await.0, AgentState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_dependency_leaves_its_dependents_running() {
    let spec = city("a")
        .agent(agent("api").depends_on("db"))
        .agent(agent("db").max_restarts(1, HOUR));
    let (town, city) = Town::with(spec).await;
    city.sessions.script("db", dies_at_once());
    city.sessions.exit("db", CRASH);
    pass(MINUTE).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Quarantined);
    assert_eq!(up(&city), ["api"]);
}

#[tokio::test(start_paused = true)]
async fn forced_stops_go_from_dependents_to_dependencies() {
    let town = Town::new().await;
    let city = town.add(chain());
    for name in ["web", "api", "db"] {
        city.sessions.script(name, stubborn());
    }
    settle().await;
    town.door().stop(StopMode::Graceful).await.unwrap();
    assert_eq!(calls_of(&city, "stop"), ["web", "api", "db"]);
}

#[tokio::test(start_paused = true)]
async fn the_order_of_stops_holds_through_agents_that_do_not_run() {
    let town = Town::new().await;
    let city = town.add(chain());
    city.sessions.script("web", stubborn());
    city.sessions.script("db", stubborn());
    settle().await;
    city.sessions.script("api", cannot_start());
    city.sessions.exit("api", CRASH);
    settle().await;
    city.sessions.clear_calls();
    town.door().stop(StopMode::Graceful).await.unwrap();
    // Last of all, the remains of api are cleared away.
    assert_eq!(calls_of(&city, "stop"), ["web", "db", "api"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_one_agent_waits_for_its_dependency_but_for_no_wave() {
    let town = Town::new().await;
    let spec = chain().agent(agent("slow"));
    let (city, told) = (town.add(spec), 0);
    city.sessions.script("slow", starts_in(30 * SECOND));
    pass(SECOND).await;
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(
        since(&city, told),
        ["started db initial", "crashed db", "started db crash"],
        "while the first wave is under way"
    );
}
