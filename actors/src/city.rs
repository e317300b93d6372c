//! CitySupervisor: one per city. Keeps a slot for each instance, starts and stops their Workers,
//! and decides what follows when one ends.
//!
//! Handlers never wait for the world: listings, loads and sweeps run in tasks that report back.

mod adopt;
mod cascade;
mod command;
mod config;
mod desire;
mod drain;
mod ends;
mod events;
mod launch;
mod messages;
mod patrol;
mod shutdown;
mod slots;
mod swap;
mod text;
mod view;
mod waves;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::cascade::StopPlan;
pub use self::command::{AgentCommand, CommandError};
use self::config::ConfigStatus;
use self::desire::Pool;
pub use self::messages::StopMode;
pub(crate) use self::messages::{CityMsg, Gathered, Provided};
use self::shutdown::Shutdown;
use self::slots::Slots;
use self::swap::Swap;
use self::waves::StartPlan;
use crate::machine::MachineMsg;
use crate::mailbox::{Addr, Drill, Gauge, Timer};
use crate::model::{AgentEnd, AgentName, CitySpec, CityStatus, EventDraft, RunToken};
use crate::policy::{Graph, Ledger, TickGate, Trigger};
use crate::ports::CityPorts;
use crate::tracker::{Tracker, TrackerArgs, TrackerMsg};
use crate::worker::{WorkerShared, WorkerState};

pub use self::config::ReloadOutcome;

/// Interrupts in flight at once during a shutdown.
const INTERRUPTS: usize = 16;
/// Last looks in flight at once after runs that left by themselves. They are cheap together, since
/// a provider serves many with one look.
const SWEEPS: usize = 64;
/// Failures of one internal child within [`CHILD_WINDOW`] that are too many.
const CHILD_FAILURES: usize = 5;
const CHILD_WINDOW: Duration = Duration::from_secs(60);

/// Events that are also lines of the supervisor's log.
const LOGGED: [&str; 7] = [
    "agent.crashed",
    "agent.quarantined",
    "agent.start_failed",
    "config.reload_failed",
    "config.reload_refused",
    "config.reloaded",
    "config.watch_degraded",
];

/// Everything a [`CitySupervisor`] is born with.
#[derive(Debug)]
pub(crate) struct CityArgs {
    pub(crate) machine: Addr<MachineMsg>,
    pub(crate) gauge: Arc<Gauge>,
    /// Key of the city at its machine.
    pub(crate) path: PathBuf,
    pub(crate) spec: Arc<CitySpec>,
    pub(crate) ports: Arc<CityPorts>,
    /// For `controller.started`.
    pub(crate) version: Arc<str>,
    pub(crate) mode: Arc<str>,
}

/// The city could not begin; nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InitFailed(pub(crate) String);

/// The city gives up. What ends it without one of these types is a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct GaveUp(pub(crate) String);

/// Where the city stands.
#[derive(Debug)]
enum Stage {
    /// Before the first plan: nothing is started until it is known what runs.
    Adopting,
    /// The first plan is under way.
    Starting,
    Running,
    /// All agents are being stopped under one provider, to be started under another.
    Swapping(Swap),
    Stopping(Shutdown),
}

