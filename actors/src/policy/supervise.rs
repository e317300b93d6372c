use std::time::Duration;

use tokio::time::Instant;

use super::slot::{DrainReason, Failure, Phase, Slot, is_stable};
use crate::model::{AgentEnd, Daemon, EndClass, EndKind, RestartType, StartCause, StopReason};

/// What follows the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a verdict nobody carries out is a decision lost"]
pub enum Verdict {
    /// Start again.
    Restart {
        /// After this delay.
        after: Duration,
        /// Cause of the next run.
        cause: StartCause,
    },
    /// Crash loop: not before the ledger has room again.
    Quarantine {
        /// The last instant of the quarantine.
        until: Instant,
    },
    /// Its restart type asks for no successor.
    Done,
    /// A planned stop that asks for no successor: the next plan decides.
    Leave,
}

/// A request for a fresh session sooner than this after the start is charged.
const TOO_SOON: Duration = Duration::from_secs(60);

/// The restart decision: charges the slot for the end of its run and says what follows.
///
/// The one place where a ledger is charged. Sets the slot's phase and forgets the run.
pub fn supervise(slot: &mut Slot, end: &AgentEnd, daemon: &Daemon, now: Instant) -> Verdict {
    let class = end.class();
    let run = slot.run.take();
    // An adopted or failed run has no other record of its beginning than its age.
    let started = run
        .as_ref()
        .map_or_else(|| now - end.uptime, |run| run.started);
    let announced = run.as_ref().is_some_and(|run| run.announced);
    match end.how {
        EndKind::StartFailed(_) => slot.failed = Some(end.token.clone()),
        // Cancelled before it began: whatever is left in its session's name is of the run before.
        _ if !announced && end.began.is_none() && run.is_some() => {
            slot.failed = Some(end.token.clone());
        }
        _ => slot.ended = Some(end.token.clone()),
    }
    note_error(slot, end, class, now);
    if was_stable(end, daemon) {
        slot.pacing.reset();
    }
    let verdict = match class {
        EndClass::Planned => {
            let drain = run.and_then(|run| run.drain).map(|drain| drain.reason);
            planned(slot, end, drain, started, daemon, now)
        }
        EndClass::ProviderLost => Verdict::Restart {
            after: Duration::ZERO,
            cause: StartCause::ProviderLost,
        },
        EndClass::ProviderFailure => {
            slot.backend.note();
            Verdict::Restart {
                after: slot.backend.delay(daemon),
                cause: StartCause::Crash,
            }
        }
        _ if !wants_restart(slot.spec.restart, class) => Verdict::Done,
        _ => charged(slot, end, started, daemon, now),
    };
    // An adopted run may end, in whatever way, with its ledger full.
    let full = slot.ledger.quarantined_until(slot.spec.limit, now);
    let verdict = match (verdict, full) {
        (Verdict::Restart { .. }, Some(until)) => Verdict::Quarantine { until },
        _ => verdict,
    };
    slot.respawn = false;
    slot.phase = match verdict {
        Verdict::Restart { after, cause } => Phase::Backoff {
            until: now + after,
            cause,
        },
        Verdict::Quarantine { until } => Phase::Quarantined { until },
        Verdict::Done => Phase::Done,
        Verdict::Leave => full.map_or(Phase::Stopped, |until| Phase::Quarantined { until }),
    };
    verdict
}

/// Ends caused by gc or a user. Most are free; asking for a fresh session all the time is not.
fn planned(
    slot: &mut Slot,
    end: &AgentEnd,
    drain: Option<DrainReason>,
    started: Instant,
    daemon: &Daemon,
    now: Instant,
) -> Verdict {
    let EndKind::Stopped { reason, .. } = end.how else {
        return Verdict::Leave;
    };
    let again = |cause| Verdict::Restart {
        after: Duration::ZERO,
        cause,
    };
    let temporary = slot.spec.restart == RestartType::Temporary;
    match reason {
        StopReason::Requested if end.uptime < TOO_SOON => {
            charge(slot, end, started, daemon, now);
            verdict_of(slot, StartCause::Requested, daemon, now)
        }
        StopReason::Requested => again(StartCause::Requested),
        StopReason::Idle => again(StartCause::Idle),
        StopReason::Drift => again(StartCause::Drift),
        StopReason::Drained | StopReason::DrainTimeout => {
            again(drain.map_or(StartCause::User, DrainReason::successor))
        }
        StopReason::Cascade | StopReason::User if temporary && !slot.respawn => Verdict::Done,
        StopReason::Cascade => again(StartCause::Cascade),
        StopReason::User => again(StartCause::User),
        StopReason::Swap => again(StartCause::Swap),
        StopReason::Orphan | StopReason::Limited | StopReason::Suspended | StopReason::Shutdown => {
            Verdict::Leave
        }
    }
}

