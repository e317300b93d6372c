//! Worker: the actor of exactly one run.
//!
//! Starts the session or takes it over, watches it, stops it when told, and ends when the session
//! ends: with an [`AgentEnd`] as its error (crash, clean exit, failed start), or normally with the
//! end of a planned stop in its last state. Dropping a Worker never touches the session.

mod dialogs;
mod effects;
mod messages;
mod ready;
mod run;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use messages::WorkerMsg;
use run::{Effect, RunState};
pub(crate) use run::{Grace, Mode, Report};

use crate::city::CityMsg;
use crate::mailbox::{Addr, Gauge, Timer};
use crate::model::{AgentEnd, AgentName, RunToken, SessionName};
use crate::ports::{CityPorts, StartSpec};

/// What all Workers of a city share.
#[derive(Debug)]
pub(crate) struct WorkerShared {
    pub(crate) city: Addr<CityMsg>,
    pub(crate) ports: Arc<CityPorts>,
    /// Bounds the broadcast of interrupts.
    pub(crate) interrupts: Semaphore,
    /// Bounds forced stops.
    pub(crate) forces: Semaphore,
    /// Bounds last looks after runs that left by themselves.
    pub(crate) sweeps: Semaphore,
}

/// Everything about one run.
#[derive(Debug)]
pub(crate) struct WorkerArgs {
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionName,
    pub(crate) token: RunToken,
    /// When the run began, or this attempt.
    pub(crate) started: Instant,
    pub(crate) mode: Mode,
    /// How to start it; needed unless it is adopted.
    pub(crate) start: Option<Arc<StartSpec>>,
    pub(crate) startup_timeout: Duration,
    /// It counts as up once one of these programs runs; empty: at once.
    pub(crate) process_names: Vec<String>,
    /// Lines that are run once it is ready.
    pub(crate) live: Vec<String>,
    pub(crate) capture_lines: u32,
    /// The run replaces one that was stopped on purpose: old output would mislead.
    pub(crate) clears_scrollback: bool,
}

/// State of a [`Worker`].
#[derive(Debug)]
pub(crate) struct WorkerState {
    args: WorkerArgs,
    me: Addr<WorkerMsg>,
    run: RunState,
    /// A start in flight dies with the Worker, so that nobody is left to finish it unseen.
    starting: Option<Timer>,
    grace: Option<Timer>,
    /// The last write of metadata.
    noting: Option<JoinHandle<()>>,
    /// The end of a planned stop, for the parent.
    pub(crate) end: Option<AgentEnd>,
}

/// The actor; all state is in [`WorkerState`].
#[derive(Debug)]
pub(crate) struct Worker;

impl Actor for Worker {
    type Msg = WorkerMsg;
    type State = WorkerState;
    type Arguments = WorkerArgs;

    async fn pre_start(
        &self,
        me: ActorRef<WorkerMsg>,
        args: WorkerArgs,
    ) -> Result<WorkerState, ActorProcessingErr> {
        let me = Addr::new(me, args.gauge.clone());
        let run = RunState::new(args.mode, args.capture_lines > 0);
        Ok(WorkerState {
            args,
            me,
            run,
            starting: None,
            grace: None,
            noting: None,
            end: None,
        })
    }

    async fn post_start(
        &self,
        _: ActorRef<WorkerMsg>,
        st: &mut WorkerState,
    ) -> Result<(), ActorProcessingErr> {
        let effects = st.run.on_begin();
        st.perform(effects)
    }

    async fn handle(
        &self,
        _: ActorRef<WorkerMsg>,
        msg: WorkerMsg,
        st: &mut WorkerState,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = st.args.gauge.enter(msg.kind());
        let effects = match msg {
            WorkerMsg::StartDone(result) => st.on_start_done(result),
            WorkerMsg::Probed(result) => st.run.on_probed(result),
            WorkerMsg::Exited(token, status) if token == st.args.token => st.run.on_exit(status),
            WorkerMsg::Exited(..) => return Ok(()), // an older run of this name
            WorkerMsg::Captured(tail) => st.run.on_captured(tail),
            WorkerMsg::Check => st.run.on_check(),
            WorkerMsg::Stop(reason, grace) => st.run.on_stop(reason, grace),
            WorkerMsg::Interrupted => st.run.on_interrupted(),
            WorkerMsg::Force => st.run.on_force(),
            WorkerMsg::StopDone(result) => st.run.on_stop_done(result),
            WorkerMsg::Zombie => st.run.on_zombie(),
            WorkerMsg::BackendLost(token, why) if token == st.args.token => {
                st.run.on_backend_lost(why)
            }
            WorkerMsg::BackendLost(..) => return Ok(()),
            WorkerMsg::Note(note, value) => {
                st.note(note, value);
                return Ok(());
            }
            WorkerMsg::ApplyLive {
                lines,
                spec,
                update,
            } => {
                st.apply_live(lines, spec, update);
                return Ok(());
            }
            WorkerMsg::LiveApplied { update, warnings } => {
                vec![Effect::Report(Report::LiveApplied { update, warnings })]
            }
            WorkerMsg::Hold(span) => {
                tokio::time::sleep(span).await;
                Vec::new()
            }
            #[allow(clippy::panic)] // the whole point
            WorkerMsg::Crash => panic!("fault drill: worker {} told to crash", st.args.agent),
        };
        st.perform(effects)
    }
}