/// State of a [`CitySupervisor`].
#[derive(Debug)]
pub(crate) struct CityState {
    args: CityArgs,
    me: Addr<CityMsg>,
    shared: Arc<WorkerShared>,
    stage: Stage,
    slots: Slots,
    /// Slots waiting for a start permit.
    queue: VecDeque<AgentName>,
    starting: usize,
    /// The wave plan under way; one at a time.
    start_plan: Option<StartPlan>,
    /// Agents stopped along with another one, wave by wave.
    stop_plan: Option<StopPlan>,
    graph: Graph,
    pools: HashMap<AgentName, Pool>,
    /// `on_boot` of the pools was run.
    booted: bool,
    /// Crash history still to be loaded, and the first listing if it came before.
    history_pending: bool,
    first_listing: Option<Gathered>,
    ledgers: BTreeMap<AgentName, Ledger>,
    /// Runs that ended and whose remains may still be listed. They are buried, never adopted: their
    /// end was told.
    ended: HashMap<RunToken, Instant>,
    gate: TickGate,
    epoch: u64,
    tick_timer: Option<Timer>,
    config: ConfigStatus,
    /// Reloads that wait for the end of a swap, or of the first look at what runs.
    postponed: Vec<Option<RpcReplyPort<ReloadOutcome>>>,
    /// Permits for pool checks and hooks (`check_parallelism`).
    checks: Arc<Semaphore>,
    tracker: Option<Addr<TrackerMsg>>,
    tracker_failures: Vec<Instant>,
    /// Length of the last text of all agents.
    text_size: usize,
    began: Instant,
    began_at: DateTime<Utc>,
    last_tick: Option<(DateTime<Utc>, Duration)>,
    foreign: Vec<String>,
    /// Why the last listing failed.
    blind: Option<String>,
    /// Why the city was said to run without terminals.
    told_degraded: Option<String>,
    /// Why edits of the config may be noticed late.
    unwatched: Option<String>,
    /// Event streams of the ports, fed into the mailbox for as long as this actor lives.
    pumps: Vec<Timer>,
    /// Ended as asked; anything else is a crash.
    pub(crate) stopped: bool,
}

/// The actor; all state is in [`CityState`].
#[derive(Debug)]
pub(crate) struct CitySupervisor;

impl Actor for CitySupervisor {
    type Msg = CityMsg;
    type State = CityState;
    type Arguments = CityArgs;

    async fn pre_start(
        &self,
        me: ActorRef<CityMsg>,
        args: CityArgs,
    ) -> Result<CityState, ActorProcessingErr> {
        let me = Addr::new(me, args.gauge.clone());
        let (now, wall) = (args.ports.clock.now(), args.ports.clock.wall());
        let shared = WorkerShared {
            city: me.clone(),
            ports: args.ports.clone(),
            interrupts: Semaphore::new(INTERRUPTS),
            forces: Semaphore::new(args.spec.daemon.stop_parallelism),
            sweeps: Semaphore::new(SWEEPS),
        };
        Ok(CityState {
            me,
            shared: Arc::new(shared),
            stage: Stage::Adopting,
            slots: Slots::default(),
            queue: VecDeque::new(),
            starting: 0,
            start_plan: None,
            stop_plan: None,
            graph: Graph::new(args.spec.agents.iter().map(|agent| &**agent)),
            pools: HashMap::new(),
            booted: false,
            history_pending: args.spec.daemon.persist_crash_history,
            first_listing: None,
            ledgers: BTreeMap::new(),
            ended: HashMap::new(),
            gate: TickGate::new(now),
            epoch: 0,
            tick_timer: None,
            config: ConfigStatus::loaded(wall),
            postponed: Vec::new(),
            checks: Arc::new(Semaphore::new(args.spec.daemon.check_parallelism)),
            tracker: None,
            tracker_failures: Vec::new(),
            text_size: 0,
            began: now,
            began_at: wall,
            last_tick: None,
            foreign: Vec::new(),
            blind: None,
            told_degraded: None,
            unwatched: None,
            pumps: Vec::new(),
            stopped: false,
            args,
        })
    }

    async fn post_start(
        &self,
        _: ActorRef<CityMsg>,
        st: &mut CityState,
    ) -> Result<(), ActorProcessingErr> {
        st.begin().await
    }

