//! Stopping: everything of a run, and nothing else.

use gascity_actors::ports::{SessionError, Stopped};

use super::*;

impl City {
    async fn stop(&self, name: &str) -> Stopped {
        self.provider.stop(session(name), Fence::Any).await.unwrap()
    }
}

#[tokio::test]
async fn stop_ends_a_session_and_is_idempotent() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let (token, pid) = city.idle("a").await;
    assert_eq!(city.stop("a").await, Stopped::Clean);
    assert!(!is_alive(pid));
    assert_eq!(
        next_exit(&mut events).await,
        (token, ExitStatus::Signal(15))
    );
    assert_eq!(city.stop("a").await, Stopped::Absent);
    assert_eq!(city.stop("never").await, Stopped::Absent);
    assert!(city.facts("a").await.is_none());
    let runtime = city.root.join(".gc/runtime");
    assert_eq!(fs::read_dir(runtime.join("sessions")).unwrap().count(), 0);
    assert!(runtime.join("logs/a.log").exists(), "the log is kept");
}

#[tokio::test]
async fn stop_of_a_dead_session_removes_it() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    city.shell("a", "exit 0").await;
    next_exit(&mut events).await;
    assert_eq!(city.stop("a").await, Stopped::Clean);
    assert!(city.facts("a").await.is_none() && !city.note("a").exists());
}

#[tokio::test]
async fn stop_reaches_every_descendant_wherever_it_went() {
    let city = City::new();
    let line = "trap '' TERM HUP
        setsid sleep 1001 &
        nohup sleep 1002 >/dev/null 2>&1 &
        (setsid sh -c 'sleep 1003 & sleep 1004' &)
        sh -c 'sleep 1005 & exit 0'
        echo ready
        while :; do sleep 1; done";
    city.shell("a", line).await;
    until("all there", async || {
        let ready = city.peek("a", 1).await == "ready";
        ready && city.processes().len() >= 8
    })
    .await;
    let (_, bystander) = city.idle("b").await;
    assert_eq!(city.stop("a").await, Stopped::Forced);
    let left: Vec<i32> = city.processes().iter().map(|stat| stat.pid).collect();
    assert_eq!(left, [bystander]);
}

#[tokio::test]
async fn strays_of_a_dead_leader_are_stopped_too() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    city.shell("a", "setsid sleep 1000 & sleep 0.2; exit 1")
        .await;
    next_exit(&mut events).await;
    assert_eq!(city.processes().len(), 1, "it left the group");
    assert_eq!(city.stop("a").await, Stopped::Clean);
    assert_eq!(city.processes().len(), 0);
}

#[tokio::test]
async fn members_of_the_group_get_their_grace_when_the_leader_leaves_first() {
    let city = City::new();
    let child = "trap 'sleep 0.2; echo bye; exit 0' TERM; echo ready; while :; do sleep 1; done";
    city.shell(
        "a",
        &format!("sh -c '{}' & wait", child.replace('\'', "'\\''")),
    )
    .await;
    until("ready", async || city.peek("a", 1).await == "ready").await;
    let log = city.root.join(".gc/runtime/logs/a.log");
    city.stop("a").await;
    assert!(fs::read_to_string(log).unwrap().contains("bye"));
}

#[tokio::test]
async fn a_stop_for_another_run_touches_nothing() {
    let city = City::new();
    let (token, pid) = city.idle("a").await;
    let stranger = Fence::Token(RunToken::new("other").unwrap());
    let stopped = city.provider.stop(session("a"), stranger).await;
    assert_eq!(stopped, Err(SessionError::Fenced));
    assert!(is_alive(pid) && city.is_running("a").await);
    let stopped = city.provider.stop(session("a"), Fence::Token(token)).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_parallel_starts_then_stops_leave_nothing() {
    let city = City::new();
    let mut starts = tokio::task::JoinSet::new();
    for i in 0..50 {
        let spec = Arc::new(city.spec(&format!("s{i}"), words(&["sleep", "1000"])));
        let provider = city.provider.clone();
        starts.spawn(async move { provider.start(token(), spec).await });
    }
    assert!(starts.join_all().await.iter().all(Result::is_ok));
    let listing = city.provider.snapshot().await.unwrap();
    assert_eq!(listing.owned.iter().filter(|facts| facts.live).count(), 50);
    assert!(
        listing
            .owned
            .is_sorted_by_key(|facts| facts.session.clone())
    );

    let mut stops = tokio::task::JoinSet::new();
    for i in 0..50 {
        let provider = city.provider.clone();
        stops.spawn(async move { provider.stop(session(&format!("s{i}")), Fence::Any).await });
    }
    assert!(
        stops
            .join_all()
            .await
            .iter()
            .all(|stop| *stop == Ok(Stopped::Clean))
    );
    assert!(city.provider.snapshot().await.unwrap().owned.is_empty());
    assert!(city.processes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_a_start_leaves_all_or_nothing() {
    let city = City::new();
    for _ in 0..10 {
        let spec = Arc::new(city.spec("a", words(&["sleep", "1000"])));
        let (starter, stopper) = (city.provider.clone(), city.provider.clone());
        let start = tokio::spawn(async move { starter.start(token(), spec).await });
        let stop = tokio::spawn(async move { stopper.stop(session("a"), Fence::Any).await });
        start.await.unwrap().unwrap();
        let running = stop.await.unwrap().unwrap() == Stopped::Absent;
        assert_eq!(city.is_running("a").await, running);
        assert_eq!(city.processes().len(), usize::from(running));
        city.stop("a").await;
        assert!(city.processes().is_empty());
    }
}
