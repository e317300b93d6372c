//! "Why is it not running?": every state but `running` says why, and truly.

use std::time::Duration;

use gascity_actors::AgentCommand;
use gascity_actors::memory::{Answer, Behaviour, MemoryCity};
use gascity_actors::model::{AgentState, CitySpecBuilder, RestartType};

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, cannot_start, city, dies_at_once, pass, pool, settle,
    starts_in, stubborn,
};

/// A city with one agent of this behaviour, after a second.
async fn seen(spec: CitySpecBuilder, name: &str, behaviour: Behaviour) -> (AgentState, String) {
    let town = Town::new().await;
    let city = town.add(spec);
    city.sessions.script(name, behaviour);
    pass(Duration::from_secs(1)).await;
    town.state("a", name).await
}

#[tokio::test(start_paused = true)]
async fn agents_that_never_got_to_run_say_why() {
    let calm = Behaviour::default;
    let one = |agent| city("a").agent(agent);
    let table = [
        (
            one(agent("db")),
            starts_in(HOUR),
            AgentState::Starting,
            "its start is under way",
        ),
        (
            one(agent("first"))
                .daemon(|d| d.start_parallelism = 0)
                .agent(agent("db")),
            calm(),
            AgentState::Starting,
            "waiting for its turn to be started",
        ),
        (
            one(agent("db").suspended(true)),
            calm(),
            AgentState::Suspended,
            "suspended in the config",
        ),
        (
            one(agent("db")).suspended(true),
            calm(),
            AgentState::Suspended,
            "the city is suspended",
        ),
        (
            one(agent("other")).agent(agent("db")).max_agents(1),
            calm(),
            AgentState::Limited,
            "left out by max_agents = 1",
        ),
        (
            one(agent("db").held("rig directory missing")),
            calm(),
            AgentState::Held,
            "rig directory missing",
        ),
        (
            one(agent("db").depends_on("off")).agent(agent("off").suspended(true)),
            calm(),
            AgentState::Blocked,
            "waits for off, which is not up",
        ),
    ];
    for (spec, behaviour, state, reason) in table {
        let (seen, why) = seen(spec, "db", behaviour).await;
        assert_eq!((seen, why.as_str()), (state, reason));
    }
}

#[tokio::test(start_paused = true)]
async fn agents_that_ended_say_why_they_are_not_started_again() {
    let paced = city("a").agent(agent("db").max_restarts(0, HOUR));
    assert_eq!(
        seen(paced, "db", cannot_start()).await,
        (
            AgentState::Backoff,
            "waiting before the next restart, after work_dir: no such directory".into()
        )
    );
    let looping = city("a").agent(agent("db").max_restarts(1, HOUR));
    assert_eq!(
        seen(looping, "db", dies_at_once()).await,
        (
            AgentState::Quarantined,
            "crash loop: 1 charged ends within 1h".into()
        )
    );
    let job = city("a").agent(agent("db").restart(RestartType::Temporary));
    assert_eq!(
        seen(job, "db", dies_at_once()).await,
        (
            AgentState::Done,
            "ended, and restart = \"temporary\" asks for no successor".into()
        )
    );
}

async fn stubborn_db() -> (Town, MemoryCity) {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.script("db", stubborn());
    settle().await;
    (town, city)
}

#[tokio::test(start_paused = true)]
async fn agents_on_their_way_out_say_why() {
    let (town, _city) = stubborn_db().await;
    let drain = AgentCommand::Drain { timeout: None };
    town.command("a", "db", drain).await.unwrap();
    assert_eq!(
        town.state("a", "db").await,
        (AgentState::Draining, "asked to finish: user".into())
    );
    let restart = AgentCommand::Restart;
    town.command("a", "db", restart).await.unwrap();
    assert_eq!(
        town.state("a", "db").await,
        (AgentState::Stopping, "being stopped: user".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopped_agent_of_a_stopping_city_says_so() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("db")).agent(agent("api"));
    let city = town.add(spec);
    city.sessions.script("api", stubborn());
    settle().await;
    town.cities.unregister("a");
    pass(Duration::from_secs(1)).await;
    assert_eq!(
        town.state("a", "db").await,
        (AgentState::Stopped, "the city is stopping".into())
    );
}

#[tokio::test(start_paused = true)]
async fn instances_of_a_pool_of_unknown_size_say_so() {
    let (mut town, city) = {
        let town = Town::new().await;
        let city = town.add(city("a").agent(agent("w").pool(pool())));
        city.shell.prints("count", "1");
        settle().await;
        (town, city)
    };
    town.kill_all_actors().await;
    let slow = Answer {
        after: Duration::from_secs(20),
        result: Ok("1".into()),
    };
    city.shell.script("count", slow);
    town.found().await;
    city.sessions.exit("w-1", CRASH);
    settle().await;
    assert_eq!(
        town.state("a", "w-1").await,
        (
            AgentState::Frozen,
            "the first check of its pool has not ended yet".into()
        )
    );
    pass(MINUTE).await;
    assert_eq!(town.instance("a", "w-1").await.reason, None, "running");
}
