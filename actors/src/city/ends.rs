//! From the end of a run to what follows.

use std::time::Duration;

use tokio::time::timeout;

use super::{CityState, events};
use crate::model::{AgentEnd, AgentName, EndClass, EndKind, RunToken, SessionName};
use crate::policy::{Phase, Slot, Verdict, Want, classify, render_history, supervise};
use crate::ports::Fence;
use crate::tracker::TrackerMsg;
use crate::worker::Mode;

/// Clearing away a dead session is nobody's bottleneck; it only must not run for ever.
const BURY_LIMIT: Duration = Duration::from_secs(10);

impl CityState {
    /// The restart decision, in one synchronous step; then its effects.
    pub(super) async fn on_end(&mut self, agent: &AgentName, end: AgentEnd) {
        self.free_permit(agent);
        if !self
            .slots
            .get(agent)
            .is_some_and(|entry| entry.is_run(&end.token))
        {
            return; // seen before, or of a run this slot never had
        }
        if self.keep_failure(agent, &end) {
            self.note_result(agent).await;
            return self.pump_queue().await; // its permit is free
        }
        if let Some(began) = end.began.clone() {
            // An end overtakes the report of the start: supervision events come first.
            self.announce(agent, began);
        }
        let now = self.now();
        let daemon = &self.args.spec.daemon;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.slot.bugs.reset();
        entry.alarm = None;
        let before = entry.slot.clone();
        let cleared = matches!(end.how, EndKind::Stopped { .. });
        self.ended.insert(end.token.clone(), now); // a failed start may leave remains, too
        let end = classify(&before, end);
        let verdict = supervise(&mut entry.slot, &end, daemon, now);
        let wanted = entry.slot.want == Want::Yes;
        let capture = self.keep_last_words(&before, &end);
        if let Some(entry) = self.slots.get(agent)
            && let Some(draft) = events::ended(&before, &end, &entry.slot)
        {
            self.emit(draft.maybe("capture", capture));
        }
        if matches!(verdict, Verdict::Quarantine { .. }) {
            self.tell_quarantine(agent);
        }
        self.save_history();
        self.mourn(&before.spec);
        self.note_result(agent).await;
        if self.is_stopping() {
            return self.on_gone(agent, &end);
        }
        // Its own stop cleared it away, its successor does, or there is nothing to clear away.
        let succeeded = matches!(verdict, Verdict::Restart { after, .. } if after.is_zero());
        let never_began = matches!(end.how, EndKind::StartFailed(_));
        if !(cleared || never_began || succeeded && wanted) {
            self.bury(before.spec.session.clone(), end.token.clone());
        }
        self.take_along(agent, &end, verdict);
        self.settle(agent).await;
        self.note_stopped(agent).await;
        self.on_gone(agent, &end); // in a swap; else nobody waits for it
        self.pump_queue().await;
    }

    /// Only an unplanned end that is followed by a restart or quarantine takes others along.
    fn take_along(&mut self, agent: &AgentName, end: &AgentEnd, verdict: Verdict) {
        let unplanned = matches!(
            end.class(),
            EndClass::Crash | EndClass::Clean | EndClass::SpawnFailure
        );
        let returns = matches!(
            verdict,
            Verdict::Restart { .. } | Verdict::Quarantine { .. }
        );
        if unplanned && returns && self.is_open() {
            self.cascade(agent);
        }
    }

    fn tell_quarantine(&self, agent: &AgentName) {
        let Some(slot) = self.slots.get(agent).map(|entry| &entry.slot) else {
            return;
        };
        if let Phase::Quarantined { until } = slot.phase {
            self.emit(events::quarantined(slot, self.now(), self.wall_at(until)));
        }
    }

    /// Keeps the last output of a crash, or of a start that failed, beside the city; says where.
    fn keep_last_words(&self, before: &Slot, end: &AgentEnd) -> Option<String> {
        let unplanned = matches!(end.class(), EndClass::Crash | EndClass::SpawnFailure);
        if !unplanned || end.tail.is_empty() {
            return None;
        }
        let pid = before.run.as_ref().and_then(|run| run.pid);
        let caps = self.args.ports.sessions.caps_of(&before.spec.session);
        let text = format!(
            "agent: {}\ntoken: {}\npid: {}\nexit: {}\nuptime: {:?}\nsource: {}\n\n{}\n",
            before.spec.name,
            end.token,
            pid.map_or_else(|| "-".into(), |pid| pid.to_string()),
            end.how,
            end.uptime,
            if caps.screen { "screen" } else { "log" },
            end.tail
        );
        Some(
            self.args
                .ports
                .notes
                .save_capture(&before.spec.session, text),
        )
    }

    /// A slot without a run: gone with its config, held, or to be started.
    pub(super) async fn settle(&mut self, agent: &AgentName) {
        let Some(entry) = self.slots.get(agent) else {
            return;
        };
        match entry.slot.want {
            Want::Gone | Want::Excess => self.forget(agent),
            _ => self.consider(agent).await,
        }
    }

    /// Drops a slot that is neither configured nor running.
    pub(super) fn forget(&mut self, agent: &AgentName) {
        let Some(entry) = self
            .slots
            .get(agent)
            .filter(|entry| entry.slot.run.is_none())
        else {
            return;
        };
        let quarantined = matches!(entry.slot.phase, Phase::Quarantined { .. });
        self.slots.remove(agent);
        if quarantined {
            self.emit(events::unquarantined(agent, "removed"));
        }
    }

    /// A Worker died of a fault of ours. The session is not touched and nothing is charged.
    pub(super) async fn on_worker_lost(&mut self, agent: &AgentName, error: &str) {
        tracing::error!(%agent, error, "worker lost");
        let (me, now) = (self.me.clone(), self.now());
        let stopping = self.is_stopping();
        let daemon = &self.args.spec.daemon;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.slot.bugs.note();
        let delay = entry.slot.bugs.delay(daemon);
        if delay.is_zero() || stopping {
            self.respawn(agent).await;
        } else {
            let alarm = me.send_after(delay, super::CityMsg::Due(agent.clone()));
            entry.alarm = Some((now + delay, alarm));
        }
    }

    pub(super) async fn respawn(&mut self, agent: &AgentName) {
        let Some(entry) = self.slots.get(agent) else {
            return;
        };
        let phase = entry.slot.phase;
        let announced = entry.slot.run.as_ref().is_some_and(|run| run.announced);
        let mode = if announced { Mode::Adopt } else { Mode::Resume };
        self.spawn_worker(agent, mode).await;
        if let Phase::Stopping(reason) = phase {
            let grace = self.grace(reason);
            self.stop_run(agent, reason, grace);
        }
    }

    /// Clears away the remains of a run that has no immediate successor to do it.
    pub(super) fn bury(&self, session: SessionName, token: RunToken) {
        let ports = self.args.ports.clone();
        tokio::spawn(async move {
            let _ = timeout(
                BURY_LIMIT,
                ports.sessions.stop(session, Fence::Token(token)),
            )
            .await;
        });
    }

    /// Hands the charged ends to the Tracker, which keeps them on disk if configured.
    pub(super) fn save_history(&self) {
        let Some(tracker) = self
            .tracker
            .as_ref()
            .filter(|_| self.args.spec.daemon.persist_crash_history)
        else {
            return;
        };
        let ledgers = self
            .slots
            .all()
            .iter()
            .map(|entry| (&entry.slot.spec.name, &entry.slot.ledger))
            .chain(&self.ledgers);
        let text = render_history(ledgers, self.now(), self.args.ports.clock.wall());
        tracker.send(TrackerMsg::SaveHistory(text));
    }
}
