//! How ends are seen and reported.

use std::collections::HashSet;

use gascity_actors::ports::SessionError;

use super::*;

#[tokio::test]
async fn every_exit_is_reported_once_with_its_status() {
    let city = City::new();
    let (mut events, mut second) = (city.provider.subscribe(), city.provider.subscribe());
    let cases = [
        ("exit 0", ExitStatus::Code(0)),
        ("exit 9", ExitStatus::Code(9)),
        ("kill -KILL $$", ExitStatus::Signal(9)),
        ("kill -SEGV $$", ExitStatus::Signal(11)),
    ];
    for (line, status) in cases {
        let (token, _) = city.shell("a", line).await;
        assert_eq!(
            next_exit(&mut events).await,
            (token.clone(), status),
            "{line}"
        );
        assert_eq!(next_exit(&mut second).await, (token, status), "{line}");
    }
    assert!(events.try_recv().is_err(), "one event each");
}

#[tokio::test]
async fn a_hundred_killed_at_once_give_a_hundred_events() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let mut pids = Vec::new();
    let mut tokens = HashSet::new();
    for i in 0..100 {
        let (token, pid) = city.idle(&format!("s{i}")).await;
        pids.push(pid);
        tokens.insert(token);
    }
    assert_eq!(city.provider.snapshot().await.unwrap().owned.len(), 100);
    pids.into_iter().for_each(kill);
    for _ in 0..100 {
        let (token, status) = next_exit(&mut events).await;
        assert_eq!(status, ExitStatus::Signal(9));
        assert!(tokens.remove(&token), "one event per run");
    }
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn an_exit_nobody_listened_to_is_in_the_listing() {
    let city = City::new();
    let (token, _) = city.shell("a", "exit 0").await;
    until("listed as dead", async || !city.is_running("a").await).await;
    assert_eq!(city.facts("a").await.unwrap().token, token);
}

#[tokio::test]
async fn what_a_dead_leader_leaves_in_its_group_dies_with_it() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let (token, _) = city.shell("a", "sleep 1000 & sleep 1000 & exit 3").await;
    assert_eq!(next_exit(&mut events).await, (token, ExitStatus::Code(3)));
    until("no leftovers", async || city.processes().is_empty()).await;
}

#[tokio::test]
async fn an_interrupt_reaches_the_agent_and_is_fenced() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let line = "trap 'exit 7' INT; echo ready; while :; do sleep 1; done";
    let (token, _) = city.shell("a", line).await;
    until("ready", async || city.peek("a", 1).await == "ready").await;
    let interrupt = async |name, fence| city.provider.interrupt(session(name), fence).await;

    let stranger = Fence::Token(RunToken::new("other").unwrap());
    assert_eq!(interrupt("a", stranger).await, Err(SessionError::Fenced));
    assert_eq!(interrupt("b", Fence::Any).await, Ok(false));
    assert!(city.is_running("a").await);
    assert_eq!(interrupt("a", Fence::Token(token.clone())).await, Ok(true));
    assert_eq!(next_exit(&mut events).await, (token, ExitStatus::Code(7)));
    assert_eq!(interrupt("a", Fence::Any).await, Ok(false));
}

#[tokio::test]
async fn subscribers_that_left_do_not_hold_up_the_others() {
    let city = City::new();
    drop(city.provider.subscribe());
    let mut events = city.provider.subscribe();
    let (token, _) = city.shell("a", "exit 0").await;
    assert_eq!(next_exit(&mut events).await.0, token);
}
