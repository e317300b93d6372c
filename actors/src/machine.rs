//! MachineSupervisor: the root. Hosts every registered city and keeps them apart.
//!
//! A city that fails to open, crashes or hangs is retried with its own delay; no other city
//! notices. Registry reads, opens and tree walks run in tasks that report back.

mod record;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::time::Duration;

use chrono::{DateTime, Utc};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::record::Record;
pub use self::record::stop_sessions;
use crate::city::{CityArgs, CityMsg, CityState, CitySupervisor, InitFailed, StopMode};
use crate::mailbox::{Addr, Gauge, Timer};
use crate::model::{CitySpec, CityStatus, EventDraft, MachineView, StopSummary, millis};
use crate::policy::{Trigger, doubling};
use crate::ports::{Cities, CityEntry, Clock, Journal, OpenError, Opened, Registered};
use crate::tree::Tree;

/// Missed patrol intervals after which a city counts as stalled, and the least time for that.
const STALL_INTERVALS: u32 = 3;
const STALL_AT_LEAST: Duration = Duration::from_secs(90);
/// Beyond its own grace, how long a city may take to stop before it is killed.
const STOP_OVERTIME: Duration = Duration::from_secs(30);

/// What a reconciliation of the registry set in motion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Cities being started.
    pub started: Vec<PathBuf>,
    /// Cities being stopped.
    pub stopped: Vec<PathBuf>,
    /// Cities that cannot be hosted, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// What a [`MachineSupervisor`] can be told.
#[derive(Debug)]
pub(crate) enum MachineMsg {
    /// Read the registry. On request (with a reply) delays of failing cities are ignored.
    Reconcile(Option<RpcReplyPort<Result<Reconciled, String>>>),
    /// The registry was read.
    Registry(
        Result<Registered, String>,
        Option<RpcReplyPort<Result<Reconciled, String>>>,
    ),
    /// A city was opened, or not.
    Opened {
        path: PathBuf,
        attempt: u64,
        result: Result<Opened, OpenError>,
    },
    /// A city says where it stands.
    CityStatus {
        path: PathBuf,
        id: ActorId,
        status: CityStatus,
    },
    /// A city finished a tick; the next is due within a few of these intervals.
    Ticked {
        path: PathBuf,
        id: ActorId,
        interval: Duration,
    },
    /// A city has another config in force.
    Configured {
        path: PathBuf,
        id: ActorId,
        spec: Arc<CitySpec>,
    },
    /// A city has not finished a tick for too long.
    Stalled { path: PathBuf, id: ActorId },
    /// A failing city's delay is over.
    Retry { path: PathBuf, attempt: u64 },
    /// A city answered its stop; `None`: it did not.
    CityStopped {
        path: PathBuf,
        summary: Option<StopSummary>,
    },
    /// End the machine.
    Stop(StopMode, RpcReplyPort<StopSummary>),
    /// The supervisor of the city at that path.
    Find(PathBuf, RpcReplyPort<Option<Addr<CityMsg>>>),
    /// The whole tree.
    Tree(RpcReplyPort<Tree>),
    /// Panic, for fault drills.
    Crash,
}

impl MachineMsg {
    fn kind(&self) -> &'static str {
        match self {
            Self::Reconcile(_) => "Reconcile",
            Self::Registry(..) => "Registry",
            Self::Opened { .. } => "Opened",
            Self::CityStatus { .. } => "CityStatus",
            Self::Ticked { .. } => "Ticked",
            Self::Configured { .. } => "Configured",
            Self::Stalled { .. } => "Stalled",
            Self::Retry { .. } => "Retry",
            Self::CityStopped { .. } => "CityStopped",
            Self::Stop(..) => "Stop",
            Self::Find(..) => "Find",
            Self::Tree(_) => "Tree",
            Self::Crash => "Crash",
        }
    }
}

