use std::time::Duration;

use tokio::time::Instant;

use super::slot::{Phase, Slot, Want};
use crate::model::{AgentName, StartCause};

/// Whether a slot without a run may have one now.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// May this slot be started now, as far as it alone is concerned? Dependencies are another
/// question. Asked by the plan, by timers and after each end.
pub fn admit(slot: &Slot, now: Instant) -> Admission {
    if slot.run.is_some() || slot.want != Want::Yes {
        return Admission::Refuse;
    }
    let start = |cause| Admission::Start {
        cause,
        leaves_quarantine: false,
    };
    match slot.phase {
        Phase::Stopped => start(first_cause(slot)),
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

fn first_cause(slot: &Slot) -> StartCause {
    match slot.spec.pool_slot {
        Some(_) => StartCause::ScaleUp,
        None => StartCause::Initial,
    }
}

/// The dependency that keeps a slot down, if there is one: the first template it needs of which
/// nobody is up. `is_up` knows templates: an instance alive, or a pool that wants none.
#[must_use]
pub fn missing_dependency(slot: &Slot, is_up: impl Fn(&AgentName) -> bool) -> Option<&AgentName> {
    slot.spec.depends_on.iter().find(|on| !is_up(on))
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
            assert_eq!(admit(&slot(phase), now), expected, "{phase:?}");
        }
    }

    #[test]
    fn nothing_is_started_that_is_not_wanted() {
        let held = Want::Held("x".into());
        for want in [
            Want::Suspended,
            Want::Limited,
            held,
            Want::Frozen,
            Want::Excess,
            Want::Gone,
        ] {
            let slot = Slot {
                want: want.clone(),
                ..slot(Phase::Stopped)
            };
            assert_eq!(admit(&slot, Instant::now()), Admission::Refuse, "{want:?}");
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
        assert_eq!(admit(&slot, until), Admission::Wait(wake));
        assert_eq!(
            admit(&slot, wake),
            Admission::Start {
                cause: StartCause::Expiry,
                leaves_quarantine: true
            }
        );
    }

    #[test]
    fn the_first_dependency_that_is_down_is_named() {
        let spec = AgentSpec::command("a", ["x"])
            .depends_on("up")
            .depends_on("down")
            .build()
            .unwrap();
        let slot = Slot::new(Arc::new(spec));
        assert_eq!(
            missing_dependency(&slot, |on| on.as_str() == "up")
                .unwrap()
                .as_str(),
            "down"
        );
        assert_eq!(missing_dependency(&slot, |_| true), None);
    }
}
