//! From an admitted slot to a run, and from the end of a run to what follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::Actor;
use tokio::time::{Instant, timeout};

use super::{CityMsg, CityState, Stage, events};
use crate::mailbox::{Addr, Gauge};
use crate::model::{
    AgentEnd, AgentName, AgentSpec, CityStatus, EndClass, EndKind, FailureClass, Fingerprint,
    Launch, OnDrift, RestartLimit, RestartType, RunToken, SessionName, StartCause, StartFailure,
    StopReason, Strategy,
};
use crate::policy::{Admission, Phase, Run, Slot, Verdict, admit, supervise};
use crate::ports::{Facts, Fence, Note, SessionEvent, SessionEventKind, StartSpec};
use crate::worker::{Grace, Mode, Report, Worker, WorkerArgs, WorkerMsg};

/// Clearing away a dead session is nobody's bottleneck; it only must not run for ever.
const BURY_LIMIT: Duration = Duration::from_secs(10);

impl CityState {
    /// Starts the slot if it may run now, or sets its alarm.
    pub(super) async fn consider(&mut self, agent: &AgentName) {
        if matches!(self.stage, Stage::Adopting | Stage::Stopping(_)) {
            return;
        }
        let (now, suspended) = (self.now(), self.args.spec.suspended);
        let me = self.me.clone();
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        match admit(&entry.slot, suspended, now) {
            Admission::Start {
                cause,
                leaves_quarantine,
            } => {
                entry.alarm = None;
                entry.slot.phase = Phase::Queued(cause);
                self.queue.push_back(agent.clone());
                if leaves_quarantine {
                    self.emit(events::unquarantined(agent, "expired"));
                }
                self.pump_queue().await;
            }
            Admission::Wait(at) if entry.alarm.as_ref().is_some_and(|(set, _)| *set == at) => {}
            Admission::Wait(at) => {
                let delay = at.saturating_duration_since(now);
                entry.alarm = Some((at, me.send_after(delay, CityMsg::Due(agent.clone()))));
            }
            Admission::Refuse => {}
        }
    }

    pub(super) async fn on_due(&mut self, agent: &AgentName) {
        if let Some(entry) = self.slots.get_mut(agent) {
            entry.alarm = None;
        }
        let lost = self
            .slots
            .get(agent)
            .is_some_and(|e| e.slot.run.is_some() && e.worker.is_none());
        if lost {
            self.respawn(agent).await;
        } else {
            self.consider(agent).await;
        }
    }

    /// Launches queued slots while permits are free.
    pub(super) async fn pump_queue(&mut self) {
        while self.starting < self.args.spec.daemon.start_parallelism {
            let Some(agent) = self.queue.pop_front() else {
                return;
            };
            let queued = self.slots.get(&agent).map(|entry| entry.slot.phase);
            if let Some(Phase::Queued(cause)) = queued {
                self.launch(&agent, cause).await;
            }
        }
    }

    async fn launch(&mut self, agent: &AgentName, cause: StartCause) {
        let (now, token) = (self.now(), self.args.ports.tokens.fresh());
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let slot = &mut entry.slot;
        slot.generation += 1;
        slot.phase = Phase::Starting;
        slot.run = Some(Run {
            token,
            started: now,
            pid: None,
            fingerprint: Some(slot.spec.fingerprint.clone()),
            cause,
            announced: false,
        });
        entry.permit = true;
        self.starting += 1;
        self.spawn_worker(agent, Mode::Start).await;
    }

    /// Spawns the Worker of the slot's current run.
    async fn spawn_worker(&mut self, agent: &AgentName, mode: Mode) {
        let Some(entry) = self.slots.get(agent) else {
            return;
        };
        let Some(run) = &entry.slot.run else { return };
        let gauge = Arc::new(Gauge::default());
        let args = WorkerArgs {
            shared: self.shared.clone(),
            gauge: gauge.clone(),
            agent: agent.clone(),
            session: entry.slot.spec.session.clone(),
            token: run.token.clone(),
            started: run.started,
            mode,
            start: (mode != Mode::Adopt).then(|| Arc::new(start_spec(&entry.slot))),
            startup_timeout: self.args.spec.startup_timeout,
            capture_lines: self.args.spec.daemon.crash_capture_lines,
        };
        let (token, started) = (run.token.clone(), run.started);
        match Actor::spawn_linked(None, Worker, args, self.me.actor().get_cell()).await {
            Ok((worker, _)) => self.slots.assign(agent, Addr::new(worker, gauge)),
            Err(error) => {
                // Through the mailbox, so that a failing spawn cannot recurse.
                let failure = StartFailure {
                    stage: "worker",
                    class: FailureClass::Agent,
                    detail: error.to_string(),
                };
                let uptime = self.now().saturating_duration_since(started);
                let how = EndKind::StartFailed(failure);
                let end = AgentEnd {
                    token,
                    how,
                    uptime,
                    tail: String::new(),
                    began: None,
                };
                self.me.send(CityMsg::Unspawned {
                    agent: agent.clone(),
                    end,
                });
            }
        }
    }