/// Settings of the machine (`supervisor.toml`).
#[derive(Debug, Clone)]
pub struct MachineSettings {
    /// Time between reads of the registry.
    pub patrol_interval: Duration,
    /// Cities being started at once.
    pub city_start_parallelism: usize,
    /// Delay before a failing city is tried again; doubles.
    pub city_restart_delay: Duration,
    /// Upper bound of that delay.
    pub city_restart_delay_max: Duration,
    /// For events: the program's version.
    pub version: String,
    /// For events: `supervisor`, `standalone` or `library`.
    pub mode: String,
}

impl Default for MachineSettings {
    fn default() -> Self {
        Self {
            patrol_interval: Duration::from_secs(10),
            city_start_parallelism: 4,
            city_restart_delay: Duration::from_secs(1),
            city_restart_delay_max: Duration::from_secs(300),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: "library".to_owned(),
        }
    }
}

/// Ports of the machine.
#[derive(Clone)]
pub struct MachinePorts {
    /// Which cities there are, and how to open one.
    pub cities: Arc<dyn Cities>,
    /// Machine events.
    pub journal: Arc<dyn Journal>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for MachinePorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachinePorts").finish_non_exhaustive()
    }
}

/// Everything a [`MachineSupervisor`] is born with.
#[derive(Debug)]
pub(crate) struct MachineArgs {
    pub(crate) settings: MachineSettings,
    pub(crate) ports: MachinePorts,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) views: watch::Sender<Arc<MachineView>>,
    /// Set before a normal end; a root that ends without it has failed.
    pub(crate) clean: Arc<AtomicBool>,
}

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
                    st.on_city_failed(cell.get_id(), reason.into());
                }
            }
            _ => return Ok(()),
        }
        st.publish();
        Ok(())
    }
}

impl MachineState {
    fn watch_registry(&mut self) {
        let (me, mut changes) = (self.me.clone(), self.args.ports.cities.changes());
        self.watching = Some(Timer::spawn(async move {
            while changes.changed().await.is_ok() {
                me.send(MachineMsg::Reconcile(None));
            }
        }));
    }

    fn read_registry(&mut self, reply: Option<RpcReplyPort<Result<Reconciled, String>>>) {
        self.patrol = None;
        let (me, cities) = (self.me.clone(), self.args.ports.cities.clone());
        tokio::spawn(async move {
            let registered = cities.registered().await;
            me.send(MachineMsg::Registry(registered, reply));
        });
    }

    fn on_registry(
        &mut self,
        result: Result<Registered, String>,
        reply: Option<RpcReplyPort<Result<Reconciled, String>>>,
    ) {
        let interval = self.args.settings.patrol_interval;
        self.patrol = Some(self.me.send_after(interval, MachineMsg::Reconcile(None)));
        self.registry_read = true;
        let outcome = match result {
            Ok(_) if self.stopping.is_some() => Err("shutting down".to_owned()),
            Ok(registered) => {
                self.registry_error = None;
                Ok(self.reconcile(registered, reply.is_some()))
            }
            Err(error) => {
                // What ran before keeps running.
                tracing::warn!(error, "registry cannot be read");
                self.registry_error = Some(error.clone());
                Err(error)
            }
        };
        if let Some(reply) = reply {
            let _ = reply.send(outcome); // the caller may have timed out
        }
    }

