//! MachineSupervisor: the root. Hosts every registered city and keeps them apart.
//!
//! A city that fails to open, crashes or hangs is retried with its own delay; no other city
//! notices. Registry reads, opens and tree walks run in tasks that report back.

mod failures;
mod messages;
mod record;
mod registry;
mod settings;
mod starts;
mod stop;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::time::Instant;

pub(crate) use self::messages::MachineMsg;
pub use self::messages::Reconciled;
use self::record::Record;
pub use self::record::stop_sessions;
pub(crate) use self::settings::MachineArgs;
pub use self::settings::{MachinePorts, MachineSettings};
use crate::city::{CityMsg, CityState, GaveUp, StopMode};
use crate::mailbox::{Addr, Timer};
use crate::model::{EventDraft, StopSummary};

/// State of a [`MachineSupervisor`].
#[derive(Debug)]
pub(crate) struct MachineState {
    args: MachineArgs,
    me: Addr<MachineMsg>,
    began: Instant,
    began_at: DateTime<Utc>,
    /// By canonical path.
    cities: BTreeMap<PathBuf, Record>,
    registry_read: bool,
    registry_error: Option<String>,
    patrol: Option<Timer>,
    watching: Option<Timer>,
    stopping: Option<Stopping>,
}

#[derive(Debug)]
struct Stopping {
    mode: StopMode,
    replies: Vec<RpcReplyPort<StopSummary>>,
    summary: StopSummary,
}

/// The actor; all state is in [`MachineState`].
#[derive(Debug)]
pub(crate) struct MachineSupervisor;

impl Actor for MachineSupervisor {
    type Msg = MachineMsg;
    type State = MachineState;
    type Arguments = MachineArgs;

    async fn pre_start(
        &self,
        me: ActorRef<MachineMsg>,
        args: MachineArgs,
    ) -> Result<MachineState, ActorProcessingErr> {
        Ok(MachineState {
            me: Addr::new(me, args.gauge.clone()),
            began: args.ports.clock.now(),
            began_at: args.ports.clock.wall(),
            cities: BTreeMap::new(),
            registry_read: false,
            registry_error: None,
            patrol: None,
            watching: None,
            stopping: None,
            args,
        })
    }

    async fn post_start(
        &self,
        _: ActorRef<MachineMsg>,
        st: &mut MachineState,
    ) -> Result<(), ActorProcessingErr> {
        st.emit(
            EventDraft::new("supervisor.started", "").with("version", &*st.args.settings.version),
        );
        st.watch_registry();
        st.read_registry(None);
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<MachineMsg>,
        msg: MachineMsg,
        st: &mut MachineState,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = st.args.gauge.enter(msg.kind());
        match msg {
            MachineMsg::Reconcile(reply) => st.read_registry(reply),
            MachineMsg::Registry(result, reply) => st.on_registry(result, reply),
            MachineMsg::Opened {
                path,
                attempt,
                result,
            } => st.on_opened(&path, attempt, result).await,
            MachineMsg::CityStatus { path, id, status } => st.on_city_status(&path, id, status),
            MachineMsg::Ticked { path, id, interval } => st.on_ticked(&path, id, interval),
            MachineMsg::Configured { path, id, spec } => st.on_configured(&path, id, spec),
            MachineMsg::Stalled { path, id } => st.on_stalled(&path, id),
            MachineMsg::Retry { path, attempt } => st.on_retry(&path, attempt),
            MachineMsg::CityStopped { path, summary } => st.on_city_stopped(&path, summary),
            MachineMsg::Stop(mode, reply) => st.on_stop(mode, reply),
            MachineMsg::Find(path, reply) => drop(reply.send(st.find(&path))),
            MachineMsg::Tree(reply) => st.answer_tree(reply),
            MachineMsg::Configure(settings) => st.args.settings = settings,
            MachineMsg::Slow { path, attempt } => st.on_slow(&path, attempt),
            MachineMsg::PendingName { path, id, name } => st.on_pending_name(&path, id, name),
            MachineMsg::Hold(span) => tokio::time::sleep(span).await,
            #[allow(clippy::panic)] // the whole point
            MachineMsg::Crash => panic!("fault drill: machine told to crash"),
        }
        st.publish();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<MachineMsg>,
        evt: SupervisionEvent,
        st: &mut MachineState,
    ) -> Result<(), ActorProcessingErr> {
        match evt {
            SupervisionEvent::ActorFailed(cell, error) => st.on_city_failed(cell.get_id(), error),
            SupervisionEvent::ActorTerminated(cell, last, reason) => {
                let last = last.and_then(|mut last| last.take::<CityState>().ok());
                if last.is_some_and(|city| city.stopped) {
                    st.on_city_ended(cell.get_id());
                } else {
                    let reason = reason.unwrap_or_else(|| "ended unasked".into());
                    st.on_city_failed(cell.get_id(), Box::new(GaveUp(reason)));
                }
            }
            _ => return Ok(()),
        }
        st.publish();
        Ok(())
    }
}

impl MachineState {
    fn find(&self, path: &PathBuf) -> Option<Addr<CityMsg>> {
        self.cities
            .get(path)
            .and_then(|record| record.child.clone())
    }

    fn path_of(&self, id: ActorId) -> Option<PathBuf> {
        self.cities
            .iter()
            .find(|(_, record)| record.is_actor(id))
            .map(|(path, _)| path.clone())
    }

    fn emit(&self, draft: EventDraft) {
        self.args.ports.journal.append(draft);
    }
}
