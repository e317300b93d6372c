use std::time::Duration;

use gascity_actors::model::ExitStatus;
use gascity_actors::ports::SessionError;

use crate::util::{MINUTE, Town, agent, city, pass, settle, since, story, up};

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(30);

/// Invariant I2: reconciliation is idempotent.
#[tokio::test(start_paused = true)]
async fn a_hundred_ticks_over_a_settled_city_change_nothing() {
    let (_town, city) = Town::with(city("a").agent(agent("db")).agent(agent("api"))).await;
    pass(MINUTE).await;
    city.sessions.clear_calls();
    let events = city.journal.events().len();
    pass(INTERVAL * 100).await;
    assert!(city.sessions.count("snapshot", None) >= 100);
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(city.journal.events().len(), events);
}

/// Invariant I21, first half: a listing that takes ten intervals is followed by one tick.
#[tokio::test(start_paused = true)]
async fn slow_ticks_do_not_pile_up() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    city.sessions.delay_listing(Duration::from_secs(9));
    let spec = crate::util::city("a").daemon(|d| d.patrol_interval = Duration::from_millis(900));
    city.desired
        .set(Ok(spec.agent(agent("db")).build().unwrap()));
    pass(Duration::from_secs(1)).await; // the reload's own tick is under way
    city.sessions.clear_calls();
    pass(Duration::from_secs(45)).await;
    assert_eq!(
        city.sessions.count("snapshot", None),
        5,
        "one after the other, none in between"
    );
    city.sessions.delay_listing(Duration::ZERO);
    pass(Duration::from_secs(9)).await;
    city.sessions.clear_calls();
    pass(Duration::from_secs(9)).await;
    assert_eq!(
        city.sessions.count("snapshot", None),
        10,
        "back on schedule"
    );
    assert!(town.view("a").await.ticks_missed >= 36);
}

/// Invariant I21, second half: any number of pokes during a tick is one tick.
#[tokio::test(start_paused = true)]
async fn a_thousand_pokes_during_a_tick_are_one_tick() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    city.sessions.delay_listing(Duration::from_secs(1));
    let handle = town.city("a");
    handle.poke().await.unwrap();
    settle().await;
    city.sessions.clear_calls();
    for _ in 0..1000 {
        handle.poke().await.unwrap();
    }
    pass(Duration::from_secs(5)).await;
    assert_eq!(city.sessions.count("snapshot", None), 1);
}

#[tokio::test(start_paused = true)]
async fn pokes_do_not_move_the_patrol_schedule() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(Duration::from_secs(20)).await;
    town.city("a").poke().await.unwrap();
    settle().await;
    city.sessions.clear_calls();
    pass(Duration::from_secs(11)).await;
    assert_eq!(
        city.sessions.count("snapshot", None),
        1,
        "due at 30s all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_while_a_tick_hangs() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    city.sessions.delay_listing(Duration::from_secs(9));
    town.city("a").poke().await.unwrap();
    settle().await;
    let at = tokio::time::Instant::now();
    assert_eq!(town.view("a").await.instances.len(), 1);
    assert_eq!(tokio::time::Instant::now(), at);
}

#[tokio::test(start_paused = true)]
async fn a_failing_listing_declares_nobody_dead_and_is_reported_until_it_works() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    city.sessions
        .fail_listing(Some(SessionError::Backend("no route".into())));
    pass(10 * MINUTE).await;
    assert_eq!(city.sessions.count("start", None), 1);
    assert_eq!(
        town.view("a").await.degraded,
        ["sessions cannot be listed: no route"]
    );
    city.sessions.fail_listing(None);
    pass(MINUTE).await;
    assert!(town.view("a").await.degraded.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_listing_declares_nobody_dead_and_is_reported_until_it_is_whole() {
    let (town, city) = Town::with(city("a").agent(agent("db")).agent(agent("web"))).await;
    pass(MINUTE).await;
    city.sessions.partial_listing(Some("d*"));
    city.sessions.clear_calls();
    pass(10 * MINUTE).await;
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(city.sessions.count("liveness", Some("db")), 0, "left alone");
    assert_eq!(
        town.view("a").await.degraded,
        ["some sessions cannot be listed: not all were listed"]
    );
    // Whoever is seen is looked after as ever.
    city.sessions.exit_unnoticed("web", ExitStatus::Code(1));
    pass(MINUTE).await;
    assert_eq!(city.sessions.count("start", Some("web")), 1);
    city.sessions.partial_listing(None);
    pass(MINUTE).await;
    assert!(town.view("a").await.degraded.is_empty());
    assert_eq!(city.sessions.count("start", Some("db")), 0);
}

#[tokio::test(start_paused = true)]
async fn news_that_were_lost_are_made_up_for_by_a_listing_at_once() {
    let (_town, city) = Town::with(city("a").agent(agent("db")).agent(agent("web"))).await;
    pass(MINUTE).await;
    city.sessions.exit_unnoticed("db", ExitStatus::Code(1));
    city.sessions.clear_calls();
    city.sessions.lag("web");
    settle().await;
    assert_eq!(city.sessions.count("snapshot", None), 1);
    assert_eq!(city.sessions.count("start", Some("db")), 1);
}

/// Row 40 in virtual time: the sessions of the backend outlive that it cannot be asked.
#[tokio::test(start_paused = true)]
async fn a_backend_that_is_back_is_listed_at_once() {
    let (town, city) = Town::with(city("a").agent(agent("db")).agent(agent("web"))).await;
    pass(MINUTE).await;
    let told = story(&city).len();
    city.sessions.lose_backend(2 * SECOND, true);
    pass(SECOND).await;
    city.sessions.exit_unnoticed("db", ExitStatus::Code(1));
    assert_eq!(up(&city), ["web"], "nobody ended with the connection");
    city.sessions.clear_calls();
    pass(SECOND).await;
    assert_eq!(city.sessions.count("snapshot", None), 1);
    assert_eq!(since(&city, told), ["crashed db", "started db crash"]);
    assert_eq!(town.instance("a", "web").await.restarts_in_window, 0);
}

/// Row 39 in virtual time.
#[tokio::test(start_paused = true)]
async fn agents_return_when_another_backend_has_taken_the_place_of_theirs() {
    let (town, city) = Town::with(city("a").agent(agent("db")).agent(agent("web"))).await;
    pass(MINUTE).await;
    city.sessions.lose_backend(30 * SECOND, false);
    pass(29 * SECOND).await;
    assert!(up(&city).is_empty());
    pass(MINUTE).await;
    assert_eq!(up(&city), ["db", "web"]);
    let stopped: Vec<_> = city.journal.events();
    let stopped = stopped.iter().filter(|event| event.kind == "agent.stopped");
    let why: Vec<_> = stopped.map(|event| event.message.clone()).collect();
    assert_eq!(why, ["provider lost: the server has died"; 2]);
    for name in ["db", "web"] {
        assert_eq!(town.instance("a", name).await.restarts_in_window, 0);
    }
}
