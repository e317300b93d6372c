//! Ports that pass everything on to the ports in memory and tell the [`Book`] of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gascity_actors::memory::MemoryCity;
use gascity_actors::model::{CitySpec, EventDraft, RunToken, SessionName};
use gascity_actors::ports::{
    Caps, CityPorts, Desired, EventStream, Fence, Journal, JournalError, Listing, Liveness,
    LoadError, Note, PortFuture, SessionError, SessionEvents, Sessions, StartError, StartSpec,
    Started, Stopped, Tokens,
};
use tokio::sync::watch;

use crate::book::Book;

/// Stands between a city and its ports.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    city: MemoryCity,
    book: Arc<Mutex<Book>>,
    /// How long stops and looks at single sessions take.
    lag: Arc<Mutex<Duration>>,
    /// The process these ports belong to, and the one that lives.
    process: u64,
    living: Arc<AtomicU64>,
}

impl Observer {
    pub(crate) fn new(city: MemoryCity) -> Self {
        Self {
            city,
            book: Arc::default(),
            lag: Arc::default(),
            process: 0,
            living: Arc::default(),
        }
    }

    /// For the next process: whatever the one before still has under way comes to nothing.
    pub(crate) fn successor(&self) -> Self {
        let process = self.living.fetch_add(1, Relaxed) + 1;
        Self {
            process,
            ..self.clone()
        }
    }

    /// The process is gone, without a successor yet.
    pub(crate) fn die(&self) {
        self.living.fetch_add(1, Relaxed);
    }

    fn lives(&self) -> bool {
        self.process == self.living.load(Relaxed)
    }

    /// A call of a process that died meanwhile never returns.
    async fn alive(&self) {
        if !self.lives() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_lag(&self, lag: Duration) {
        *self.lag.lock().unwrap_or_else(PoisonError::into_inner) = lag;
    }

    async fn lag(&self) {
        let lag = *self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        if !lag.is_zero() {
            tokio::time::sleep(lag).await;
        }
        self.alive().await;
    }

    pub(crate) fn ports(&self) -> CityPorts {
        let observer = Arc::new(self.clone());
        CityPorts {
            sessions: observer.clone(),
            journal: observer.clone(),
            desired: observer.clone(),
            tokens: observer,
            ..self.city.ports()
        }
    }
}

impl Tokens for Observer {
    fn fresh(&self) -> RunToken {
        let token = self.city.tokens.fresh();
        self.book().on_launch(&token);
        token
    }
}

impl Desired for Observer {
    fn load(&self) -> PortFuture<'_, Arc<CitySpec>, LoadError> {
        Box::pin(async move {
            let loaded = self.city.desired.load().await;
            let mut book = self.book();
            let known = |spec: &&Arc<CitySpec>| book.specs.contains_key(&spec.revision);
            // Of a name that is not the city's nothing comes into force.
            if let Some(spec) = loaded.as_ref().ok().filter(known).cloned() {
                book.loaded = Some(spec);
            }
            loaded
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.city.desired.changes()
    }
}

impl Journal for Observer {
    fn append(&self, draft: EventDraft) {
        if !self.lives() {
            return;
        }
        self.book().on_event(&draft);
        self.city.journal.append(draft);
    }

    fn subscribe(&self) -> EventStream {
        self.city.journal.subscribe()
    }

    fn read(
        &self,
        after: u64,
        limit: usize,
    ) -> PortFuture<'_, Vec<gascity_actors::model::Event>, JournalError> {
        self.city.journal.read(after, limit)
    }

    fn flush(&self) -> PortFuture<'_, (), JournalError> {
        self.city.journal.flush()
    }
}

/// A start in flight; over when dropped.
struct InFlight(Observer, RunToken);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.book().on_start_over(&self.1);
    }
}

impl Sessions for Observer {
    fn provider(&self) -> &str {
        self.city.sessions.provider()
    }

    fn caps(&self) -> Caps {
        self.city.sessions.caps()
    }

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        self.book().on_start(&token, &spec.agent, &spec.template);
        let flight = InFlight(self.clone(), token.clone());
        let agent = spec.agent.clone();
        Box::pin(async move {
            self.alive().await;
            let result = self.city.sessions.start(token.clone(), spec).await;
            drop(flight);
            match &result {
                Ok(started) => {
                    self.book().on_up(&token);
                    // News of a run is on its way while others happen.
                    for _ in 0..started.pid.unwrap_or_default() % 3 * 10 {
                        tokio::task::yield_now().await;
                    }
                }
                Err(StartError::Exists { owned: true, .. }) => {
                    self.book().on_second_start(&agent);
                }
                Err(_) => {}
            }
            result
        })
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        Box::pin(async move {
            self.lag().await;
            self.city.sessions.stop(name, fence).await
        })
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move {
            self.alive().await;
            self.city.sessions.interrupt(name, fence).await
        })
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(async move {
            if !self.book().on_look() {
                std::future::pending::<()>().await;
            }
            let listing = self.city.sessions.snapshot().await;
            self.alive().await;
            let listing = listing?;
            let present = listing.owned.iter().map(|facts| facts.token.clone());
            self.book().on_listing(&present.collect());
            Ok(listing)
        })
    }

    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError> {
        Box::pin(async move {
            self.lag().await;
            self.city.sessions.liveness(name, token).await
        })
    }

    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError> {
        self.city.sessions.process_alive(name, names)
    }

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        self.city.sessions.clear_scrollback(name)
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        self.city.sessions.peek(name, lines)
    }

    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move {
            self.alive().await;
            self.city.sessions.set_note(name, fence, note, value).await
        })
    }

    fn subscribe(&self) -> SessionEvents {
        self.city.sessions.subscribe()
    }
}
