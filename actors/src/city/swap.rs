//! Another session provider: proven first, then all agents stop under the old one and start under
//! the new.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::config::answer;
use super::shutdown::Retreat;
use super::{CityMsg, CityState, INTERRUPTS, Provided, ReloadOutcome, SWEEPS, Stage};
use crate::model::{CitySpec, CityStatus, EventDraft, StopReason};
use crate::policy::{TickGate, Trigger};
use crate::ports::{CityPorts, Diagnostic, LoadError, Sessions};
use crate::worker::WorkerShared;

/// How long the old provider may take to let go.
const RETIRE_LIMIT: Duration = Duration::from_secs(10);

/// A swap under way.
pub(super) struct Swap {
    sessions: Arc<dyn Sessions>,
    spec: Arc<CitySpec>,
    reply: Option<RpcReplyPort<ReloadOutcome>>,
    pub(super) retreat: Retreat,
    /// Everybody is gone; the old provider lets go of what it kept for them.
    retiring: bool,
}

impl std::fmt::Debug for Swap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Swap({})", self.spec.provider)
    }
}

impl CityState {
    /// Builds and proves the provider that a new config asks for.
    pub(super) fn provide(&self, spec: Arc<CitySpec>, reply: Option<RpcReplyPort<ReloadOutcome>>) {
        let (me, ports) = (self.me.clone(), self.args.ports.clone());
        tokio::spawn(async move {
            let provided = ports.providers.provide(spec.clone()).await;
            me.send(CityMsg::Provided(spec, provided.map(Provided), reply));
        });
    }

    pub(super) async fn on_provided(
        &mut self,
        spec: Arc<CitySpec>,
        provided: Result<Provided, String>,
        reply: Option<RpcReplyPort<ReloadOutcome>>,
    ) {
        match provided {
            Err(message) => {
                let diagnostic = Diagnostic {
                    severity: "error".into(),
                    code: "invalid-value".into(),
                    path: self.swapped_keys(&spec).swap_remove(0),
                    message: message.clone(),
                    ..Diagnostic::default()
                };
                let error = LoadError {
                    summary: message,
                    diagnostics: vec![diagnostic],
                };
                let outcome = self.take_config(Err(error));
                answer(reply, outcome);
            }
            Ok(_) if self.is_stopping() => answer(reply, ReloadOutcome::Unchanged),
            Ok(_) if !self.is_open() => self.postpone(reply),
            Ok(Provided(sessions)) => {
                self.drop_plan();
                self.stop_plan = None;
                self.tick_timer = None;
                self.stage = Stage::Swapping(Swap {
                    sessions,
                    spec,
                    reply,
                    retreat: Retreat::default(),
                    retiring: false,
                });
                self.retreat(StopReason::Swap).await;
            }
        }
    }

    /// What a new config says of the session provider that is not so now.
    fn swapped_keys(&self, spec: &CitySpec) -> Vec<String> {
        let own = &self.args.spec;
        let mut keys = Vec::new();
        if own.provider != spec.provider {
            keys.push("session.provider".to_owned());
        }
        let (own, new) = (&own.provider_settings, &spec.provider_settings);
        let all: BTreeSet<&String> = own.keys().chain(new.keys()).collect();
        keys.extend(
            all.into_iter()
                .filter(|key| own.get(*key) != new.get(*key))
                .cloned(),
        );
        keys
    }

    /// Nothing runs under the old provider any more. What it kept goes before the new one begins:
    /// both may want the same socket.
    pub(super) fn finish_swap(&mut self) {
        let Stage::Swapping(swap) = &mut self.stage else {
            return;
        };
        if std::mem::replace(&mut swap.retiring, true) {
            return;
        }
        let (me, old) = (self.me.clone(), self.args.ports.sessions.clone());
        tokio::spawn(async move {
            let _ = timeout(RETIRE_LIMIT, old.retire()).await; // nothing of ours is left there
            me.send(CityMsg::Retired);
        });
    }

    pub(super) fn on_retired(&mut self) {
        if !matches!(self.stage, Stage::Swapping(_)) {
            return; // stopped meanwhile
        }
        let Stage::Swapping(Swap {
            sessions,
            spec,
            reply,
            ..
        }) = std::mem::replace(&mut self.stage, Stage::Adopting)
        else {
            return;
        };
        let keys = self.swapped_keys(&spec);
        let from = self.args.spec.provider.clone();
        let ports = Arc::new(CityPorts {
            sessions,
            ..(*self.args.ports).clone()
        });
        self.args.ports = ports.clone();
        self.shared = Arc::new(WorkerShared {
            city: self.me.clone(),
            ports,
            interrupts: Semaphore::new(INTERRUPTS),
            forces: Semaphore::new(spec.daemon.stop_parallelism),
            sweeps: Semaphore::new(SWEEPS),
        });
        self.apply(spec);
        let to = self.args.spec.provider.clone();
        self.emit(
            EventDraft::new("provider.swapped", "")
                .with("from", from)
                .with("to", to)
                .with("keys", json!(keys)),
        );
        self.tell_mode();
        self.pumps.clear();
        self.pump_events();
        answer(reply, ReloadOutcome::Reloaded);
        // What the new provider holds already is adopted before anything is started.
        self.epoch += 1;
        self.gate = TickGate::new(self.now());
        self.report(CityStatus::AdoptingSessions);
        self.gather(Trigger::Startup);
    }
}
