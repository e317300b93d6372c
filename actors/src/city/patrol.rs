//! Ticks: list, plan, dispatch, re-arm.

use std::collections::HashSet;
use std::time::Duration;

use ractor::ActorProcessingErr;
use tokio::time::{Instant, timeout};

use super::{CityMsg, CityState, InitFailed, Stage};
use crate::model::{AgentName, CityStatus};
use crate::policy::{Action, Observed, Phase, Slot, Trigger, plan};
use crate::ports::{Listing, SessionError};
use crate::tracker::TrackerMsg;
use crate::worker::WorkerMsg;

const LISTING_LIMIT: Duration = Duration::from_secs(10);

impl CityState {
    pub(super) fn on_tick(&mut self, trigger: Trigger) {
        if !matches!(self.stage, Stage::Stopping(_)) {
            self.gather(trigger);
        }
    }

    /// Begins a tick, unless one is in progress: then exactly one more follows.
    pub(super) fn gather(&mut self, trigger: Trigger) {
        let now = self.now();
        if !self
            .gate
            .begin(trigger, self.args.spec.daemon.patrol_interval, now)
        {
            return;
        }
        self.tick_timer = None;
        let (me, ports) = (self.me.clone(), self.args.ports.clone());
        tokio::spawn(async move {
            let listing = timeout(LISTING_LIMIT, ports.sessions.snapshot()).await;
            let result = listing.unwrap_or(Err(SessionError::Timeout));
            me.send(CityMsg::Listed { as_of: now, result });
        });
    }

    pub(super) async fn on_listed(
        &mut self,
        as_of: Instant,
        result: Result<Listing, SessionError>,
    ) -> Result<(), ActorProcessingErr> {
        match (&self.stage, result) {
            (Stage::Stopping(_), _) => {}
            (Stage::Adopting, Err(error)) => {
                // Whatever runs unseen must not be started a second time.
                return Err(Box::new(InitFailed(format!(
                    "failed to list sessions: {error}"
                ))));
            }
            (Stage::Adopting, Ok(listing)) => self.on_first_listing(&listing, as_of).await,
            (_, Ok(listing)) => {
                self.blind = None;
                self.reconcile(Some(&listing), as_of).await;
            }
            (_, Err(error)) => {
                tracing::warn!(city = %self.args.spec.name, %error, "listing failed");
                self.blind = Some(format!("sessions cannot be listed: {error}"));
                self.reconcile(None, as_of).await;
            }
        }
        self.complete_tick();
        Ok(())
    }

    /// Adoption is a barrier: every session of ours has its Worker before anything is planned.
    async fn on_first_listing(&mut self, listing: &Listing, as_of: Instant) {
        for agent in self.args.spec.agents.clone() {
            self.slots.add(Slot::new(agent));
        }
        for facts in &listing.owned {
            self.adopt(facts).await;
        }
        self.report(CityStatus::StartingAgents);
        self.stage = Stage::Starting(HashSet::new());
        self.reconcile(Some(listing), as_of).await;
        self.await_first_results();
    }

    /// The first plan was dispatched: what is under way now decides when the city is up.
    fn await_first_results(&mut self) {
        let missing: HashSet<AgentName> = self
            .slots
            .all()
            .iter()
            .filter(|entry| matches!(entry.slot.phase, Phase::Queued(_) | Phase::Starting))
            .map(|entry| entry.slot.spec.name.clone())
            .collect();
        if missing.is_empty() {
            self.stage = Stage::Running;
            self.report(CityStatus::Running);
        } else {
            self.stage = Stage::Starting(missing);
        }
    }

    async fn reconcile(&mut self, listing: Option<&Listing>, as_of: Instant) {
        if let Some(listing) = listing {
            self.foreign.clone_from(&listing.foreign);
            if let Some(tracker) = &self.tracker {
                tracker.send(TrackerMsg::Facts(crate::tracker::activities(listing)));
            }
        }
        let observed = listing.map(|listing| Observed { listing, as_of });
        let actions = plan(self.args.spec.suspended, self.slots.all(), observed);
        // Names first: dispatching may move slots.
        let named: Vec<_> = actions
            .into_iter()
            .map(|action| (self.slot_name(&action), action))
            .collect();
        for (agent, action) in named {
            self.dispatch(agent, action, listing).await;
        }
    }

    fn slot_name(&self, action: &Action) -> Option<AgentName> {
        match action {
            Action::Consider(i) | Action::Hold(i) | Action::Stop(i, _) | Action::Check(i) => self
                .slots
                .all()
                .get(*i)
                .map(|entry| entry.slot.spec.name.clone()),
            Action::Adopt(_) | Action::Bury(_) => None,
        }
    }

    async fn dispatch(
        &mut self,
        agent: Option<AgentName>,
        action: Action,
        listing: Option<&Listing>,
    ) {
        let facts = |index: usize| listing.and_then(|listing| listing.owned.get(index));
        match (action, agent) {
            (Action::Consider(_), Some(agent)) => self.consider(&agent).await,
            (Action::Hold(_), Some(agent)) => self.settle(&agent).await,
            (Action::Check(_), Some(agent)) => {
                if let Some(entry) = self.slots.get(&agent) {
                    entry.tell(WorkerMsg::Check);
                }
            }
            (Action::Stop(_, reason), Some(agent)) => {
                self.note_drift(&agent, reason);
                let grace = self.grace(reason);
                self.stop_run(&agent, reason, grace);
            }
            (Action::Adopt(index), _) => {
                if let Some(facts) = facts(index) {
                    self.adopt(facts).await;
                }
            }
            (Action::Bury(index), _) => {
                if let Some(facts) = facts(index) {
                    self.bury(facts.session.clone(), facts.token.clone());
                }
            }
            _ => {}
        }
    }

    fn complete_tick(&mut self) {
        let now = self.now();
        let interval = self.args.spec.daemon.patrol_interval;
        let took = self.gate.complete(now);
        self.last_tick = Some((self.args.ports.clock.wall(), took));
        if matches!(self.stage, Stage::Stopping(_)) {
            return;
        }
        let due = self.gate.due(interval, now);
        if due <= now {
            let _ = self.gate.take_pending(); // the overdue tick serves whoever asked, too
            self.me.send(CityMsg::Tick(Trigger::Patrol));
        } else if self.gate.take_pending() {
            self.me.send(CityMsg::Tick(Trigger::Poke));
        } else {
            let delay = due.saturating_duration_since(now);
            self.tick_timer = Some(self.me.send_after(delay, CityMsg::Tick(Trigger::Patrol)));
        }
    }
}
