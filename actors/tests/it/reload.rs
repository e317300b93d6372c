use gascity_actors::ReloadOutcome;
use gascity_actors::model::{AgentState, ConfigState};
use gascity_actors::ports::LoadError;

use crate::util::{MINUTE, Town, agent, agent_trace, city, pass, settle};

/// The worked sequence "edit": one agent changed, one added, one removed, one untouched.
#[tokio::test(start_paused = true)]
async fn an_edit_touches_exactly_the_agents_it_changes() {
    let spec = city("a")
        .agent(agent("db"))
        .agent(agent("api"))
        .agent(agent("web"));
    let (town, city) = Town::with(spec).await;
    pass(MINUTE).await;
    let before = city.sessions.running();
    let edited = crate::util::city("a")
        .agent(agent("db"))
        .agent(agent("api").env("A", "1"))
        .agent(agent("audit"));
    let events = city.journal.events().len();
    city.desired.set(Ok(edited.build().unwrap()));
    settle().await;
    let mut since = city.journal.trace().split_off(events);
    assert_eq!(since.remove(0), "config.reloaded");
    since.sort();
    let expected = [
        "agent.drifted api",
        "agent.started api",
        "agent.started audit",
        "agent.stopped api",
        "agent.stopped web",
    ];
    assert_eq!(since, expected);
    let drifted = city
        .journal
        .events()
        .iter()
        .find(|e| e.kind == "agent.drifted")
        .cloned()
        .unwrap();
    assert_eq!(drifted.payload["keys"], serde_json::json!(["env.A"]));
    let after = city.sessions.running();
    assert_eq!(
        after.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(),
        ["api", "audit", "db"]
    );
    let token = |list: &[(String, _)], name: &str| list.iter().find(|(n, _)| n == name).cloned();
    assert_eq!(token(&before, "db"), token(&after, "db"), "db untouched");
    let names: Vec<_> = town
        .view("a")
        .await
        .instances
        .iter()
        .map(|i| i.name.clone())
        .collect();
    assert_eq!(names, ["db", "api", "audit"], "config order");
    assert_eq!(
        town.instance("a", "api").await.restarts_in_window,
        0,
        "planned, not charged"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_edit_changes_nothing_and_is_shown_until_fixed() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    city.sessions.clear_calls();
    city.desired.set(Err(LoadError {
        summary: "line 3".into(),
        diagnostics: vec![],
    }));
    settle().await;
    assert_eq!(town.view("a").await.config.state, ConfigState::Stale);
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(city.journal.count("config.reload_failed", ""), 1);
    city.desired.set(Ok(crate::util::city("a")
        .agent(agent("db"))
        .build()
        .unwrap()));
    settle().await;
    assert_eq!(town.view("a").await.config.state, ConfigState::Ok);
    assert_eq!(
        city.sessions.mutating(),
        [],
        "the same revision restarts nobody"
    );
}

/// Invariant I15: a reload keeps the city's identity.
#[tokio::test(start_paused = true)]
async fn a_rename_is_refused_whole() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    let renamed = crate::util::city("b")
        .root("/cities/a")
        .agent(agent("db").env("A", "1"));
    city.desired.set(Ok(renamed.build().unwrap()));
    settle().await;
    let view = town.view("a").await;
    assert_eq!(
        (view.config.state, view.name.as_str()),
        (ConfigState::Refused, "a")
    );
    assert_eq!(
        agent_trace(&city),
        ["agent.started db"],
        "no other edit of that save is applied"
    );
}

#[tokio::test(start_paused = true)]
async fn suspending_stops_and_resuming_starts() {
    let (town, city) = Town::with(city("a").agent(agent("db")).agent(agent("api"))).await;
    let suspended = crate::util::city("a")
        .agent(agent("db").suspended(true))
        .agent(agent("api"));
    city.desired.set(Ok(suspended.build().unwrap()));
    settle().await;
    let db = town.instance("a", "db").await;
    assert_eq!((db.state, db.running), (AgentState::Suspended, false));
    assert_eq!(city.journal.count("agent.suspended", "db"), 1);
    city.desired.set(Ok(crate::util::city("a")
        .agent(agent("db"))
        .agent(agent("api"))
        .build()
        .unwrap()));
    settle().await;
    assert_eq!(town.instance("a", "db").await.state, AgentState::Running);
    assert_eq!(city.journal.count("agent.stopped", "api"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reload_on_request_says_what_came_of_it() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    let handle = town.city("a");
    assert_eq!(handle.reload().await.unwrap(), ReloadOutcome::Unchanged);
    let broken = LoadError {
        summary: "line 3".into(),
        diagnostics: vec![],
    };
    city.desired.set(Err(broken.clone()));
    assert_eq!(
        handle.reload().await.unwrap(),
        ReloadOutcome::Failed(broken)
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_is_told_and_shown_until_it_works() {
    let town = Town::new().await;
    let city = town.add(crate::util::chain());
    settle().await;
    city.desired.set_trouble(Some("no more watchers"));
    settle().await;
    assert_eq!(city.journal.count("config.watch_degraded", ""), 1);
    let shown = town.view("a").await.degraded;
    assert!(shown[0].contains("no more watchers"), "{shown:?}");
    city.desired.set_trouble(None);
    settle().await;
    assert!(town.view("a").await.degraded.is_empty());
    assert_eq!(city.journal.count("config.watch_degraded", ""), 1);
}
