use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;

use super::MemoryClock;
use crate::mailbox::lock;
use crate::model::{Event, EventDraft};
use crate::ports::{Clock, EventStream, Journal, JournalError, PortFuture};

/// An event log that ends with the program.
#[derive(Debug)]
pub struct MemoryJournal {
    clock: Arc<MemoryClock>,
    events: Mutex<Vec<Arc<Event>>>,
    live: broadcast::Sender<Arc<Event>>,
}

impl MemoryJournal {
    /// An empty log.
    #[must_use]
    pub fn new(clock: Arc<MemoryClock>) -> Self {
        Self {
            clock,
            events: Mutex::default(),
            live: broadcast::channel(4096).0,
        }
    }

    /// Everything recorded so far.
    #[must_use]
    pub fn events(&self) -> Vec<Arc<Event>> {
        lock(&self.events).clone()
    }

    /// Recorded events as `type subject`, the form in which traces are compared.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        let line = |event: &Arc<Event>| {
            format!("{} {}", event.kind, event.subject)
                .trim_end()
                .to_owned()
        };
        self.events().iter().map(line).collect()
    }

    /// How many events of this type about this subject were recorded.
    #[must_use]
    pub fn count(&self, kind: &str, subject: &str) -> usize {
        self.events()
            .iter()
            .filter(|e| e.kind == kind && e.subject == subject)
            .count()
    }
}

impl Journal for MemoryJournal {
    fn append(&self, draft: EventDraft) {
        let mut events = lock(&self.events);
        let event = Arc::new(draft.record(events.len() as u64 + 1, self.clock.wall()));
        events.push(event.clone());
        let _ = self.live.send(event); // nobody may be listening
    }

    fn subscribe(&self) -> EventStream {
        self.live.subscribe()
    }

    fn read(&self, after: u64, limit: usize) -> PortFuture<'_, Vec<Event>, JournalError> {
        let events = lock(&self.events)
            .iter()
            .filter(|event| event.seq > after)
            .take(limit)
            .map(|event| (**event).clone())
            .collect();
        Box::pin(async move { Ok(events) })
    }

    fn flush(&self) -> PortFuture<'_, (), JournalError> {
        Box::pin(async { Ok(()) })
    }
}