/// An end that looks unplanned but was announced: the run was asked to finish, or asked for a
/// fresh session itself.
#[must_use]
pub fn classify(slot: &Slot, end: AgentEnd) -> AgentEnd {
    let (Some(run), EndKind::Exited(status)) = (&slot.run, &end.how) else {
        return end;
    };
    let reason = match () {
        () if run.acked || run.drain.is_some() => StopReason::Drained,
        () if run.restart_requested => StopReason::Requested,
        () => return end,
    };
    let how = EndKind::Stopped {
        reason,
        status: Some(*status),
        forced: false,
    };
    AgentEnd { how, ..end }
}

fn charged(
    slot: &mut Slot,
    end: &AgentEnd,
    started: Instant,
    daemon: &Daemon,
    now: Instant,
) -> Verdict {
    let clean = end.class() == EndClass::Clean;
    if !(clean && was_stable(end, daemon)) {
        charge(slot, end, started, daemon, now);
    }
    let cause = if clean {
        StartCause::Exit
    } else {
        StartCause::Crash
    };
    verdict_of(slot, cause, daemon, now)
}

fn charge(slot: &mut Slot, end: &AgentEnd, started: Instant, daemon: &Daemon, now: Instant) {
    slot.ledger.charge(started, slot.spec.limit, now);
    if !was_stable(end, daemon) {
        slot.pacing.note();
    }
}

/// A start that takes long to fail is no stable run.
fn was_stable(end: &AgentEnd, daemon: &Daemon) -> bool {
    !matches!(end.how, EndKind::StartFailed(_)) && is_stable(end.uptime, daemon)
}

/// Restart after the delay of the row so far, unless the ledger is full.
fn verdict_of(slot: &Slot, cause: StartCause, daemon: &Daemon, now: Instant) -> Verdict {
    match slot.ledger.quarantined_until(slot.spec.limit, now) {
        Some(until) => Verdict::Quarantine { until },
        None => Verdict::Restart {
            after: slot.pacing.delay(daemon),
            cause,
        },
    }
}

fn wants_restart(restart: RestartType, class: EndClass) -> bool {
    match restart {
        RestartType::Permanent => true,
        RestartType::Transient => class != EndClass::Clean,
        RestartType::Temporary => false,
    }
}

