use std::time::Duration;

use gascity_actors::memory::Answer;
use gascity_actors::model::{AgentState, ExitStatus, PoolSpec, RestartType};
use gascity_actors::ports::ShellError;

use crate::util::{HOUR, MINUTE, Town, agent, city, pass, pool, save, settle, since, story, up};

fn takes(time: Duration, text: &str) -> Answer {
    Answer {
        after: time,
        result: Ok(text.into()),
    }
}

fn fails() -> Answer {
    let error = ShellError::Failed {
        status: "exit 1".into(),
        stderr: "no route".into(),
    };
    Answer {
        after: Duration::ZERO,
        result: Err(error),
    }
}

async fn sized(check: &str, pool: PoolSpec) -> (Town, gascity_actors::memory::MemoryCity) {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("w").pool(pool)));
    city.shell.prints("count", check);
    settle().await;
    (town, city)
}

#[tokio::test(start_paused = true)]
async fn a_pool_has_as_many_instances_as_its_check_prints() {
    let (_town, city) = sized(" 2\n", pool()).await;
    assert_eq!(up(&city), ["w-1", "w-2"]);
}

#[tokio::test(start_paused = true)]
async fn counts_are_clamped_to_the_pools_bounds() {
    let bounds = |min, max| PoolSpec { min, max, ..pool() };
    for (check, min, max, expected) in [
        ("7", 1, Some(3), 3),
        ("-4", 1, Some(3), 1),
        ("7", 0, None, 7),
        ("0", 2, None, 2),
    ] {
        let (_town, city) = sized(check, bounds(min, max)).await;
        assert_eq!(up(&city).len(), expected, "{check} in {min}..{max:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_none_is_disabled_and_its_check_not_run() {
    let disabled = PoolSpec {
        max: Some(0),
        ..pool()
    };
    let (_town, city) = sized("3", disabled).await;
    pass(10 * MINUTE).await;
    assert_eq!((up(&city).len(), city.shell.count("count")), (0, 0));
}

/// Invariant I18, first half: checks run side by side.
#[tokio::test(start_paused = true)]
async fn eight_checks_of_five_seconds_are_done_after_five_seconds() {
    let town = Town::new().await;
    let mut spec = city("a");
    for i in 0..8 {
        let check = Some(format!("count {i}"));
        spec = spec.agent(agent(&format!("w{i}")).pool(PoolSpec { check, ..pool() }));
    }
    let city = town.add(spec);
    for i in 0..8 {
        let check = format!("count {i}");
        city.shell
            .script(&check, takes(Duration::from_secs(5), "1"));
    }
    settle().await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(up(&city).len(), 8);
}

fn four_checked(at_once: usize) -> gascity_actors::model::CitySpecBuilder {
    let spec = city("a").daemon(|daemon| daemon.check_parallelism = at_once);
    (0..4).fold(spec, |spec, i| {
        let check = Some(format!("count {i}"));
        spec.agent(agent(&format!("w{i}")).pool(PoolSpec { check, ..pool() }))
    })
}

#[tokio::test(start_paused = true)]
async fn no_more_checks_run_at_once_than_are_allowed_now() {
    let town = Town::new().await;
    let city = town.add(four_checked(2));
    for i in 0..4 {
        let answer = takes(Duration::from_secs(5), "1");
        city.shell.script(&format!("count {i}"), answer);
    }
    let under_way = || city.shell.calls().len();
    settle().await;
    assert_eq!(under_way(), 2);
    pass(Duration::from_secs(5)).await;
    assert_eq!((up(&city).len(), under_way()), (2, 4));
    pass(Duration::from_secs(5)).await;
    assert_eq!(up(&city).len(), 4);
    // Another limit holds from the reload on.
    save(&city, four_checked(4)).await;
    assert_eq!(under_way(), 8);
}

#[tokio::test(start_paused = true)]
async fn hooks_of_pools_share_the_limit_of_their_checks() {
    let town = Town::new().await;
    let mourned = PoolSpec {
        min: 3,
        max: Some(3),
        check: None,
        on_death: Some("bury".into()),
        ..pool()
    };
    let spec = city("a").daemon(|daemon| daemon.check_parallelism = 2);
    let city = town.add(spec.agent(agent("w").pool(mourned)));
    city.shell.script("bury", takes(Duration::from_secs(5), ""));
    settle().await;
    for name in ["w-1", "w-2", "w-3"] {
        city.sessions.exit(name, ExitStatus::Code(1));
    }
    settle().await;
    assert_eq!(city.shell.count("bury"), 2);
    pass(Duration::from_secs(5)).await;
    assert_eq!(city.shell.count("bury"), 3);
}

/// Invariant I18, second half: a hung check holds up nobody and ends at its timeout.
#[tokio::test(start_paused = true)]
async fn a_hung_check_delays_no_other_pool_and_ends_at_its_timeout() {
    let hung = PoolSpec {
        check: Some("hang".into()),
        min: 1,
        ..pool()
    };
    let town = Town::new().await;
    let spec = city("a").agent(agent("h").pool(hung));
    let city = town.add(spec.agent(agent("w").pool(pool())).agent(agent("db")));
    city.shell.script("hang", takes(HOUR, "3"));
    city.shell.prints("count", "2");
    pass(Duration::from_secs(29)).await;
    assert_eq!(up(&city), ["db", "w-1", "w-2"], "the frozen pool waits");
    pass(Duration::from_secs(2)).await;
    assert_eq!(up(&city), ["db", "h-1", "w-1", "w-2"], "none known: min");
    let failed = city.journal.events();
    let failed = failed.iter().find(|e| e.kind == "pool.check_failed");
    assert_eq!(failed.unwrap().payload["timed_out"], true);
}

#[tokio::test(start_paused = true)]
async fn one_check_per_pool_is_in_flight() {
    let (town, city) = sized("1", pool()).await;
    city.shell
        .script("count", takes(Duration::from_secs(20), "1"));
    let before = city.shell.count("count");
    for _ in 0..10 {
        town.city("a").poke().await.unwrap();
        settle().await;
    }
    assert_eq!(city.shell.count("count"), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_check_keeps_the_last_good_count_and_tells_once_per_streak() {
    let (_town, city) = sized("3", pool()).await;
    let told = || city.journal.count("pool.check_failed", "w");
    for bad in [fails(), takes(Duration::ZERO, ""), takes(HOUR, "1")] {
        city.shell.script("count", bad);
        pass(5 * MINUTE).await;
        assert_eq!((up(&city).len(), told()), (3, 1));
    }
    city.shell.prints("count", "3");
    pass(MINUTE).await;
    city.shell.script("count", fails());
    pass(5 * MINUTE).await;
    assert_eq!(told(), 2, "a new streak is news");
}

#[tokio::test(start_paused = true)]
async fn the_last_good_count_is_clamped_again_when_the_bounds_change() {
    let (_town, city) = sized("5", pool()).await;
    city.shell.script("count", fails());
    let smaller = PoolSpec {
        max: Some(2),
        drain_timeout: Some(Duration::ZERO),
        ..pool()
    };
    save(
        &city,
        crate::util::city("a").agent(agent("w").pool(smaller)),
    )
    .await;
    pass(MINUTE).await;
    assert_eq!(up(&city), ["w-1", "w-2"]);
}

#[tokio::test(start_paused = true)]
async fn instances_of_a_pool_of_unknown_size_are_frozen() {
    let (mut town, city) = sized("2", pool()).await;
    town.kill_all_actors().await;
    city.shell
        .script("count", takes(Duration::from_secs(20), "1"));
    city.sessions.clear_calls();
    town.found().await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(city.sessions.mutating(), [], "neither started nor stopped");
    pass(Duration::from_secs(11)).await;
    assert_eq!(
        town.state("a", "w-2").await.0,
        AgentState::Draining,
        "known: beyond the count"
    );
    assert_eq!(town.state("a", "w-1").await.0, AgentState::Running);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_check_is_applied_when_it_arrives() {
    let (town, city) = sized("1", pool()).await;
    city.shell
        .script("count", takes(Duration::from_secs(3), "2"));
    town.city("a").poke().await.unwrap();
    pass(Duration::from_millis(3001)).await;
    assert_eq!(up(&city), ["w-1", "w-2"], "not at the next tick");
}

#[tokio::test(start_paused = true)]
async fn growing_starts_the_lowest_and_shrinking_drains_the_highest_first() {
    let (town, city) = sized("1", pool()).await;
    let told = story(&city).len();
    city.shell.prints("count", "3");
    town.city("a").poke().await.unwrap();
    settle().await;
    city.shell.prints("count", "1");
    town.city("a").poke().await.unwrap();
    settle().await;
    let expected = [
        "started w-2 scale_up",
        "started w-3 scale_up",
        "draining w-3 pool-excess",
        "draining w-2 pool-excess",
    ];
    assert_eq!(since(&city, told), expected);
}

#[tokio::test(start_paused = true)]
async fn on_boot_runs_once_and_only_for_pools_that_adopted_nobody() {
    let booting = PoolSpec {
        on_boot: Some("begin".into()),
        ..pool()
    };
    let (mut town, city) = sized("1", booting).await;
    pass(10 * MINUTE).await;
    assert_eq!(city.shell.count("begin"), 1);
    town.kill_all_actors().await;
    town.found().await;
    assert_eq!(city.shell.count("begin"), 1, "an instance was adopted");
    town.kill_all_actors().await;
    city.sessions.exit("w-1", ExitStatus::Unknown);
    town.found().await;
    assert_eq!(city.shell.count("begin"), 2, "a dead one is not adopted");
}

#[tokio::test(start_paused = true)]
async fn on_death_runs_after_every_end_of_an_instance() {
    let mourning = PoolSpec {
        on_death: Some("death".into()),
        ..pool()
    };
    let (_town, city) = sized("2", mourning).await;
    city.sessions.exit("w-1", crate::util::CRASH);
    settle().await;
    city.sessions.exit("w-2", ExitStatus::Code(0));
    settle().await;
    let jobs = city.shell.calls();
    let deaths: Vec<&str> = jobs
        .iter()
        .filter(|(_, job)| job.line == "death")
        .map(|(_, job)| job.env["GC_AGENT"].as_str())
        .collect();
    assert_eq!(deaths, ["w-1", "w-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_done_slot_of_a_pool_starts_again_when_a_later_check_still_wants_it() {
    let town = Town::new().await;
    let job = agent("w").pool(pool()).restart(RestartType::Transient);
    let city = town.add(city("a").agent(job));
    city.shell.prints("count", "1");
    settle().await;
    city.sessions.exit("w-1", ExitStatus::Code(0));
    settle().await;
    assert_eq!(town.state("a", "w-1").await.0, AgentState::Done);
    city.shell.script("count", fails());
    pass(MINUTE).await;
    assert_eq!(up(&city).len(), 0, "a failed check wants nothing");
    city.shell.prints("count", "1");
    pass(MINUTE).await;
    assert_eq!(up(&city), ["w-1"]);
}
