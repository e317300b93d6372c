use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Listing, SessionEvent, SessionEventKind, Sessions};
use crate::mailbox::lock;
use crate::model::RunToken;

/// How often activity is looked for, and so how often an active session is told of at most.
const EVERY: Duration = Duration::from_secs(1);

/// Unread activity that is kept. Exits are kept without a limit: none is ever lost.
const KEPT: usize = 256;

/// Follows a provider: its events, and [`SessionEventKind::Activity`] at most once a second for
/// each session. That costs a listing per second, for as long as the result exists. Needs a tokio
/// runtime.
#[must_use]
pub fn follow(sessions: &Arc<dyn Sessions>) -> Followed {
    let queue = Arc::new(Queue::default());
    let task = tokio::spawn(run(sessions.clone(), queue.clone()));
    Followed {
        queue,
        task: task.abort_handle(),
    }
}

/// What [`follow`] gives. Who reads too late gets one [`SessionEventKind::Lagged`] in place of
/// the activity that was dropped, and should look at a listing then.
#[derive(Debug)]
pub struct Followed {
    queue: Arc<Queue>,
    task: AbortHandle,
}

impl Followed {
    /// The next event; `None` once the provider tells no more.
    pub async fn recv(&mut self) -> Option<SessionEvent> {
        let queue = self.queue.clone();
        loop {
            let told = queue.told.notified();
            if let Some(event) = self.try_recv() {
                return Some(event);
            }
            if lock(&queue.state).over {
                return None;
            }
            told.await;
        }
    }

    /// The next event, if there is one already.
    pub fn try_recv(&mut self) -> Option<SessionEvent> {
        let mut state = lock(&self.queue.state);
        let event = state.events.pop_front()?;
        match event.kind {
            SessionEventKind::Activity => state.hints -= 1,
            SessionEventKind::Lagged => state.lagging = false,
            _ => {}
        }
        Some(event)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<SessionEvent>,
    /// How many of them are activity.
    hints: usize,
    /// That some was dropped is among them.
    lagging: bool,
    over: bool,
}

impl Queue {
    fn push(&self, event: SessionEvent) {
        let mut state = lock(&self.state);
        match event.kind {
            SessionEventKind::Activity if state.lagging => return,
            SessionEventKind::Activity if state.hints == KEPT => {
                let kind = SessionEventKind::Lagged;
                state.lagging = true;
                state.events.push_back(SessionEvent { kind, ..event });
            }
            SessionEventKind::Activity => {
                state.hints += 1;
                state.events.push_back(event);
            }
            _ => state.events.push_back(event),
        }
        drop(state);
        self.told.notify_one();
    }
}

async fn run(sessions: Arc<dyn Sessions>, queue: Arc<Queue>) {
    let mut events = sessions.subscribe();
    let recent = Mutex::new(Recent::default());
    let pump = async {
        while let Some(event) = events.recv().await {
            match event.kind {
                SessionEventKind::Activity => lock(&recent).tell(&queue, event),
                _ => queue.push(event),
            }
        }
    };
    let looks = async {
        let mut ticks = interval_at(Instant::now(), sessions.look_every().max(EVERY));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A listing that fails says nothing; the next one does.
            if let Ok(listing) = sessions.snapshot().await {
                lock(&recent).compare(&listing, &queue);
            }
        }
    };
    tokio::select! {
        () = pump => {}
        () = looks => {}
    }
    lock(&queue.state).over = true;
    queue.told.notify_one();
}

/// What was told of which run last.
#[derive(Debug, Default)]
struct Recent {
    /// When each run was active, as the last listing had it.
    active: HashMap<RunToken, DateTime<Utc>>,
    /// When its activity was told.
    told: HashMap<RunToken, Instant>,
}

impl Recent {
    fn tell(&mut self, queue: &Queue, event: SessionEvent) {
        let now = Instant::now();
        let before = self.told.get(&event.token);
        if before.is_none_or(|before| now.saturating_duration_since(*before) >= EVERY) {
            self.told.insert(event.token.clone(), now);
            queue.push(event);
        }
    }

    /// Tells of who was active since it was last seen; the first sight of a run tells nothing.
    fn compare(&mut self, listing: &Listing, queue: &Queue) {
        let mut active = HashMap::new();
        for facts in listing.owned.iter().filter(|facts| facts.live) {
            let Some(at) = facts.last_activity else {
                continue;
            };
            let before = self.active.get(&facts.token);
            if before.is_some_and(|before| *before < at) {
                let event = SessionEvent {
                    session: facts.session.clone(),
                    token: facts.token.clone(),
                    kind: SessionEventKind::Activity,
                };
                self.tell(queue, event);
            }
            active.insert(facts.token.clone(), at);
        }
        self.told.retain(|token, _| active.contains_key(token));
        self.active = active;
    }
}
