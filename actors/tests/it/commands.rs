use std::time::Duration;

use gascity_actors::AgentCommand::{Drain, Kill, RequestRestart, Restart, Unquarantine};
use gascity_actors::memory::{MemoryCity, Times};
use gascity_actors::model::{AgentState, CitySpecBuilder, NudgeTimes, RestartType};
use gascity_actors::ports::{Caps, Note, SessionError};
use gascity_actors::{CommandError, Nudged, ReachError, When};

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, city, dies_at_once, pass, save, settle, since, story,
    stubborn, up,
};

const SECOND: Duration = Duration::from_secs(1);

async fn one() -> (Town, MemoryCity) {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    pass(MINUTE).await;
    (town, city)
}

async fn quarantined() -> (Town, MemoryCity) {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db").max_restarts(3, HOUR)));
    city.sessions.script("db", dies_at_once());
    pass(MINUTE).await;
    (town, city)
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_planned_and_not_charged() {
    let (town, city) = one().await;
    let state = town.command("a", "db", Restart).await.unwrap();
    assert_eq!(state, AgentState::Stopping);
    settle().await;
    assert_eq!(story(&city)[1..], ["stopped db user", "started db user"]);
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_skips_the_delay() {
    let spec = city("a").agent(agent("db").max_restarts(0, HOUR));
    let (town, city) = Town::with(spec).await;
    city.sessions.script("db", dies_at_once());
    city.sessions.exit("db", CRASH);
    pass(10 * SECOND).await;
    assert_eq!(town.state("a", "db").await.0, AgentState::Backoff);
    city.sessions.script("db", stubborn());
    town.command("a", "db", Restart).await.unwrap();
    settle().await;
    assert_eq!(up(&city), ["db"]);
}

/// Race: `gc agent restart` of a quarantined agent.
#[tokio::test(start_paused = true)]
async fn a_quarantined_agent_is_not_restarted_on_request() {
    let (town, city) = quarantined().await;
    let error = town.command("a", "db", Restart).await.unwrap_err();
    assert_eq!(error.to_string(), "db is quarantined");
    settle().await;
    assert_eq!(city.sessions.count("start", None), 3);
}

#[tokio::test(start_paused = true)]
async fn unquarantine_forgets_everything_and_starts_now() {
    let (town, city) = quarantined().await;
    city.sessions.script("db", stubborn());
    let told = story(&city).len();
    town.command("a", "db", Unquarantine).await.unwrap();
    settle().await;
    assert_eq!(
        since(&city, told),
        ["unquarantined db user", "started db user"]
    );
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn unquarantine_resets_the_pace() {
    let (town, city) = quarantined().await;
    city.sessions.script("db", stubborn());
    town.command("a", "db", Unquarantine).await.unwrap();
    settle().await;
    city.sessions.exit("db", CRASH);
    settle().await;
    assert_eq!(up(&city), ["db"], "the first crash of a row");
}

#[tokio::test(start_paused = true)]
async fn a_killed_agent_is_forced_and_started_again() {
    let (town, city) = one().await;
    town.command("a", "db", Kill).await.unwrap();
    settle().await;
    assert_eq!(story(&city)[1..], ["stopped db user", "started db user"]);
    assert_eq!(city.sessions.count("interrupt", None), 0);
    assert_eq!(town.instance("a", "db").await.restarts_in_window, 0);
}

#[tokio::test(start_paused = true)]
async fn a_killed_temporary_agent_is_done_and_a_restarted_one_is_not() {
    let spec = city("a").agent(agent("job").restart(RestartType::Temporary));
    let (town, _city) = Town::with(spec).await;
    town.command("a", "job", Kill).await.unwrap();
    settle().await;
    assert_eq!(town.state("a", "job").await.0, AgentState::Done);
    town.command("a", "job", Restart).await.unwrap();
    settle().await;
    assert_eq!(
        town.state("a", "job").await.0,
        AgentState::Running,
        "done is left by a restart"
    );
    town.command("a", "job", Restart).await.unwrap();
    settle().await;
    assert_eq!(town.state("a", "job").await.0, AgentState::Running);
}

#[tokio::test(start_paused = true)]
async fn done_is_left_by_a_changed_fingerprint_only() {
    let spec = |value: &str, max| {
        let job = agent("job").env("A", value).max_restarts(max, HOUR);
        city("a").agent(job.restart(RestartType::Temporary))
    };
    let (town, city) = Town::with(spec("1", 5)).await;
    city.sessions.exit("job", CRASH);
    settle().await;
    save(&city, spec("1", 6)).await;
    assert_eq!(town.state("a", "job").await.0, AgentState::Done);
    save(&city, spec("2", 6)).await;
    assert_eq!(town.state("a", "job").await.0, AgentState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_requested_restart_clears_the_flag_before_the_stop() {
    let (_town, city) = one().await;
    city.sessions.note("db", Note::RestartRequested, Some("1"));
    city.sessions.clear_calls();
    pass(31 * SECOND).await;
    let ops: Vec<_> = city.sessions.mutating().iter().map(|c| c.op).collect();
    // The flag, the intent, the interrupt, the intent and the last look, the new run and its log.
    assert_eq!(
        ops,
        [
            "set_note",
            "set_note",
            "interrupt",
            "set_note",
            "stop",
            "start",
            "clear_scrollback"
        ]
    );
    assert_eq!(
        story(&city)[1..],
        ["stopped db requested", "started db requested"]
    );
    assert_eq!(city.sessions.noted("db", Note::RestartRequested), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_acted_on_at_once() {
    let (town, city) = one().await;
    town.command("a", "db", RequestRestart).await.unwrap();
    settle().await;
    assert_eq!(
        story(&city)[1..],
        ["stopped db requested", "started db requested"]
    );
    assert_eq!(
        town.instance("a", "db").await.restarts_in_window,
        0,
        "after a minute it is free"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_in_a_hurry_are_charged_paced_and_end_in_quarantine() {
    let spec = city("a").agent(agent("db").max_restarts(3, HOUR));
    let (town, city) = Town::with(spec).await;
    let mut waited = Vec::new();
    for _ in 0..3 {
        town.command("a", "db", RequestRestart).await.unwrap();
        let asked = tokio::time::Instant::now();
        settle().await;
        while town.state("a", "db").await.0 == AgentState::Backoff {
            pass(Duration::from_millis(100)).await;
        }
        waited.push(asked.elapsed().as_secs());
    }
    assert_eq!(waited, [0, 1, 0]);
    assert_eq!(town.state("a", "db").await.0, AgentState::Quarantined);
    assert_eq!(city.sessions.count("start", None), 3);
}

#[tokio::test(start_paused = true)]
async fn commands_say_why_they_were_not_carried_out() {
    let spec = city("a")
        .agent(agent("off").suspended(true))
        .agent(agent("far").held("rig directory missing"));
    let (town, _city) = Town::with(spec).await;
    let why = async |name: &str, command| {
        let error = town.command("a", name, command).await.unwrap_err();
        error.to_string()
    };
    assert_eq!(why("nobody", Restart).await, "no agent nobody");
    assert_eq!(why("off", Restart).await, "off is suspended");
    assert_eq!(why("far", Restart).await, "far is held");
    assert_eq!(why("off", Kill).await, "off is not running");
    let drain = Drain { timeout: None };
    assert_eq!(why("far", drain).await, "far is not running");
    assert_eq!(why("off", RequestRestart).await, "off is not running");
}

#[tokio::test(start_paused = true)]
async fn a_city_on_its_way_out_takes_no_commands() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.script("db", stubborn());
    settle().await;
    town.cities.unregister("a");
    settle().await;
    let error = town.command("a", "db", Restart).await.unwrap_err();
    assert_eq!(error, CommandError::Busy);
}

#[tokio::test(start_paused = true)]
async fn a_message_reaches_the_run_it_is_meant_for_and_no_other() {
    let (town, city) = one().await;
    let session = town.session("a", "db").await;
    assert_eq!(session.nudge("look".into(), When::Now).await, DELIVERED);
    assert_eq!(city.sessions.nudges("db"), ["look"]);
    city.sessions.exit("db", CRASH);
    pass(MINUTE).await;
    let error = session.nudge("again".into(), When::Now).await.unwrap_err();
    assert_eq!(error.to_string(), "db is not running");
    assert_eq!(city.sessions.nudges("db"), [""; 0]);
    assert!(session.attach(false).await.is_ok());
    city.sessions.mask_caps(Some(Caps::default()));
    let error = session.attach(false).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "db has no attach: sessions of the provider fake cannot do this"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_are_noted_with_run_arguments_and_outcome() {
    let (town, city) = one().await;
    let session = town.session("a", "db").await;
    let run = city.sessions.running().remove(0).1;
    city.sessions.clear_calls();
    let busy = SessionError::Busy;
    city.sessions.fail("nudge", "db", busy, Times::Next(1));
    assert!(session.nudge("one".into(), When::Now).await.is_err());
    assert_eq!(session.nudge("two".into(), When::Now).await, DELIVERED);
    city.sessions.hang("nudge", "db");
    let never = session.nudge("three".into(), When::Now);
    assert!(tokio::time::timeout(SECOND, never).await.is_err());
    let calls = city.sessions.mutating();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.op, call.args.as_str(), call.outcome.clone()))
        .collect();
    let busy = Err("the session is busy".to_owned());
    assert_eq!(
        seen,
        [
            ("nudge", "one", Some(busy)),
            ("nudge", "two", Some(Ok(()))),
            ("nudge", "three", None),
        ]
    );
    assert!(calls.iter().all(|call| call.token.as_ref() == Some(&run)));
}

const DELIVERED: Result<Nudged, ReachError> = Ok(Nudged::Delivered { confirmed: true });

/// An agent that shows when it waits for input.
fn prompting(times: NudgeTimes) -> CitySpecBuilder {
    let agent = agent("db").launch(|launch| launch.ready_prompt_prefix = Some("> ".into()));
    city("a").nudge(times).agent(agent)
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_the_prompt_on_two_looks_in_a_row() {
    let town = Town::new().await;
    let city = town.add(prompting(NudgeTimes::default()));
    settle().await;
    city.sessions.say("db", "> \n");
    pass(SECOND).await;
    city.sessions.say("db", &"busy\n".repeat(20));
    let session = town.session("a", "db").await;
    let began = tokio::time::Instant::now();
    let told = tokio::spawn(async move { session.nudge("look".into(), When::Idle).await });
    pass(3 * SECOND).await;
    assert_eq!(city.sessions.nudges("db"), [""; 0], "an old prompt is none");
    city.sessions.say("db", "> \n");
    assert_eq!(told.await.unwrap(), DELIVERED);
    assert_eq!(city.sessions.nudges("db"), ["look"]);
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(3500),
        "one look is not enough: {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_agent_is_told_nothing_unless_it_must_be() {
    let town = Town::new().await;
    let city = town.add(prompting(NudgeTimes::default()));
    settle().await;
    city.sessions.say("db", "> \n");
    pass(SECOND).await;
    city.sessions.say("db", &"busy\n".repeat(20));
    let session = town.session("a", "db").await;
    let began = tokio::time::Instant::now();
    let told = session.nudge("look".into(), When::Idle).await;
    assert_eq!(told, Ok(Nudged::NotReady));
    assert_eq!(began.elapsed(), 10 * SECOND);
    assert_eq!(city.sessions.nudges("db"), [""; 0]);
    assert_eq!(session.nudge("now".into(), When::Now).await, DELIVERED);
    // The limits follow the config.
    let times = NudgeTimes {
        ready_timeout: 3 * SECOND,
        ..NudgeTimes::default()
    };
    save(&city, prompting(times)).await;
    let session = town.session("a", "db").await;
    let began = tokio::time::Instant::now();
    let told = session.nudge("look".into(), When::Idle).await;
    assert_eq!((told, began.elapsed()), (Ok(Nudged::NotReady), 3 * SECOND));
    assert_eq!(city.sessions.nudges("db"), ["now"]);
}

#[tokio::test(start_paused = true)]
async fn where_no_prompt_is_known_nothing_is_waited_for() {
    let (town, city) = one().await;
    let session = town.session("a", "db").await;
    let began = tokio::time::Instant::now();
    assert_eq!(session.nudge("look".into(), When::Idle).await, DELIVERED);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(city.sessions.nudges("db"), ["look"]);
}