    /// Takes over a session that no slot knows. A dead one ends at once, as its Worker finds out.
    pub(super) async fn adopt(&mut self, facts: &Facts) {
        let now = self.now();
        let age = (self.args.ports.clock.wall() - facts.started_at)
            .to_std()
            .unwrap_or_default();
        let fingerprint = fingerprint_of(facts);
        if self.slots.get(&facts.agent).is_none() {
            let spec = stranger(&facts.agent, &facts.session);
            self.slots.add(Slot {
                configured: false,
                ..Slot::new(Arc::new(spec))
            });
        }
        let Some(entry) = self.slots.get_mut(&facts.agent) else {
            return;
        };
        entry.alarm = None;
        let slot = &mut entry.slot;
        let generation = facts
            .notes
            .get(&Note::Generation)
            .and_then(|text| text.parse().ok());
        slot.generation = generation.unwrap_or(1).max(slot.generation);
        slot.phase = Phase::Running;
        slot.run = Some(Run {
            token: facts.token.clone(),
            started: now.checked_sub(age).unwrap_or(now),
            pid: facts.pid,
            fingerprint,
            cause: StartCause::Initial,
            announced: true,
        });
        if facts.live {
            let draft = events::of_run("agent.adopted", &entry.slot).maybe("pid", facts.pid);
            self.emit(draft);
        }
        self.spawn_worker(&facts.agent, Mode::Adopt).await;
        self.honour_intent(facts);
    }

    /// A stop intent found on an adopted session: of a dead one it makes the end a planned one, of
    /// a live one it is stale, since whoever meant to stop it is gone.
    fn honour_intent(&mut self, facts: &Facts) {
        let Some(intent) = facts.notes.get(&Note::StopIntent) else {
            return;
        };
        if facts.live {
            let ports = self.args.ports.clone();
            let (session, fence) = (facts.session.clone(), Fence::Token(facts.token.clone()));
            tokio::spawn(async move {
                let clear = ports
                    .sessions
                    .set_note(session, fence, Note::StopIntent, None);
                let _ = timeout(BURY_LIMIT, clear).await;
            });
        } else if let Some(reason) = StopReason::parse(intent) {
            self.stop_run(&facts.agent, reason, Grace::None);
        }
    }

    /// Tells the slot's Worker to end its run.
    pub(super) fn stop_run(&mut self, agent: &AgentName, reason: StopReason, grace: Grace) {
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.slot.phase = Phase::Stopping(reason);
        entry.tell(WorkerMsg::Stop(reason, grace));
    }

    pub(super) fn on_session(&mut self, event: SessionEvent) {
        let SessionEventKind::Exited(status) = event.kind else {
            return;
        };
        let entry = self.slots.by_session(&event.session);
        if let Some(entry) = entry.filter(|entry| entry.is_run(&event.token)) {
            entry.tell(WorkerMsg::Exited(event.token, status));
        }
    }

    pub(super) async fn on_report(&mut self, agent: &AgentName, token: &RunToken, report: Report) {
        let Some(entry) = self
            .slots
            .get_mut(agent)
            .filter(|entry| entry.is_run(token))
        else {
            return; // of an older run
        };
        match report {
            Report::Started(started) => {
                self.announce(agent, started.pid);
                self.free_permit(agent);
                self.note_result(agent);
                self.pump_queue().await;
            }
            Report::Interrupted => self.on_interrupted(agent),
            Report::StopFailed(error) => {
                tracing::warn!(%agent, %error, "stop failed");
                entry.slot.last_error = Some(format!("stop failed: {error}"));
                entry.slot.phase = Phase::Running;
                self.on_stop_failed(agent);
            }
        }
    }

