//! Cascades: an agent's end takes others along, which return after it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::CityState;
use crate::model::{AgentName, StopReason};
use crate::policy::{Phase, Slot, Want};

/// Agents being stopped in reverse dependency waves.
#[derive(Debug)]
pub(super) struct StopPlan {
    /// Waves still to be stopped, the next one last.
    waves: Vec<Vec<AgentName>>,
    /// The current wave, as far as it has not ended.
    left: HashSet<AgentName>,
    /// Agents whose end began it: they wait, too.
    origins: BTreeSet<AgentName>,
}

impl StopPlan {
    pub(super) fn takes(&self, agent: &AgentName) -> bool {
        self.left.contains(agent) || self.waves.iter().flatten().any(|other| other == agent)
    }
}

impl CityState {
    /// Takes along whoever the strategy of the dead agent names.
    pub(super) fn cascade(&mut self, dead: &AgentName) {
        let Some(slot) = self.slots.get(dead).map(|entry| &entry.slot) else {
            return;
        };
        let template = slot.spec.template.clone();
        // Of a pool, only the end of the last one alive counts.
        if slot.spec.pool_slot.is_some() && self.slots.any_alive(&template, |_| false) {
            return;
        }
        let set = self.graph.cascade(slot.spec.strategy, &template);
        let mut taken = Vec::new();
        for entry in self.slots.iter_mut() {
            let slot = &mut entry.slot;
            if !set.contains(&slot.spec.template) {
                continue;
            }
            match slot.phase {
                Phase::Running | Phase::Starting => taken.push(slot.spec.name.clone()),
                Phase::Queued(_) => {} // not up yet, and now it waits like the others
                _ => continue,
            }
            slot.cascade_of.insert(dead.clone());
        }
        let involved = |plan: &StopPlan| !taken.is_empty() || plan.takes(dead);
        if !self.stop_plan.as_ref().map_or(!taken.is_empty(), involved) {
            return;
        }
        // A second failure joins the cascade under way.
        let mut origins = BTreeSet::from([dead.clone()]);
        if let Some(plan) = self.stop_plan.take() {
            let before = plan.waves.into_iter().flatten().chain(plan.left);
            let known: HashSet<AgentName> = taken.iter().cloned().collect();
            taken.extend(before.filter(|agent| !known.contains(agent)));
            origins.extend(plan.origins);
        }
        self.stop_in_waves(taken, origins);
    }

    /// Stops these agents, dependents first.
    fn stop_in_waves(&mut self, agents: Vec<AgentName>, origins: BTreeSet<AgentName>) {
        let waves = self.waves_of(agents);
        self.stop_plan = Some(StopPlan {
            waves,
            left: HashSet::new(),
            origins,
        });
        self.next_stop_wave();
    }

    /// Agents grouped by dependency, those without dependencies first; in their own order
    /// otherwise.
    pub(super) fn waves_of(
        &self,
        agents: impl IntoIterator<Item = AgentName>,
    ) -> Vec<Vec<AgentName>> {
        let mut by_template: HashMap<AgentName, Vec<AgentName>> = HashMap::new();
        for agent in agents {
            if let Some(entry) = self.slots.get(&agent) {
                let members = by_template.entry(entry.slot.spec.template.clone());
                members.or_default().push(agent);
            }
        }
        let templates: HashSet<AgentName> = by_template.keys().cloned().collect();
        let of = |template: &AgentName| by_template.get(template).cloned().unwrap_or_default();
        let waves = self.graph.waves(&templates);
        waves
            .iter()
            .map(|wave| wave.iter().flat_map(of).collect())
            .collect()
    }

    fn next_stop_wave(&mut self) {
        loop {
            let Some(plan) = &mut self.stop_plan else {
                return;
            };
            let Some(wave) = plan.waves.pop() else { break };
            for agent in wave {
                let running = self
                    .slots
                    .get(&agent)
                    .is_some_and(|entry| entry.slot.run.is_some());
                if running {
                    if let Some(plan) = &mut self.stop_plan {
                        plan.left.insert(agent.clone());
                    }
                    self.stop_for_plan(&agent);
                }
            }
            if self
                .stop_plan
                .as_ref()
                .is_some_and(|plan| !plan.left.is_empty())
            {
                return;
            }
        }
        self.stop_plan = None;
    }

    fn stop_for_plan(&mut self, agent: &AgentName) {
        let stopping = self
            .slots
            .get(agent)
            .is_some_and(|e| matches!(e.slot.phase, Phase::Stopping(_)));
        if !stopping {
            let grace = self.grace(StopReason::Cascade);
            self.stop_run(agent, StopReason::Cascade, grace);
        }
    }

    /// An agent of the stop plan is gone, or cannot be stopped: the wave goes on.
    pub(super) async fn note_stopped(&mut self, agent: &AgentName) {
        let Some(plan) = &mut self.stop_plan else {
            return;
        };
        if !plan.left.remove(agent) || !plan.left.is_empty() {
            return;
        }
        self.next_stop_wave();
        if self.stop_plan.is_none() {
            let all = self.slots.names();
            self.start_all(&all).await;
        }
    }

    /// The agent waits for others to be stopped first.
    pub(super) fn cascade_holds(&self, agent: &AgentName) -> bool {
        let Some(plan) = &self.stop_plan else {
            return false;
        };
        let taken = self
            .slots
            .get(agent)
            .is_some_and(|entry| !entry.slot.cascade_of.is_empty());
        taken || plan.origins.contains(agent)
    }

    /// The agent whose return this one waits for. What the dead one itself needs returns as soon
    /// as the dead one is due; everybody else after it.
    pub(super) fn cascade_gate(&self, slot: &Slot) -> Option<AgentName> {
        let now = self.now();
        slot.cascade_of.iter().find_map(|dead| {
            let dead = &self.slots.get(dead)?.slot;
            if dead.want != Want::Yes || dead.phase == Phase::Done || dead.is_alive() {
                return None;
            }
            let due = match dead.phase {
                Phase::Backoff { until, .. } => until <= now,
                Phase::Quarantined { .. } => false,
                _ => true,
            };
            let needed = self
                .graph
                .dependents(&slot.spec.template)
                .contains(&dead.spec.template);
            (!(due && needed)).then(|| dead.spec.template.clone())
        })
    }
}
