//! What the tree tells of itself: agents as text, and the messages an actor handled.

use std::time::Duration;

use gascity_actors::AgentCommand;
use gascity_actors::model::InstanceView;

use crate::util::{
    CRASH, MINUTE, Town, agent, cannot_start, city, dies_at_once, pass, pool, settle,
};

/// The agents of city `a` as text say the same as its view, now and whenever asked again.
async fn assert_text_is_view(town: &Town) {
    for _ in 0..2 {
        let (view, text) = town.city("a").detail().await.unwrap();
        assert!(view.instances.is_empty());
        let told: Vec<InstanceView> = serde_json::from_str(&text).unwrap();
        assert_eq!(told, town.view("a").await.instances);
        let whole = serde_json::to_string(&told).unwrap();
        assert_eq!(whole, text, "also to the byte");
    }
}

#[tokio::test(start_paused = true)]
async fn agents_as_text_are_those_of_the_view_whatever_happens() {
    let town = Town::new().await;
    let spec = city("a")
        .agent(agent("db"))
        .agent(agent("api").depends_on("db"))
        .agent(agent("loops"))
        .agent(agent("never"))
        .agent(agent("off").suspended(true))
        .agent(agent("w").pool(pool()));
    let city = town.add(spec);
    city.sessions.script("loops", dies_at_once());
    city.sessions.script("never", cannot_start());
    settle().await;
    assert_text_is_view(&town).await;
    pass(Duration::from_millis(1234)).await;
    assert_text_is_view(&town).await;
    // A crash and its successor; then a restart; then the charge leaves the window.
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_text_is_view(&town).await;
    pass(MINUTE).await;
    assert_text_is_view(&town).await;
    town.command("a", "db", AgentCommand::Restart)
        .await
        .unwrap();
    settle().await;
    assert_text_is_view(&town).await;
    pass(120 * MINUTE).await;
    assert_text_is_view(&town).await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_remembers_its_last_messages() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    let late = crate::util::starts_in(Duration::from_millis(1)); // so it is told by a message
    city.sessions.script("db", late);
    pass(MINUTE).await;
    let show = async |path: &str| town.door().show(path).await.unwrap();
    let worker = show("a/db").await.unwrap();
    assert_eq!(worker.node.path, "a/db");
    assert!(!worker.messages.is_empty() && worker.messages.len() <= 20);
    for path in ["machine", "a", "a/tracker"] {
        let shown = show(path).await.unwrap();
        assert!(shown.messages.len() <= 20, "{path}");
        assert!(shown.node.children.is_empty(), "{path}");
    }
    assert_eq!(show("a/nobody").await, None);
    assert_eq!(show("b").await, None);
}

// C16
#[tokio::test(start_paused = true)]
async fn a_flood_of_messages_fills_a_mailbox_and_is_worked_off() {
    let (town, _city) = Town::with(city("a").agent(agent("db"))).await;
    let held = Duration::from_millis(100);
    assert!(town.door().flood("a/db", 10_000, held).await);
    let depth = async || {
        let shown = town.door().show("a/db").await.unwrap().unwrap();
        shown.node.mailbox_depth
    };
    tokio::task::yield_now().await;
    assert_eq!(depth().await, 10_000);
    pass(2 * held).await;
    assert_eq!(depth().await, 0);
    let shown = town.door().show("a/db").await.unwrap().unwrap();
    assert_eq!(shown.node.mailbox_peak, 10_001);
    assert_eq!(shown.messages.len(), 20);
    // The first of them waited for as long as the actor was held.
    let waits = shown.messages.iter().map(|message| message.wait_us);
    assert!(waits.max().unwrap() >= 99_000);
}
