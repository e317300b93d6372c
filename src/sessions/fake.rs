//! The provider `fake`: the in-memory sessions, on the machine's own time.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use gascity_actors::memory::{MemoryClock, MemorySessions};
use gascity_actors::model::{RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    Caps, Clock, Delivery, Fence, Key, Listing, Liveness, Note, PortFuture, SessionError,
    SessionEvents, Sessions, StartSpec, Started, Stopped,
};

/// Sessions without processes, for trying out a config. They end with the supervisor.
///
/// The memory adapter lives on a clock of its own; a listing shows its times as the machine's.
#[derive(Debug)]
pub struct Fake {
    sessions: MemorySessions,
    /// How far the machine's time is ahead of that clock.
    ahead: TimeDelta,
}

impl Fake {
    /// No sessions yet. Needs a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        let clock = Arc::new(MemoryClock::new());
        Self {
            ahead: Utc::now() - clock.wall(),
            sessions: MemorySessions::new(clock),
        }
    }

    /// The sessions themselves, to steer them.
    #[must_use]
    pub fn memory(&self) -> &MemorySessions {
        &self.sessions
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Sessions for Fake {
    fn provider(&self) -> &str {
        self.sessions.provider()
    }

    fn caps(&self) -> Caps {
        self.sessions.caps()
    }

    fn start(
        &self,
        token: RunToken,
        spec: Arc<StartSpec>,
    ) -> PortFuture<'_, Started, StartFailure> {
        self.sessions.start(token, spec)
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        self.sessions.stop(name, fence)
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        self.sessions.interrupt(name, fence)
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(async move {
            let mut listing = self.sessions.snapshot().await?;
            for facts in &mut listing.owned {
                facts.started_at += self.ahead;
                facts.last_activity = facts.last_activity.map(|at| at + self.ahead);
            }
            Ok(listing)
        })
    }

    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError> {
        self.sessions.liveness(name, token)
    }

    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError> {
        self.sessions.process_alive(name, names)
    }

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        self.sessions.clear_scrollback(name)
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        self.sessions.peek(name, lines)
    }

    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        self.sessions.set_note(name, fence, note, value)
    }

    fn nudge(
        &self,
        name: SessionName,
        fence: Fence,
        text: String,
    ) -> PortFuture<'_, Delivery, SessionError> {
        self.sessions.nudge(name, fence, text)
    }

    fn send_keys(
        &self,
        name: SessionName,
        fence: Fence,
        keys: Vec<Key>,
    ) -> PortFuture<'_, bool, SessionError> {
        self.sessions.send_keys(name, fence, keys)
    }

    fn subscribe(&self) -> SessionEvents {
        self.sessions.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gascity_actors::model::{AgentName, Launch};

    use super::*;

    #[tokio::test]
    async fn times_are_the_machines() {
        let before = Utc::now() - TimeDelta::seconds(1);
        let fake = Fake::new();
        let spec = StartSpec {
            session: SessionName::new("a").unwrap(),
            agent: AgentName::new("a").unwrap(),
            template: AgentName::new("a").unwrap(),
            generation: 1,
            launch: Arc::new(Launch::default()),
            setup_timeout: std::time::Duration::from_secs(10),
            notes: BTreeMap::new(),
        };
        let token = RunToken::new("t").unwrap();
        fake.start(token, Arc::new(spec)).await.unwrap();
        let facts = fake.snapshot().await.unwrap().owned.remove(0);
        let after = Utc::now() + TimeDelta::seconds(1);
        assert!(before < facts.started_at && facts.started_at < after);
        let active = facts.last_activity.unwrap();
        assert!(facts.started_at <= active && active < after);
    }
}
