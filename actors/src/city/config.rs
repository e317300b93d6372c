//! Following the config: load, accept whole or refuse whole, swap one `Arc`, reconcile.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ractor::RpcReplyPort;
use serde_json::json;

use super::{CityMsg, CityState, Stage, events};
use crate::model::{AgentName, CitySpec, ConfigState, ConfigView, EventDraft, StopReason};
use crate::policy::{Phase, Slot, Trigger};
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

    pub(super) fn on_loaded(
        &mut self,
        result: Result<Arc<CitySpec>, LoadError>,
        reply: Option<RpcReplyPort<ReloadOutcome>>,
    ) {
        let outcome = self.take_config(result);
        if matches!(outcome, ReloadOutcome::Reloaded) {
            self.gather(Trigger::Poke);
        }
        if let Some(reply) = reply {
            let _ = reply.send(outcome); // the caller may have timed out
        }
    }

    fn take_config(&mut self, result: Result<Arc<CitySpec>, LoadError>) -> ReloadOutcome {
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
                ReloadOutcome::Unchanged
            }
            Ok(spec) if spec.name != self.args.spec.name => self.refuse_rename(&spec),
            Ok(_) if matches!(self.stage, Stage::Stopping(_)) => ReloadOutcome::Unchanged,
            Ok(spec) => {
                self.apply(spec);
                ReloadOutcome::Reloaded
            }
        }
    }

    fn refuse_rename(&mut self, spec: &CitySpec) -> ReloadOutcome {
        let (from, to) = (self.args.spec.name.to_string(), spec.name.to_string());
        let why =
            format!("workspace.name changed from {from} to {to}: restart the city to apply it");
        let diagnostic = Diagnostic {
            severity: "error".into(),
            code: "identity-change".into(),
            path: "workspace.name".into(),
            message: why.clone(),
            help: Some(format!("gc stop {from}, then gc start")),
            ..Diagnostic::default()
        };
        self.emit(
            EventDraft::new("config.reload_refused", "")
                .message(why.clone())
                .with("keys", json!(["workspace.name"]))
                .with("from", from)
                .with("to", to),
        );
        self.config.trouble(ConfigState::Refused, vec![diagnostic]);
        ReloadOutcome::Refused(why)
    }

    /// Puts the new config in force. Everything charged before is forgiven.
    fn apply(&mut self, spec: Arc<CitySpec>) {
        let (mut added, mut drifted) = (Vec::new(), Vec::new());
        for agent in &spec.agents {
            let Some(entry) = self.slots.get_mut(&agent.name) else {
                self.slots.add(Slot::new(agent.clone()));
                added.push(agent.name.clone());
                continue;
            };
            let changed = entry.slot.spec.fingerprint != agent.fingerprint;
            entry.slot.spec = agent.clone();
            entry.slot.configured = true;
            entry.alarm = None;
            if changed {
                drifted.push(agent.name.clone());
            }
            if forgive(&mut entry.slot, changed) {
                self.args
                    .ports
                    .journal
                    .append(events::unquarantined(&agent.name, "reload"));
            }
        }
        let order: HashMap<&AgentName, usize> = spec
            .agents
            .iter()
            .enumerate()
            .map(|(i, agent)| (&agent.name, i))
            .collect();
        let removed = self.drop_unconfigured(&order);
        self.slots.reorder(&order);
        self.config = ConfigStatus::loaded(self.args.ports.clock.wall());
        self.emit(
            EventDraft::new("config.reloaded", "")
                .with("revision", spec.revision.clone())
                .with("added", json!(added))
                .with("removed", json!(removed))
                .with("drifted", json!(drifted)),
        );
        self.args.spec = spec;
    }

    fn drop_unconfigured(&mut self, order: &HashMap<&AgentName, usize>) -> Vec<AgentName> {
        let gone: Vec<AgentName> = self
            .slots
            .iter_mut()
            .filter(|entry| entry.slot.configured && !order.contains_key(&entry.slot.spec.name))
            .map(|entry| {
                entry.slot.configured = false;
                entry.slot.spec.name.clone()
            })
            .collect();
        for agent in &gone {
            if self
                .slots
                .get(agent)
                .is_some_and(|entry| entry.slot.run.is_none())
            {
                self.forget(agent);
            }
        }
        gone
    }

    /// Says once per edit which part of the config differs.
    pub(super) fn note_drift(&self, agent: &AgentName, reason: StopReason) {
        let Some(entry) = self
            .slots
            .get(agent)
            .filter(|_| reason == StopReason::Drift)
        else {
            return;
        };
        let Some(then) = entry
            .slot
            .run
            .as_ref()
            .and_then(|run| run.fingerprint.as_ref())
        else {
            return;
        };
        let keys = then.differing_keys(&entry.slot.spec.fingerprint);
        self.emit(events::of_run("agent.drifted", &entry.slot).with("keys", json!(keys)));
    }
}

/// A reload clears ledgers, delays and quarantines. `true`: it ended a quarantine.
fn forgive(slot: &mut Slot, changed: bool) -> bool {
    slot.absolve();
    match slot.phase {
        Phase::Quarantined { .. } => {
            slot.phase = Phase::Stopped;
            true
        }
        Phase::Backoff { .. } => {
            slot.phase = Phase::Stopped;
            false
        }
        Phase::Done if changed => {
            slot.phase = Phase::Stopped;
            false
        }
        _ => false,
    }
}
