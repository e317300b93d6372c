use std::time::Duration;

use tokio::time::Instant;

use super::slot::{Phase, Slot};
use crate::model::StartCause;

/// Whether a slot without a run may have one now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an admission nobody acts on leaves the agent down"]
pub enum Admission {
    /// Start it.
    Start {
        /// Cause of the run.
        cause: StartCause,
        /// Its quarantine is over.
        leaves_quarantine: bool,
    },
    /// Not before this instant.
    Wait(Instant),
    /// Not on its own account.
    Refuse,
}

/// May this slot be started now? Asked by the plan, by timers and after each end.
pub fn admit(slot: &Slot, city_suspended: bool, now: Instant) -> Admission {
    if slot.run.is_some() || !slot.configured || slot.spec.suspended || city_suspended {
        return Admission::Refuse;
    }
    let start = |cause| Admission::Start {
        cause,
        leaves_quarantine: false,
    };
    match slot.phase {
        Phase::Stopped => start(StartCause::Initial),
        Phase::Suspended => start(StartCause::User),
        Phase::Backoff { until, cause } if until <= now => start(cause),
        Phase::Backoff { until, .. } => Admission::Wait(until),
        Phase::Quarantined { .. } => match slot.ledger.quarantined_until(slot.spec.limit, now) {
            // At `until` the oldest entry still counts.
            Some(until) => Admission::Wait(until + Duration::from_millis(1)),
            None => Admission::Start {
                cause: StartCause::Expiry,
                leaves_quarantine: true,
            },
        },
        Phase::Queued(_) | Phase::Starting | Phase::Running | Phase::Stopping(_) | Phase::Done => {
            Admission::Refuse
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{AgentSpec, RestartLimit, StopReason};

    const WINDOW: Duration = Duration::from_secs(600);

    fn slot(phase: Phase) -> Slot {
        let spec = AgentSpec::command("a", ["x"])
            .max_restarts(1, WINDOW)
            .build()
            .unwrap();
        Slot {
            phase,
            ..Slot::new(Arc::new(spec))
        }
    }

    fn start(cause: StartCause) -> Admission {
        Admission::Start {
            cause,
            leaves_quarantine: false,
        }
    }

    #[test]
    fn each_phase_is_admitted_or_not() {
        let now = Instant::now();
        let later = now + Duration::from_secs(4);
        let cause = StartCause::Crash;
        let table = [
            (Phase::Stopped, start(StartCause::Initial)),
            (Phase::Suspended, start(StartCause::User)),
            (Phase::Backoff { until: now, cause }, start(cause)),
            (
                Phase::Backoff {
                    until: later,
                    cause,
                },
                Admission::Wait(later),
            ),
            (Phase::Done, Admission::Refuse),
            (Phase::Queued(cause), Admission::Refuse),
            (Phase::Starting, Admission::Refuse),
            (Phase::Running, Admission::Refuse),
            (Phase::Stopping(StopReason::Drift), Admission::Refuse),
        ];
        for (phase, expected) in table {
            assert_eq!(admit(&slot(phase), false, now), expected, "{phase:?}");
            assert_eq!(
                admit(&slot(phase), true, now),
                Admission::Refuse,
                "suspended, {phase:?}"
            );
        }
    }

    #[test]
    fn quarantine_ends_one_millisecond_after_its_last_instant() {
        let start = Instant::now();
        let until = start + WINDOW;
        let mut slot = slot(Phase::Quarantined { until });
        slot.ledger.charge(
            start,
            RestartLimit {
                max_restarts: 1,
                window: WINDOW,
            },
            start,
        );
        let wake = until + Duration::from_millis(1);
        assert_eq!(admit(&slot, false, until), Admission::Wait(wake));
        assert_eq!(
            admit(&slot, false, wake),
            Admission::Start {
                cause: StartCause::Expiry,
                leaves_quarantine: true
            }
        );
    }

    #[test]
    fn what_is_no_longer_configured_or_suspended_is_refused() {
        let now = Instant::now();
        let removed = Slot {
            configured: false,
            ..slot(Phase::Stopped)
        };
        assert_eq!(admit(&removed, false, now), Admission::Refuse);
        let spec = AgentSpec::command("a", ["x"])
            .suspended(true)
            .build()
            .unwrap();
        assert_eq!(
            admit(&Slot::new(Arc::new(spec)), false, now),
            Admission::Refuse
        );
    }
}
