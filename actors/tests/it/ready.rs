//! From a launched run to one that is ready (sessions.md 3, conformance row 4).

use std::time::Duration;

use gascity_actors::memory::{Answer, Behaviour, MemoryCity};
use gascity_actors::model::{AgentState, Dismiss, ExitStatus};
use gascity_actors::ports::{Caps, ShellError};

use crate::util::{HOUR, MINUTE, Town, agent, city, pass, save, settle, story, up};

const SECOND: Duration = Duration::from_secs(1);

/// What the first `agent.started` says.
fn started(city: &MemoryCity) -> serde_json::Map<String, serde_json::Value> {
    let events = city.journal.events();
    let started = events.into_iter().find(|e| e.kind == "agent.started");
    started.unwrap().payload.clone()
}

fn exits(after: Duration, code: i32) -> Behaviour {
    Behaviour {
        exits: Some((after, ExitStatus::Code(code))),
        output: "no key\n".into(),
        ..Behaviour::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_before_it_is_ready_failed_to_start() {
    let town = Town::new().await;
    let slow = agent("db").launch(|launch| launch.ready_delay = Some(5 * SECOND));
    let city = town.add(city("a").agent(slow.max_restarts(1, HOUR)));
    city.sessions.script("db", exits(SECOND, 3));
    pass(4 * SECOND).await;
    assert_eq!(story(&city), ["start_failed db", "quarantined db"]);
    let seen = town.instance("a", "db").await.last_error.unwrap();
    assert_eq!(seen, "ready: died before it was ready: exit 3: no key");
    let events = city.journal.events();
    let failed = events.iter().find(|e| e.kind == "agent.start_failed");
    assert_eq!(failed.unwrap().payload["exit_code"], 3);
    assert_eq!(city.sessions.present().len(), 0, "its session is gone");
}

#[tokio::test(start_paused = true)]
async fn without_a_hint_the_same_is_a_crash() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db").max_restarts(1, HOUR)));
    city.sessions.script("db", exits(SECOND, 3));
    pass(4 * SECOND).await;
    assert_eq!(story(&city)[..2], ["started db initial", "crashed db"]);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_was_not_found_is_said_so() {
    let town = Town::new().await;
    let slow = agent("db").launch(|launch| launch.ready_delay = Some(5 * SECOND));
    let city = town.add(city("a").agent(slow.max_restarts(1, HOUR)));
    city.sessions.script("db", exits(SECOND, 127));
    pass(4 * SECOND).await;
    let seen = town.instance("a", "db").await.last_error.unwrap();
    assert!(
        seen.contains("exit 127 (a program was not found)"),
        "{seen}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_up_once_its_delay_is_over() {
    let town = Town::new().await;
    let slow = agent("db").launch(|launch| launch.ready_delay = Some(5 * SECOND));
    let city = town.add(city("a").agent(slow).agent(agent("web").depends_on("db")));
    pass(4 * SECOND).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Starting);
    assert_eq!(up(&city), ["db"], "its dependent waits");
    pass(2 * SECOND).await;
    assert_eq!(up(&city), ["db", "web"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_up_when_its_prompt_shows_and_is_told_its_first_message_then() {
    let town = Town::new().await;
    let asks = agent("db").launch(|launch| {
        launch.ready_prompt_prefix = Some("❯ ".into());
        launch.nudge = "go".into();
    });
    let city = town.add(city("a").agent(asks));
    pass(5 * SECOND).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Starting);
    assert_eq!(city.sessions.nudges("db"), [""; 0]);
    city.sessions.say("db", "welcome\n❯\u{a0}\n");
    pass(SECOND).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Running);
    assert_eq!(city.sessions.nudges("db"), ["go"]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_never_shows_is_no_crash_loop() {
    let town = Town::new().await;
    let asks = agent("db").launch(|launch| launch.ready_prompt_prefix = Some("> ".into()));
    let city = town.add(city("a").agent(asks));
    pass(50 * SECOND).await;
    assert_eq!(story(&city), [""; 0]);
    pass(15 * SECOND).await;
    assert_eq!(story(&city), ["started db initial"]);
    assert_eq!(started(&city)["ready"], "assumed");
    assert_eq!(town.state("a", "db").await.0, AgentState::Running);
}

#[tokio::test(start_paused = true)]
async fn programs_that_never_come_up_are_a_failed_start_that_names_them() {
    let town = Town::new().await;
    let named = agent("db")
        .process_names(["model", "node"])
        .max_restarts(1, HOUR);
    let city = town.add(city("a").agent(named));
    pass(2 * MINUTE).await;
    assert_eq!(story(&city), ["start_failed db", "quarantined db"]);
    let seen = town.instance("a", "db").await.last_error.unwrap();
    assert_eq!(seen, "ready: none of its programs came up: model, node");
    assert_eq!(city.sessions.present().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn setup_runs_after_the_launch_and_its_failure_stops_nobody() {
    let town = Town::new().await;
    let set_up = agent("db").env("A", "1").launch(|launch| {
        launch.session_setup = vec!["first".into(), "second".into()];
        launch.session_setup_script = Some("/c/set up".into());
        launch.nudge = "go".into();
    });
    let city = town.add(city("a").agent(set_up));
    let result = Err(ShellError::TimedOut(SECOND));
    let after = Duration::ZERO;
    city.shell.script("first", Answer { after, result });
    settle().await;
    let jobs: Vec<_> = city.shell.calls().into_iter().map(|(_, job)| job).collect();
    let lines: Vec<&str> = jobs.iter().map(|job| job.line.as_str()).collect();
    assert_eq!(lines, ["first", "second", "'/c/set up'"]);
    let run = jobs[0].run.as_ref().unwrap();
    assert_eq!(run.spec.agent.as_str(), "db");
    assert_eq!(run.spec.launch.env["A"], "1");
    assert_eq!(story(&city), ["started db initial"]);
    assert_eq!(city.sessions.nudges("db"), ["go"]);
    let warning = "session_setup failed: timed out after 1s";
    assert_eq!(started(&city)["error"], warning);
    assert_eq!(started(&city).get("ready"), None);
    assert_eq!(town.instance("a", "db").await.warnings, [warning]);
}

#[tokio::test(start_paused = true)]
async fn every_line_of_the_setup_has_the_configured_time() {
    let town = Town::new().await;
    let set_up = agent("db").live(["live"]).launch(|launch| {
        launch.session_setup = vec!["slow".into()];
        launch.session_setup_script = Some("/script".into());
    });
    let spec = |limit| city("a").setup_timeout(limit).agent(set_up.clone());
    let city = town.add(spec(3 * SECOND));
    for line in ["slow", "/script", "live"] {
        let (after, result) = (HOUR, Ok(String::new()));
        city.shell.script(line, Answer { after, result });
    }
    pass(8 * SECOND).await;
    assert_eq!(story(&city), [""; 0], "the last one is still under way");
    pass(2 * SECOND).await;
    assert_eq!(
        started(&city)["error"],
        "session_setup failed: timed out after 3s; \
         session_setup_script failed: timed out after 3s; session_live failed: timed out after 3s"
    );
    // Without a restart, the next run has the new limit.
    save(&city, spec(5 * SECOND)).await;
    assert_eq!(story(&city), ["started db initial"]);
    city.sessions.exit("db", ExitStatus::Code(1));
    pass(16 * SECOND).await;
    let limits: Vec<Duration> = city.shell.calls().iter().map(|c| c.1.limit).collect();
    assert_eq!(limits[3..], [5 * SECOND; 3]);
}

#[tokio::test(start_paused = true)]
async fn live_lines_are_the_last_step_of_a_start() {
    let town = Town::new().await;
    let lively = agent("db").live(["live"]).launch(|launch| {
        launch.ready_delay = Some(5 * SECOND);
        launch.session_setup = vec!["setup".into()];
    });
    let city = town.add(city("a").agent(lively));
    pass(4 * SECOND).await;
    assert_eq!(city.shell.calls().len(), 0, "it is not ready");
    pass(2 * SECOND).await;
    let calls = city.shell.calls();
    let lines: Vec<&str> = calls.iter().map(|call| call.1.line.as_str()).collect();
    assert_eq!(lines, ["setup", "live"]);
    assert_eq!(started(&city).get("error"), None);
}

#[tokio::test(start_paused = true)]
async fn live_lines_that_fail_when_they_change_are_a_warning_too() {
    let town = Town::new().await;
    let spec = |line: &str| city("a").agent(agent("db").live([line]));
    let city = town.add(spec("one"));
    settle().await;
    let result = Err(ShellError::TimedOut(SECOND));
    let after = Duration::ZERO;
    city.shell.script("two", Answer { after, result });
    save(&city, spec("two")).await;
    let events = city.journal.events();
    let updated = events.iter().find(|e| e.kind == "agent.updated").unwrap();
    let warning = "session_live failed: timed out after 1s";
    assert_eq!(updated.payload["error"], warning);
    assert_eq!(town.instance("a", "db").await.warnings, [warning]);
    save(&city, spec("three")).await;
    assert_eq!(town.instance("a", "db").await.warnings, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_last_words_of_a_start_in_vain_are_kept() {
    let town = Town::new().await;
    let slow = agent("db").launch(|launch| launch.ready_delay = Some(5 * SECOND));
    let city = town.add(city("a").agent(slow.max_restarts(1, HOUR)));
    city.sessions.script("db", exits(SECOND, 3));
    pass(4 * SECOND).await;
    let events = city.journal.events();
    let failed = events.iter().find(|e| e.kind == "agent.start_failed");
    assert_eq!(failed.unwrap().payload["capture"], "captures/db-1.txt");
    let (session, text) = &city.notes.captures()[0];
    assert_eq!(session, "db");
    assert!(text.ends_with("\n\nno key\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_an_agent_that_is_not_ready_leaves_nothing() {
    let town = Town::new().await;
    let slow = agent("db").launch(|launch| launch.ready_delay = Some(HOUR));
    let spec = city("a").startup_timeout(2 * HOUR);
    let city = town.add(spec.agent(slow));
    pass(MINUTE).await;
    assert_eq!(up(&city), ["db"]);
    save(&city, crate::util::city("a")).await;
    pass(MINUTE).await;
    assert_eq!(up(&city).len(), 0);
    assert_eq!(city.sessions.present().len(), 0);
}

/// An agent whose program asks before it shows its prompt.
fn asking(dismiss: &[(&str, &[&str])]) -> gascity_actors::model::AgentSpecBuilder {
    let dismiss = dismiss.iter().map(|(matches, keys)| Dismiss {
        matches: (*matches).to_owned(),
        keys: keys.iter().map(ToString::to_string).collect(),
    });
    let dismiss: Vec<Dismiss> = dismiss.collect();
    agent("db").launch(move |launch| {
        launch.ready_prompt_prefix = Some("> ".into());
        launch.dismiss = dismiss;
    })
}

fn pressed(city: &MemoryCity) -> Vec<String> {
    let keys = city.sessions.keys("db");
    keys.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_program_asks_is_answered_once_until_it_is_ready() {
    let town = Town::new().await;
    let asks = asking(&[("Trust?", &["Down", "Enter"]), ("Sure?", &["y"])]);
    let city = town.add(city("a").agent(asks));
    pass(5 * SECOND).await;
    assert_eq!(pressed(&city), [""; 0], "it has not asked");
    city.sessions.say("db", "Sure? (y/n)\n");
    pass(SECOND).await;
    assert_eq!(pressed(&city), ["y"]);
    city.sessions.say("db", "Trust?\n");
    pass(Duration::from_millis(310)).await;
    assert_eq!(pressed(&city), ["y", "Down"]);
    pass(Duration::from_millis(200)).await;
    assert_eq!(pressed(&city), ["y", "Down", "Enter"]);
    pass(5 * SECOND).await;
    assert_eq!(pressed(&city).len(), 3, "each once");
    assert_eq!(town.state("a", "db").await.0, AgentState::Starting);
    city.sessions.say("db", "> \n");
    pass(SECOND).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Running);
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_once_it_is_ready_is_not_answered() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(asking(&[("Trust?", &["Enter"])])));
    settle().await;
    city.sessions.say("db", "> \n");
    pass(SECOND).await;
    assert_eq!(story(&city), ["started db initial"]);
    city.sessions.say("db", "Trust?\n");
    pass(MINUTE).await;
    assert_eq!(pressed(&city), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn without_a_screen_or_keys_nothing_is_answered() {
    let all = Caps {
        screen: true,
        keys: true,
        log: true,
        ..Caps::default()
    };
    for caps in [
        Caps { keys: false, ..all },
        Caps {
            screen: false,
            ..all
        },
    ] {
        let town = Town::new().await;
        let asks = asking(&[("Trust?", &["Enter"])]);
        let asks = asks.launch(|launch| launch.ready_delay = Some(10 * SECOND));
        let city = town.add(city("a").agent(asks));
        city.sessions.mask_caps(Some(caps));
        settle().await;
        city.sessions.say("db", "Trust?\n");
        pass(5 * SECOND).await;
        assert_eq!(pressed(&city), [""; 0]);
        assert_eq!(city.sessions.count("send_keys", None), 0);
    }
}
