//! The worked sequences of patrol.md 13, as event traces. The crash loop is in `quarantine.rs`, the
//! edit in `reload.rs`.

use std::time::Duration;

use gascity_actors::StopMode;
use gascity_actors::model::ExitStatus;
use gascity_actors::ports::Note;

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, chain, city, pass, pool, settle, since, story, stubborn, up,
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn cold_start() {
    let (town, city) = Town::with(chain()).await;
    assert_eq!(
        city.journal.trace(),
        [
            "controller.started",
            "agent.started db",
            "agent.started api",
            "agent.started web"
        ]
    );
    let causes = [
        "started db initial",
        "started api initial",
        "started web initial",
    ];
    assert_eq!(story(&city), causes);
    assert_eq!(town.status("a").as_str(), "running");
    assert_eq!(town.journal.count("city.started", "a"), 1);
    city.sessions.clear_calls();
    pass(31 * SECOND).await;
    assert_eq!(
        city.sessions.count("snapshot", None),
        1,
        "the tick is armed"
    );
}

#[tokio::test(start_paused = true)]
async fn api_crashes_after_two_hours() {
    let (town, city) = Town::with(chain()).await;
    pass(2 * HOUR).await;
    let told = story(&city).len();
    city.sessions.exit("api", CRASH);
    settle().await;
    assert_eq!(since(&city, told), ["crashed api", "started api crash"]);
    let api = town.instance("a", "api").await;
    assert_eq!(
        api.restarts_in_window, 0,
        "the run was older than the window"
    );
    assert_eq!(town.instance("a", "web").await.generation, 1, "untouched");
}

#[tokio::test(start_paused = true)]
async fn pool_one_three_one() {
    let town = Town::new().await;
    let spec = city("a").daemon(|d| d.patrol_interval = HOUR);
    let city = town.add(spec.agent(agent("w").pool(pool())));
    city.shell.prints("count", "1");
    settle().await;
    let first = city.sessions.running();
    let count = async |text: &str| {
        city.shell.prints("count", text);
        town.city("a").poke().await.unwrap();
        settle().await;
    };
    count("3").await;
    count("1").await;
    city.sessions.note("w-3", Note::DrainAck, Some("1"));
    town.city("a").poke().await.unwrap();
    pass(5 * MINUTE + SECOND).await;
    let expected = [
        "started w-1 scale_up",
        "started w-2 scale_up",
        "started w-3 scale_up",
        "draining w-3 pool-excess",
        "draining w-2 pool-excess",
        "stopped w-3 drained",
        "stopped w-2 drain_timeout",
    ];
    assert_eq!(story(&city), expected);
    assert_eq!(city.sessions.running(), first, "slot 1 was never touched");
}

#[tokio::test(start_paused = true)]
async fn pool_one_three_one_with_a_check_of_two_in_between() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("w").pool(pool())));
    for text in ["3", "1", "2"] {
        city.shell.prints("count", text);
        pass(31 * SECOND).await;
    }
    assert_eq!(
        since(&city, 3),
        [
            "draining w-3 pool-excess",
            "draining w-2 pool-excess",
            "undrained w-2"
        ]
    );
    pass(5 * MINUTE).await;
    assert_eq!(up(&city), ["w-1", "w-2"]);
}

#[tokio::test(start_paused = true)]
async fn idle_kill() {
    let spec = city("a").daemon(|d| d.patrol_interval = HOUR);
    let (town, city) = Town::with(spec.agent(agent("db").idle_timeout(30 * MINUTE))).await;
    pass(30 * MINUTE).await;
    assert_eq!(story(&city), ["started db initial"]);
    pass(MINUTE).await;
    assert_eq!(story(&city)[1..], ["idle_killed db", "started db idle"]);
    assert_eq!(city.sessions.count("clear_scrollback", Some("db")), 1);
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn kill_dash_nine_of_the_supervisor() {
    let (mut town, city) = Town::with(chain()).await;
    let before = city.sessions.running();
    town.kill_all_actors().await;
    city.sessions.clear_calls();
    let told = story(&city).len();
    town.found().await;
    let adopted = ["adopted api", "adopted db", "adopted web"];
    assert_eq!(since(&city, told), adopted);
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(city.sessions.running(), before, "same tokens");
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(up(&city).len(), 3, "watches are armed again");
}

#[tokio::test(start_paused = true)]
async fn graceful_stop() {
    let town = Town::new().await;
    let city = town.add(chain());
    for name in ["web", "api", "db"] {
        city.sessions.script(name, stubborn());
    }
    settle().await;
    let told = city.journal.trace().len();
    let began = tokio::time::Instant::now();
    let stop = tokio::spawn({
        let door = town.door();
        async move { door.stop(StopMode::Graceful).await }
    });
    pass(SECOND).await;
    city.sessions.exit("api", ExitStatus::Code(0));
    stop.await.unwrap().unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);
    assert_eq!(
        city.journal.trace().split_off(told),
        [
            "agent.stopped api",
            "agent.stopped web",
            "agent.stopped db",
            "controller.stopped"
        ]
    );
    let reasons: Vec<_> = since(&city, 3);
    assert!(
        reasons.iter().all(|l| l.ends_with("shutdown")),
        "{reasons:?}"
    );
}
