//! Graceful shutdown in two passes: interrupt everyone, wait the grace, force who is left.
//!
//! A phase of the city, not a long await: it advances on reports, ends and one deadline message.

use std::collections::HashSet;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::time::timeout;

use super::{CityMsg, CityState, Stage, StopMode};
use crate::machine::stop_sessions;
use crate::mailbox::Timer;
use crate::model::{AgentEnd, AgentName, CityStatus, EndKind, EventDraft, StopReason, StopSummary};
use crate::worker::{Grace, WorkerMsg};

const SWEEP_LIMIT: Duration = Duration::from_secs(15);

/// A shutdown under way.
#[derive(Debug)]
pub(super) struct Shutdown {
    mode: StopMode,
    replies: Vec<RpcReplyPort<StopSummary>>,
    /// Not interrupted yet. The grace runs from the last interrupt.
    uninterrupted: HashSet<AgentName>,
    deadline: Option<Timer>,
    /// Waves still to be forced, the next one last.
    force_waves: Vec<Vec<AgentName>>,
    summary: StopSummary,
    sweeping: bool,
}

impl Shutdown {
    pub(super) fn grace(&self) -> Grace {
        if self.mode == StopMode::Force {
            Grace::None
        } else {
            Grace::UntilTold
        }
    }
}

impl CityState {
    pub(super) async fn on_stop(
        &mut self,
        mode: StopMode,
        reply: Option<RpcReplyPort<StopSummary>>,
    ) {
        if let Stage::Stopping(shutdown) = &mut self.stage {
            shutdown.replies.extend(reply);
            if mode == StopMode::Force {
                shutdown.mode = mode;
                self.on_grace_over();
            }
            return;
        }
        self.tick_timer = None;
        self.drop_plan();
        self.stop_plan = None;
        self.report(CityStatus::Stopping);
        let running: HashSet<AgentName> = self
            .slots
            .live()
            .map(|entry| entry.slot.spec.name.clone())
            .collect();
        let zero = self.args.spec.daemon.shutdown_timeout.is_zero();
        let mode = if zero && mode == StopMode::Graceful {
            StopMode::Force
        } else {
            mode
        };
        self.stage = Stage::Stopping(Shutdown {
            mode,
            replies: reply.into_iter().collect(),
            uninterrupted: running.clone(),
            deadline: None,
            force_waves: Vec::new(),
            summary: StopSummary {
                interrupted: running.len(),
                killed: Vec::new(),
            },
            sweeping: false,
        });
        for entry in self.slots.iter_mut() {
            entry.alarm = None;
        }
        if mode == StopMode::Detach {
            return self.sweep();
        }
        for agent in &running {
            self.ask_to_leave(agent).await;
        }
        self.advance();
    }

    async fn ask_to_leave(&mut self, agent: &AgentName) {
        let grace = self.grace(StopReason::Shutdown);
        let workerless = self
            .slots
            .get(agent)
            .is_some_and(|entry| entry.worker.is_none());
        self.stop_run(agent, StopReason::Shutdown, grace);
        if workerless {
            self.respawn(agent).await; // which passes the stop on
        }
    }

    pub(super) fn on_interrupted(&mut self, agent: &AgentName) {
        if let Stage::Stopping(shutdown) = &mut self.stage {
            shutdown.uninterrupted.remove(agent);
            self.advance();
        }
    }

    /// A run ended during the shutdown.
    pub(super) fn on_gone(&mut self, agent: &AgentName, end: &AgentEnd) {
        if let Stage::Stopping(shutdown) = &mut self.stage {
            shutdown.uninterrupted.remove(agent);
            if matches!(end.how, EndKind::Stopped { forced: true, .. }) {
                shutdown.summary.killed.push(agent.clone());
            }
            self.advance();
        }
    }

    /// A stop that failed must not hold up the city; the sweep tries once more.
    pub(super) fn on_stop_failed(&mut self, agent: &AgentName) {
        if let Stage::Stopping(shutdown) = &mut self.stage {
            shutdown.uninterrupted.remove(agent);
            if let Some(entry) = self.slots.get_mut(agent) {
                entry.slot.run = None;
            }
            self.advance();
        }
    }

    /// Second pass: survivors are forced, dependents first.
    pub(super) fn on_grace_over(&mut self) {
        let live = self
            .slots
            .live()
            .map(|entry| entry.slot.spec.name.clone())
            .collect();
        let waves = self.waves_of(live);
        if let Stage::Stopping(shutdown) = &mut self.stage {
            shutdown.force_waves = waves;
            self.force_next_wave();
        }
    }

    fn force_next_wave(&mut self) {
        loop {
            let Stage::Stopping(shutdown) = &mut self.stage else {
                return;
            };
            let Some(wave) = shutdown.force_waves.last() else {
                return;
            };
            let live =
                |agent: &&AgentName| self.slots.get(agent).is_some_and(|e| e.slot.run.is_some());
            let left: Vec<AgentName> = wave.iter().filter(live).cloned().collect();
            if left.is_empty() {
                shutdown.force_waves.pop();
                continue;
            }
            for agent in left {
                if let Some(entry) = self.slots.get(&agent) {
                    entry.tell(WorkerMsg::Force);
                }
            }
            return;
        }
    }

    fn advance(&mut self) {
        let done = self.slots.live().next().is_none();
        let grace = self.args.spec.daemon.shutdown_timeout;
        let Stage::Stopping(shutdown) = &mut self.stage else {
            return;
        };
        if done {
            self.sweep();
        } else if !shutdown.force_waves.is_empty() {
            self.force_next_wave();
        } else if shutdown.uninterrupted.is_empty()
            && shutdown.deadline.is_none()
            && shutdown.mode == StopMode::Graceful
        {
            shutdown.deadline = Some(self.me.send_after(grace, CityMsg::GraceOver));
        }
    }

    /// Last look: whatever of ours is still listed is stopped, then the journal is flushed.
    fn sweep(&mut self) {
        let Stage::Stopping(shutdown) = &mut self.stage else {
            return;
        };
        if std::mem::replace(&mut shutdown.sweeping, true) {
            return;
        }
        let reason = if shutdown.mode == StopMode::Detach {
            "detach"
        } else {
            "stop"
        };
        let detach = shutdown.mode == StopMode::Detach;
        let (me, ports) = (self.me.clone(), self.args.ports.clone());
        tokio::spawn(async move {
            if !detach {
                let _ = timeout(SWEEP_LIMIT, stop_sessions(&*ports.sessions)).await;
            }
            ports
                .journal
                .append(EventDraft::new("controller.stopped", "").with("reason", reason));
            let _ = timeout(SWEEP_LIMIT, ports.journal.flush()).await;
            me.send(CityMsg::Swept);
        });
    }

    pub(super) fn on_swept(&mut self) {
        let Stage::Stopping(shutdown) = &mut self.stage else {
            return;
        };
        for reply in shutdown.replies.drain(..) {
            let _ = reply.send(shutdown.summary.clone()); // the caller may have timed out
        }
        self.stopped = true;
        self.me.actor().stop(None);
    }
}
