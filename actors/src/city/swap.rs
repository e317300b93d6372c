//! Another session provider: proven first, then all agents stop under the old one and start under
//! the new.

use std::sync::Arc;

use ractor::RpcReplyPort;
use tokio::sync::Semaphore;

use super::config::answer;
use super::shutdown::Retreat;
use super::{CityMsg, CityState, INTERRUPTS, Provided, ReloadOutcome, SWEEPS, Stage};
use crate::model::{CitySpec, CityStatus, EventDraft, StopReason};
use crate::policy::{TickGate, Trigger};
use crate::ports::{CityPorts, Diagnostic, LoadError, Sessions};
use crate::worker::WorkerShared;

/// A swap under way.
pub(super) struct Swap {
    sessions: Arc<dyn Sessions>,
    spec: Arc<CitySpec>,
    reply: Option<RpcReplyPort<ReloadOutcome>>,
    pub(super) retreat: Retreat,
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
            let provided = ports.providers.provide(spec.provider.clone()).await;
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
                    path: "session.provider".into(),
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
            Ok(_) if !self.is_open() => answer(reply, ReloadOutcome::Unchanged),
            Ok(Provided(sessions)) => {
                self.drop_plan();
                self.stop_plan = None;
                self.tick_timer = None;
                self.stage = Stage::Swapping(Swap {
                    sessions,
                    spec,
                    reply,
                    retreat: Retreat::default(),
                });
                self.retreat(StopReason::Swap).await;
            }
        }
    }

    /// Nothing runs under the old provider any more.
    pub(super) fn finish_swap(&mut self) {
        let Stage::Swapping(Swap {
            sessions,
            spec,
            reply,
            ..
        }) = std::mem::replace(&mut self.stage, Stage::Adopting)
        else {
            return;
        };
        let old = self.args.ports.sessions.clone();
        tokio::spawn(async move {
            let _ = old.retire().await; // nothing of ours is left there
        });
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
                .with("to", to),
        );
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