fn note_error(slot: &mut Slot, end: &AgentEnd, class: EndClass, now: Instant) {
    match class {
        EndClass::Crash | EndClass::SpawnFailure | EndClass::ProviderFailure => {
            slot.last_error = Some(Failure {
                at: now,
                message: end.describe(),
            });
        }
        EndClass::Planned | EndClass::Clean | EndClass::ProviderLost => {}
    }
    if class != EndClass::ProviderFailure {
        slot.backend.reset();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{AgentSpec, ExitStatus, FailureClass, RunToken, StartFailure};
    use crate::policy::Run;

    fn slot(restart: RestartType, max_restarts: u32) -> Slot {
        let spec = AgentSpec::command("a", ["x"])
            .restart(restart)
            .max_restarts(max_restarts, Duration::from_secs(600));
        Slot::new(Arc::new(spec.build().unwrap()))
    }

    fn end(how: EndKind, uptime_secs: u64) -> AgentEnd {
        AgentEnd {
            token: RunToken::new("t").unwrap(),
            how,
            uptime: Duration::from_secs(uptime_secs),
            tail: String::new(),
            began: None,
        }
    }

    fn exit(code: i32) -> EndKind {
        EndKind::Exited(ExitStatus::Code(code))
    }

    fn failed(class: FailureClass) -> EndKind {
        EndKind::StartFailed(StartFailure::new("spawn", class, "no"))
    }

    fn stopped(reason: StopReason) -> EndKind {
        EndKind::Stopped {
            reason,
            status: None,
            forced: false,
        }
    }

    fn restart(cause: StartCause) -> Verdict {
        Verdict::Restart {
            after: Duration::ZERO,
            cause,
        }
    }

    #[test]
    fn each_class_of_end_meets_each_restart_type() {
        use RestartType::{Permanent, Temporary, Transient};
        let long = 7200;
        let table = [
            (Permanent, exit(1), restart(StartCause::Crash), 1),
            (Permanent, exit(0), restart(StartCause::Exit), 1),
            (
                Permanent,
                EndKind::Exited(ExitStatus::Signal(9)),
                restart(StartCause::Crash),
                1,
            ),
            (
                Permanent,
                EndKind::Exited(ExitStatus::Unknown),
                restart(StartCause::Crash),
                1,
            ),
            (
                Permanent,
                failed(FailureClass::Agent),
                restart(StartCause::Crash),
                1,
            ),
            (
                Permanent,
                failed(FailureClass::Provider),
                restart(StartCause::Crash),
                0,
            ),
            (
                Permanent,
                EndKind::ProviderLost("killed".to_owned()),
                restart(StartCause::ProviderLost),
                0,
            ),
            (
                Permanent,
                stopped(StopReason::Drift),
                restart(StartCause::Drift),
                0,
            ),
            (
                Permanent,
                stopped(StopReason::User),
                restart(StartCause::User),
                0,
            ),
            (Permanent, stopped(StopReason::Shutdown), Verdict::Leave, 0),
            (Transient, exit(1), restart(StartCause::Crash), 1),
            (Transient, exit(0), Verdict::Done, 0),
            (
                Transient,
                failed(FailureClass::Agent),
                restart(StartCause::Crash),
                1,
            ),
            (Temporary, exit(1), Verdict::Done, 0),
            (Temporary, exit(0), Verdict::Done, 0),
            (Temporary, failed(FailureClass::Agent), Verdict::Done, 0),
            (Temporary, stopped(StopReason::Suspended), Verdict::Leave, 0),
            (Temporary, stopped(StopReason::Cascade), Verdict::Done, 0),
            (
                Permanent,
                stopped(StopReason::Cascade),
                restart(StartCause::Cascade),
                0,
            ),
            (
                Permanent,
                stopped(StopReason::Idle),
                restart(StartCause::Idle),
                0,
            ),
            (Permanent, stopped(StopReason::Orphan), Verdict::Leave, 0),
        ];
        let now = Instant::now() + Duration::from_secs(long);
        for (restart, how, expected, charged) in table {
            let mut slot = slot(restart, 5);
            let verdict = supervise(&mut slot, &end(how.clone(), 0), &Daemon::default(), now);
            assert_eq!(verdict, expected, "{restart:?} {how:?}");
            assert_eq!(
                slot.ledger.count(Duration::from_secs(600), now),
                charged,
                "{restart:?} {how:?}"
            );
        }
    }

    #[test]
    fn a_clean_exit_of_a_stable_run_is_not_charged() {
        let mut slot = slot(RestartType::Permanent, 5);
        let now = Instant::now() + Duration::from_secs(7200);
        let verdict = supervise(&mut slot, &end(exit(0), 60), &Daemon::default(), now);
        assert_eq!(verdict, restart(StartCause::Exit));
        assert_eq!(slot.ledger.count(Duration::from_secs(600), now), 0);
    }

    #[test]
    fn a_crash_after_a_stable_run_restarts_at_once_and_breaks_the_row() {
        let mut slot = slot(RestartType::Permanent, 9);
        let daemon = Daemon::default();
        let now = Instant::now() + Duration::from_secs(7200);
        for _ in 0..3 {
            let _ = supervise(&mut slot, &end(exit(1), 0), &daemon, now);
        }
        assert_eq!(slot.pacing.in_a_row(), 3);
        let verdict = supervise(&mut slot, &end(exit(1), 30), &daemon, now);
        assert_eq!(verdict, restart(StartCause::Crash));
        assert_eq!(slot.pacing.in_a_row(), 0);
    }

    #[test]
    fn three_deaths_of_three_mean_quarantine() {
        let mut slot = slot(RestartType::Permanent, 3);
        let daemon = Daemon::default();
        let t0 = Instant::now();
        let mut verdicts = Vec::new();
        for second in [0, 0, 1] {
            let now = t0 + Duration::from_secs(second);
            slot.run = Some(Run::new(
                RunToken::new("t").unwrap(),
                now,
                StartCause::Initial,
            ));
            verdicts.push(supervise(&mut slot, &end(exit(1), 0), &daemon, now));
        }
        assert_eq!(
            verdicts,
            [
                restart(StartCause::Crash),
                Verdict::Restart {
                    after: Duration::from_secs(1),
                    cause: StartCause::Crash
                },
                Verdict::Quarantine {
                    until: t0 + Duration::from_secs(600)
                },
            ]
        );
    }

    #[test]
    fn asking_for_a_fresh_session_all_the_time_ends_in_quarantine() {
        let mut slot = slot(RestartType::Permanent, 2);
        let now = Instant::now() + Duration::from_secs(7200);
        let daemon = Daemon::default();
        let calm = end(stopped(StopReason::Requested), 60);
        assert_eq!(
            supervise(&mut slot, &calm, &daemon, now),
            restart(StartCause::Requested)
        );
        assert_eq!(slot.ledger.count(Duration::from_secs(600), now), 0);
        let hasty = end(stopped(StopReason::Requested), 59);
        assert_eq!(
            supervise(&mut slot, &hasty, &daemon, now),
            restart(StartCause::Requested)
        );
        assert!(matches!(
            supervise(&mut slot, &hasty, &daemon, now),
            Verdict::Quarantine { .. }
        ));
    }

    #[test]
    fn a_stable_run_breaks_the_row_however_it_ended() {
        let now = Instant::now() + Duration::from_secs(7200);
        let after = |how: EndKind, uptime| {
            let mut slot = slot(RestartType::Permanent, 9);
            for _ in 0..3 {
                let _ = supervise(&mut slot, &end(exit(1), 0), &Daemon::default(), now);
            }
            let _ = supervise(&mut slot, &end(how, uptime), &Daemon::default(), now);
            slot.pacing.in_a_row()
        };
        assert_eq!(after(stopped(StopReason::User), 30), 0);
        assert_eq!(after(stopped(StopReason::User), 29), 3);
        assert_eq!(
            after(failed(FailureClass::Agent), 60),
            4,
            "a start that takes long to fail is no run"
        );
    }

    #[test]
    fn an_exit_after_a_drain_or_a_request_is_planned() {
        let run = |change: fn(&mut Run)| {
            let mut slot = slot(RestartType::Permanent, 5);
            let mut run = Run::new(
                RunToken::new("t").unwrap(),
                Instant::now(),
                StartCause::Initial,
            );
            change(&mut run);
            slot.run = Some(run);
            classify(&slot, end(exit(1), 9)).how
        };
        let planned = |reason| EndKind::Stopped {
            reason,
            status: Some(ExitStatus::Code(1)),
            forced: false,
        };
        assert_eq!(run(|r| r.acked = true), planned(StopReason::Drained));
        assert_eq!(
            run(|r| r.restart_requested = true),
            planned(StopReason::Requested)
        );
        assert_eq!(run(|_| {}), exit(1));
    }

    #[test]
    fn a_failing_backend_is_retried_for_ever_with_growing_delays() {
        let mut slot = slot(RestartType::Permanent, 2);
        let daemon = Daemon::default();
        let now = Instant::now();
        let delays: Vec<u64> = (0..8)
            .map(|_| {
                let how = failed(FailureClass::Provider);
                match supervise(&mut slot, &end(how, 0), &daemon, now) {
                    Verdict::Restart { after, .. } => after.as_secs(),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 30, 30]);
    }
}