    /// Stops what is no longer registered, starts what is new, and pokes the rest if asked to.
    fn reconcile(&mut self, registered: Registered, on_request: bool) -> Reconciled {
        let mut outcome = Reconciled::default();
        let gone: Vec<PathBuf> = self
            .cities
            .iter()
            .filter(|(path, _)| !registered.cities.iter().any(|entry| entry.path == **path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            self.retire(&path, &mut outcome);
        }
        for (entry, why) in registered.refused {
            outcome.failed.push((entry.path.clone(), why.clone()));
            let record = self
                .cities
                .entry(entry.path.clone())
                .or_insert_with(|| Record::new(entry));
            record.fail(CityStatus::InitFailed, why);
        }
        for entry in registered.cities {
            self.admit(entry, on_request, &mut outcome);
        }
        self.start_pending();
        outcome
    }

    fn admit(&mut self, entry: CityEntry, on_request: bool, outcome: &mut Reconciled) {
        let path = entry.path.clone();
        let record = self
            .cities
            .entry(path.clone())
            .or_insert_with(|| Record::new(entry.clone()));
        record.wanted = true;
        match record.status {
            CityStatus::Pending => outcome.started.push(path),
            CityStatus::Stopped => {
                *record = Record::new(entry);
                outcome.started.push(path);
            }
            CityStatus::InitFailed | CityStatus::Crashed | CityStatus::Stalled
                if record.child.is_none() && (on_request || record.retry.is_none()) =>
            {
                record.retry = None;
                record.status = CityStatus::Pending;
                outcome.started.push(path);
            }
            _ if on_request => {
                if let Some(city) = &record.child {
                    city.send(CityMsg::Tick(Trigger::Poke));
                }
            }
            _ => {}
        }
    }

    /// Opens pending cities while start slots are free.
    fn start_pending(&mut self) {
        let busy = self
            .cities
            .values()
            .filter(|record| record.is_starting())
            .count();
        let free = self
            .args
            .settings
            .city_start_parallelism
            .saturating_sub(busy);
        let pending: Vec<PathBuf> = self
            .cities
            .iter()
            .filter(|(_, record)| record.wanted && record.status == CityStatus::Pending)
            .take(free)
            .map(|(path, _)| path.clone())
            .collect();
        for path in pending {
            self.open(&path);
        }
    }

    fn open(&mut self, path: &PathBuf) {
        let (me, cities) = (self.me.clone(), self.args.ports.cities.clone());
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        record.status = CityStatus::LoadingConfig;
        record.error = None;
        record.attempt += 1;
        let (path, attempt, entry) = (path.clone(), record.attempt, record.entry.clone());
        let kept = record.opened.clone();
        tokio::spawn(async move {
            let result = match kept {
                // Its lock and ports are still held; only the config may be newer.
                Some(kept) => Ok(reload(kept).await),
                None => cities.open(entry).await,
            };
            me.send(MachineMsg::Opened {
                path,
                attempt,
                result,
            });
        });
    }

    async fn on_opened(&mut self, path: &PathBuf, attempt: u64, result: Result<Opened, OpenError>) {
        let Some(record) = self.cities.get_mut(path).filter(|r| r.attempt == attempt) else {
            return;
        };
        if !record.wanted || self.stopping.is_some() {
            self.cities.remove(path);
            return self.finish_if_done();
        }
        match result {
            Err(error) => self.init_failed(path, error.message),
            Ok(opened) => {
                record.opened = Some(opened.clone());
                record.phases.push("loading_config".into());
                if let Err(error) = self.spawn_city(path, opened).await {
                    self.init_failed(path, error);
                }
            }
        }
        self.start_pending();
    }

    async fn spawn_city(&mut self, path: &PathBuf, opened: Opened) -> Result<(), String> {
        let gauge = Arc::new(Gauge::default());
        let args = CityArgs {
            machine: self.me.clone(),
            gauge: gauge.clone(),
            path: path.clone(),
            spec: opened.spec,
            ports: Arc::new(opened.ports),
            version: self.args.settings.version.as_str().into(),
            mode: self.args.settings.mode.as_str().into(),
        };
        let interval = args.spec.daemon.patrol_interval;
        let parent = self.me.actor().get_cell();
        let (city, _) = Actor::spawn_linked(None, CitySupervisor, args, parent)
            .await
            .map_err(|error| error.to_string())?;
        if let Some(record) = self.cities.get_mut(path) {
            record.status = CityStatus::AdoptingSessions;
            let id = city.get_id();
            record.child = Some(Addr::new(city, gauge));
            self.on_ticked(path, id, interval); // its first tick has a deadline, too
        }
        Ok(())
    }

    fn on_city_status(&mut self, path: &PathBuf, id: ActorId, status: CityStatus) {
        let now = self.args.ports.clock.now();
        let Some(record) = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id))
        else {
            return;
        };
        record.advance(status, now);
        if status == CityStatus::Running {
            let name = record.entry.name.to_string();
            let draft = EventDraft::new("city.started", &name);
            self.emit(draft.with("path", path.to_string_lossy()));
            self.start_pending();
        }
    }

    /// Remembers the last good config, should the city crash while the one on disk is broken.
    fn on_configured(&mut self, path: &PathBuf, id: ActorId, spec: Arc<CitySpec>) {
        let record = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id));
        if let Some(opened) = record.and_then(|record| record.opened.as_mut()) {
            opened.spec = spec;
        }
    }

    /// Sets the alarm that rings when the city stops ticking.
    fn on_ticked(&mut self, path: &PathBuf, id: ActorId, interval: Duration) {
        let me = self.me.clone();
        let Some(record) = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id))
        else {
            return;
        };
        let limit = (interval * STALL_INTERVALS).max(STALL_AT_LEAST);
        record.stall = Some(me.send_after(
            limit,
            MachineMsg::Stalled {
                path: path.clone(),
                id,
            },
        ));
    }

    /// The city's loop stands still. It is killed; once its end is seen, a successor adopts its
    /// agents. One whose handler never yields cannot be killed: it stays `stalled`, since one city
    /// never has two supervisors.
    fn on_stalled(&mut self, path: &PathBuf, id: ActorId) {
        let Some(record) = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id))
        else {
            return;
        };
        if record.status == CityStatus::Stopping {
            return; // has its own limit
        }
        let error = "no tick was finished in time".to_owned();
        tracing::error!(city = %record.entry.name, "city stalled");
        record.fail(CityStatus::Stalled, error.clone());
        record.stalled = true;
        let name = record.entry.name.to_string();
        let journal = record
            .opened
            .as_ref()
            .map(|opened| opened.ports.journal.clone());
        if let Some(city) = &record.child {
            city.actor().kill();
        }
        let draft = EventDraft::new("city.stalled", &name)
            .message(error.clone())
            .with("error", error);
        if let Some(journal) = journal {
            journal.append(draft.clone());
        }
        self.emit(draft);
    }

    fn on_retry(&mut self, path: &PathBuf, attempt: u64) {
        let Some(record) = self.cities.get_mut(path).filter(|r| r.attempt == attempt) else {
            return;
        };
        record.retry = None;
        if record.wanted && self.stopping.is_none() {
            record.status = CityStatus::Pending;
            self.start_pending();
        }
    }

    /// A CitySupervisor failed. Its agents run on and are adopted by its successor.
    fn on_city_failed(&mut self, id: ActorId, error: ActorProcessingErr) {
        let Some(path) = self.path_of(id) else { return };
        let stalled = self.cities.get_mut(&path).is_some_and(|record| {
            record.child = None;
            record.stall = None;
            std::mem::take(&mut record.stalled)
        });
        match error.downcast::<InitFailed>() {
            Ok(failed) => self.init_failed(&path, failed.0),
            Err(_) if stalled => self.come_back(&path),
            Err(error) => self.crashed(&path, error.to_string()),
        }
        self.abandoned(&path);
        self.start_pending();
    }

    fn init_failed(&mut self, path: &PathBuf, error: String) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        tracing::warn!(city = %record.entry.name, error, "city failed to start");
        record.init_failures += 1;
        let step = record.init_failures - 1;
        record.fail(CityStatus::InitFailed, error.clone());
        let name = record.entry.name.to_string();
        self.emit(EventDraft::new("city.init_failed", &name).message(error));
        self.retry_later(path, step);
    }

    fn crashed(&mut self, path: &PathBuf, error: String) {
        let now = self.args.ports.clock.now();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        tracing::error!(city = %record.entry.name, error, "city crashed");
        let step = record.count_crash(now);
        let count = record.crashes;
        record.fail(CityStatus::Crashed, error.clone());
        let (name, city_log) = (
            record.entry.name.to_string(),
            record
                .opened
                .as_ref()
                .map(|opened| opened.ports.journal.clone()),
        );
        let next = self.retry_later(path, step);
        let draft = EventDraft::new("city.crashed", &name)
            .message(error.clone())
            .with("error", error)
            .with("restart_count", count)
            .maybe("next_retry_at", next.map(|at| millis::format(&at)));
        if let Some(journal) = city_log {
            journal.append(draft.clone());
        }
        self.emit(draft);
    }

    /// The end of a stalled city was seen: its successor may begin, with the delays of a crash.
    fn come_back(&mut self, path: &PathBuf) {
        let now = self.args.ports.clock.now();
        if let Some(record) = self.cities.get_mut(path) {
            let step = record.count_crash(now);
            self.retry_later(path, step);
        }
    }

    /// Sets the alarm of a failing city; retries never end.
    fn retry_later(&mut self, path: &PathBuf, step: u32) -> Option<DateTime<Utc>> {
        let settings = &self.args.settings;
        let delay = doubling(
            settings.city_restart_delay,
            settings.city_restart_delay_max,
            step,
        );
        let at = self.args.ports.clock.wall() + delay;
        let record = self.cities.get_mut(path)?;
        let attempt = record.attempt;
        let alarm = self.me.send_after(
            delay,
            MachineMsg::Retry {
                path: path.clone(),
                attempt,
            },
        );
        record.retry = Some((at, alarm));
        Some(at)
    }

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