    /// The run is up. Told once, whichever news of it arrives first.
    fn announce(&mut self, agent: &AgentName, pid: Option<u32>) {
        let Some(slot) = self.slots.get_mut(agent).map(|entry| &mut entry.slot) else {
            return;
        };
        if slot.phase == Phase::Starting {
            slot.phase = Phase::Running;
        }
        let Some(run) = slot.run.as_mut().filter(|run| !run.announced) else {
            return;
        };
        run.pid = pid.or(run.pid);
        run.announced = true;
        self.args.ports.journal.append(events::started(slot));
    }

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
        if let Some(began) = end.began {
            // An end overtakes the report of the start: supervision events come first.
            self.announce(agent, began.pid);
        }
        let now = self.now();
        let daemon = &self.args.spec.daemon;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.slot.bugs.reset();
        let before = entry.slot.clone();
        let verdict = supervise(&mut entry.slot, &end, daemon, now);
        if let Some(draft) = events::ended(&before, &end, &entry.slot) {
            self.args.ports.journal.append(draft);
        }
        self.note_result(agent);
        if matches!(self.stage, Stage::Stopping(_)) {
            return self.on_gone(agent, &end);
        }
        match verdict {
            Verdict::Restart { after, .. } if after.is_zero() => {}
            Verdict::Leave if end.class() == EndClass::Planned => {} // its stop cleared it away
            _ => self.bury(before.spec.session.clone(), end.token.clone()),
        }
        if let Verdict::Quarantine { until } = verdict {
            let until = self.wall_at(until);
            if let Some(entry) = self.slots.get(agent) {
                self.emit(events::quarantined(&entry.slot, now, until));
            }
        }
        self.settle(agent).await;
        self.pump_queue().await;
    }

    /// A slot without a run: gone with its config, held by the user, or to be started.
    pub(super) async fn settle(&mut self, agent: &AgentName) {
        let suspended = self.args.spec.suspended;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        if !entry.slot.configured {
            self.forget(agent);
        } else if suspended || entry.slot.spec.suspended {
            entry.alarm = None;
            entry.slot.phase = Phase::Suspended;
        } else {
            self.consider(agent).await;
        }
    }

    /// Drops a slot that is neither configured nor running.
    pub(super) fn forget(&mut self, agent: &AgentName) {
        let quarantined = self
            .slots
            .get(agent)
            .is_some_and(|entry| matches!(entry.slot.phase, Phase::Quarantined { .. }));
        self.slots.remove(agent);
        if quarantined {
            self.emit(events::unquarantined(agent, "removed"));
        }
    }

    /// A Worker died of a fault of ours. The session is not touched and nothing is charged.
    pub(super) async fn on_worker_lost(&mut self, agent: &AgentName, error: &str) {
        tracing::error!(%agent, error, "worker lost");
        let (me, now) = (self.me.clone(), self.now());
        let daemon = &self.args.spec.daemon;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.slot.bugs.note();
        let delay = entry.slot.bugs.delay(daemon);
        if delay.is_zero() || matches!(self.stage, Stage::Stopping(_)) {
            self.respawn(agent).await;
        } else {
            let at = now + delay;
            entry.alarm = Some((at, me.send_after(delay, CityMsg::Due(agent.clone()))));
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

    /// Orphans are forced; everyone else is asked first.
    pub(super) fn grace(&self, reason: StopReason) -> Grace {
        let limit = self.args.spec.daemon.shutdown_timeout;
        match (&self.stage, reason) {
            _ if limit.is_zero() => Grace::None,
            (_, StopReason::Orphan) => Grace::None,
            (Stage::Stopping(shutdown), _) => shutdown.grace(),
            _ => Grace::For(limit),
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

    fn free_permit(&mut self, agent: &AgentName) {
        let held = self
            .slots
            .get_mut(agent)
            .is_some_and(|entry| std::mem::take(&mut entry.permit));
        if held {
            self.starting -= 1;
        }
    }

    /// The city runs once the first plan has a result for every candidate.
    fn note_result(&mut self, agent: &AgentName) {
        if let Stage::Starting(missing) = &mut self.stage {
            missing.remove(agent);
            if missing.is_empty() {
                self.stage = Stage::Running;
                self.report(CityStatus::Running);
            }
        }
    }

    pub(super) fn wall_at(&self, at: Instant) -> chrono::DateTime<chrono::Utc> {
        let (now, wall) = (self.now(), self.args.ports.clock.wall());
        // `Duration` holds any span of `Instant`s; chrono's range only ends far beyond it.
        let span = |d: Duration| chrono::TimeDelta::from_std(d).unwrap_or(chrono::TimeDelta::MAX);
        if at >= now {
            wall + span(at - now)
        } else {
            wall - span(now - at)
        }
    }
}

fn start_spec(slot: &Slot) -> StartSpec {
    let fingerprint = &slot.spec.fingerprint;
    let notes = BTreeMap::from([
        (Note::Generation, slot.generation.to_string()),
        (Note::ConfigHash, fingerprint.hash.clone()),
        (
            Note::ConfigHashFields,
            serde_json::to_string(&fingerprint.fields).unwrap_or_default(),
        ),
    ]);
    StartSpec {
        session: slot.spec.session.clone(),
        agent: slot.spec.name.clone(),
        template: slot.spec.template.clone(),
        generation: slot.generation,
        launch: slot.spec.launch.clone(),
        notes,
    }
}

fn fingerprint_of(facts: &Facts) -> Option<Fingerprint> {
    let hash = facts.notes.get(&Note::ConfigHash)?.clone();
    let fields = facts.notes.get(&Note::ConfigHashFields);
    let fields = fields
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    Some(Fingerprint { hash, fields })
}

/// The spec of a session whose agent is in no config: enough to stop it.
fn stranger(agent: &AgentName, session: &SessionName) -> AgentSpec {
    AgentSpec {
        name: agent.clone(),
        template: agent.clone(),
        session: session.clone(),
        launch: Arc::new(Launch::default()),
        fingerprint: Fingerprint::default(),
        restart: RestartType::Temporary,
        limit: RestartLimit::default(),
        suspended: false,
        pool: None,
        pool_slot: None,
        depends_on: Vec::new(),
        strategy: Strategy::default(),
        on_drift: OnDrift::default(),
        idle_timeout: None,
        process_names: Vec::new(),
        live: Vec::new(),
        held: None,
    }
}
