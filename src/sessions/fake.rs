//! The provider `fake`: the in-memory sessions, on the machine's own time.

mod script;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use gascity_actors::memory::{MemoryClock, MemorySessions};
use gascity_actors::model::{RunToken, SessionName};
use gascity_actors::ports::{
    Caps, Clock, Listing, PortFuture, SessionError, SessionEvents, Sessions, StartError, StartSpec,
    Started, inside,
};

use super::delegate::delegate;
use super::prepare::copy_files;

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

    /// The same, with agents that do what the file in `GC_FAKE_SCRIPT` says, if it is set. The
    /// file is looked for from `root`.
    ///
    /// # Errors
    /// What is wrong with the file, for a person.
    pub fn scripted(root: &Path) -> Result<Self, String> {
        let fake = Self::new();
        if let Some(path) = std::env::var_os("GC_FAKE_SCRIPT").filter(|path| !path.is_empty()) {
            script::Script::read(&root.join(path))?.apply(&fake.sessions);
        }
        Ok(fake)
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

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        self.sessions.start(token, spec)
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

    delegate!(port self name => self.sessions;
        stop interrupt liveness process_alive clear_scrollback peek set_note nudge send_keys attach);

    fn copy_to(
        &self,
        name: SessionName,
        from: PathBuf,
        to: String,
    ) -> PortFuture<'_, usize, SessionError> {
        Box::pin(async move {
            self.sessions
                .copy_to(name.clone(), from.clone(), to.clone())
                .await?;
            let dir = self
                .sessions
                .work_dir(&name)
                .ok_or(SessionError::NotFound)?;
            let failed = |error: std::io::Error| SessionError::Backend(error.to_string());
            copy_files(&from, &dir, inside(&to)?).map_err(failed)
        })
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
            process_names: Vec::new(),
            live: Vec::new(),
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
