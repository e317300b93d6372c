//! Following the config: load, accept whole or refuse whole, swap one `Arc`, reconcile.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ractor::RpcReplyPort;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{CityMsg, CityState, Stage, events};
use crate::machine::MachineMsg;
use crate::model::{AgentName, AgentSpec, CityName, CitySpec, ConfigState, ConfigView, EventDraft};
use crate::policy::{Graph, Phase, Slot, Trigger};
use crate::ports::{Diagnostic, LoadError};

/// What came of a reload.
#[derive(Debug, Clone, PartialEq)]
pub enum ReloadOutcome {
    /// The new config is in force.
    Reloaded,
    /// Nothing changed.
    Unchanged,
    /// It has errors; the old one stays.
    Failed(LoadError),
    /// It needs a restart of the city; the old one stays. Says why.
    Refused(String),
}

/// Where the config on disk stands.
#[derive(Debug)]
pub(super) struct ConfigStatus {
    loaded_at: DateTime<Utc>,
    state: ConfigState,
    diagnostics: Vec<Diagnostic>,
}

impl ConfigStatus {
    pub(super) fn loaded(at: DateTime<Utc>) -> Self {
        Self {
            loaded_at: at,
            state: ConfigState::Ok,
            diagnostics: Vec::new(),
        }
    }

    pub(super) fn view(&self, revision: &str) -> ConfigView {
        ConfigView {
            revision: revision.to_owned(),
            loaded_at: self.loaded_at,
            state: self.state,
            diagnostics: self.diagnostics.clone(),
        }
    }

    fn trouble(&mut self, state: ConfigState, diagnostics: Vec<Diagnostic>) {
        self.state = state;
        self.diagnostics = diagnostics;
    }
}

impl CityState {
    pub(super) fn on_reload(&self, reply: Option<RpcReplyPort<ReloadOutcome>>) {
        let (me, ports) = (self.me.clone(), self.args.ports.clone());
        tokio::spawn(async move {
            let loaded = ports.desired.load().await;
            me.send(CityMsg::Loaded(loaded, reply));
        });
    }

    pub(super) async fn on_loaded(
        &mut self,
        result: Result<Arc<CitySpec>, LoadError>,
        reply: Option<RpcReplyPort<ReloadOutcome>>,
    ) {
        let outcome = match result {
            Ok(spec) if self.swaps_provider(&spec) => match self.is_open() {
                true => return self.provide(spec, reply),
                false => return self.postpone(reply),
            },
            Ok(_) if matches!(self.stage, Stage::Swapping(_)) => return self.postpone(reply),
            result => self.take_config(result),
        };
        if matches!(outcome, ReloadOutcome::Reloaded) {
            self.gather(Trigger::Poke);
        }
        answer(reply, outcome);
    }

    /// Edits are noticed at once again, or only by a look now and then.
    pub(super) fn on_watched(&mut self, trouble: Option<String>) {
        if self.unwatched == trouble {
            return;
        }
        if let Some(why) = &trouble {
            self.emit(EventDraft::new("config.watch_degraded", "").message(why.clone()));
        }
        self.unwatched = trouble;
    }

    /// Loads once more when the city is open: no config is taken in the midst of a swap.
    pub(super) fn postpone(&mut self, reply: Option<RpcReplyPort<ReloadOutcome>>) {
        self.postponed.push(reply);
    }

    pub(super) fn reload_postponed(&mut self) {
        for reply in std::mem::take(&mut self.postponed) {
            self.on_reload(reply);
        }
    }

    fn swaps_provider(&self, spec: &CitySpec) -> bool {
        self.fixed_keys(spec).is_empty()
            && !self.is_stopping()
            && (spec.provider != self.args.spec.provider
                || spec.provider_settings != self.args.spec.provider_settings)
    }

    pub(super) fn take_config(
        &mut self,
        result: Result<Arc<CitySpec>, LoadError>,
    ) -> ReloadOutcome {
        match result {
            Err(error) => {
                self.emit(
                    EventDraft::new("config.reload_failed", "")
                        .message(error.summary.clone())
                        .with("diagnostics", json!(error.diagnostics)),
                );
                self.config
                    .trouble(ConfigState::Stale, error.diagnostics.clone());
                ReloadOutcome::Failed(error)
            }
            Ok(spec) if spec.revision == self.args.spec.revision => {
                self.config.trouble(ConfigState::Ok, Vec::new());
                self.report_pending_name(None);
                ReloadOutcome::Unchanged
            }
            Ok(spec) if !self.fixed_keys(&spec).is_empty() => self.refuse(&spec),
            Ok(_) if self.is_stopping() => ReloadOutcome::Unchanged,
            Ok(spec) => {
                self.report_pending_name(None);
                self.apply(spec);
                ReloadOutcome::Reloaded
            }
        }
    }

    /// Keys that a running city cannot change and that differ, each with its old and new value.
    fn fixed_keys(&self, spec: &CitySpec) -> Vec<(String, String, String)> {
        let own = &self.args.spec;
        let name = (
            "workspace.name".to_owned(),
            own.name.to_string(),
            spec.name.to_string(),
        );
        let keys: BTreeSet<&String> = own.identity.keys().chain(spec.identity.keys()).collect();
        let value =
            |spec: &CitySpec, key: &str| spec.identity.get(key).cloned().unwrap_or_default();
        let others = keys
            .into_iter()
            .map(|key| (key.clone(), value(own, key), value(spec, key)));
        std::iter::once(name)
            .chain(others)
            .filter(|(_, from, to)| from != to)
            .collect()
    }

