//! Metadata and the beginning of the shown output, also as changed by other processes.

use gascity_actors::ports::{SessionError, Stopped};

use super::*;

impl City {
    async fn set(&self, name: &str, note: Note, value: Option<&str>) -> Result<(), SessionError> {
        set(&self.provider, name, note, value).await
    }

    async fn get(&self, name: &str, note: Note) -> Option<String> {
        self.facts(name).await.unwrap().notes.remove(&note)
    }
}

async fn set(
    provider: &Subprocess,
    name: &str,
    note: Note,
    value: Option<&str>,
) -> Result<(), SessionError> {
    let value = value.map(str::to_owned);
    provider
        .set_note(session(name), Fence::Any, note, value)
        .await
}

#[tokio::test]
async fn values_come_back_exactly() {
    let city = City::new();
    city.idle("a").await;
    let every: String = (1..=0x2ff).filter_map(char::from_u32).collect();
    let long = "ä".repeat(32 << 10);
    for value in ["1", "2", "", " \n", &every, &long] {
        city.set("a", Note::DrainReason, Some(value)).await.unwrap();
        let kept = city.get("a", Note::DrainReason).await;
        assert_eq!(kept.as_deref(), Some(value));
    }
    assert_eq!(city.get("a", Note::Drain).await, None);
    for value in ["a\0b", &format!("{long}x")] {
        let refused = city.set("a", Note::DrainReason, Some(value)).await;
        let error = refused.unwrap_err();
        assert!(
            matches!(error, SessionError::Invalid(_) | SessionError::TooLarge(_)),
            "{error:?}"
        );
    }
    assert_eq!(city.get("a", Note::DrainReason).await, Some(long));
    for _ in 0..2 {
        city.set("a", Note::DrainReason, None).await.unwrap();
        assert_eq!(city.get("a", Note::DrainReason).await, None);
    }
    let absent = city.set("b", Note::Drain, None).await;
    assert_eq!(absent, Err(SessionError::NotFound));
}

#[tokio::test]
async fn sessions_keep_their_own_until_their_run_is_over() {
    let mut city = City::new();
    let mut events = city.provider.subscribe();
    let (_, pid) = city.idle("a").await;
    city.idle("b").await;
    city.set("a", Note::Drain, Some("1")).await.unwrap();
    assert_eq!(city.get("b", Note::Drain).await, None);
    kill(pid);
    next_exit(&mut events).await;
    assert_eq!(city.get("a", Note::Drain).await.as_deref(), Some("1"));
    city.idle("a").await;
    assert_eq!(city.get("a", Note::Drain).await, None);
    city.set("a", Note::Drain, Some("2")).await.unwrap();
    city.provider = provider(city.root.clone());
    assert_eq!(city.get("a", Note::Drain).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn what_another_process_writes_is_seen_and_kept() {
    let city = City::new();
    let (token, _) = city.idle("a").await;
    city.set("a", Note::Drain, Some("1")).await.unwrap();
    let other = provider(city.root.clone());
    set(&other, "a", Note::DrainAck, Some("1")).await.unwrap();
    let notes = city.facts("a").await.unwrap().notes;
    let want = [
        (Note::Drain, "1".to_owned()),
        (Note::DrainAck, "1".to_owned()),
    ];
    assert_eq!(notes, BTreeMap::from(want));
    // The other way round, and neither undoes the other.
    city.set("a", Note::Drain, None).await.unwrap();
    set(&other, "a", Note::RestartRequested, Some("1"))
        .await
        .unwrap();
    city.set("a", Note::StopIntent, Some("user")).await.unwrap();
    let seen = facts(&other, "a").await.unwrap();
    assert_eq!(seen.token, token);
    let keys: Vec<Note> = seen.notes.into_keys().collect();
    assert_eq!(
        keys,
        [Note::StopIntent, Note::DrainAck, Note::RestartRequested]
    );
}

#[tokio::test]
async fn two_writers_at_once_lose_nothing() {
    let city = City::new();
    city.idle("a").await;
    let other = provider(city.root.clone());
    let writer = |provider: Subprocess, note: Note| async move {
        for count in 0..50 {
            let count = count.to_string();
            set(&provider, "a", note, Some(&count)).await.unwrap();
        }
    };
    tokio::join!(
        writer(city.provider.clone(), Note::Drain),
        writer(other, Note::DrainAck)
    );
    let notes = city.facts("a").await.unwrap().notes;
    assert_eq!(
        (&*notes[&Note::Drain], &*notes[&Note::DrainAck]),
        ("49", "49")
    );
}

#[tokio::test]
async fn a_session_stopped_by_another_process_ends_here_too() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let (token, _) = city.idle("a").await;
    let other = provider(city.root.clone());
    let stopped = other.stop(session("a"), Fence::Token(token.clone())).await;
    assert_eq!(stopped, Ok(Stopped::Clean));
    assert_eq!(next_exit(&mut events).await.0, token);
    let gone = city.set("a", Note::Drain, Some("1")).await;
    assert_eq!(gone, Err(SessionError::NotFound));
    assert!(!city.note("a").exists());
    assert!(!city.is_running("a").await);
    city.idle("a").await;
    assert!(city.is_running("a").await);
}

#[tokio::test]
async fn a_deleted_or_broken_note_costs_no_metadata() {
    let city = City::new();
    city.idle("a").await;
    city.set("a", Note::Drain, Some("1")).await.unwrap();
    fs::remove_file(city.note("a")).unwrap();
    assert_eq!(city.get("a", Note::Drain).await.as_deref(), Some("1"));
    fs::write(city.note("a"), "{").unwrap();
    assert_eq!(city.get("a", Note::Drain).await.as_deref(), Some("1"));
    city.set("a", Note::DrainAck, Some("1")).await.unwrap();
    let other = provider(city.root.clone());
    assert_eq!(facts(&other, "a").await.unwrap().notes.len(), 2);
}

#[tokio::test]
async fn cleared_output_is_not_shown_again() {
    let city = City::new();
    city.shell("a", "echo old; read line; echo new; sleep 1000")
        .await;
    until("output", async || city.peek("a", 0).await == "old").await;
    city.provider.clear_scrollback(session("a")).await.unwrap();
    assert_eq!(city.peek("a", 0).await, "");
    let other = provider(city.root.clone());
    assert_eq!(other.peek(session("a"), 0).await.unwrap(), "");
    fs::write(city.root.join(".gc/runtime/sessions/a.in"), "go\n").unwrap();
    until("more", async || city.peek("a", 0).await == "new").await;
    let absent = city.provider.clear_scrollback(session("b")).await;
    assert_eq!(absent, Err(SessionError::NotFound));
}
