//! Graceful shutdown in two passes: interrupt everyone, wait the grace, force who is left. A swap of
//! the session provider stops everyone the same way.
//!
//! A phase of the city, not a long await: it advances on reports, ends and one deadline message.

use std::collections::HashSet;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::time::timeout;

use super::slots::Entry;
use super::{CityMsg, CityState, Stage, StopMode};
use crate::machine::stop_sessions;
use crate::mailbox::Timer;
use crate::model::{AgentEnd, AgentName, CityStatus, EndKind, EventDraft, StopReason, StopSummary};
use crate::policy::Phase;
use crate::worker::{Grace, WorkerMsg};

const SWEEP_LIMIT: Duration = Duration::from_secs(15);

/// A shutdown under way.
#[derive(Debug)]
pub(super) struct Shutdown {
    mode: StopMode,
    replies: Vec<RpcReplyPort<StopSummary>>,
    retreat: Retreat,
    summary: StopSummary,
    sweeping: bool,
}

/// Everyone is on the way out.
#[derive(Debug, Default)]
pub(super) struct Retreat {
    /// Not interrupted yet. The grace runs from the last interrupt.
    uninterrupted: HashSet<AgentName>,
    deadline: Option<Timer>,
    /// Waves still to be forced, the next one last.
    force_waves: Vec<Vec<AgentName>>,
    /// Could not be stopped; nobody waits for them.
    stuck: HashSet<AgentName>,
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
        let zero = self.args.spec.daemon.shutdown_timeout.is_zero();
        let mode = if zero && mode == StopMode::Graceful {
            StopMode::Force
        } else {
            mode
        };
        self.stage = Stage::Stopping(Shutdown {
            mode,
            replies: reply.into_iter().collect(),
            retreat: Retreat::default(),
            summary: StopSummary {
                interrupted: self.slots.live().count(),
                killed: Vec::new(),
            },
            sweeping: false,
        });
        if mode == StopMode::Detach {
            return self.sweep();
        }
        self.retreat(StopReason::Shutdown).await;
    }

    /// Asks everyone to leave. The stage must hold the [`Retreat`] by now.
    pub(super) async fn retreat(&mut self, reason: StopReason) {
        for entry in self.slots.iter_mut() {
            entry.alarm = None;
        }
        let live: Vec<(AgentName, bool)> = self
            .slots
            .live()
            .map(|entry| {
                let stopping = matches!(entry.slot.phase, Phase::Stopping(_));
                (entry.slot.spec.name.clone(), stopping)
            })
            .collect();
        if let Some(retreat) = self.retreating() {
            // Who is being stopped already was interrupted, or is forced.
            let asked = live.iter().filter(|(_, stopping)| !stopping);
            retreat.uninterrupted = asked.map(|(agent, _)| agent.clone()).collect();
        }
        for (agent, _) in &live {
            self.ask_to_leave(agent, reason).await;
        }
        self.advance();
    }

    fn retreating(&mut self) -> Option<&mut Retreat> {
        match &mut self.stage {
            Stage::Stopping(shutdown) => Some(&mut shutdown.retreat),
            Stage::Swapping(swap) => Some(&mut swap.retreat),
            _ => None,
        }
    }

    async fn ask_to_leave(&mut self, agent: &AgentName, reason: StopReason) {
        let grace = self.grace(reason);
        let workerless = self
            .slots
            .get(agent)
            .is_some_and(|entry| entry.worker.is_none());
        self.stop_run(agent, reason, grace);
        if workerless {
            self.respawn(agent).await; // which passes the stop on
        }
    }

    pub(super) fn on_interrupted(&mut self, agent: &AgentName) {
        if let Some(retreat) = self.retreating() {
            retreat.uninterrupted.remove(agent);
            self.advance();
        }
    }

    /// A run ended during the retreat.
    pub(super) fn on_gone(&mut self, agent: &AgentName, end: &AgentEnd) {
        let forced = matches!(end.how, EndKind::Stopped { forced: true, .. });
        if let Stage::Stopping(shutdown) = &mut self.stage
            && forced
        {
            shutdown.summary.killed.push(agent.clone());
        }
        self.on_interrupted(agent);
    }

    /// A stop that failed must not hold up the city. A shutdown's sweep tries once more; after a
    /// swap the run stays where it is, and nothing is started in its place.
    pub(super) fn on_stop_failed(&mut self, agent: &AgentName) {
        let stopping = self.is_stopping();
        let Some(retreat) = self.retreating() else {
            return;
        };
        retreat.uninterrupted.remove(agent);
        retreat.stuck.insert(agent.clone());
        if let Some(entry) = self.slots.get_mut(agent).filter(|_| stopping) {
            entry.slot.run = None;
        }
        self.advance();
    }

    /// Second pass: survivors are forced, dependents first.
    pub(super) fn on_grace_over(&mut self) {
        let live = self.slots.live().map(|entry| entry.slot.spec.name.clone());
        let waves = self.waves_of(live);
        if let Some(retreat) = self.retreating() {
            retreat.force_waves = waves;
            self.force_next_wave();
        }
    }

    fn force_next_wave(&mut self) {
        loop {
            let Some(retreat) = self.retreating() else {
                return;
            };
            let Some(mut left) = retreat.force_waves.pop() else {
                return;
            };
            left.retain(|agent| !retreat.stuck.contains(agent));
            left.retain(|agent| self.slots.get(agent).is_some_and(|e| e.slot.run.is_some()));
            if left.is_empty() {
                continue;
            }
            for agent in &left {
                if let Some(entry) = self.slots.get(agent) {
                    entry.tell(WorkerMsg::Force);
                }
            }
            if let Some(retreat) = self.retreating() {
                retreat.force_waves.push(left);
            }
            return;
        }
    }

    fn advance(&mut self) {
        let grace = self.args.spec.daemon.shutdown_timeout;
        let (me, forced) = (
            self.me.clone(),
            self.grace(StopReason::Shutdown) == Grace::None,
        );
        let Some(stuck) = self.retreating().map(|r| std::mem::take(&mut r.stuck)) else {
            return;
        };
        let stays = |entry: &Entry| stuck.contains(&entry.slot.spec.name);
        let all_gone = self.slots.live().all(stays);
        let Some(retreat) = self.retreating() else {
            return;
        };
        retreat.stuck = stuck;
        if all_gone {
            match self.stage {
                Stage::Swapping(_) => self.finish_swap(),
                _ => self.sweep(),
            }
        } else if !retreat.force_waves.is_empty() {
            self.force_next_wave();
        } else if retreat.uninterrupted.is_empty() && retreat.deadline.is_none() && !forced {
            retreat.deadline = Some(me.send_after(grace, CityMsg::GraceOver));
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
