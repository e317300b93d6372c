//! A city whose handler never yields cannot be killed, so it stays `stalled`. That cannot be shown
//! here: on one thread such a handler would also stop the test.

use std::time::Duration;

use gascity_actors::model::CityStatus;

use crate::util::{MINUTE, Town, agent, city, pass, settle};

const SECOND: Duration = Duration::from_secs(1);

/// Invariant I32: a city that finishes no tick is replaced; its agents and others notice nothing.
#[tokio::test(start_paused = true)]
async fn a_stalled_city_is_replaced_and_its_agents_run_on() {
    let town = Town::new().await;
    let a = town.add(city("a").agent(agent("db")));
    let b = town.add(city("b").agent(agent("db")));
    pass(30 * SECOND).await;
    let agents = a.sessions.running();
    let trace_b = b.journal.trace();
    a.sessions.clear_calls();
    b.sessions.clear_calls();
    a.sessions.break_listing(true); // the tick that waits for it never ends
    pass(89 * SECOND).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    pass(3 * SECOND / 2).await;
    a.sessions.break_listing(false);
    assert_eq!(a.journal.trace().last().unwrap(), "city.stalled a");
    assert_eq!(town.journal.count("city.stalled", "a"), 1);
    pass(2 * SECOND).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    assert_eq!(a.sessions.mutating(), []);
    assert_eq!(a.sessions.running(), agents);
    assert_eq!(a.journal.count("agent.adopted", "db"), 1);
    assert_eq!(b.journal.trace(), trace_b);
    assert_eq!(b.sessions.mutating(), []);
}

#[tokio::test(start_paused = true)]
async fn a_city_with_a_long_interval_has_three_of_them() {
    let spec = city("a").daemon(|d| d.patrol_interval = 2 * MINUTE);
    let (town, city) = Town::with(spec.agent(agent("db"))).await;
    city.sessions.break_listing(true);
    pass(6 * MINUTE - SECOND).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    pass(2 * SECOND).await;
    assert_eq!(city.journal.count("city.stalled", "a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_city_that_never_finishes_its_first_tick_is_stalled_too() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.break_listing(true);
    pass(181 * SECOND / 2).await;
    assert_eq!(city.journal.count("city.stalled", "a"), 1);
    city.sessions.break_listing(false);
    pass(5 * SECOND).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    assert_eq!(city.sessions.running().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_city_that_stalls_again_and_again_comes_back_with_growing_delays() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    let mut delays = Vec::new();
    for _ in 0..3 {
        let stalls = city.journal.count("city.stalled", "a");
        city.sessions.break_listing(true);
        while city.journal.count("city.stalled", "a") == stalls {
            pass(SECOND).await;
        }
        let at = tokio::time::Instant::now();
        city.sessions.break_listing(false);
        while town.status("a") != CityStatus::Running {
            pass(Duration::from_millis(50)).await;
        }
        delays.push(at.elapsed().as_secs_f64().round() as u64);
    }
    // Noticed by the test up to a second late.
    assert!(delays[1] >= 1 && delays[2] >= 3, "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn agents_of_a_stalled_city_that_die_meanwhile_are_restarted_by_its_successor() {
    let (_town, city) = Town::with(city("a").agent(agent("db"))).await;
    city.sessions.break_listing(true);
    pass(181 * SECOND / 2).await;
    city.sessions.exit("db", crate::util::CRASH);
    settle().await;
    city.sessions.break_listing(false);
    pass(35 * SECOND).await;
    assert_eq!(city.sessions.running().len(), 1);
    assert_eq!(city.journal.count("agent.crashed", "db"), 1);
}
