//! From an admitted slot to a run that is up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::Actor;

use super::{CityMsg, CityState, events};
use crate::mailbox::{Addr, Gauge};
use crate::model::{
    AgentEnd, AgentName, Began, EndKind, FailureClass, RunToken, StartCause, StartFailure,
    StopReason,
};
use crate::policy::{Admission, Failure, Phase, Run, Slot, Trigger, Want, admit};
use crate::ports::{Note, SessionEvent, SessionEventKind, StartSpec};
use crate::worker::{Grace, Mode, Report, Worker, WorkerArgs, WorkerMsg};

impl CityState {
    /// Starts the slot if it may run now, or sets its alarm. For single agents: no waves.
    pub(super) async fn consider(&mut self, agent: &AgentName) {
        if !self.is_open() || self.cascade_holds(agent) {
            return;
        }
        let now = self.now();
        let missing = self.missing(agent);
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let Admission::Start {
            cause,
            leaves_quarantine,
        } = admit(&entry.slot, now)
        else {
            return self.set_alarms(std::slice::from_ref(agent));
        };
        entry.alarm = None;
        entry.slot.blocked_on.clone_from(&missing);
        if leaves_quarantine {
            entry.slot.phase = Phase::Backoff { until: now, cause };
            self.emit(events::unquarantined(agent, "expired"));
        }
        if missing.is_some() {
            return self.release_cascade(agent).await;
        }
        if let Some(entry) = self.slots.get_mut(agent) {
            entry.slot.phase = Phase::Queued(cause);
        }
        self.queue.push_back(agent.clone());
        self.pump_queue().await;
    }

    /// The agent is due, but lacks something: whoever went down with it and is needed by it may
    /// return now.
    async fn release_cascade(&mut self, agent: &AgentName) {
        let taken: Vec<AgentName> = self
            .slots
            .all()
            .iter()
            .filter(|entry| entry.slot.cascade_of.contains(agent) && entry.slot.run.is_none())
            .map(|entry| entry.slot.spec.name.clone())
            .collect();
        for other in taken {
            if self.missing(&other).is_none() {
                Box::pin(self.consider(&other)).await;
            }
        }
    }

    /// Wakes each slot when its delay is over.
    pub(super) fn set_alarms(&mut self, agents: &[AgentName]) {
        let (now, me) = (self.now(), self.me.clone());
        for agent in agents {
            let Some(entry) = self.slots.get_mut(agent) else {
                continue;
            };
            let Admission::Wait(at) = admit(&entry.slot, now) else {
                continue;
            };
            if entry.alarm.as_ref().is_none_or(|(set, _)| *set != at) {
                let alarm = me.send_after(
                    at.saturating_duration_since(now),
                    CityMsg::Due(agent.clone()),
                );
                entry.alarm = Some((at, alarm));
            }
        }
    }

    pub(super) async fn on_due(&mut self, agent: &AgentName) {
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.alarm = None;
        match (&entry.slot.run, &entry.worker) {
            (Some(_), None) => self.respawn(agent).await,
            (Some(_), Some(_)) => self.plan_one(agent).await,
            (None, _) => self.consider(agent).await,
        }
    }

    /// Launches queued slots while permits are free.
    pub(super) async fn pump_queue(&mut self) {
        while self.starting < self.args.spec.daemon.start_parallelism {
            let Some(agent) = self.queue.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get(&agent).map(|entry| &entry.slot) else {
                Box::pin(self.note_result(&agent)).await; // forgotten while it waited
                continue;
            };
            let Phase::Queued(cause) = slot.phase else {
                continue;
            };
            let (wanted, missing) = (slot.want == Want::Yes, self.missing(&agent));
            if wanted && missing.is_none() {
                self.launch(&agent, cause).await;
            } else {
                self.unqueue(&agent, cause, missing).await;
            }
        }
    }

    /// What the slot needs went down while it waited for a permit, or it is not wanted any more.
    async fn unqueue(&mut self, agent: &AgentName, cause: StartCause, missing: Option<AgentName>) {
        let until = self.now();
        if let Some(entry) = self.slots.get_mut(agent) {
            entry.slot.blocked_on = missing;
            entry.slot.phase = Phase::Backoff { until, cause };
        }
        Box::pin(self.note_result(agent)).await;
    }

