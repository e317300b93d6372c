//! The session of one agent, for whoever is outside the tree.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::model::{AgentName, RunToken, SessionName};
use crate::ports::{AttachPlan, Caps, Delivery, Fence, PortFuture, SessionError, Sessions};

const PEEK_LIMIT: Duration = Duration::from_secs(5);
const ATTACH_LIMIT: Duration = Duration::from_secs(2);
/// Waiting for others who talk to the session, for the text to arrive and for a reaction.
const NUDGE_LIMIT: Duration = Duration::from_secs(60);

/// A way to an agent's session that does not lead through its supervisor: a slow session keeps
/// only the caller waiting. Touches the run it was asked for, and no other.
#[derive(Clone)]
pub struct SessionRef {
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) agent: AgentName,
    pub(crate) name: SessionName,
    pub(crate) run: Option<RunToken>,
}

impl std::fmt::Debug for SessionRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionRef({})", self.name)
    }
}

/// A session that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// The agent has no run.
    #[error("{0} is not running")]
    NotRunning(AgentName),
    /// Its provider cannot do this.
    #[error("{agent} has no {what}: sessions of the provider {provider} cannot do this")]
    Unsupported {
        /// The agent.
        agent: AgentName,
        /// What is missing.
        what: &'static str,
        /// Word for the provider.
        provider: String,
    },
    /// It did not work out.
    #[error("session of {agent}: {error}")]
    Failed {
        /// The agent.
        agent: AgentName,
        /// Why.
        error: SessionError,
    },
}

impl SessionRef {
    /// A way to the session `name` of `agent`; with a `run`, to no other run of it.
    #[must_use]
    pub fn new(
        sessions: Arc<dyn Sessions>,
        agent: AgentName,
        name: SessionName,
        run: Option<RunToken>,
    ) -> Self {
        Self {
            sessions,
            agent,
            name,
            run,
        }
    }

    /// What can be done with the session.
    #[must_use]
    pub fn caps(&self) -> Caps {
        self.sessions.caps_of(&self.name)
    }

    /// The last `lines` lines of its screen, or of what it printed; 0 for all there are.
    ///
    /// # Errors
    /// If there is no session, or its provider has no screens.
    pub async fn peek(&self, lines: u32, screen: bool) -> Result<String, ReachError> {
        if screen && !self.caps().screen {
            return Err(self.unsupported("screen"));
        }
        let peek = self.sessions.peek(self.name.clone(), lines);
        self.within(PEEK_LIMIT, peek).await
    }

    /// Types a message and submits it. Answers whether the agent was seen to react.
    ///
    /// # Errors
    /// If the agent does not run, or its provider cannot type.
    pub async fn nudge(&self, text: String) -> Result<bool, ReachError> {
        let Some(token) = self.run.clone() else {
            return Err(ReachError::NotRunning(self.agent.clone()));
        };
        let nudge = (self.sessions).nudge(self.name.clone(), Fence::Token(token), text);
        match self.within(NUDGE_LIMIT, nudge).await? {
            Delivery::Delivered { confirmed } => Ok(confirmed),
            Delivery::NoSession => Err(ReachError::NotRunning(self.agent.clone())),
        }
    }

    /// What to run for a terminal on it.
    ///
    /// # Errors
    /// If there is no session, or its provider has no terminals.
    pub async fn attach(&self, read_only: bool) -> Result<AttachPlan, ReachError> {
        let plan = self.sessions.attach(self.name.clone(), read_only);
        self.within(ATTACH_LIMIT, plan).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        call: PortFuture<'_, T, SessionError>,
    ) -> Result<T, ReachError> {
        let done = timeout(limit, call).await;
        done.unwrap_or(Err(SessionError::Timeout))
            .map_err(|error| match error {
                // The run is over, or another one has taken its place.
                SessionError::NotFound | SessionError::Fenced => {
                    ReachError::NotRunning(self.agent.clone())
                }
                SessionError::Unsupported(what) => self.unsupported(what),
                error => ReachError::Failed {
                    agent: self.agent.clone(),
                    error,
                },
            })
    }

    fn unsupported(&self, what: &'static str) -> ReachError {
        ReachError::Unsupported {
            agent: self.agent.clone(),
            what,
            provider: match self.sessions.degraded(None) {
                Some(why) => format!("{} (degraded: {why})", self.sessions.provider()),
                None => self.sessions.provider().to_owned(),
            },
        }
    }
}
