use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Ledger, Pacing};
use crate::model::{
    AgentName, AgentSpec, AgentState, Daemon, Fingerprint, RunToken, StartCause, StopReason,
};

/// The CitySupervisor's record of one instance, with or without a live run.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// Child spec in force for the next run.
    pub spec: Arc<AgentSpec>,
    /// Whether it should run.
    pub want: Want,
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
    /// The last start that failed or was cancelled. A session of it that turns up after all is cleared away.
    pub failed: Option<RunToken>,
    /// How the last unplanned end came about, for a person.
    pub last_error: Option<Failure>,
    /// The dependency it waits for.
    pub blocked_on: Option<AgentName>,
    /// Agents whose end took it along; it returns after them.
    pub cascade_of: BTreeSet<AgentName>,
    /// A user wants a successor to the run being stopped, whatever the restart type says.
    pub respawn: bool,
}

/// Something that went wrong with a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Instant,
    /// What, for a person.
    pub message: String,
}

/// Whether an instance should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// It should.
    Yes,
    /// It, its rig or its city is suspended.
    Suspended,
    /// Left out by a limit on the number of agents.
    Limited,
    /// It can neither be started nor be stopped, for a reason outside gc.
    Held(String),
    /// Not known yet: its pool's first check is pending.
    Frozen,
    /// A member of a pool beyond the count.
    Excess,
    /// In no config.
    Gone,
}

/// One run of a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id.
    pub token: RunToken,
    /// When it began, or the attempt.
    pub started: Instant,
    /// When its start was done; the beginning for an adopted run. A listing asked for before may
    /// not show it.
    pub up: Instant,
    /// Process id of the leader.
    pub pid: Option<u32>,
    /// What it was started with; `None` for an adopted run that carries no hash.
    pub fingerprint: Option<Fingerprint>,
    /// Hash of the live lines that were run last; `None` if unknown.
    pub live_hash: Option<String>,
    /// Why it was started.
    pub cause: StartCause,
    /// `agent.started` (or `agent.adopted`) was emitted: its end is an event too.
    pub announced: bool,
    /// A listing shows that it is over; its end is still to be told.
    pub found_dead: bool,
    /// The last listing gave cause to look closer, and its Worker does.
    pub suspect: bool,
    /// It was asked to finish.
    pub drain: Option<Drain>,
    /// It says that it has finished.
    pub acked: bool,
    /// It asks for a fresh session.
    pub restart_requested: bool,
    /// Last activity; `None` if unknown.
    pub last_activity: Option<Instant>,
    /// Somebody has a terminal on it.
    pub attached: bool,
    /// The fingerprint whose drift was told.
    pub drift_told: Option<String>,
    /// What went wrong without keeping it from running, for a person.
    pub warnings: Vec<String>,
    /// Metadata listed before this instant may be older than our own last change of it.
    pub notes_settle_at: Option<Instant>,
}

impl Run {
    /// A run that begins now.
    #[must_use]
    pub fn new(token: RunToken, started: Instant, cause: StartCause) -> Self {
        Self {
            token,
            started,
            up: started,
            pid: None,
            fingerprint: None,
            live_hash: None,
            cause,
            announced: false,
            found_dead: false,
            suspect: false,
            drain: None,
            acked: false,
            restart_requested: false,
            last_activity: None,
            attached: false,
            drift_told: None,
            warnings: Vec::new(),
            notes_settle_at: None,
        }
    }

    /// Longer than `limit` without activity; unknown activity is not idleness.
    #[must_use]
    pub fn quiet_for_more_than(&self, limit: Duration, now: Instant) -> bool {
        self.last_activity
            .is_some_and(|at| now.saturating_duration_since(at) > limit)
    }
}

/// A run that was asked to finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// Since when.
    pub since: Instant,
    /// Why.
    pub reason: DrainReason,
    /// After how long it is forced; `None`: never.
    pub timeout: Option<Duration>,
}

/// Why a run was asked to finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainReason {
    /// The pool wants fewer instances.
    PoolExcess,
    /// Its config changed.
    ConfigDrift,
    /// A user asked.
    User,
}

impl DrainReason {
    /// The word in metadata and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PoolExcess => "pool-excess",
            Self::ConfigDrift => "config-drift",
            Self::User => "user",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::PoolExcess, Self::ConfigDrift, Self::User]
            .into_iter()
            .find(|r| r.as_str() == word)
    }

    /// Cause of the run that follows one that finished.
    #[must_use]
    pub fn successor(self) -> StartCause {
        match self {
            Self::PoolExcess => StartCause::ScaleUp,
            Self::ConfigDrift => StartCause::Drift,
            Self::User => StartCause::User,
        }
    }
}

/// Where a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No run; the next plan decides.
    Stopped,
    /// Part of a start plan: waits for its wave or for a permit.
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
    /// Ended for good, by its restart type.
    Done,
}

impl Slot {
    /// A slot that never ran.
    #[must_use]
    pub fn new(spec: Arc<AgentSpec>) -> Self {
        Self {
            spec,
            want: Want::Yes,
            phase: Phase::Stopped,
            ledger: Ledger::default(),
            pacing: Pacing::default(),
            backend: Pacing::default(),
            bugs: Pacing::default(),
            generation: 0,
            run: None,
            ended: None,
            failed: None,
            last_error: None,
            blocked_on: None,
            cascade_of: BTreeSet::new(),
            respawn: false,
        }
    }

    /// The state word shown to people.
    #[must_use]
    pub fn state(&self) -> AgentState {
        let draining = self.run.as_ref().is_some_and(|run| run.drain.is_some());
        match (&self.phase, &self.want) {
            (Phase::Stopping(_), _) => AgentState::Stopping,
            (Phase::Running, _) if draining => AgentState::Draining,
            (Phase::Running, _) => AgentState::Running,
            (Phase::Starting, _) => AgentState::Starting,
            (_, Want::Suspended) => AgentState::Suspended,
            (_, Want::Limited) => AgentState::Limited,
            (_, Want::Held(_)) => AgentState::Held,
            (_, Want::Frozen) => AgentState::Frozen,
            (Phase::Quarantined { .. }, _) => AgentState::Quarantined,
            (Phase::Done, _) => AgentState::Done,
            (Phase::Stopped | Phase::Backoff { .. }, _) if self.blocked_on.is_some() => {
                AgentState::Blocked
            }
            (Phase::Queued(_), _) => AgentState::Starting,
            (Phase::Backoff { .. }, _) => AgentState::Backoff,
            (Phase::Stopped, _) => AgentState::Stopped,
        }
    }

    /// Up, and not on its way out: what dependents count on.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let up = |run: &Run| run.announced && !run.found_dead;
        self.phase == Phase::Running && self.run.as_ref().is_some_and(up)
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

    /// Only the live lines differ from those that were run last.
    #[must_use]
    pub fn has_live_drift(&self) -> bool {
        let then = self.run.as_ref().and_then(|run| run.live_hash.as_ref());
        then.is_some_and(|then| *then != self.spec.live_hash())
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