    async fn launch(&mut self, agent: &AgentName, cause: StartCause) {
        let (now, token) = (self.now(), self.args.ports.tokens.fresh());
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let slot = &mut entry.slot;
        slot.generation += 1;
        slot.phase = Phase::Starting;
        slot.blocked_on = None;
        slot.cascade_of.clear();
        let mut run = Run::new(token, now, cause);
        run.fingerprint = Some(slot.spec.fingerprint.clone());
        run.last_activity = Some(now);
        run.live_hash = Some(slot.spec.live_hash());
        slot.run = Some(run);
        entry.permit = true;
        self.starting += 1;
        self.spawn_worker(agent, Mode::Start).await;
    }

    /// Spawns the Worker of the slot's current run.
    pub(super) async fn spawn_worker(&mut self, agent: &AgentName, mode: Mode) {
        let Some(entry) = self.slots.get(agent) else {
            return;
        };
        let Some(run) = &entry.slot.run else { return };
        let gauge = Arc::new(Gauge::default());
        let replaced = matches!(
            run.cause,
            StartCause::Requested | StartCause::Idle | StartCause::Drift
        );
        let args = WorkerArgs {
            shared: self.shared.clone(),
            gauge: gauge.clone(),
            agent: agent.clone(),
            session: entry.slot.spec.session.clone(),
            token: run.token.clone(),
            started: run.started,
            mode,
            start: (mode != Mode::Adopt)
                .then(|| Arc::new(start_spec(&entry.slot, self.args.spec.setup_timeout))),
            startup_timeout: self.args.spec.startup_timeout,
            process_names: entry.slot.spec.process_names.clone(),
            live: entry.slot.spec.live.clone(),
            capture_lines: self.args.spec.daemon.crash_capture_lines,
            clears_scrollback: replaced,
        };
        let (token, started) = (run.token.clone(), run.started);
        match Actor::spawn_linked(None, Worker, args, self.me.actor().get_cell()).await {
            Ok((worker, _)) => self.slots.assign(agent, Addr::new(worker, gauge)),
            Err(error) => {
                // Through the mailbox, so that a failing spawn cannot recurse.
                let failure = StartFailure::new("worker", FailureClass::Agent, error.to_string());
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

    pub(super) fn on_session(&mut self, event: SessionEvent) {
        if event.kind.asks_for_listing() {
            return self.on_tick(Trigger::Poke);
        }
        let entry = self.slots.by_session(&event.session);
        if let Some(entry) = entry.filter(|entry| entry.is_run(&event.token)) {
            entry.tell(match event.kind {
                SessionEventKind::Exited(status) => WorkerMsg::Exited(event.token, status),
                SessionEventKind::BackendLost(why) => WorkerMsg::BackendLost(event.token, why),
                _ => return, // the next listing tells it too
            });
        }
    }

    pub(super) async fn on_report(&mut self, agent: &AgentName, token: &RunToken, report: Report) {
        let now = self.now();
        let Some(entry) = self
            .slots
            .get_mut(agent)
            .filter(|entry| entry.is_run(token))
        else {
            return; // of an older run
        };
        match report {
            Report::Started(began) => {
                self.announce(agent, began);
                self.watch_idle(agent);
                self.free_permit(agent);
                self.note_result(agent).await;
                self.retry_dependents(agent).await;
                self.pump_queue().await;
            }
            Report::Interrupted => self.on_interrupted(agent),
            Report::LiveApplied { update, warnings } => {
                let draft = events::updated(&entry.slot, &warnings);
                if let Some(run) = &mut entry.slot.run {
                    run.warnings = warnings;
                }
                if update {
                    self.emit(draft);
                }
            }
            Report::StopFailed(error) => {
                tracing::warn!(%agent, %error, "stop failed");
                entry.slot.last_error = Some(Failure {
                    at: now,
                    message: format!("stop failed: {error}"),
                });
                let announced = entry.slot.run.as_ref().is_some_and(|run| run.announced);
                entry.slot.phase = if announced {
                    Phase::Running
                } else {
                    Phase::Starting
                };
                entry.slot.cascade_of.clear();
                entry.slot.respawn = false;
                self.on_stop_failed(agent);
                self.note_stopped(agent).await;
            }
        }
    }

    /// The run is up. Told once, whichever news of it arrives first.
    pub(super) fn announce(&mut self, agent: &AgentName, began: Began) {
        let now = self.now();
        let setup_timeout = self.args.spec.setup_timeout;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let slot = &mut entry.slot;
        if slot.phase == Phase::Starting {
            slot.phase = Phase::Running;
        }
        let Some(run) = slot.run.as_mut().filter(|run| !run.announced) else {
            return;
        };
        run.pid = began.pid.or(run.pid);
        run.up = now;
        run.announced = true;
        run.warnings = began.warnings;
        let draft = events::started(slot, began.assumed);
        self.args.ports.journal.append(draft);
        if !began.set_up && !slot.spec.live.is_empty() {
            let lines = slot.spec.live.clone();
            let spec = Arc::new(start_spec(slot, setup_timeout));
            entry.tell(WorkerMsg::ApplyLive {
                lines,
                spec,
                update: false,
            });
        }
    }

    /// An agent is up: whoever waited for it is looked at again.
    async fn retry_dependents(&mut self, agent: &AgentName) {
        if let Some(entry) = self.slots.get(agent) {
            let template = entry.slot.spec.template.clone();
            self.retry_blocked(&template).await;
        }
    }

    pub(super) async fn retry_blocked(&mut self, template: &AgentName) {
        if !self.graph.is_awaited(template) {
            return; // spares a look at every slot per start
        }
        let waiting: Vec<AgentName> = self
            .slots
            .all()
            .iter()
            .filter(|entry| entry.slot.blocked_on.as_ref() == Some(template))
            .map(|entry| entry.slot.spec.name.clone())
            .collect();
        for agent in waiting {
            Box::pin(self.consider(&agent)).await;
        }
    }

    /// Tells the slot's Worker to end its run.
    pub(super) fn stop_run(&mut self, agent: &AgentName, reason: StopReason, grace: Grace) {
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        if reason == StopReason::Requested {
            // Before the stop: a request must not be found again on the next run.
            entry.tell(WorkerMsg::Note(Note::RestartRequested, None));
        }
        entry.slot.phase = Phase::Stopping(reason);
        entry.tell(WorkerMsg::Stop(reason, grace));
    }

    /// Those nobody waits for are forced; everyone else is asked first.
    pub(super) fn grace(&self, reason: StopReason) -> Grace {
        let limit = self.args.spec.daemon.shutdown_timeout;
        match (&self.stage, reason) {
            _ if limit.is_zero() => Grace::None,
            (_, StopReason::Orphan | StopReason::DrainTimeout) => Grace::None,
            (super::Stage::Stopping(shutdown), _) => shutdown.grace(),
            (super::Stage::Swapping(_), _) => Grace::UntilTold,
            _ => Grace::For(limit),
        }
    }

    pub(super) fn free_permit(&mut self, agent: &AgentName) {
        let held = self
            .slots
            .get_mut(agent)
            .is_some_and(|entry| std::mem::take(&mut entry.permit));
        if held {
            self.starting -= 1;
        }
    }

    pub(super) fn wall_at(&self, at: tokio::time::Instant) -> chrono::DateTime<chrono::Utc> {
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

/// What a run of the slot is started with.
pub(super) fn start_spec(slot: &Slot, setup_timeout: Duration) -> StartSpec {
    let fingerprint = &slot.spec.fingerprint;
    let notes = BTreeMap::from([
        (Note::Generation, slot.generation.to_string()),
        (Note::ConfigHash, fingerprint.hash.clone()),
        (
            Note::ConfigHashFields,
            serde_json::to_string(&fingerprint.fields).unwrap_or_default(),
        ),
        (Note::LiveHash, slot.spec.live_hash()),
    ]);
    StartSpec {
        session: slot.spec.session.clone(),
        agent: slot.spec.name.clone(),
        template: slot.spec.template.clone(),
        generation: slot.generation,
        launch: slot.spec.launch.clone(),
        setup_timeout,
        process_names: slot.spec.process_names.clone(),
        live: slot.spec.live.clone(),
        notes,
    }
}
