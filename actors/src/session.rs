//! The session of one agent, for whoever is outside the tree.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::model::{AgentName, NudgeTimes, RunToken, SessionName};
use crate::policy::shows_prompt;
use crate::ports::{AttachPlan, Caps, Delivery, Fence, PortFuture, SessionError, Sessions};

const PEEK_LIMIT: Duration = Duration::from_secs(5);
const ATTACH_LIMIT: Duration = Duration::from_secs(2);
/// For a text to arrive and for a reaction, once nobody else talks to the session.
const TYPING_LIMIT: Duration = Duration::from_secs(30);
/// A prompt further above was answered already.
const BOTTOM: u32 = 8;

/// A way to an agent's session that does not lead through its supervisor: a slow session keeps
/// only the caller waiting. Touches the run it was asked for, and no other.
#[derive(Clone)]
pub struct SessionRef {
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) agent: AgentName,
    pub(crate) name: SessionName,
    pub(crate) run: Option<RunToken>,
    prompt: Option<String>,
    times: NudgeTimes,
}

/// When a message is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Once the program shows its prompt; at once where none is known or can be seen.
    Idle,
    /// Whatever it does.
    Now,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nudged {
    /// It was typed and submitted.
    Delivered {
        /// The agent was seen to react.
        confirmed: bool,
    },
    /// The program was busy for too long; nothing was typed.
    NotReady,
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
            prompt: None,
            times: NudgeTimes::default(),
        }
    }

    /// How its program shows that it waits for input, and how long messages may take.
    #[must_use]
    pub fn talked_to(mut self, prompt: Option<String>, times: NudgeTimes) -> Self {
        self.prompt = prompt;
        self.times = times;
        self
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

    /// Types a message and submits it.
    ///
    /// # Errors
    /// If the agent does not run, or its provider cannot type.
    pub async fn nudge(&self, text: String, when: When) -> Result<Nudged, ReachError> {
        let Some(token) = self.run.clone() else {
            return Err(ReachError::NotRunning(self.agent.clone()));
        };
        if when == When::Idle && !self.is_idle().await {
            return Ok(Nudged::NotReady);
        }
        let nudge = (self.sessions).nudge(self.name.clone(), Fence::Token(token), text);
        let limit = self.times.lock_timeout.saturating_add(TYPING_LIMIT);
        match self.within(limit, nudge).await? {
            Delivery::Delivered { confirmed } => Ok(Nudged::Delivered { confirmed }),
            Delivery::NoSession => Err(ReachError::NotRunning(self.agent.clone())),
        }
    }

    /// Waits until the program shows its prompt, on two looks in a row: one alone may fall between
    /// two things it does.
    async fn is_idle(&self) -> bool {
        let Some(prompt) = self.prompt.as_deref().filter(|_| self.caps().screen) else {
            return true;
        };
        let every = self.times.retry_interval;
        let looking = async {
            let mut shown = false;
            loop {
                let before = shown;
                let peek = timeout(PEEK_LIMIT, self.sessions.peek(self.name.clone(), BOTTOM));
                shown = match peek.await {
                    Ok(Ok(screen)) => shows_prompt(&screen, prompt),
                    // Not for long; the message itself finds out what is wrong.
                    Ok(Err(SessionError::NotFound)) => return,
                    _ => false,
                };
                if before && shown {
                    return;
                }
                sleep(every).await;
            }
        };
        timeout(self.times.ready_timeout, looking).await.is_ok()
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
        let provider = self.sessions.provider_of(&self.name);
        ReachError::Unsupported {
            agent: self.agent.clone(),
            what,
            provider: match self.sessions.degraded(None) {
                Some(why) => format!("{provider} (degraded: {why})"),
                None => provider,
            },
        }
    }
}
