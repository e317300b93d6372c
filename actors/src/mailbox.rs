//! Addresses that count: mailbox depth, work done and last error of each actor.
//!
//! ractor exposes none of these. Whoever sends goes through an [`Addr`], whoever handles enters
//! its [`Gauge`], and a supervisor reads the gauges of its children without asking them: also of
//! one that is stuck.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ractor::{ActorRef, Message, RpcReplyPort};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Counters of one actor, shared by everyone who holds its address.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    depth: AtomicUsize,
    peak: AtomicUsize,
    handled: AtomicU64,
    handling: Mutex<Option<(&'static str, Instant)>>,
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
            handling: *lock(&self.handling),
        }
    }

    /// Marks the message an actor is on, until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, message: &'static str) -> Busy {
        self.depth.fetch_sub(1, Relaxed);
        *lock(&self.handling) = Some((message, Instant::now()));
        Busy(self.clone())
    }

    fn sent(&self) {
        let depth = self.depth.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(depth, Relaxed);
    }
}

/// The actor is on a message.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Gauge>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.handled.fetch_add(1, Relaxed);
        *lock(&self.0.handling) = None;
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
            self.gauge.depth.fetch_sub(1, Relaxed);
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
}

impl Drill {
    /// Strikes; `panic` and `hang` are the messages that make the actor do so.
    pub(crate) fn hit<M: Message>(self, actor: &Addr<M>, panic: M, hang: M) {
        match self {
            Self::Panic => actor.send(panic),
            Self::Kill => actor.actor().kill(),
            Self::Hang => actor.send(hang),
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