    async fn handle(
        &self,
        _: ActorRef<CityMsg>,
        msg: CityMsg,
        st: &mut CityState,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = st.args.gauge.enter(msg.kind());
        match msg {
            CityMsg::Listed(gathered) => st.on_listed(gathered).await?,
            CityMsg::History(text) => st.on_history(text).await,
            CityMsg::Checked(template, result) => st.on_checked(&template, result).await,
            CityMsg::Command(agent, command, reply) => {
                let done = st.on_command(&agent, command).await;
                let _ = reply.send(done); // the caller may have timed out
            }
            CityMsg::Reach(agent, reply) => drop(reply.send(st.reach(&agent))),
            CityMsg::Provided(spec, provided, reply) => st.on_provided(spec, provided, reply).await,
            CityMsg::Retired => st.on_retired(),
            CityMsg::Tick(trigger) => st.on_tick(trigger),
            CityMsg::Reload(reply) => st.on_reload(reply),
            CityMsg::Loaded(result, reply) => st.on_loaded(result, reply).await,
            CityMsg::Watched(trouble) => st.on_watched(trouble),
            CityMsg::Session(event) => st.on_session(event),
            CityMsg::Report {
                agent,
                token,
                report,
            } => st.on_report(&agent, &token, report).await,
            CityMsg::Unspawned { agent, end } => st.on_end(&agent, end).await,
            CityMsg::Due(agent) => st.on_due(&agent).await,
            CityMsg::Stop { mode, reply } => st.on_stop(mode, reply).await,
            CityMsg::GraceOver => st.on_grace_over(),
            CityMsg::Swept => st.on_swept(),
            CityMsg::View(reply) => drop(reply.send(st.view())),
            CityMsg::Spec(reply) => drop(reply.send(st.args.spec.clone())),
            CityMsg::Detail(reply) => {
                let text = st.instances_text();
                let _ = reply.send((st.view_without_agents(), text)); // the caller may be gone
            }
            CityMsg::Tree(reply) => drop(reply.send(st.tree())),
            CityMsg::Past(child, reply) => drop(reply.send(st.past(&child))),
            #[allow(clippy::panic)] // the whole point
            CityMsg::Crash => panic!("fault drill: city {} told to crash", st.args.spec.name),
            CityMsg::Hold(span) => tokio::time::sleep(span).await,
            CityMsg::CrashChild(child, drill, reply) => {
                let _ = reply.send(st.on_crash_child(&child, drill)); // nobody may wait for it
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<CityMsg>,
        evt: SupervisionEvent,
        st: &mut CityState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, end) = match evt {
            SupervisionEvent::ActorFailed(cell, error) => (cell, ChildEnd::from_error(error)),
            SupervisionEvent::ActorTerminated(cell, last, _) => {
                let end = last
                    .and_then(|mut last| last.take::<WorkerState>().ok())
                    .and_then(|st| st.end);
                (
                    cell,
                    end.map_or_else(|| ChildEnd::Lost("killed".into()), ChildEnd::Agent),
                )
            }
            _ => return Ok(()),
        };
        if st
            .tracker
            .as_ref()
            .is_some_and(|tracker| tracker.actor().get_id() == cell.get_id())
        {
            return st.on_tracker_lost(&end).await;
        }
        let Some(agent) = st.slots.release(cell.get_id()) else {
            return Ok(()); // of a Worker no longer in its slot
        };
        match end {
            ChildEnd::Agent(end) => st.on_end(&agent, end).await,
            ChildEnd::Lost(error) => st.on_worker_lost(&agent, &error).await,
        }
        Ok(())
    }
}

/// How a child ended: as a Worker should, or through a fault of ours.
enum ChildEnd {
    Agent(AgentEnd),
    Lost(String),
}

impl ChildEnd {
    fn from_error(error: ActorProcessingErr) -> Self {
        match error.downcast::<AgentEnd>() {
            Ok(end) => Self::Agent(*end),
            Err(error) => Self::Lost(error.to_string()),
        }
    }
}

impl CityState {
    /// Children, event pumps, and the listing that decides what is adopted.
    async fn begin(&mut self) -> Result<(), ActorProcessingErr> {
        self.spawn_tracker().await?;
        if let Some(tracker) = self.tracker.as_ref().filter(|_| self.history_pending) {
            tracker.send(TrackerMsg::LoadHistory);
        }
        self.pump_events();
        self.emit(
            EventDraft::new("controller.started", "")
                .with("mode", &*self.args.mode)
                .with("version", &*self.args.version),
        );
        self.tell_mode();
        self.report(CityStatus::AdoptingSessions);
        self.gather(Trigger::Startup);
        Ok(())
    }

