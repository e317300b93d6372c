//! The port `Journal` on a file.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gascity_actors::LastError;
use gascity_actors::model::{Event, EventDraft};
use gascity_actors::ports::{EventStream, Journal, JournalError, PortFuture};
use tokio::sync::{broadcast, oneshot};

use super::append::Appender;
use super::log::EventLog;

/// An event reaches the disk this long after it was written, at the latest.
const SYNC_AFTER: Duration = Duration::from_millis(900);

/// Most events of one write, so that other processes get their turn.
const BATCH: usize = 1024;

/// Events a subscriber may fall behind.
const BACKLOG: usize = 4096;

/// Failures are logged at most this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// An event log with one writer thread.
///
/// Whatever is queued while a write is in progress goes out with the next one. A failed write
/// costs its events, is counted and logged once a minute, and fails no caller. Dropping it
/// writes what is queued.
#[derive(Debug)]
pub struct FileJournal {
    log: EventLog,
    // Taken by drop, before the thread is joined.
    orders: Mutex<Option<Sender<Order>>>,
    writer: Option<JoinHandle<()>>,
    live: broadcast::Sender<Arc<Event>>,
    lost: Arc<AtomicU64>,
    trouble: Trouble,
}

/// Why the last write failed, if it did.
type Trouble = Arc<Mutex<Option<LastError>>>;

enum Order {
    Append(EventDraft),
    Flush(oneshot::Sender<Result<(), JournalError>>),
}

impl FileJournal {
    /// Opens the log in `log`'s directory.
    ///
    /// # Errors
    /// If the directory cannot be made, or the lock file in it not opened.
    pub fn open(log: EventLog) -> io::Result<Self> {
        let appender = Appender::open(log.clone())?;
        let (orders, queue) = mpsc::channel();
        let (live, _) = broadcast::channel(BACKLOG);
        let lost = Arc::new(AtomicU64::new(0));
        let trouble = Trouble::default();
        let writer = Writer {
            appender,
            live: live.clone(),
            lost: lost.clone(),
            trouble: trouble.clone(),
            unsynced_since: None,
            complained: None,
            failure: None,
        };
        let writer = thread::Builder::new()
            .name("gc-events".to_owned())
            .spawn(move || writer.run(&queue))?;
        Ok(Self {
            log,
            orders: Mutex::new(Some(orders)),
            writer: Some(writer),
            live,
            lost,
            trouble,
        })
    }

    /// The log for reading.
    #[must_use]
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// How many events could not be written so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn order(&self, order: Order) -> bool {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders
            .as_ref()
            .is_some_and(|orders| orders.send(order).is_ok())
    }
}

impl Journal for FileJournal {
    fn append(&self, draft: EventDraft) {
        if !self.order(Order::Append(draft)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn subscribe(&self) -> EventStream {
        self.live.subscribe()
    }

    fn read(&self, after: u64, limit: usize) -> PortFuture<'_, Vec<Event>, JournalError> {
        let log = self.log.clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || log.read_after(after, limit)).await;
            let batch = read.map_err(failure)?.map_err(failure)?;
            Ok(batch.events)
        })
    }

    fn trouble(&self) -> Option<LastError> {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn flush(&self) -> PortFuture<'_, (), JournalError> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Flush(reply));
        Box::pin(async move {
            let gone = || JournalError("the writer is gone".to_owned());
            answer.await.map_err(|_| gone())?
        })
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        let orders = self
            .orders
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        *orders = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn failure(error: impl std::fmt::Display) -> JournalError {
    JournalError(error.to_string())
}

struct Writer {
    appender: Appender,
    live: broadcast::Sender<Arc<Event>>,
    lost: Arc<AtomicU64>,
    trouble: Trouble,
    unsynced_since: Option<Instant>,
    complained: Option<Instant>,
    /// The last failure since the last flush.
    failure: Option<JournalError>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        while let Some(first) = self.next(orders) {
            let mut drafts = Vec::new();
            let mut flushes = Vec::new();
            for order in std::iter::once(first).chain(orders.try_iter()).take(BATCH) {
                match order {
                    Order::Append(draft) => drafts.push(draft),
                    Order::Flush(reply) => flushes.push(reply),
                }
            }
            self.write(drafts);
            if !flushes.is_empty() {
                self.sync();
                let result = self.failure.take().map_or(Ok(()), Err);
                for reply in flushes {
                    let _ = reply.send(result.clone()); // the caller may have given up
                }
            }
        }
        self.sync();
    }

    /// The next order; `None` once there will be no more. Written events are synced in time
    /// also if none comes, or if they never stop coming.
    fn next(&mut self, orders: &Receiver<Order>) -> Option<Order> {
        while let Some(since) = self.unsynced_since {
            let left = SYNC_AFTER.saturating_sub(since.elapsed());
            if !left.is_zero() {
                match orders.recv_timeout(left) {
                    Ok(order) => return Some(order),
                    Err(RecvTimeoutError::Disconnected) => return None,
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
            self.sync();
        }
        orders.recv().ok()
    }

    fn write(&mut self, drafts: Vec<EventDraft>) {
        if drafts.is_empty() {
            return;
        }
        let count = drafts.len() as u64;
        match self.appender.append(drafts) {
            Ok(events) => {
                self.note(None);
                self.unsynced_since.get_or_insert_with(Instant::now);
                for event in events {
                    let _ = self.live.send(Arc::new(event)); // nobody may be listening
                }
            }
            Err(error) => {
                self.lost.fetch_add(count, Ordering::Relaxed);
                self.complain(&error, "failed to append to the event log");
            }
        }
    }

    fn sync(&mut self) {
        if self.unsynced_since.take().is_some()
            && let Err(error) = self.appender.sync()
        {
            self.complain(&error, "failed to sync the event log");
        }
    }

    fn note(&self, trouble: Option<LastError>) {
        let told = self.trouble.lock();
        *told.unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn complain(&mut self, error: &io::Error, what: &str) {
        self.failure = Some(failure(error));
        self.note(Some(LastError {
            at: Some(chrono::Utc::now()),
            message: format!("{what}: {error}"),
        }));
        let recent = |at: Instant| at.elapsed() < COMPLAIN_EVERY;
        if !self.complained.is_some_and(recent) {
            self.complained = Some(Instant::now());
            let lost = self.lost.load(Ordering::Relaxed);
            tracing::warn!(%error, lost, "{what}");
        }
    }
}
