//! Ticks: list, plan, dispatch, re-arm.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorProcessingErr;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::launch::start_spec;
use super::slots::Entry;
use super::{CityMsg, CityState, Gathered, InitFailed, Stage};
use crate::machine::MachineMsg;
use crate::model::{AgentName, OnDrift, RunToken, SessionName, StopReason};
use crate::policy::{Action, Observed, Phase, Trigger, plan, plan_running};
use crate::ports::{CityPorts, Facts, Listing, SessionError};
use crate::tracker::{TrackerMsg, Watched};
use crate::worker::WorkerMsg;

/// A little more than each backend may take.
const LISTING_LIMIT: Duration = Duration::from_secs(11);

impl CityState {
    pub(super) fn on_tick(&mut self, trigger: Trigger) {
        if self.is_open() {
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
        if self.is_open() {
            self.check_pools();
        }
        let (me, ports, epoch) = (self.me.clone(), self.args.ports.clone(), self.epoch);
        let named = self.named_programs();
        tokio::spawn(async move {
            let listing = timeout(LISTING_LIMIT, ports.sessions.snapshot()).await;
            let result = listing.unwrap_or(Err(SessionError::Timeout));
            let zombies = zombies(&ports, &result, named).await;
            me.send(CityMsg::Listed(Gathered {
                as_of: now,
                epoch,
                result,
                zombies,
            }));
        });
    }

    /// Sessions that must hold certain programs.
    fn named_programs(&self) -> Vec<(SessionName, Vec<String>)> {
        let up = self
            .slots
            .all()
            .iter()
            .filter(|entry| entry.slot.phase == Phase::Running);
        up.filter(|entry| !entry.slot.spec.process_names.is_empty())
            .map(|entry| {
                (
                    entry.slot.spec.session.clone(),
                    entry.slot.spec.process_names.clone(),
                )
            })
            .collect()
    }

    pub(super) async fn on_listed(&mut self, gathered: Gathered) -> Result<(), ActorProcessingErr> {
        if gathered.epoch != self.epoch {
            return Ok(()); // of a provider that was swapped since
        }
        match (&self.stage, &gathered.result) {
            (Stage::Stopping(_) | Stage::Swapping(_), _) => {}
            (Stage::Adopting, Err(error)) => {
                // Whatever runs unseen must not be started a second time.
                return Err(Box::new(InitFailed(format!(
                    "failed to list sessions: {error}"
                ))));
            }
            (Stage::Adopting, Ok(_)) if self.history_pending => {
                self.first_listing = Some(gathered);
                return Ok(());
            }
            (Stage::Adopting, Ok(listing)) => {
                let listing = listing.clone();
                self.on_first_listing(&listing, &gathered).await;
            }
            (_, Ok(listing)) => {
                self.blind = match listing.is_complete() {
                    true => None,
                    false => {
                        let errors = listing.errors.join("; ");
                        tracing::warn!(city = %self.args.spec.name, errors, "listing incomplete");
                        Some(format!("some sessions cannot be listed: {errors}"))
                    }
                };
                let listing = listing.clone();
                self.reconcile(Some(&listing), &gathered).await;
            }
            (_, Err(error)) => {
                tracing::warn!(city = %self.args.spec.name, %error, "listing failed");
                self.blind = Some(format!("sessions cannot be listed: {error}"));
                self.reconcile(None, &gathered).await;
            }
        }
        self.complete_tick();
        Ok(())
    }

    pub(super) async fn reconcile(&mut self, listing: Option<&Listing>, gathered: &Gathered) {
        if let Some(listing) = listing {
            self.foreign.clone_from(&listing.foreign);
            for facts in &listing.owned {
                self.learn(facts, gathered.as_of);
            }
            let listed: HashSet<&RunToken> = listing.owned.iter().map(|f| &f.token).collect();
            if listing.is_complete() {
                self.ended
                    .retain(|token, at| *at >= gathered.as_of || listed.contains(token));
            } else {
                self.forget_activity(&listed);
            }
        } else {
            self.forget_activity(&HashSet::new()); // unknown activity is not idleness
        }
        if self.args.spec.max_agents.is_some() {
            self.refresh(); // who runs decides who keeps a place
        }
        let zombies = &gathered.zombies;
        let observed = listing.map(|listing| Observed {
            listing,
            as_of: gathered.as_of,
            zombies,
        });
        let actions = plan(
            self.slots.all(),
            observed,
            &self.args.spec.daemon,
            self.now(),
        );
        // Names first: dispatching may move slots.
        let named: Vec<_> = actions
            .into_iter()
            .map(|action| (self.slot_name(&action), action))
            .collect();
        let mut starts = Vec::new();
        for (agent, action) in named {
            match (&action, agent) {
                (Action::Consider(_), Some(agent)) => starts.push(agent),
                (_, agent) => self.dispatch(agent, action, listing).await,
            }
        }
        self.start_all(&starts).await;
        self.inform_tracker();
    }

    /// The step for one agent, between ticks.
    pub(super) async fn plan_one(&mut self, agent: &AgentName) {
        let now = self.now();
        let Some(slot) = self.slots.get(agent).map(|entry| &entry.slot) else {
            return;
        };
        if !self.is_open() {
            return;
        }
        match plan_running(slot, &self.args.spec.daemon, now) {
            // An ack may have come since the last listing: look again. Unless the Worker does: then
            // a listing would only say the same again.
            Some(Action::Undrain(_)) if slot.run.as_ref().is_some_and(|run| run.suspect) => {}
            Some(Action::Undrain(_)) => self.me.send(CityMsg::Tick(Trigger::Poke)),
            // So may activity; but idleness is for ticks, and the Tracker asks for them in time.
            Some(Action::Stop(_, StopReason::Idle)) => {}
            Some(Action::Stop(_, StopReason::Drift)) if slot.spec.on_drift == OnDrift::Idle => {}
            Some(action) => self.dispatch(Some(agent.clone()), action, None).await,
            None if slot.run.is_none() => self.consider(agent).await,
            None => {}
        }
    }

    /// A plan pass for one pool alone.
    pub(super) async fn plan_pool(&mut self, template: &AgentName) {
        let mut members: Vec<(Option<u32>, AgentName)> = self
            .slots
            .all()
            .iter()
            .filter(|entry| entry.slot.spec.template == *template)
            .map(|entry| (entry.slot.spec.pool_slot, entry.slot.spec.name.clone()))
            .collect();
        members.sort_by(|a, b| b.cmp(a)); // the highest leaves first
        let mut starts = Vec::new();
        for (_, agent) in members {
            let Some(slot) = self.slots.get(&agent).map(|entry| &entry.slot) else {
                continue;
            };
            match slot.run.is_some() {
                true => self.plan_one(&agent).await,
                false if matches!(slot.want, crate::policy::Want::Excess) => self.forget(&agent),
                false => starts.push(agent),
            }
        }
        starts.reverse();
        self.start_all(&starts).await;
    }

    /// A fresh check that still wants a slot frees it from `done`.
    pub(super) fn free_done(&mut self, template: &AgentName) {
        for entry in self.slots.iter_mut() {
            let slot = &mut entry.slot;
            if slot.spec.template == *template && slot.phase == Phase::Done {
                slot.phase = Phase::Stopped;
            }
        }
    }

    fn slot_name(&self, action: &Action) -> Option<AgentName> {
        let index = match action {
            Action::Adopt(_) | Action::Bury(_) => return None,
            Action::Consider(i)
            | Action::Forget(i)
            | Action::Stop(i, _)
            | Action::Drain(i, _)
            | Action::Undrain(i)
            | Action::TellDrift(i)
            | Action::ApplyLive(i)
            | Action::Zombie(i)
            | Action::Check(i) => *i,
        };
        self.slots
            .all()
            .get(index)
            .map(|entry| entry.slot.spec.name.clone())
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
            (Action::Forget(_), Some(agent)) => self.forget(&agent),
            (Action::Check(_), Some(agent)) => self.look_closer(&agent, WorkerMsg::Check),
            (Action::Zombie(_), Some(agent)) => self.look_closer(&agent, WorkerMsg::Zombie),
            (Action::Drain(_, reason), Some(agent)) => self.drain(&agent, reason, None),
            (Action::Undrain(_), Some(agent)) => self.undrain(&agent),
            (Action::TellDrift(_), Some(agent)) => {
                self.tell_drift(&agent);
                Box::pin(self.plan_one(&agent)).await;
            }
            (Action::ApplyLive(_), Some(agent)) => self.apply_live(&agent),
            (Action::Stop(_, reason), Some(agent)) => {
                let grace = self.grace(reason);
                self.stop_run(&agent, reason, grace);
            }
            (Action::Adopt(index), _) => {
                if let Some(facts) = facts(index) {
                    self.take_over(facts).await;
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

    /// A session that no slot knows: adopted, unless its end was told before its slot went.
    async fn take_over(&mut self, facts: &Facts) {
        if self.ended.contains_key(&facts.token) {
            return self.bury(facts.session.clone(), facts.token.clone());
        }
        self.adopt(facts).await;
        self.refresh();
    }

    /// The listing does not show the run as it should be; its Worker finds out.
    fn look_closer(&mut self, agent: &AgentName, msg: WorkerMsg) {
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        if let Some(run) = &mut entry.slot.run {
            run.suspect = true;
        }
        entry.tell(msg);
    }

    fn apply_live(&mut self, agent: &AgentName) {
        let setup_timeout = self.args.spec.setup_timeout;
        let Some(entry) = self.slots.get_mut(agent) else {
            return;
        };
        let lines = entry.slot.spec.live.clone();
        if let Some(run) = &mut entry.slot.run {
            run.live_hash = Some(entry.slot.spec.live_hash());
        }
        let spec = Arc::new(start_spec(&entry.slot, setup_timeout));
        entry.tell(WorkerMsg::ApplyLive {
            lines,
            spec,
            update: true,
        });
    }

    /// Tells the Tracker whom to watch for idleness.
    fn inform_tracker(&self) {
        let Some(tracker) = &self.tracker else { return };
        tracker.send(TrackerMsg::Watch(
            self.slots.all().iter().filter_map(watched).collect(),
        ));
    }

    /// Has the Tracker watch a run that began between listings.
    pub(super) fn watch_idle(&self, agent: &AgentName) {
        let watched = self.slots.get(agent).and_then(watched);
        if let (Some(tracker), Some(watched)) = (&self.tracker, watched) {
            tracker.send(TrackerMsg::Add(watched));
        }
    }

    fn complete_tick(&mut self) {
        let now = self.now();
        let interval = self.args.spec.daemon.patrol_interval;
        let took = self.gate.complete(now);
        self.last_tick = Some((self.args.ports.clock.wall(), took));
        let id = self.me.actor().get_id();
        self.args.machine.send(MachineMsg::Ticked {
            path: self.args.path.clone(),
            id,
            interval,
        });
        if !self.is_open() {
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

fn watched(entry: &Entry) -> Option<Watched> {
    let run = entry.slot.run.as_ref()?;
    Some(Watched {
        agent: entry.slot.spec.name.clone(),
        last_activity: run.last_activity?,
        limit: entry.slot.spec.idle_timeout?,
    })
}

/// Sessions that live without the programs they should hold. Not being able to tell is not death.
async fn zombies(
    ports: &Arc<CityPorts>,
    listing: &Result<Listing, SessionError>,
    named: Vec<(SessionName, Vec<String>)>,
) -> HashSet<SessionName> {
    let Ok(listing) = listing else {
        return HashSet::new();
    };
    let live: HashSet<&SessionName> = listing
        .owned
        .iter()
        .filter(|facts| facts.live)
        .map(|facts| &facts.session)
        .collect();
    let mut looks = JoinSet::new();
    for (session, names) in named.into_iter().filter(|(s, _)| live.contains(s)) {
        let ports = ports.clone();
        looks.spawn(async move {
            let look = ports.sessions.process_alive(session.clone(), names);
            (timeout(LISTING_LIMIT, look).await == Ok(Ok(false))).then_some(session)
        });
    }
    let mut dead = HashSet::new();
    while let Some(look) = looks.join_next().await {
        dead.extend(look.ok().flatten());
    }
    dead
}
