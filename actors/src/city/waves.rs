//! Start plans: dependencies first, wave by wave.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::{CityState, Stage, events};
use crate::model::{AgentEnd, AgentName, CityStatus, EndKind, StartCause};
use crate::policy::{Admission, Phase, admit, missing_dependency};

/// A start plan under way. Each wave begins when every start of the wave before has returned.
#[derive(Debug, Default)]
pub(super) struct StartPlan {
    waves: VecDeque<Vec<AgentName>>,
    /// The current wave, in plan order.
    wave: Vec<AgentName>,
    /// Starts of this wave that have not returned.
    flight: HashSet<AgentName>,
    /// Starts of this wave that failed. Applied together, in plan order, so that the outcome does
    /// not depend on who was faster.
    failed: BTreeMap<AgentName, AgentEnd>,
    /// Somebody else wants to be started meanwhile.
    again: bool,
}

impl CityState {
    /// Starts whoever of these may run now, dependencies first.
    pub(super) async fn start_all(&mut self, agents: &[AgentName]) {
        if !self.is_open() {
            return;
        }
        if let Some(plan) = &mut self.start_plan {
            plan.again = true;
            return self.set_alarms(agents);
        }
        let candidates: Vec<(AgentName, StartCause)> = agents
            .iter()
            .filter_map(|agent| Some((agent.clone(), self.admitted(agent)?)))
            .collect();
        self.set_alarms(agents);
        let waves = self.waves_of(candidates.iter().map(|(agent, _)| agent.clone()));
        for (agent, cause) in &candidates {
            if let Some(entry) = self.slots.get_mut(agent) {
                entry.slot.phase = Phase::Queued(*cause);
            }
        }
        self.start_plan = Some(StartPlan {
            waves: waves.into(),
            ..StartPlan::default()
        });
        self.next_wave().await;
    }

    /// The cause to start the slot with, if it may be started as far as it is concerned itself.
    fn admitted(&mut self, agent: &AgentName) -> Option<StartCause> {
        let now = self.now();
        if self.cascade_holds(agent) {
            return None;
        }
        let entry = self.slots.get_mut(agent)?;
        match admit(&entry.slot, now) {
            Admission::Start {
                cause,
                leaves_quarantine,
            } => {
                entry.alarm = None;
                if leaves_quarantine {
                    entry.slot.phase = Phase::Backoff { until: now, cause };
                    self.emit(events::unquarantined(agent, "expired"));
                }
                Some(cause)
            }
            Admission::Wait(_) | Admission::Refuse => None,
        }
    }

    /// Launches the next wave; a wave in which nobody can be started is passed over.
    async fn next_wave(&mut self) {
        loop {
            let Some(plan) = &mut self.start_plan else {
                return;
            };
            let Some(wave) = plan.waves.pop_front() else {
                break;
            };
            plan.wave.clone_from(&wave);
            for agent in wave {
                self.join_wave(&agent);
            }
            self.pump_queue().await;
            if self
                .start_plan
                .as_ref()
                .is_some_and(|plan| !plan.flight.is_empty())
            {
                return;
            }
        }
        let again = self.start_plan.take().is_some_and(|plan| plan.again);
        if matches!(self.stage, Stage::Starting) {
            self.stage = Stage::Running;
            self.report(CityStatus::Running);
        }
        if again {
            let all = self.slots.names();
            Box::pin(self.start_all(&all)).await;
        }
    }

    /// Re-checks the dependencies of a planned start.
    fn join_wave(&mut self, agent: &AgentName) {
        let now = self.now();
        let Some(Phase::Queued(cause)) = self.slots.get(agent).map(|entry| entry.slot.phase) else {
            return;
        };
        let missing = self.missing(agent);
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        entry.slot.blocked_on.clone_from(&missing);
        if missing.is_some() {
            entry.slot.phase = Phase::Backoff { until: now, cause };
        } else {
            self.queue.push_back(agent.clone());
            if let Some(plan) = &mut self.start_plan {
                plan.flight.insert(agent.clone());
            }
        }
    }

    /// The dependency that keeps a slot down.
    pub(super) fn missing(&self, agent: &AgentName) -> Option<AgentName> {
        let slot = &self.slots.get(agent)?.slot;
        self.cascade_gate(slot)
            .or_else(|| missing_dependency(slot, |on| self.is_up(on)).cloned())
    }

    /// A start of the wave failed: kept for the end of the wave. `false`: not of this wave.
    pub(super) fn keep_failure(&mut self, agent: &AgentName, end: &AgentEnd) -> bool {
        let Some(plan) = &mut self.start_plan else {
            return false;
        };
        let of_wave = matches!(end.how, EndKind::StartFailed(_)) && plan.flight.contains(agent);
        if of_wave {
            plan.failed.insert(agent.clone(), end.clone());
        }
        of_wave
    }

    /// A start returned, well or not.
    pub(super) async fn note_result(&mut self, agent: &AgentName) {
        let Some(plan) = &mut self.start_plan else {
            return;
        };
        if !plan.flight.remove(agent) || !plan.flight.is_empty() {
            return;
        }
        let (wave, mut failed) = (
            std::mem::take(&mut plan.wave),
            std::mem::take(&mut plan.failed),
        );
        for agent in &wave {
            if let Some(end) = failed.remove(agent) {
                Box::pin(self.on_end(agent, end)).await;
            }
        }
        Box::pin(self.next_wave()).await;
    }

    /// Gives up the plan; whoever has not begun is planned anew.
    pub(super) fn drop_plan(&mut self) {
        let now = self.now();
        self.queue.clear();
        let failed = self
            .start_plan
            .take()
            .map(|plan| plan.failed)
            .unwrap_or_default();
        for entry in self.slots.iter_mut() {
            if let Phase::Queued(cause) = entry.slot.phase {
                entry.slot.phase = Phase::Backoff { until: now, cause };
            }
        }
        for (agent, end) in failed {
            self.me.send(super::CityMsg::Unspawned { agent, end });
        }
    }
}