/// Stopping: one city, or all of them.
impl MachineState {
    /// Takes a city out of service.
    fn retire(&mut self, path: &PathBuf, outcome: &mut Reconciled) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if !std::mem::replace(&mut record.wanted, false) {
            if record.status == CityStatus::Stopped {
                self.cities.remove(path); // kept until here for whoever watched it stop
            }
            return;
        }
        record.retry = None;
        outcome.stopped.push(path.clone());
        self.stop_city(path, StopMode::Graceful);
    }

    fn stop_city(&mut self, path: &PathBuf, mode: StopMode) {
        let me = self.me.clone();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        let opened = record.opened.clone();
        let limit = opened.as_ref().map_or(Duration::ZERO, |opened| {
            opened.spec.daemon.shutdown_timeout + STOP_OVERTIME
        });
        let path = path.clone();
        match (record.child.clone(), opened) {
            (Some(city), _) => {
                record.status = CityStatus::Stopping;
                tokio::spawn(async move {
                    let stop = |reply| CityMsg::Stop {
                        mode,
                        reply: Some(reply),
                    };
                    let summary = city.ask(limit, stop).await;
                    me.send(MachineMsg::CityStopped { path, summary });
                });
            }
            // Crashed, and its agents run on: stop them without it.
            (None, Some(opened)) if mode != StopMode::Detach => {
                record.status = CityStatus::Stopping;
                tokio::spawn(async move {
                    let stopped = timeout(limit, stop_sessions(&*opened.ports.sessions)).await;
                    let summary = stopped.ok().and_then(Result::ok);
                    me.send(MachineMsg::CityStopped { path, summary });
                });
            }
            _ => record.retired(StopSummary::default()),
        }
    }

    /// The city answered its stop, or its time is up.
    fn on_city_stopped(&mut self, path: &PathBuf, summary: Option<StopSummary>) {
        let me = self.me.clone();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if let (None, Some(city), Some(opened)) = (&summary, &record.child, record.opened.clone()) {
            tracing::error!(city = %record.entry.name, "city ignores its stop and is killed");
            city.actor().kill();
            let path = path.clone();
            tokio::spawn(async move {
                let stopped = stop_sessions(&*opened.ports.sessions).await;
                let summary = Some(stopped.unwrap_or_default());
                me.send(MachineMsg::CityStopped { path, summary });
            });
            return;
        }
        record.retired(summary.unwrap_or_default());
        self.city_done(path);
    }

    /// The CitySupervisor ended as asked.
    fn on_city_ended(&mut self, id: ActorId) {
        let Some(path) = self.path_of(id) else { return };
        if let Some(record) = self.cities.get_mut(&path) {
            record.child = None;
        }
        self.city_done(&path);
    }

    /// A city that was to stop crashed instead: the machine must not wait for its answer.
    fn abandoned(&mut self, path: &PathBuf) {
        let unwanted = self.cities.get(path).is_some_and(|r| !r.wanted) || self.stopping.is_some();
        if unwanted {
            let mode = self
                .stopping
                .as_ref()
                .map_or(StopMode::Force, |stopping| stopping.mode);
            if let Some(record) = self.cities.get_mut(path) {
                record.retry = None;
            }
            self.stop_city(path, mode);
        }
    }

    /// Both halves of a stop are in: the answer and the actor's end.
    fn city_done(&mut self, path: &PathBuf) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if record.child.is_some() || record.status != CityStatus::Stopped {
            return;
        }
        record.opened = None; // and with it the lock
        let (name, summary) = (record.entry.name.to_string(), record.summary.clone());
        self.emit(EventDraft::new("city.stopped", &name).with("path", path.to_string_lossy()));
        if let (Some(stopping), Some(summary)) = (&mut self.stopping, summary) {
            stopping.summary.interrupted += summary.interrupted;
            stopping.summary.killed.extend(summary.killed);
        }
        self.finish_if_done();
    }

    fn on_stop(&mut self, mode: StopMode, reply: RpcReplyPort<StopSummary>) {
        let again = self.stopping.is_some();
        let stopping = self.stopping.get_or_insert_with(|| Stopping {
            mode,
            replies: Vec::new(),
            summary: StopSummary::default(),
        });
        stopping.replies.push(reply);
        if again && mode != StopMode::Force {
            return;
        }
        stopping.mode = mode;
        (self.patrol, self.watching) = (None, None);
        let paths: Vec<PathBuf> = self.cities.keys().cloned().collect();
        for path in paths {
            let status = self.cities.get(&path).map(|record| record.status);
            match status {
                Some(CityStatus::Stopped) => {}
                Some(CityStatus::LoadingConfig) => {} // dropped when the open returns
                Some(CityStatus::Stopping) if !again => {}
                _ => self.stop_city(&path, mode),
            }
        }
        self.finish_if_done();
    }

    fn finish_if_done(&mut self) {
        let done = self
            .cities
            .values()
            .all(|r| r.child.is_none() && r.status == CityStatus::Stopped);
        let Some(stopping) = self.stopping.as_mut().filter(|_| done) else {
            return;
        };
        let (replies, summary) = (
            std::mem::take(&mut stopping.replies),
            stopping.summary.clone(),
        );
        self.emit(EventDraft::new("supervisor.stopped", ""));
        self.args.clean.store(true, Release);
        let (journal, me) = (self.args.ports.journal.clone(), self.me.actor().clone());
        tokio::spawn(async move {
            let _ = timeout(STOP_OVERTIME, journal.flush()).await;
            for reply in replies {
                let _ = reply.send(summary.clone()); // the caller may have timed out
            }
            me.stop(None);
        });
    }
}

/// A crashed city comes back with the config on disk, or, if that is broken, with the last good one.
async fn reload(kept: Opened) -> Opened {
    match kept.ports.desired.load().await {
        Ok(spec) if spec.name == kept.spec.name => Opened { spec, ..kept },
        _ => kept,
    }
}
