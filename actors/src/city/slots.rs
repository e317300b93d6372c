//! The slots of a city, with the actors that run them.

use std::borrow::Borrow;
use std::collections::HashMap;

use ractor::ActorId;
use tokio::time::Instant;

use super::text::Kept;
use crate::mailbox::{Addr, Drill, Timer};
use crate::model::{AgentName, RunToken, SessionName};
use crate::policy::Slot;
use crate::worker::WorkerMsg;

/// One slot and what the supervisor holds for it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) slot: Slot,
    pub(super) worker: Option<Addr<WorkerMsg>>,
    /// Wakes the slot when a delay is over.
    pub(super) alarm: Option<(Instant, Timer)>,
    /// The run counts against the starts in flight.
    pub(super) permit: bool,
    /// Its text, if somebody asked for it.
    pub(super) kept: Option<Box<Kept>>,
}

impl Borrow<Slot> for Entry {
    fn borrow(&self) -> &Slot {
        &self.slot
    }
}

impl Entry {
    pub(super) fn is_run(&self, token: &RunToken) -> bool {
        self.slot
            .run
            .as_ref()
            .is_some_and(|run| run.token == *token)
    }

    pub(super) fn tell(&self, msg: WorkerMsg) {
        if let Some(worker) = &self.worker {
            worker.send(msg);
        }
    }
}

/// All slots in config order, found by agent, session or Worker.
#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    by_agent: HashMap<AgentName, usize>,
    by_session: HashMap<SessionName, usize>,
    by_actor: HashMap<ActorId, AgentName>,
}

impl Slots {
    pub(super) fn all(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// Keeps the text of a slot.
    pub(super) fn keep(&mut self, index: usize, kept: Kept) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.kept = Some(Box::new(kept));
        }
    }

    pub(super) fn get(&self, agent: &AgentName) -> Option<&Entry> {
        self.by_agent.get(agent).map(|index| &self.entries[*index])
    }

    pub(super) fn get_mut(&mut self, agent: &AgentName) -> Option<&mut Entry> {
        self.by_agent
            .get(agent)
            .map(|index| &mut self.entries[*index])
    }

    pub(super) fn by_session(&self, session: &SessionName) -> Option<&Entry> {
        self.by_session
            .get(session)
            .map(|index| &self.entries[*index])
    }

    pub(super) fn add(&mut self, slot: Slot) -> &mut Entry {
        let index = self.entries.len();
        self.by_agent.insert(slot.spec.name.clone(), index);
        self.by_session.insert(slot.spec.session.clone(), index);
        self.entries.push(Entry {
            slot,
            worker: None,
            alarm: None,
            permit: false,
            kept: None,
        });
        &mut self.entries[index]
    }

    pub(super) fn remove(&mut self, agent: &AgentName) {
        self.entries.retain(|entry| entry.slot.spec.name != *agent);
        self.reindex();
    }

    /// Names of all slots, in order.
    pub(super) fn names(&self) -> Vec<AgentName> {
        self.entries
            .iter()
            .map(|entry| entry.slot.spec.name.clone())
            .collect()
    }

    /// An instance of a template is up, other than those about to leave.
    pub(super) fn any_alive(
        &self,
        template: &AgentName,
        leaves: impl Fn(&AgentName) -> bool,
    ) -> bool {
        let up = |slot: &Slot| slot.is_alive() && !leaves(&slot.spec.name);
        let fixed = self.get(template).is_some_and(|entry| up(&entry.slot));
        let of = |entry: &Entry| entry.slot.spec.template == *template && up(&entry.slot);
        fixed || self.entries.iter().any(of)
    }

    /// Takes the config's order; what is no longer configured goes last.
    pub(super) fn reorder(&mut self, order: &HashMap<AgentName, usize>) {
        self.entries.sort_by_key(|entry| {
            order
                .get(&entry.slot.spec.name)
                .copied()
                .unwrap_or(usize::MAX)
        });
        self.reindex();
    }

    fn reindex(&mut self) {
        self.by_agent.clear();
        self.by_session.clear();
        for (index, entry) in self.entries.iter().enumerate() {
            self.by_agent.insert(entry.slot.spec.name.clone(), index);
            self.by_session
                .insert(entry.slot.spec.session.clone(), index);
        }
    }

    /// Ties a Worker to its slot.
    pub(super) fn assign(&mut self, agent: &AgentName, worker: Addr<WorkerMsg>) {
        self.by_actor.insert(worker.actor().get_id(), agent.clone());
        if let Some(entry) = self.get_mut(agent) {
            entry.worker = Some(worker);
        }
    }

    /// The Worker ended: unties it and names its slot.
    pub(super) fn release(&mut self, id: ActorId) -> Option<AgentName> {
        let agent = self.by_actor.remove(&id)?;
        let entry = self.get_mut(&agent)?;
        entry.worker = None;
        Some(agent)
    }

    /// Runs that have not ended.
    pub(super) fn live(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.slot.run.is_some())
    }

    /// The Worker of `agent`, if it has one.
    pub(super) fn worker(&self, agent: &str) -> Option<&Addr<WorkerMsg>> {
        let index = self.by_agent.get(agent)?;
        self.entries[*index].worker.as_ref()
    }

    /// Strikes the Worker of `agent`, for fault drills. `false`: there is none.
    pub(super) fn crash_worker(&self, agent: &str, drill: Drill) -> bool {
        self.worker(agent)
            .inspect(|worker| drill.hit(worker, WorkerMsg::Crash, WorkerMsg::Hold))
            .is_some()
    }
}
