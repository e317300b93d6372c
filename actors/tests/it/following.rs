//! Who follows a provider hears of activity, and never misses an exit.

use std::sync::Arc;
use std::time::Duration;

use gascity_actors::memory::{MemoryClock, MemorySessions};
use gascity_actors::model::{AgentName, ExitStatus, Launch, RunToken, SessionName};
use gascity_actors::ports::{Followed, SessionEventKind, Sessions, StartSpec, follow};

use crate::util::{pass, settle};

const SECOND: Duration = Duration::from_secs(1);

async fn start(sessions: &MemorySessions, name: &str) {
    let spec = StartSpec {
        session: SessionName::new(name).unwrap(),
        agent: AgentName::new(name).unwrap(),
        template: AgentName::new(name).unwrap(),
        generation: 1,
        setup_timeout: std::time::Duration::from_secs(10),
        process_names: Vec::new(),
        live: Vec::new(),
        launch: Arc::new(Launch::default()),
        notes: [].into(),
    };
    let token = RunToken::new(format!("run-of-{name}")).unwrap();
    sessions.start(token, Arc::new(spec)).await.unwrap();
}

fn heard(events: &mut Followed) -> Vec<(String, SessionEventKind)> {
    std::iter::from_fn(|| events.try_recv())
        .map(|event| (event.session.to_string(), event.kind))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn activity_is_told_at_most_once_a_second() {
    let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
    start(&sessions, "a").await;
    start(&sessions, "b").await;
    let port: Arc<dyn Sessions> = sessions.clone();
    let mut events = follow(&port);
    settle().await;
    for _ in 0..30 {
        pass(SECOND / 10).await;
        sessions.touch("a");
    }
    pass(SECOND).await;
    let told = heard(&mut events);
    assert!((3..=4).contains(&told.len()), "{told:?}");
    let activity = ("a".to_owned(), SessionEventKind::Activity);
    assert!(told.iter().all(|event| *event == activity), "{told:?}");
    pass(60 * SECOND).await;
    assert_eq!(heard(&mut events), [], "it was silent");
    drop(events);
    settle().await;
    sessions.clear_calls();
    pass(60 * SECOND).await;
    assert_eq!(sessions.calls(), [], "nobody listens any more");
}

/// Row 34.
#[tokio::test(start_paused = true)]
async fn who_reads_nothing_for_long_is_told_so_and_misses_no_exit() {
    let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
    let names: Vec<String> = (0..40).map(|n| format!("a{n}")).collect();
    for name in &names {
        start(&sessions, name).await;
    }
    let port: Arc<dyn Sessions> = sessions.clone();
    let mut events = follow(&port);
    settle().await;
    for round in 0..30 {
        pass(SECOND).await;
        for name in &names {
            sessions.touch(name);
        }
        sessions.exit(&names[round], ExitStatus::Code(1));
    }
    pass(SECOND).await;
    let told = heard(&mut events);
    let count = |kind: &SessionEventKind| told.iter().filter(|(_, k)| k == kind).count();
    assert_eq!(count(&SessionEventKind::Exited(ExitStatus::Code(1))), 30);
    assert_eq!(count(&SessionEventKind::Lagged), 1);
    assert!(count(&SessionEventKind::Activity) < 500, "{}", told.len());
    // From then on it hears again.
    pass(SECOND).await;
    sessions.touch("a39");
    pass(SECOND).await;
    let activity = ("a39".to_owned(), SessionEventKind::Activity);
    assert_eq!(heard(&mut events), [activity]);
}

#[tokio::test(start_paused = true)]
async fn terminals_that_come_and_go_are_told_once_each() {
    let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
    start(&sessions, "a").await;
    let port: Arc<dyn Sessions> = sessions.clone();
    let mut events = follow(&port);
    settle().await;
    for attached in [true, true, false] {
        sessions.set_attached("a", attached);
    }
    settle().await;
    let told = [true, false].map(|on| ("a".to_owned(), SessionEventKind::Attached(on)));
    assert_eq!(heard(&mut events), told);
}
