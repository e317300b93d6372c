//! Adoption: taking over sessions that ran before this supervisor.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{CityMsg, CityState, Gathered, Stage, events};
use crate::model::{
    AgentName, AgentSpec, CityStatus, Fingerprint, Launch, OnDrift, RestartLimit, RestartType,
    SessionName, StartCause, StopReason, Strategy,
};
use crate::policy::{Phase, Run, Slot, Trigger, Want, parse_history};
use crate::ports::{Facts, Fence, Listing, Note};
use crate::worker::{Grace, Mode, WorkerMsg};

const CLEAR_LIMIT: Duration = Duration::from_secs(10);

impl CityState {
    /// The crash history arrived, or there is none.
    pub(super) async fn on_history(&mut self, text: Option<String>) {
        if !std::mem::take(&mut self.history_pending) {
            return;
        }
        let (now, wall) = (self.now(), self.args.ports.clock.wall());
        self.ledgers = text
            .map(|text| parse_history(&text, now, wall))
            .unwrap_or_default();
        if let Some(gathered) = self.first_listing.take() {
            // The listing was a good one, or the city would be gone.
            let _ = self.on_listed(gathered).await;
        }
    }

    /// Adoption is a barrier: every session of ours has its Worker before anything is planned.
    pub(super) async fn on_first_listing(&mut self, listing: &Listing, gathered: &Gathered) {
        self.refresh();
        for facts in &listing.owned {
            self.adopt(facts).await;
        }
        self.refresh(); // strangers have slots by now
        self.boot_pools(listing);
        self.report(CityStatus::StartingAgents);
        self.stage = Stage::Starting;
        self.check_pools();
        self.reconcile(Some(listing), gathered).await;
        if self
            .slots
            .live()
            .any(|e| !e.slot.spec.process_names.is_empty())
        {
            // The first listing was made before it was known whose programs to look for.
            self.me.send(CityMsg::Tick(Trigger::Poke));
        }
        if self.start_plan.is_none() && matches!(self.stage, Stage::Starting) {
            self.stage = Stage::Running;
            self.report(CityStatus::Running);
        }
        self.reload_postponed();
    }

    /// Gives slots their charged ends back. Members of a pool have none before its first check.
    pub(super) fn restore_ledgers(&mut self) {
        if self.ledgers.is_empty() {
            return;
        }
        let now = self.now();
        for entry in self.slots.iter_mut() {
            let slot = &mut entry.slot;
            let Some(ledger) = self.ledgers.remove(&slot.spec.name) else {
                continue;
            };
            slot.ledger = ledger;
            slot.ledger.trim(slot.spec.limit, now);
            let until = slot.ledger.quarantined_until(slot.spec.limit, now);
            if let (Some(until), Phase::Stopped) = (until, slot.phase) {
                slot.phase = Phase::Quarantined { until };
            }
        }
    }

    /// Takes over a session that no slot knows. A dead one ends at once, as its Worker finds out.
    pub(super) async fn adopt(&mut self, facts: &Facts) {
        let (now, wall) = (self.now(), self.args.ports.clock.wall());
        let age = (wall - facts.started_at).to_std().unwrap_or_default();
        if self.slots.get(&facts.agent).is_none() {
            let spec = self.spec_of(facts);
            self.slots.add(Slot {
                want: Want::Gone,
                ..Slot::new(Arc::new(spec))
            });
        }
        let drain = self.drain_of(facts);
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
        slot.blocked_on = None;
        let started = now.checked_sub(age).unwrap_or(now);
        let mut run = Run::new(facts.token.clone(), started, StartCause::Initial);
        run.pid = facts.pid;
        run.announced = true;
        run.found_dead = !facts.live;
        run.fingerprint = fingerprint_of(facts);
        run.live_hash = facts.notes.get(&Note::LiveHash).cloned();
        run.drain = drain;
        super::drain::learn_activity(&mut run, facts, now, wall);
        super::drain::learn_wishes(&mut run, facts);
        slot.run = Some(run);
        if facts.live {
            let draft = events::of_run("agent.adopted", &entry.slot).maybe("pid", facts.pid);
            self.emit(draft);
        }
        self.spawn_worker(&facts.agent, Mode::Adopt).await;
        self.backfill(facts);
        self.arm_drain(&facts.agent);
        self.honour_intent(facts);
    }

    /// A run without a hash is taken for one of the config in force, and compared from now on.
    fn backfill(&mut self, facts: &Facts) {
        let Some(entry) = self.slots.get_mut(&facts.agent) else {
            return;
        };
        let spec = entry.slot.spec.clone();
        let known = entry.slot.want != Want::Gone && facts.live;
        let Some(run) = entry.slot.run.as_mut().filter(|_| known) else {
            return;
        };
        let mut missing = Vec::new();
        if run.fingerprint.is_none() {
            run.fingerprint = Some(spec.fingerprint.clone());
            let fields = serde_json::to_string(&spec.fingerprint.fields).unwrap_or_default();
            missing.push((Note::ConfigHashFields, fields));
            missing.push((Note::ConfigHash, spec.fingerprint.hash.clone()));
        }
        if run.live_hash.is_none() {
            run.live_hash = Some(spec.live_hash());
            missing.push((Note::LiveHash, spec.live_hash()));
        }
        for (note, value) in missing {
            entry.tell(WorkerMsg::Note(note, Some(value)));
        }
    }

    /// The spec of a session whose instance has no slot: a member of a pool beyond its count, or a
    /// stranger.
    fn spec_of(&self, facts: &Facts) -> AgentSpec {
        let member = |template: &Arc<AgentSpec>| {
            let pool = template.pool.as_ref()?;
            let listed = pool.names.iter().position(|name| *name == facts.agent);
            let number = match listed {
                Some(index) => u32::try_from(index).ok()? + 1,
                None if template.name == facts.agent => 1, // of a pool of at most one
                None => {
                    let rest = facts.agent.as_str().strip_prefix(template.name.as_str())?;
                    rest.strip_prefix('-')?.parse().ok()?
                }
            };
            let instance = template.instance(number);
            (instance.name == facts.agent).then_some(instance)
        };
        let known = self.args.spec.agents.iter().find_map(member);
        known.unwrap_or_else(|| stranger(&facts.agent, &facts.session))
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
                let _ = timeout(CLEAR_LIMIT, clear).await;
            });
        } else if let Some(reason) = StopReason::parse(intent) {
            self.stop_run(&facts.agent, reason, Grace::None);
        }
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
        blueprint: None,
    }
}