    /// Tells that the city runs without the terminals it wants, or has them again.
    fn tell_mode(&mut self) {
        let now = self.args.ports.sessions.degraded(None);
        if now == self.told_degraded {
            return;
        }
        self.emit(match &now {
            Some(why) => EventDraft::new("mode.degraded", "").with("reason", &**why),
            None => EventDraft::new("mode.normal", ""),
        });
        self.told_degraded = now;
    }

    fn pump_events(&mut self) {
        let mut sessions = self.args.ports.sessions.subscribe();
        let me = self.me.clone();
        self.pumps.push(Timer::spawn(async move {
            while let Some(event) = sessions.recv().await {
                me.send(CityMsg::Session(event));
            }
        }));
        let mut changes = self.args.ports.desired.changes();
        let me = self.me.clone();
        self.pumps.push(Timer::spawn(async move {
            while changes.changed().await.is_ok() {
                me.send(CityMsg::Reload(None));
            }
        }));
        let mut trouble = self.args.ports.desired.watch_trouble();
        let me = self.me.clone();
        self.pumps.push(Timer::spawn(async move {
            loop {
                let why = trouble.borrow_and_update().clone();
                me.send(CityMsg::Watched(why));
                if trouble.changed().await.is_err() {
                    return; // it stays as it is
                }
            }
        }));
    }

    async fn spawn_tracker(&mut self) -> Result<(), ActorProcessingErr> {
        let gauge = Arc::new(Gauge::default());
        let args = TrackerArgs {
            gauge: gauge.clone(),
            city: self.me.clone(),
            ports: self.args.ports.clone(),
        };
        let parent = self.me.actor().get_cell();
        let (tracker, _) = Actor::spawn_linked(None, Tracker, args, parent).await?;
        self.tracker = Some(Addr::new(tracker, gauge));
        Ok(())
    }

    /// Internal children are restarted one for one; too many failures are the city's own.
    async fn on_tracker_lost(&mut self, end: &ChildEnd) -> Result<(), ActorProcessingErr> {
        if self.is_stopping() {
            return Ok(());
        }
        let error = match end {
            ChildEnd::Lost(error) => error.as_str(),
            ChildEnd::Agent(_) => "ended like a worker",
        };
        let now = self.now();
        self.tracker_failures
            .retain(|at| now.saturating_duration_since(*at) < CHILD_WINDOW);
        self.tracker_failures.push(now);
        tracing::error!(city = %self.args.spec.name, error, "tracker lost");
        if self.tracker_failures.len() > CHILD_FAILURES {
            let error = format!("tracker failed too often: {error}");
            return Err(Box::new(GaveUp(error)));
        }
        self.spawn_tracker().await
    }

    fn on_crash_child(&self, child: &str, drill: Drill) -> bool {
        match &self.tracker {
            Some(tracker) if child == "tracker" => {
                drill.hit(tracker, TrackerMsg::Crash, TrackerMsg::Hold);
                true
            }
            _ => self.slots.crash_worker(child, drill),
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping(_))
    }

    /// Agents may be started.
    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Starting | Stage::Running)
    }

    fn now(&self) -> Instant {
        self.args.ports.clock.now()
    }

    /// Tells the machine where this city stands.
    fn report(&self, status: CityStatus) {
        let id = self.me.actor().get_id();
        self.args.machine.send(MachineMsg::CityStatus {
            path: self.args.path.clone(),
            id,
            status,
        });
    }

    fn emit(&self, draft: EventDraft) {
        if LOGGED.contains(&draft.kind.as_str()) {
            let (city, event) = (&self.args.spec.name, &draft.kind);
            tracing::info!(%city, event, agent = draft.subject, "{}", draft.message);
        }
        self.args.ports.journal.append(draft);
    }
}
