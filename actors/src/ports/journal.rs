use std::sync::Arc;

use tokio::sync::broadcast;

use super::PortFuture;
use crate::LastError;
use crate::model::{Event, EventDraft};

/// Live events, in order. A reader that falls behind sees `Lagged` and re-reads the log.
pub type EventStream = broadcast::Receiver<Arc<Event>>;

/// The log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the event log: {0}")]
pub struct JournalError(pub String);

/// The event log of a city or of the machine.
pub trait Journal: Send + Sync + 'static {
    /// Queues an event. Never waits and never fails the caller: a log that cannot be written
    /// costs the event, not the operation. Events keep the order of the calls.
    fn append(&self, draft: EventDraft);

    /// Events from now on.
    fn subscribe(&self) -> EventStream;

    /// Recorded events with `seq > after`, oldest first, at most `limit`.
    fn read(&self, after: u64, limit: usize) -> PortFuture<'_, Vec<Event>, JournalError>;

    /// Why events cannot be written, since the last that could.
    fn trouble(&self) -> Option<LastError> {
        None
    }

    /// Returns once everything appended before this call is on disk.
    fn flush(&self) -> PortFuture<'_, (), JournalError>;
}
