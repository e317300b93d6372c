//! Addresses that count: mailbox depth, work done and last error of each actor.
//!
//! ractor exposes none of these. Whoever sends goes through an [`Addr`], whoever handles enters
//! its [`Gauge`], and a supervisor reads the gauges of its children without asking them: also of
//! one that is stuck.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ractor::{ActorRef, Message, RpcReplyPort};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::tree::{Past, as_millis};

/// How many messages an actor remembers.
const REMEMBERED: usize = 20;

/// Counters of one actor, shared by everyone who holds its address.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    depth: AtomicUsize,
    peak: AtomicUsize,
    handled: AtomicU64,
    desk: Mutex<Desk>,
}

/// What an actor is on, what waits for it, and what it did of late. Takes no room before the first
/// message: there are as many of these as agents.
#[derive(Debug, Default)]
struct Desk {
    handling: Option<(&'static str, Instant)>,
    /// How long the message it is on had waited.
    waited: Duration,
    /// When each message in the mailbox was sent.
    queued: VecDeque<Instant>,
    past: VecDeque<Done>,
}

/// A message that was handled.
#[derive(Debug, Clone, Copy)]
struct Done {
    message: &'static str,
    at: Instant,
    waited_us: u32,
    took_us: u32,
}

/// A reading of a [`Gauge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) depth: usize,
    pub(crate) peak: usize,
    pub(crate) handled: u64,
    pub(crate) handling: Option<(&'static str, Instant)>,
}

impl Gauge {
    pub(crate) fn read(&self) -> Reading {
        Reading {
            depth: self.depth.load(Relaxed),
            peak: self.peak.load(Relaxed),
            handled: self.handled.load(Relaxed),
            handling: lock(&self.desk).handling,
        }
    }

    /// The last messages it handled, oldest first.
    pub(crate) fn past(&self) -> Vec<Past> {
        let now = Instant::now();
        let desk = lock(&self.desk);
        let past = desk.past.iter().map(|done| Past {
            message: done.message.to_owned(),
            ago_ms: as_millis(now.saturating_duration_since(done.at)),
            wait_us: done.waited_us.into(),
            took_us: done.took_us.into(),
        });
        past.collect()
    }

    /// Marks the message an actor is on, until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, message: &'static str) -> Busy {
        self.depth.fetch_sub(1, Relaxed);
        let now = Instant::now();
        let mut desk = lock(&self.desk);
        let sent = desk.queued.pop_front().unwrap_or(now);
        desk.waited = now.saturating_duration_since(sent);
        desk.handling = Some((message, now));
        Busy(self.clone())
    }

    fn sent(&self) {
        lock(&self.desk).queued.push_back(Instant::now());
        let depth = self.depth.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(depth, Relaxed);
    }

    /// What was just sent did not arrive.
    fn unsent(&self) {
        self.depth.fetch_sub(1, Relaxed);
        lock(&self.desk).queued.pop_back();
    }

    fn leave(&self) {
        self.handled.fetch_add(1, Relaxed);
        let mut desk = lock(&self.desk);
        let Some((message, began)) = desk.handling.take() else {
            return;
        };
        let at = Instant::now();
        let done = Done {
            message,
            at,
            waited_us: as_micros(desk.waited),
            took_us: as_micros(at.saturating_duration_since(began)),
        };
        if desk.past.len() == REMEMBERED {
            desk.past.pop_front();
        }
        desk.past.push_back(done);
        // A flood is over; its room is not needed any more.
        if desk.queued.is_empty() && desk.queued.capacity() > REMEMBERED {
            desk.queued = VecDeque::new();
        }
    }
}

fn as_micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// The actor is on a message.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Gauge>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Where to send messages to an actor.
pub(crate) struct Addr<M: Message> {
    actor: ActorRef<M>,
    gauge: Arc<Gauge>,
}

impl<M: Message> Clone for Addr<M> {
    fn clone(&self) -> Self {
        Self {
            actor: self.actor.clone(),
            gauge: self.gauge.clone(),
        }
    }
}

impl<M: Message> std::fmt::Debug for Addr<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Addr({})", self.actor.get_id())
    }
}

impl<M: Message> Addr<M> {
    pub(crate) fn new(actor: ActorRef<M>, gauge: Arc<Gauge>) -> Self {
        Self { actor, gauge }
    }

    pub(crate) fn actor(&self) -> &ActorRef<M> {
        &self.actor
    }

    pub(crate) fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }

    /// Queues a message. A dead receiver needs no answer: its supervisor knows.
    pub(crate) fn send(&self, message: M) {
        self.gauge.sent();
        if self.actor.cast(message).is_err() {
            self.gauge.unsent();
        }
    }

    /// Queues a message after a delay, unless the timer is dropped before.
    pub(crate) fn send_after(&self, delay: Duration, message: M) -> Timer {
        let to = self.clone();
        Timer(tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            to.send(message);
        }))
    }

    /// Asks, for callers outside the tree. `None`: no answer in time, or the actor is gone.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        message: impl FnOnce(RpcReplyPort<T>) -> M,
    ) -> Option<T> {
        let (reply, answer) = ractor::concurrency::oneshot();
        self.send(message(reply.into()));
        tokio::time::timeout(limit, answer).await.ok()?.ok()
    }
}

/// What a fault drill does to an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drill {
    Panic,
    Kill,
    /// It handles no further message.
    Hang,
    /// It has many messages to handle, and begins late.
    Flood {
        messages: usize,
        held: Duration,
    },
}

impl Drill {
    /// Strikes; `panic` and `hold` are the messages that make the actor do so.
    pub(crate) fn hit<M: Message>(self, actor: &Addr<M>, panic: M, hold: impl Fn(Duration) -> M) {
        match self {
            Self::Panic => actor.send(panic),
            Self::Kill => actor.actor().kill(),
            Self::Hang => actor.send(hold(Duration::MAX)),
            Self::Flood { messages, held } => {
                actor.send(hold(held));
                (0..messages).for_each(|_| actor.send(hold(Duration::ZERO)));
            }
        }
    }
}

/// A task that ends with its owner: a timer, a pump, a start in flight.
#[derive(Debug)]
pub(crate) struct Timer(JoinHandle<()>);

impl Timer {
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }

    /// Cancels the task and waits until it is gone.
    pub(crate) async fn cancelled(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// No code panics while it holds one of our locks, and plain data has no broken state anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