    fn refuse(&mut self, spec: &CitySpec) -> ReloadOutcome {
        let changed = self.fixed_keys(spec);
        let city = self.args.spec.name.clone();
        let diagnostics: Vec<Diagnostic> = changed
            .iter()
            .map(|(key, from, to)| Diagnostic {
                severity: "error".into(),
                code: "identity-change".into(),
                path: key.clone(),
                message: format!("{key} changed from {from} to {to}: restart the city to apply it"),
                help: Some(format!("gc restart {city}")),
                ..Diagnostic::default()
            })
            .collect();
        let messages = diagnostics.iter().map(|found| found.message.as_str());
        let why = messages.collect::<Vec<_>>().join("\n");
        let part = |pick: fn(&(String, String, String)) -> &String| {
            changed.iter().map(pick).cloned().collect::<Vec<_>>()
        };
        let joined = |texts: Vec<String>| texts.join(", ");
        self.emit(
            EventDraft::new("config.reload_refused", "")
                .message(why.clone())
                .with("keys", json!(part(|(key, _, _)| key)))
                .with("from", joined(part(|(_, from, _)| from)))
                .with("to", joined(part(|(_, _, to)| to))),
        );
        self.config.trouble(ConfigState::Refused, diagnostics);
        let renamed = (spec.name != city).then(|| spec.name.clone());
        self.report_pending_name(renamed);
        ReloadOutcome::Refused(why)
    }

    /// Tells the machine which name the config asks for, if it is not the one in force.
    fn report_pending_name(&self, name: Option<CityName>) {
        self.args.machine.send(MachineMsg::PendingName {
            path: self.args.path.clone(),
            id: self.me.actor().get_id(),
            name,
        });
    }

    /// Puts the new config in force. Everything charged before is forgiven.
    pub(super) fn apply(&mut self, spec: Arc<CitySpec>) {
        let before: BTreeMap<AgentName, Arc<AgentSpec>> = self
            .args
            .spec
            .agents
            .iter()
            .map(|agent| (agent.name.clone(), agent.clone()))
            .collect();
        let (mut added, mut drifted, mut live) = (Vec::new(), Vec::new(), Vec::new());
        for agent in &spec.agents {
            match before.get(&agent.name) {
                None => added.push(agent.name.clone()),
                Some(old) if old.fingerprint != agent.fingerprint => {
                    drifted.push(agent.name.clone())
                }
                Some(old) if old.live != agent.live => live.push(agent.name.clone()),
                Some(_) => {}
            }
        }
        let kept: HashSet<&AgentName> = spec.agents.iter().map(|agent| &agent.name).collect();
        let removed: Vec<AgentName> = before
            .keys()
            .filter(|agent| !kept.contains(agent))
            .cloned()
            .collect();
        if self.args.spec.daemon.check_parallelism != spec.daemon.check_parallelism {
            // Those under way keep their permits of before.
            self.checks = Arc::new(Semaphore::new(spec.daemon.check_parallelism));
        }
        self.args.spec = spec;
        self.args.ports.desired.taken(&self.args.spec);
        self.args.machine.send(MachineMsg::Configured {
            path: self.args.path.clone(),
            id: self.me.actor().get_id(),
            spec: self.args.spec.clone(),
        });
        self.graph = Graph::new(self.args.spec.agents.iter().map(|agent| &**agent));
        self.pools
            .retain(|template, _| kept_pool(&self.args.spec, template));
        // Starts that have not begun are planned anew; a cascade is decided anew.
        self.drop_plan();
        self.stop_plan = None;
        self.ledgers.clear();
        self.forgive_all(&drifted);
        self.refresh();
        self.config = ConfigStatus::loaded(self.args.ports.clock.wall());
        self.save_history();
        self.emit(
            EventDraft::new("config.reloaded", "")
                .with("revision", self.args.spec.revision.clone())
                .with("added", json!(added))
                .with("removed", json!(removed))
                .with("drifted", json!(drifted))
                .with("live", json!(live)),
        );
    }

    fn forgive_all(&mut self, drifted: &[AgentName]) {
        let now = self.now();
        let kept: HashSet<&AgentName> = self.args.spec.agents.iter().map(|a| &a.name).collect();
        let mut freed = Vec::new();
        for entry in self.slots.iter_mut() {
            let changed = drifted.contains(&entry.slot.spec.template);
            if entry.slot.run.is_none() {
                entry.alarm = None;
            }
            entry.slot.cascade_of.clear();
            entry.slot.blocked_on = None;
            if forgive(&mut entry.slot, changed, now) {
                let stays = kept.contains(&entry.slot.spec.template);
                let cause = if stays { "reload" } else { "removed" };
                freed.push((entry.slot.spec.name.clone(), cause));
            }
        }
        for (agent, cause) in freed {
            self.emit(events::unquarantined(&agent, cause));
        }
    }
}

fn kept_pool(spec: &CitySpec, template: &AgentName) -> bool {
    spec.agents
        .iter()
        .any(|agent| agent.name == *template && agent.pool.is_some())
}

/// Answers whoever asked for the reload.
pub(super) fn answer(reply: Option<RpcReplyPort<ReloadOutcome>>, outcome: ReloadOutcome) {
    if let Some(reply) = reply {
        let _ = reply.send(outcome); // the caller may have timed out
    }
}

/// A reload clears ledgers, delays and quarantines. `true`: it ended a quarantine.
fn forgive(slot: &mut Slot, changed: bool, now: Instant) -> bool {
    slot.absolve();
    match slot.phase {
        Phase::Quarantined { .. } => {
            slot.phase = Phase::Stopped;
            true
        }
        Phase::Backoff { cause, .. } => {
            slot.phase = Phase::Backoff { until: now, cause };
            false
        }
        Phase::Done if changed => {
            slot.phase = Phase::Stopped;
            false
        }
        _ => false,
    }
}
