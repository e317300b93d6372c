//! How runs begin and end.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::name::RunToken;

/// What the kernel, or the provider, said about the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It ended; nobody can say how any more.
    Unknown,
    /// Its session is gone without a trace.
    Vanished,
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("ended, status unknown"),
            Self::Vanished => f.write_str("session vanished"),
        }
    }
}

/// Defines an enum whose variants are words in events and metadata.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// The word used in events and metadata.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Reads the word back.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// Why a run was started (`cause` of `agent.started`).
    StartCause {
        /// First start of the slot.
        Initial = "initial",
        /// The pool grew.
        ScaleUp = "scale_up",
        /// The run before crashed or failed to start.
        Crash = "crash",
        /// The run before exited with 0.
        Exit = "exit",
        /// The agent asked for a fresh session.
        Requested = "requested",
        /// The run before was idle for too long.
        Idle = "idle",
        /// Its config changed.
        Drift = "drift",
        /// Another agent's end took it along.
        Cascade = "cascade",
        /// A user asked.
        User = "user",
        /// The quarantine ran out.
        Expiry = "expiry",
        /// The backend of the run before died.
        ProviderLost = "provider_lost",
        /// The session provider was swapped.
        Swap = "swap",
    }
}

words! {
    /// Why gc ended a run (`reason` of `agent.stopped`).
    StopReason {
        /// The agent asked for a fresh session; a successor follows.
        Requested = "requested",
        /// It was idle for too long; a successor follows.
        Idle = "idle",
        /// Its config changed; a successor follows.
        Drift = "drift",
        /// It finished what it was doing, as asked.
        Drained = "drained",
        /// It did not finish in time.
        DrainTimeout = "drain_timeout",
        /// Nobody wants it any more.
        Orphan = "orphan",
        /// A limit on the number of agents pushed it out.
        Limited = "limited",
        /// Another agent's end took it along.
        Cascade = "cascade",
        /// It, or its city, was suspended.
        Suspended = "suspended",
        /// A user asked; a successor follows if its restart type wants one.
        User = "user",
        /// The session provider is being swapped.
        Swap = "swap",
        /// The city stops.
        Shutdown = "shutdown",
    }
}

/// Which side a failed start is blamed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The agent's own: bad directory, missing program, dead before ready. Charged.
    Agent,
    /// The backend's: unreachable, name taken. Not charged, retried for ever.
    Provider,
}

/// A start that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {detail}")]
pub struct StartFailure {
    /// The step that failed, e.g. `spawn` or `work_dir`.
    pub stage: &'static str,
    /// Who is to blame.
    pub class: FailureClass,
    /// What went wrong, for a person.
    pub detail: String,
    /// How the agent ended, if it had begun.
    pub exit: Option<ExitStatus>,
    /// The last it said.
    pub tail: String,
}

impl StartFailure {
    /// A start that failed before the agent had begun.
    pub fn new(stage: &'static str, class: FailureClass, detail: impl Into<String>) -> Self {
        Self {
            stage,
            class,
            detail: detail.into(),
            exit: None,
            tail: String::new(),
        }
    }
}

/// How one run ended. Carried by a Worker to its CitySupervisor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("run {token} ended: {how}")]
pub struct AgentEnd {
    /// The run.
    pub token: RunToken,
    /// What happened.
    pub how: EndKind,
    /// From its start (or the attempt's) to its end.
    pub uptime: Duration,
    /// Last lines of output, if any were kept.
    pub tail: String,
    /// It was up before it ended. The news of its start may still be on its way.
    pub began: Option<Began>,
}

/// A run that came up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Began {
    /// Process id of the leader, if it is known.
    pub pid: Option<u32>,
    /// Its prompt was never seen; it is taken as ready because it lives.
    pub assumed: bool,
    /// What went wrong on its way up without keeping it from running, for a person.
    pub warnings: Vec<String>,
    /// Its live lines were run on the way.
    pub set_up: bool,
}

/// The ways a run can end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndKind {
    /// On its own.
    Exited(ExitStatus),
    /// By gc or a user.
    Stopped {
        /// Why.
        reason: StopReason,
        /// What the process said, if it was seen to end.
        status: Option<ExitStatus>,
        /// It did not react to the interrupt in time.
        forced: bool,
    },
    /// It never began.
    StartFailed(StartFailure),
    /// The backend died and took it along; why, for a person.
    ProviderLost(String),
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::Stopped { reason, .. } => write!(f, "stopped ({})", reason.as_str()),
            Self::StartFailed(failure) => failure.fmt(f),
            Self::ProviderLost(why) => write!(f, "provider lost: {why}"),
        }
    }
}

/// Classes of ends (patrol.md 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndClass {
    /// Caused by gc or a user.
    Planned,
    /// Everything unplanned but a clean exit.
    Crash,
    /// Exit 0 that nobody asked for.
    Clean,
    /// The whole backend died.
    ProviderLost,
    /// The start failed through the agent.
    SpawnFailure,
    /// The start failed through the backend.
    ProviderFailure,
}

impl AgentEnd {
    /// The class that decides about charge and restart.
    #[must_use]
    pub fn class(&self) -> EndClass {
        match &self.how {
            EndKind::Stopped { .. } => EndClass::Planned,
            EndKind::Exited(ExitStatus::Code(0)) => EndClass::Clean,
            EndKind::Exited(_) => EndClass::Crash,
            EndKind::ProviderLost(_) => EndClass::ProviderLost,
            EndKind::StartFailed(failure) => match failure.class {
                FailureClass::Agent => EndClass::SpawnFailure,
                FailureClass::Provider => EndClass::ProviderFailure,
            },
        }
    }
}

impl AgentEnd {
    /// One line for a person: how it ended and, if it said something, its last words.
    #[must_use]
    pub fn describe(&self) -> String {
        let last_words = self
            .tail
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty());
        match last_words {
            Some(words) => format!("{}: {words}", self.how),
            None => self.how.to_string(),
        }
    }
}
