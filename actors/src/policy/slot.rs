use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Ledger, Pacing};
use crate::model::{AgentSpec, AgentState, Daemon, Fingerprint, RunToken, StartCause, StopReason};

/// The CitySupervisor's record of one instance, with or without a live run.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// Child spec in force for the next run.
    pub spec: Arc<AgentSpec>,
    /// Still in the config. A slot that is not goes away with its run.
    pub configured: bool,
    /// Where it stands.
    pub phase: Phase,
    /// Charged ends.
    pub ledger: Ledger,
    /// Charged ends in a row.
    pub pacing: Pacing,
    /// Failures of the backend in a row; paced like crashes but never charged.
    pub backend: Pacing,
    /// Workers lost to a bug in a row; paced, never charged.
    pub bugs: Pacing,
    /// Count of runs so far.
    pub generation: u64,
    /// The current run.
    pub run: Option<Run>,
    /// The last run whose end was seen. Late news of it is no news.
    pub ended: Option<RunToken>,
    /// How the last unplanned end came about, for a person.
    pub last_error: Option<String>,
}

/// One run of a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id.
    pub token: RunToken,
    /// When it began, or the attempt.
    pub started: Instant,
    /// Process id of the leader.
    pub pid: Option<u32>,
    /// What it was started with; `None` for an adopted run that carries no hash.
    pub fingerprint: Option<Fingerprint>,
    /// Why it was started.
    pub cause: StartCause,
    /// `agent.started` (or `agent.adopted`) was emitted: its end is an event too.
    pub announced: bool,
}

/// Where a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No run; the next plan decides.
    Stopped,
    /// Waiting for a start permit.
    Queued(StartCause),
    /// A run is being started.
    Starting,
    /// A run is up.
    Running,
    /// A planned stop is under way.
    Stopping(StopReason),
    /// Waiting before an automatic restart.
    Backoff {
        /// When it is due.
        until: Instant,
        /// Why it will be started.
        cause: StartCause,
    },
    /// Crash loop.
    Quarantined {
        /// The last instant of the quarantine.
        until: Instant,
    },
    /// Held back by the user.
    Suspended,
    /// Ended for good, by its restart type.
    Done,
}

impl Slot {
    /// A slot that never ran.
    #[must_use]
    pub fn new(spec: Arc<AgentSpec>) -> Self {
        Self {
            spec,
            configured: true,
            phase: Phase::Stopped,
            ledger: Ledger::default(),
            pacing: Pacing::default(),
            backend: Pacing::default(),
            bugs: Pacing::default(),
            generation: 0,
            run: None,
            ended: None,
            last_error: None,
        }
    }

    /// The state word shown to people.
    #[must_use]
    pub fn state(&self) -> AgentState {
        match self.phase {
            Phase::Stopped => AgentState::Stopped,
            Phase::Queued(_) | Phase::Starting => AgentState::Starting,
            Phase::Running => AgentState::Running,
            Phase::Stopping(_) => AgentState::Stopping,
            Phase::Backoff { .. } => AgentState::Backoff,
            Phase::Quarantined { .. } => AgentState::Quarantined,
            Phase::Suspended => AgentState::Suspended,
            Phase::Done => AgentState::Done,
        }
    }

    /// The run was started with another config than the one in force. An unknown hash, or one of
    /// another version, is no drift.
    #[must_use]
    pub fn has_drifted(&self) -> bool {
        let version = |hash: &str| hash.split_once(':').map(|(version, _)| version.to_owned());
        let now = &self.spec.fingerprint.hash;
        self.run
            .as_ref()
            .and_then(|run| run.fingerprint.as_ref())
            .is_some_and(|then| then.hash != *now && version(&then.hash) == version(now))
    }

    /// Forgives everything: a reload or the user asks for a fresh start.
    pub fn absolve(&mut self) {
        self.ledger.clear();
        self.pacing.reset();
        self.backend.reset();
    }
}

/// A run that lasted this long breaks a row of crashes.
#[must_use]
pub(super) fn is_stable(uptime: Duration, daemon: &Daemon) -> bool {
    uptime >= daemon.restart_delay_max.max(Duration::from_secs(1))
}
