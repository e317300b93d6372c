//! What a provider tells: listings, events and errors.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::Note;
use crate::model::{AgentName, ExitStatus, FailureClass, RunToken, SessionName, StartFailure};

/// Sessions of one backend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// Owned sessions, live or dead.
    pub owned: Vec<Facts>,
    /// Names of sessions that are not ours. Never touched.
    pub foreign: Vec<String>,
    /// Why some sessions may be missing, one entry for each backend that could not be asked.
    pub errors: Vec<String>,
}

impl Listing {
    /// Whoever is not in it does not exist.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty()
    }
}

/// What a listing says of an owned session.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Its name.
    pub session: SessionName,
    /// The instance it was started for.
    pub agent: AgentName,
    /// Its run.
    pub token: RunToken,
    /// The leader has not exited.
    pub live: bool,
    /// Process id of the leader.
    pub pid: Option<u32>,
    /// When the run began.
    pub started_at: DateTime<Utc>,
    /// Last output, never before the start; `None` if unknown.
    pub last_activity: Option<DateTime<Utc>>,
    /// Somebody has a terminal on it.
    pub attached: bool,
    /// Metadata.
    pub notes: BTreeMap<Note, String>,
}

/// Something happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// Its name.
    pub session: SessionName,
    /// Its run.
    pub token: RunToken,
    /// What.
    pub kind: SessionEventKind,
}

/// Kinds of session events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEventKind {
    /// The leader ended.
    Exited(ExitStatus),
    /// The agent did something visible. See [`follow`](crate::ports::follow).
    Activity,
    /// Events were dropped, beginning with one of this session: only a listing knows now. Exits
    /// are never among them.
    Lagged,
    /// The backend died and took the session along; why, for a person.
    BackendLost(String),
    /// The backend can be asked again. Told once, with a session that it had: only a listing knows
    /// what became of the others.
    BackendBack {
        /// Its sessions outlived the time between.
        same_server: bool,
    },
    /// Somebody put a terminal on the session, or the last one left.
    Attached(bool),
}

impl SessionEventKind {
    /// Something was missed: only a listing knows what there is now.
    #[must_use]
    pub fn asks_for_listing(&self) -> bool {
        matches!(self, Self::Lagged | Self::BackendBack { .. })
    }
}

/// A start that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another session holds the name. It was not touched.
    #[error("{}", if *.owned { "already running" } else { "a session of that name is not gc's" })]
    Exists {
        /// It is a run of this city.
        owned: bool,
        /// Its leader has not exited, as far as can be told.
        live: bool,
    },
    /// Nothing holds it back, and it failed all the same.
    #[error(transparent)]
    Failed(#[from] StartFailure),
}

impl From<StartError> for StartFailure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Failed(failure) => failure,
            held @ StartError::Exists { .. } => {
                Self::new("session", FailureClass::Provider, held.to_string())
            }
        }
    }
}

/// A call that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No such session.
    #[error("no such session")]
    NotFound,
    /// The session belongs to another run; nothing was touched.
    #[error("session belongs to another run")]
    Fenced,
    /// Others talk to the session right now.
    #[error("the session is busy")]
    Busy,
    /// More than a session takes at once.
    #[error("too large: at most {0} bytes")]
    TooLarge(usize),
    /// The provider cannot do this.
    #[error("not supported by this provider: {0}")]
    Unsupported(&'static str),
    /// What was asked for makes no sense, and why.
    #[error("{0}")]
    Invalid(&'static str),
    /// The backend did not answer in time; its state is unknown.
    #[error("timed out")]
    Timeout,
    /// The backend failed; its state is unknown.
    #[error("{0}")]
    Backend(String),
}
