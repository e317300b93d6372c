//! Agents that lack the terminal they were meant to have (sessions.md 1).

use gascity_actors::model::{CityMode, Prompt, PromptMode, Stdin, Template};
use gascity_actors::ports::Caps;

use crate::util::{CRASH, Town, agent, city, settle, story};

const WHY: &str = "tmux not found on PATH";

fn told(mode: PromptMode, text: Option<&str>) -> gascity_actors::model::AgentSpecBuilder {
    let text = text.map(Template::plain);
    agent("db").launch(|launch| {
        launch.nudge = "go".into();
        launch.prompt = Prompt {
            mode,
            text,
            ..Prompt::default()
        };
    })
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_its_terminal_has_no_input_and_knows() {
    let town = Town::new().await;
    let own = agent("own").launch(|launch| launch.session = Some("subprocess".into()));
    let city = town.add(city("a").agent(agent("db")).agent(own));
    city.sessions.degrade(Some(WHY));
    settle().await;
    let db = city.sessions.launched("db").unwrap();
    assert_eq!(db.stdin, Stdin::Null);
    assert_eq!(db.env["GC_DEGRADED"], "true");
    assert_eq!(db.env["GT_DEGRADED"], "true");
    // Whoever asks for plain processes gets what was asked for.
    let own = city.sessions.launched("own").unwrap();
    assert_eq!((own.stdin, own.env.len()), (Stdin::Fifo, 0));
    let view = town.view("a").await;
    assert_eq!(view.mode, CityMode::Degraded);
    assert_eq!(view.mode_reason.as_deref(), Some(WHY));
    let events = city.journal.events();
    let mode = events.iter().find(|e| e.kind == "mode.degraded").unwrap();
    assert_eq!(mode.payload["reason"], WHY);

    // Once there are terminals again, the next run has one; this is no drift.
    city.sessions.degrade(None);
    town.city("a").poke().await.unwrap();
    settle().await;
    assert_eq!(city.sessions.launched("db").unwrap().stdin, Stdin::Null);
    city.sessions.exit("db", CRASH);
    settle().await;
    let db = city.sessions.launched("db").unwrap();
    assert_eq!((db.stdin, db.env.len()), (Stdin::Fifo, 0));
    assert_eq!(town.view("a").await.mode, CityMode::Normal);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_degraded_where_nothing_is_missing() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    assert_eq!(city.sessions.launched("db").unwrap().env.len(), 0);
    assert_eq!(town.view("a").await.mode, CityMode::Normal);
    let events = city.journal.events();
    assert!(events.iter().all(|e| !e.kind.starts_with("mode.")));
}

#[tokio::test(start_paused = true)]
async fn a_first_message_that_cannot_be_typed_goes_with_the_prompt() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(told(PromptMode::Arg, Some("be good"))));
    city.sessions.mask_caps(Some(Caps::default()));
    settle().await;
    let launch = city.sessions.launched("db").unwrap();
    let prompt = launch.prompt.text.as_ref().unwrap();
    assert_eq!(prompt.render(|_| None), "be good\n\ngo");
    assert_eq!(city.sessions.count("nudge", None), 0);
    assert_eq!(town.instance("a", "db").await.warnings, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_first_message_that_reaches_nobody_is_a_warning() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(told(PromptMode::None, None)));
    city.sessions.mask_caps(Some(Caps::default()));
    settle().await;
    assert_eq!(story(&city), ["started db initial"]);
    let warnings = town.instance("a", "db").await.warnings;
    assert!(
        warnings[0].starts_with("prompt-undelivered: "),
        "{warnings:?}"
    );
    let events = city.journal.events();
    let started = events.iter().find(|e| e.kind == "agent.started").unwrap();
    assert_eq!(started.payload["error"], warnings[0]);
}
