use std::time::Duration;

use gascity_actors::memory::MemoryCity;
use gascity_actors::model::{AgentSpecBuilder, AgentState, ExitStatus, RestartType, Strategy};

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, city, dies_at_once, pass, pool, save, settle, since, story,
    stubborn, up,
};

const SECOND: Duration = Duration::from_secs(1);

/// web -> api -> db, and alone; all with this strategy.
async fn with(strategy: Strategy) -> (Town, MemoryCity) {
    let of = |name: &str| agent(name).strategy(strategy);
    let spec = city("a")
        .agent(of("web").depends_on("api"))
        .agent(of("api").depends_on("db"))
        .agent(of("db"))
        .agent(of("alone"));
    let (town, city) = Town::with(spec).await;
    pass(MINUTE).await;
    (town, city)
}

async fn after_crash(strategy: Strategy, who: &str) -> Vec<String> {
    let (_town, city) = with(strategy).await;
    let told = story(&city).len();
    city.sessions.exit(who, CRASH);
    settle().await;
    since(&city, told)
}

#[tokio::test(start_paused = true)]
async fn one_for_one_restarts_the_dead_one_only() {
    let story = after_crash(Strategy::OneForOne, "db").await;
    assert_eq!(story, ["crashed db", "started db crash"]);
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_takes_dependents_along_and_brings_them_back_in_order() {
    let story = after_crash(Strategy::RestForOne, "db").await;
    let expected = [
        "crashed db",
        "stopped web cascade",
        "stopped api cascade",
        "started db crash",
        "started api cascade",
        "started web cascade",
    ];
    assert_eq!(story, expected);
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_leaves_dependencies_alone() {
    let story = after_crash(Strategy::RestForOne, "api").await;
    let expected = [
        "crashed api",
        "stopped web cascade",
        "started api crash",
        "started web cascade",
    ];
    assert_eq!(story, expected);
}

#[tokio::test(start_paused = true)]
async fn one_for_all_takes_everybody_connected_along() {
    let story = after_crash(Strategy::OneForAll, "web").await;
    let expected = [
        "crashed web",
        "stopped api cascade",
        "stopped db cascade",
        "started db cascade",
        "started api cascade",
        "started web crash",
    ];
    assert_eq!(story, expected);
}

#[tokio::test(start_paused = true)]
async fn those_taken_along_are_not_charged() {
    let (town, city) = with(Strategy::RestForOne).await;
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 1);
    assert_eq!(town.instance("a", "api").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn planned_restarts_lost_backends_and_done_agents_take_nobody_along() {
    let (town, city) = with(Strategy::OneForAll).await;
    let told = story(&city).len();
    let restart = gascity_actors::AgentCommand::Restart;
    town.command("a", "db", restart).await.unwrap();
    settle().await;
    assert_eq!(since(&city, told), ["stopped db user", "started db user"]);
    city.sessions.lose_backend(Duration::ZERO, false);
    settle().await;
    let cascades = story(&city)
        .iter()
        .filter(|l| l.contains("cascade"))
        .count();
    assert_eq!(cascades, 0);
}

#[tokio::test(start_paused = true)]
async fn a_done_agent_takes_nobody_along() {
    let spec = city("a").agent(agent("api").depends_on("job")).agent(
        agent("job")
            .restart(RestartType::Transient)
            .strategy(Strategy::RestForOne),
    );
    let (_town, city) = Town::with(spec).await;
    city.sessions.exit("job", ExitStatus::Code(0));
    pass(MINUTE).await;
    assert_eq!(up(&city), ["api"]);
}

fn pooled() -> AgentSpecBuilder {
    agent("db").pool(pool()).strategy(Strategy::RestForOne)
}

#[tokio::test(start_paused = true)]
async fn of_a_pool_only_the_end_of_the_last_one_alive_takes_others_along() {
    let town = Town::new().await;
    let spec = city("a")
        .agent(pooled().max_restarts(1, HOUR))
        .agent(agent("api").depends_on("db"));
    let city = town.add(spec);
    city.shell.prints("count", "2");
    pass(MINUTE).await;
    let told = story(&city).len();
    city.sessions.exit("db-1", CRASH);
    settle().await;
    assert_eq!(since(&city, told), ["crashed db-1", "quarantined db-1"]);
    city.sessions.exit("db-2", CRASH);
    settle().await;
    assert_eq!(
        since(&city, told)[2..],
        ["crashed db-2", "quarantined db-2", "stopped api cascade"]
    );
}

#[tokio::test(start_paused = true)]
async fn when_the_origin_is_quarantined_the_others_wait_for_its_return() {
    let spec = city("a").agent(agent("api").depends_on("db")).agent(
        agent("db")
            .strategy(Strategy::RestForOne)
            .max_restarts(1, HOUR),
    );
    let (town, city) = Town::with(spec).await;
    city.sessions.exit("db", CRASH);
    pass(30 * MINUTE).await;
    assert_eq!(up(&city).len(), 0);
    assert_eq!(
        town.state("a", "api").await,
        (AgentState::Blocked, "waits for db, which is not up".into())
    );
    pass(31 * MINUTE).await;
    assert_eq!(up(&city), ["api", "db"]);
    assert_eq!(
        story(&city)[story(&city).len() - 3..],
        [
            "unquarantined db expired",
            "started db expiry",
            "started api cascade"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn temporary_bystanders_are_stopped_and_done() {
    let spec = city("a")
        .agent(
            agent("api")
                .depends_on("db")
                .restart(RestartType::Temporary),
        )
        .agent(agent("db").strategy(Strategy::RestForOne));
    let (town, city) = Town::with(spec).await;
    city.sessions.exit("db", CRASH);
    pass(MINUTE).await;
    assert_eq!(up(&city), ["db"]);
    assert_eq!(town.state("a", "api").await.0, AgentState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_second_failure_inside_the_set_joins_the_cascade() {
    let of = |name: &str| agent(name).strategy(Strategy::RestForOne);
    let town = Town::new().await;
    let spec = city("a")
        .agent(of("web").depends_on("api"))
        .agent(of("api").depends_on("db"));
    let city = town.add(spec.agent(of("db")));
    city.sessions.script("web", stubborn());
    pass(MINUTE).await;
    let told = story(&city).len();
    city.sessions.exit("db", CRASH); // web takes its five seconds to leave
    pass(SECOND).await;
    city.sessions.exit("api", CRASH);
    pass(10 * SECOND).await;
    let expected = [
        "crashed db",
        "crashed api",
        "stopped web cascade",
        "started db crash",
        "started api crash",
        "started web cascade",
    ];
    assert_eq!(since(&city, told), expected);
}

#[tokio::test(start_paused = true)]
async fn a_failure_outside_the_set_does_not_wait_for_the_cascade() {
    let town = Town::new().await;
    let spec = city("a")
        .agent(agent("api").depends_on("db"))
        .agent(agent("db").strategy(Strategy::RestForOne))
        .agent(agent("alone"));
    let city = town.add(spec);
    city.sessions.script("api", stubborn());
    pass(MINUTE).await;
    city.sessions.exit("db", CRASH);
    pass(SECOND).await;
    let told = story(&city).len();
    city.sessions.exit("alone", CRASH);
    settle().await;
    assert_eq!(since(&city, told), ["crashed alone", "started alone crash"]);
}

#[tokio::test(start_paused = true)]
async fn the_dead_one_keeps_its_own_delay() {
    let town = Town::new().await;
    let spec = city("a")
        .agent(agent("api").depends_on("db"))
        .agent(agent("db").strategy(Strategy::RestForOne));
    let city = town.add(spec);
    settle().await;
    city.sessions.script("db", dies_at_once());
    city.sessions.exit("db", CRASH); // and again, at once: the next try comes a second later
    settle().await;
    assert_eq!(up(&city).len(), 0);
    assert_eq!(town.state("a", "db").await.0, AgentState::Backoff);
    city.sessions.script("db", stubborn());
    pass(SECOND + Duration::from_millis(5)).await;
    assert_eq!(up(&city), ["api", "db"]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_drops_the_cascade_and_decides_anew() {
    let town = Town::new().await;
    let spec = |timeout| {
        city("a")
            .daemon(move |d| d.drift_idle_after = timeout)
            .agent(agent("web").depends_on("api"))
            .agent(agent("api").depends_on("db"))
            .agent(agent("db").strategy(Strategy::RestForOne))
    };
    let city = town.add(spec(MINUTE));
    city.sessions.script("web", stubborn());
    pass(MINUTE).await;
    let told = story(&city).len();
    city.sessions.exit("db", CRASH);
    pass(SECOND).await;
    save(&city, spec(HOUR)).await;
    assert_eq!(
        since(&city, told),
        ["crashed db", "started db crash"],
        "api is not stopped any more"
    );
    pass(10 * SECOND).await;
    assert_eq!(
        since(&city, told)[2..],
        ["stopped web cascade", "started web cascade"]
    );
}
