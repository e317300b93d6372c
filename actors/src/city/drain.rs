//! Draining: ask a run to finish, wait for its word, force it in the end.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;
use tokio::time::Instant;

use super::{CityMsg, CityState, events};
use crate::model::{AgentName, RunToken};
use crate::policy::{Drain, DrainReason, Run};
use crate::ports::{Facts, Note};
use crate::worker::WorkerMsg;

/// How long our own changes of metadata may take to show in a listing.
const NOTES_SETTLE: Duration = Duration::from_secs(5);

impl CityState {
    /// Asks the run to finish. Already draining: the first wish stands.
    pub(super) fn drain(
        &mut self,
        agent: &AgentName,
        reason: DrainReason,
        limit: Option<Duration>,
    ) {
        let (now, wall) = (self.now(), self.args.ports.clock.wall());
        let timeout = self.drain_timeout(agent, reason, limit);
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let Some(run) = entry.slot.run.as_mut().filter(|run| run.drain.is_none()) else {
            return;
        };
        run.drain = Some(Drain {
            since: now,
            reason,
            timeout,
        });
        entry.tell(WorkerMsg::Note(
            Note::DrainReason,
            Some(reason.as_str().into()),
        ));
        if let Some(limit) = limit {
            entry.tell(WorkerMsg::Note(
                Note::DrainTimeout,
                Some(limit.as_secs().to_string()),
            ));
        }
        entry.tell(WorkerMsg::Note(
            Note::Drain,
            Some(wall.timestamp().to_string()),
        ));
        let draft = events::of_run("agent.draining", &entry.slot).with("reason", reason.as_str());
        self.emit(draft);
        self.arm_drain(agent);
    }

    /// Rings when the drain has taken strictly longer than it may.
    pub(super) fn arm_drain(&mut self, agent: &AgentName) {
        let (now, me) = (self.now(), self.me.clone());
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let drain = entry.slot.run.as_ref().and_then(|run| run.drain);
        let Some((drain, timeout)) = drain.and_then(|drain| Some((drain, drain.timeout?))) else {
            return;
        };
        let at = drain.since + timeout + Duration::from_millis(1);
        let delay = at.saturating_duration_since(now);
        let alarm = me.send_after(delay, CityMsg::Due(agent.clone()));
        entry.alarm = Some((at, alarm));
    }

    fn drain_timeout(
        &self,
        agent: &AgentName,
        reason: DrainReason,
        limit: Option<Duration>,
    ) -> Option<Duration> {
        // By template: an adopted session may be of a pool that no longer has such a member.
        let pool = self
            .slots
            .get(agent)
            .and_then(|entry| self.args.spec.agent(&entry.slot.spec.template))
            .and_then(|template| template.pool.clone());
        match reason {
            DrainReason::PoolExcess => pool.and_then(|pool| pool.drain_timeout),
            DrainReason::ConfigDrift => Some(self.args.spec.daemon.drift_drain_timeout),
            DrainReason::User => limit.or_else(|| pool.and_then(|pool| pool.drain_timeout)),
        }
    }

    /// Takes the wish back.
    pub(super) fn undrain(&mut self, agent: &AgentName) {
        let now = self.now();
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let Some(run) = entry.slot.run.as_mut().filter(|run| run.drain.is_some()) else {
            return;
        };
        run.drain = None;
        run.acked = false;
        run.notes_settle_at = Some(now + NOTES_SETTLE);
        entry.alarm = None;
        for note in [
            Note::Drain,
            Note::DrainReason,
            Note::DrainTimeout,
            Note::DrainAck,
        ] {
            entry.tell(WorkerMsg::Note(note, None));
        }
        let draft = events::of_run("agent.undrained", &entry.slot);
        self.emit(draft);
    }

    /// Says once per run and edit which part of the config differs.
    pub(super) fn tell_drift(&mut self, agent: &AgentName) {
        let Some(slot) = self.slots.get_mut(agent).map(|entry| &mut entry.slot) else {
            return;
        };
        let Some(run) = &mut slot.run else { return };
        run.drift_told = Some(slot.spec.fingerprint.hash.clone());
        let keys = run
            .fingerprint
            .as_ref()
            .map(|then| then.differing_keys(&slot.spec.fingerprint));
        let draft =
            events::of_run("agent.drifted", slot).with("keys", json!(keys.unwrap_or_default()));
        self.emit(draft);
    }

    /// Takes over what a listing says of the runs it knows.
    pub(super) fn learn(&mut self, facts: &Facts, as_of: Instant) {
        let (now, wall) = (self.now(), self.args.ports.clock.wall());
        let entry = self
            .slots
            .get_mut(&facts.agent)
            .filter(|entry| entry.is_run(&facts.token));
        let Some(run) = entry.and_then(|entry| entry.slot.run.as_mut()) else {
            return;
        };
        run.found_dead = !facts.live;
        run.suspect = false;
        learn_activity(run, facts, now, wall);
        if run.notes_settle_at.is_none_or(|settled| settled <= as_of) {
            learn_wishes(run, facts);
        }
    }

    /// All but these could not be observed: whoever was quiet may be busy by now.
    pub(super) fn forget_activity(&mut self, but: &HashSet<&RunToken>) {
        for run in self.slots.iter_mut().filter_map(|e| e.slot.run.as_mut()) {
            if !but.contains(&run.token) {
                run.last_activity = None;
            }
        }
    }

    /// The drain found on a session that is being adopted.
    pub(super) fn drain_of(&self, facts: &Facts) -> Option<Drain> {
        let (now, wall) = (self.now(), self.args.ports.clock.wall());
        let since = facts.notes.get(&Note::Drain)?;
        let reason = facts
            .notes
            .get(&Note::DrainReason)
            .and_then(|word| DrainReason::parse(word));
        let reason = reason.unwrap_or(DrainReason::User);
        let limit = facts
            .notes
            .get(&Note::DrainTimeout)
            .and_then(|text| text.parse().ok());
        let timeout = self.drain_timeout(&facts.agent, reason, limit.map(Duration::from_secs));
        let began = since
            .parse()
            .ok()
            .and_then(|secs| DateTime::from_timestamp(secs, 0));
        let since = began.and_then(|at| instant(at, now, wall)).unwrap_or(now);
        Some(Drain {
            since,
            reason,
            timeout,
        })
    }
}

/// A wall time as an instant; the future counts as now.
fn instant(at: DateTime<Utc>, now: Instant, wall: DateTime<Utc>) -> Option<Instant> {
    now.checked_sub((wall - at).to_std().unwrap_or_default())
}

/// Activity is never before the start, and never moves backwards. A provider that cannot tell
/// makes it unknown.
pub(super) fn learn_activity(run: &mut Run, facts: &Facts, now: Instant, wall: DateTime<Utc>) {
    run.attached = facts.attached;
    let activity = facts.last_activity.and_then(|at| instant(at, now, wall));
    run.last_activity = activity.map(|at| at.max(run.started).max(run.last_activity.unwrap_or(at)));
}

/// What the agent wrote into its session's metadata.
pub(super) fn learn_wishes(run: &mut Run, facts: &Facts) {
    let set = |note: Note| {
        facts
            .notes
            .get(&note)
            .is_some_and(|value| !value.is_empty())
    };
    run.restart_requested |= set(Note::RestartRequested);
    run.acked |= set(Note::DrainAck);
}
