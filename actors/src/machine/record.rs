//! What the machine knows of one city.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ractor::ActorId;
use tokio::time::Instant;

use crate::city::CityMsg;
use crate::mailbox::{Addr, Timer};
use crate::model::{CityInfo, CityName, CityStatus, StopSummary};
use crate::ports::{CityEntry, Fence, Opened, SessionError, Sessions, Stopped};

/// A city that ran this long has its crashes forgotten.
const PROVEN: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Record {
    pub(super) entry: CityEntry,
    /// Still registered.
    pub(super) wanted: bool,
    pub(super) status: CityStatus,
    pub(super) error: Option<String>,
    /// When it failed last.
    pub(super) failed_at: Option<DateTime<Utc>>,
    pub(super) phases: Vec<String>,
    /// Kept across crashes of the actor, so that the lock is held without a gap.
    pub(super) opened: Option<Opened>,
    pub(super) child: Option<Addr<CityMsg>>,
    /// Count of opens; late results of older ones are dropped.
    pub(super) attempt: u64,
    pub(super) crashes: u32,
    pub(super) init_failures: u32,
    pub(super) retry: Option<(DateTime<Utc>, Timer)>,
    pub(super) running_since: Option<Instant>,
    /// Rings when the city has not ticked for too long.
    pub(super) stall: Option<Timer>,
    /// Killed because it stood still; its end is still to be seen.
    pub(super) stalled: bool,
    pub(super) summary: Option<StopSummary>,
    /// Rings when this start has taken so long that others may begin.
    pub(super) patience: Option<Timer>,
    /// It takes long to start and no longer keeps others waiting.
    pub(super) slow: bool,
    /// Rings when the config that kept it from starting may have been mended.
    pub(super) mended: Option<Timer>,
    /// The entry it starts again under, once it has stopped.
    pub(super) renamed: Option<CityEntry>,
    /// The name its config asks for.
    pub(super) pending_name: Option<CityName>,
}

impl Record {
    pub(super) fn new(entry: CityEntry) -> Self {
        Self {
            entry,
            wanted: true,
            status: CityStatus::Pending,
            error: None,
            failed_at: None,
            phases: Vec::new(),
            opened: None,
            child: None,
            attempt: 0,
            crashes: 0,
            init_failures: 0,
            retry: None,
            running_since: None,
            stall: None,
            stalled: false,
            summary: None,
            patience: None,
            slow: false,
            mended: None,
            renamed: None,
            pending_name: None,
        }
    }

    pub(super) fn is_actor(&self, id: ActorId) -> bool {
        self.child
            .as_ref()
            .is_some_and(|city| city.actor().get_id() == id)
    }

    /// On its way up.
    pub(super) fn is_starting(&self) -> bool {
        matches!(
            self.status,
            CityStatus::LoadingConfig | CityStatus::AdoptingSessions | CityStatus::StartingAgents
        )
    }

    /// Takes one of the few start slots.
    pub(super) fn takes_slot(&self) -> bool {
        self.is_starting() && !self.slow
    }

    /// A step forward, as reported by the city itself.
    pub(super) fn advance(&mut self, status: CityStatus, now: Instant) {
        if self.is_starting() && self.status != status {
            let passed = self.status.as_str().to_owned();
            if !self.phases.contains(&passed) {
                self.phases.push(passed);
            }
        }
        if self.status != status {
            tracing::info!(city = %self.entry.name, "city is {}", status.as_str());
        }
        if status == CityStatus::Running {
            self.running_since = Some(now);
            self.init_failures = 0;
        }
        self.status = status;
    }

    pub(super) fn fail(&mut self, status: CityStatus, error: String, at: DateTime<Utc>) {
        self.status = status;
        self.failed_at = Some(at);
        self.error = Some(error);
        self.phases.clear();
    }

    /// One more crash in a row; says how many came before it.
    pub(super) fn count_crash(&mut self, now: Instant) -> u32 {
        let ran = self
            .running_since
            .take()
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if ran >= PROVEN {
            self.crashes = 0;
        }
        self.crashes += 1;
        self.crashes - 1
    }

    pub(super) fn retired(&mut self, summary: StopSummary) {
        tracing::info!(city = %self.entry.name, interrupted = summary.interrupted, killed = summary.killed.len(), "city is stopped");
        self.status = CityStatus::Stopped;
        self.error = None;
        self.retry = None;
        self.summary = Some(summary);
    }

    pub(super) fn info(&self) -> CityInfo {
        CityInfo {
            name: self.entry.name.clone(),
            path: self.entry.path.clone(),
            running: self.status == CityStatus::Running,
            // Not the end of a city that is about to return under another name.
            status: match &self.renamed {
                Some(_) if self.status == CityStatus::Stopped => CityStatus::Stopping,
                _ => self.status,
            },
            error: self.error.clone(),
            phases_completed: self.phases.clone(),
            restart_count: (self.crashes > 0).then_some(self.crashes),
            next_retry_at: self.retry.as_ref().map(|(at, _)| *at),
            stopped: self.summary.clone(),
            pending_name: self.pending_name.clone(),
        }
    }
}

/// Ends every owned session, without the supervisor of the city.
///
/// # Errors
/// If some sessions cannot be listed; those that can are ended all the same. A session that cannot be stopped is passed over.
pub async fn stop_sessions(sessions: &dyn Sessions) -> Result<StopSummary, SessionError> {
    let mut summary = StopSummary::default();
    let listing = sessions.snapshot().await?;
    let mut all_gone = listing.is_complete();
    let errors = listing.errors;
    for facts in listing.owned {
        let stopped = sessions
            .stop(facts.session, Fence::Token(facts.token))
            .await;
        match stopped {
            Err(_) => all_gone = false,
            Ok(Stopped::Absent) => {}
            Ok(_) if !facts.live => {} // only its remains
            Ok(stopped) => {
                summary.interrupted += 1;
                if stopped == Stopped::Forced {
                    summary.killed.push(facts.agent);
                }
            }
        }
    }
    if all_gone {
        let _ = sessions.retire().await; // whatever it leaves, the agents are gone
    }
    if !errors.is_empty() {
        return Err(SessionError::Backend(errors.join("; ")));
    }
    Ok(summary)
}
