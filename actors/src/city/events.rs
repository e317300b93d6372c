//! What the event log says about agents (patrol.md 14).

use chrono::{DateTime, Utc};
use serde_json::json;
use tokio::time::Instant;

use crate::model::{
    AgentEnd, AgentName, EndClass, EndKind, EventDraft, ExitStatus, StartCause, StartFailure,
    StopReason, millis,
};
use crate::policy::Slot;

/// Longest tail of output an event carries.
const TAIL_LIMIT: usize = 4096;

/// An event about the slot's current run.
pub(super) fn of_run(kind: &str, slot: &Slot) -> EventDraft {
    EventDraft::new(kind, slot.spec.name.as_str())
        .with("session", slot.spec.session.as_str())
        .maybe(
            "session_id",
            slot.run.as_ref().map(|run| run.token.as_str()),
        )
        .with("generation", slot.generation)
}

/// `assumed`: its prompt was never seen.
pub(super) fn started(slot: &Slot, assumed: bool) -> EventDraft {
    let run = slot.run.as_ref();
    let cause = run.map_or(StartCause::Initial, |run| run.cause);
    let warnings = run.map_or(&[][..], |run| &run.warnings);
    let draft = of_run("agent.started", slot)
        .with("cause", json!(cause))
        .maybe("pid", run.and_then(|run| run.pid))
        .maybe("ready", assumed.then_some("assumed"));
    warned(draft, warnings)
}

pub(super) fn updated(slot: &Slot, warnings: &[String]) -> EventDraft {
    warned(of_run("agent.updated", slot), warnings)
}

/// What went wrong without keeping the agent from running.
fn warned(draft: EventDraft, warnings: &[String]) -> EventDraft {
    if warnings.is_empty() {
        return draft;
    }
    let text = warnings.join("; ");
    draft.message(text.clone()).with("error", text)
}

/// The one terminal event of a run, if it is due: `before` is the slot with the run, `after` the
/// slot as the verdict left it.
pub(super) fn ended(before: &Slot, end: &AgentEnd, after: &Slot) -> Option<EventDraft> {
    let announced = before.run.as_ref().is_some_and(|run| run.announced);
    let draft = match (end.class(), &end.how) {
        (EndClass::SpawnFailure, _) => start_failed(before, end),
        // A backend that stays away is one piece of news, not one per try.
        (EndClass::ProviderFailure, _) if after.backend.in_a_row() == 1 => {
            start_failed(before, end)
        }
        (EndClass::ProviderFailure, _) => return None,
        _ if !announced => return None,
        (
            EndClass::Planned,
            EndKind::Stopped {
                reason: StopReason::Suspended,
                ..
            },
        ) => of_run("agent.suspended", before),
        (
            EndClass::Planned,
            EndKind::Stopped {
                reason: StopReason::Idle,
                ..
            },
        ) => of_run("agent.idle_killed", before),
        (EndClass::Planned, EndKind::Stopped { reason, .. }) => {
            of_run("agent.stopped", before).with("reason", reason.as_str())
        }
        (EndClass::Clean, _) => of_run("agent.stopped", before).with("reason", "exited"),
        (EndClass::ProviderLost, _) => of_run("agent.stopped", before)
            .message(end.how.to_string())
            .with("reason", "provider_lost"),
        _ => of_run("agent.crashed", before).message(message(end)),
    };
    let uptime = u64::try_from(end.uptime.as_millis()).unwrap_or(u64::MAX);
    let draft = draft
        .with("class", json!(end.class()))
        .with("uptime_ms", uptime);
    Some(match &end.how {
        EndKind::Exited(status) => with_status(draft, *status),
        EndKind::Stopped {
            status: Some(status),
            forced,
            ..
        } => with_forced(with_status(draft, *status), *forced),
        EndKind::Stopped { forced, .. } => with_forced(draft, *forced),
        EndKind::StartFailed(StartFailure {
            exit: Some(status), ..
        }) => with_status(draft, *status),
        _ => draft,
    })
}

pub(super) fn quarantined(slot: &Slot, now: Instant, until: DateTime<Utc>) -> EventDraft {
    let limit = slot.spec.limit;
    EventDraft::new("agent.quarantined", slot.spec.name.as_str())
        .message("crash loop detected")
        .with("restarts", slot.ledger.count(limit.window, now))
        .with("window", format!("{:?}", limit.window))
        .with("until", millis::format(&until))
}

pub(super) fn unquarantined(agent: &AgentName, cause: &str) -> EventDraft {
    EventDraft::new("agent.unquarantined", agent.as_str()).with("cause", cause)
}

fn start_failed(slot: &Slot, end: &AgentEnd) -> EventDraft {
    of_run("agent.start_failed", slot)
        .message(message(end))
        .with("error", end.describe())
}

/// How it ended, and the last of what it said.
fn message(end: &AgentEnd) -> String {
    let mut from = end.tail.len().saturating_sub(TAIL_LIMIT);
    while !end.tail.is_char_boundary(from) {
        from += 1;
    }
    match end.tail[from..].trim_end() {
        "" => end.how.to_string(),
        tail => format!("{}\n{tail}", end.how),
    }
}

fn with_status(draft: EventDraft, status: ExitStatus) -> EventDraft {
    match status {
        ExitStatus::Code(code) => draft.with("exit_code", code),
        ExitStatus::Signal(signal) => draft.with("signal", signal),
        ExitStatus::Unknown | ExitStatus::Vanished => draft,
    }
}

fn with_forced(draft: EventDraft, forced: bool) -> EventDraft {
    if forced {
        draft.with("forced", true)
    } else {
        draft
    }
}
