//! The tree as seen from outside: handles with methods, no messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::time::Duration;

use ractor::Actor;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::city::{AgentCommand, CityMsg, CommandError, ReloadOutcome, StopMode};
use crate::machine::{
    MachineArgs, MachineMsg, MachinePorts, MachineSettings, MachineSupervisor, Reconciled,
};
use crate::mailbox::{Addr, Drill, Gauge};
use crate::model::{AgentName, AgentState, CitySpec, CityView, MachineView, StopSummary};
use crate::policy::Trigger;
use crate::session::SessionRef;
use crate::tree::{Node, Shown, Tree};

/// A question is answered from memory; a supervisor that takes longer is in trouble.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A config may lie on a slow disk.
const RELOAD_LIMIT: Duration = Duration::from_secs(300);
/// Beyond every limit inside the tree: only a lost answer takes longer.
const STOP_LIMIT: Duration = Duration::from_secs(3600);

/// A question that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The city has no running supervisor.
    #[error("the city is not running")]
    NotRunning,
    /// No answer in time, or the supervisor ended meanwhile.
    #[error("the supervisor does not answer")]
    NoAnswer,
}

/// A running supervision tree.
///
/// Dropping the handle leaves the tree running; dropping the runtime ends the actors and leaves
/// the agents running for the next supervisor to adopt.
#[derive(Debug)]
pub struct Machine {
    root: Addr<MachineMsg>,
    views: watch::Receiver<Arc<MachineView>>,
    clean: Arc<AtomicBool>,
    ended: JoinHandle<()>,
}

/// A clonable door to a [`Machine`], for whoever only asks.
#[derive(Debug, Clone)]
pub struct MachineRef {
    root: Addr<MachineMsg>,
    views: watch::Receiver<Arc<MachineView>>,
}

impl Machine {
    /// Starts the root supervisor. Cities follow from the registry.
    ///
    /// # Errors
    /// If the root actor could not be spawned.
    pub async fn spawn(settings: MachineSettings, ports: MachinePorts) -> Result<Self, String> {
        let gauge = Arc::new(Gauge::default());
        let clean = Arc::new(AtomicBool::new(false));
        let nothing = MachineView {
            started_at: ports.clock.wall(),
            ready: false,
            registry_read: false,
            registry_error: None,
            cities: Vec::new(),
        };
        let (sender, views) = watch::channel(Arc::new(nothing));
        let args = MachineArgs {
            settings,
            ports,
            gauge: gauge.clone(),
            views: sender,
            clean: clean.clone(),
        };
        let (root, ended) = Actor::spawn(None, MachineSupervisor, args)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self {
            root: Addr::new(root, gauge),
            views,
            clean,
            ended,
        })
    }

    /// A door for others.
    #[must_use]
    pub fn door(&self) -> MachineRef {
        MachineRef {
            root: self.root.clone(),
            views: self.views.clone(),
        }
    }

    /// Waits until the root actor ended. `true`: as asked; `false`: it failed, and the agents run
    /// on for the next supervisor.
    pub async fn ended(&mut self) -> bool {
        let _ = (&mut self.ended).await;
        self.clean.load(Acquire)
    }
}

impl MachineRef {
    /// The latest snapshot; never waits.
    #[must_use]
    pub fn view(&self) -> Arc<MachineView> {
        self.views.borrow().clone()
    }

    /// Snapshots as they change. Closed when the machine ended.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<Arc<MachineView>> {
        self.views.clone()
    }

    /// Reads the registry now, ignoring the delays of failing cities, and pokes running ones.
    ///
    /// # Errors
    /// If the registry cannot be read; what runs keeps running.
    pub async fn reconcile(&self) -> Result<Reconciled, String> {
        let asked = self
            .root
            .ask(RELOAD_LIMIT, |reply| MachineMsg::Reconcile(Some(reply)))
            .await;
        asked.unwrap_or_else(|| Err(AskError::NoAnswer.to_string()))
    }

    /// The actor tree, without what works well behind the ports.
    ///
    /// # Errors
    /// If the root does not answer.
    pub async fn tree(&self) -> Result<Tree, AskError> {
        Ok(self.whole_tree().await?.without_helpers())
    }

    /// The actor tree, with all helpers behind the ports.
    ///
    /// # Errors
    /// If the root does not answer.
    pub async fn whole_tree(&self) -> Result<Tree, AskError> {
        self.root
            .ask(ANSWER_LIMIT, MachineMsg::Tree)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// The city at a path, running or not.
    #[must_use]
    pub fn city(&self, path: impl Into<PathBuf>) -> CityRef {
        CityRef {
            machine: self.clone(),
            path: path.into(),
        }
    }

    /// Stops every city, then the root.
    ///
    /// # Errors
    /// If the root ended without an answer.
    pub async fn stop(&self, mode: StopMode) -> Result<StopSummary, AskError> {
        let stop = |reply| MachineMsg::Stop(mode, reply);
        self.root
            .ask(STOP_LIMIT, stop)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// Puts other settings in force.
    pub fn configure(&self, settings: MachineSettings) {
        self.root.send(MachineMsg::Configure(settings));
    }

    /// Whether the root handles messages: it answers within `limit`.
    pub async fn answers(&self, limit: Duration) -> bool {
        let find = |reply| MachineMsg::Find(PathBuf::new(), reply);
        self.root.ask(limit, find).await.is_some()
    }

    /// Panics an actor, for fault drills: the root (`machine`), a city, or `city/child`. `false`:
    /// there is no such actor.
    pub async fn crash(&self, path: &str) -> bool {
        self.drill(path, Drill::Panic).await
    }

    /// Kills an actor, for fault drills; like [`Self::crash`], but in the midst of what it does and
    /// without a word.
    pub async fn kill(&self, path: &str) -> bool {
        self.drill(path, Drill::Kill).await
    }

    /// Has an actor handle nothing any more, for fault drills; see [`Self::crash`].
    pub async fn hang(&self, path: &str) -> bool {
        self.drill(path, Drill::Hang).await
    }

    /// Gives an actor that many messages at once while it is busy for `held`, for fault drills; see
    /// [`Self::crash`].
    pub async fn flood(&self, path: &str, messages: usize, held: Duration) -> bool {
        self.drill(path, Drill::Flood { messages, held }).await
    }

    /// One node of the tree and what it handled of late; `None`: there is no such actor.
    ///
    /// # Errors
    /// If the actor, or the supervisor above it, does not answer.
    pub async fn show(&self, path: &str) -> Result<Option<Shown>, AskError> {
        let tree = self.whole_tree().await?;
        // An agent may have the name of a helper.
        let found = tree.root.walk().filter(|node| node.path == path);
        let Some(node) = found.max_by_key(|node| !node.kind.is_helper()) else {
            return Ok(None);
        };
        let messages = match self.target(path) {
            _ if node.kind.is_helper() => Vec::new(),
            None => self.root.gauge().past(),
            Some((root, child)) => match (self.city(root).addr().await, child) {
                (Err(AskError::NotRunning), _) => Vec::new(),
                (Err(error), _) => return Err(error),
                (Ok(city), None) => city.gauge().past(),
                (Ok(city), Some(child)) => {
                    let past = |reply| CityMsg::Past(child, reply);
                    let past = city.ask(ANSWER_LIMIT, past).await;
                    past.ok_or(AskError::NoAnswer)?
                }
            },
        };
        let node = Node {
            children: Vec::new(),
            ..node.clone()
        };
        Ok(Some(Shown { node, messages }))
    }

    async fn drill(&self, path: &str, drill: Drill) -> bool {
        if path == "machine" {
            drill.hit(&self.root, MachineMsg::Crash, MachineMsg::Hold);
            return true;
        }
        let Some((path, child)) = self.target(path) else {
            return false;
        };
        let Ok(city) = self.city(path).addr().await else {
            return false;
        };
        let Some(child) = child else {
            drill.hit(&city, CityMsg::Crash, CityMsg::Hold);
            return true;
        };
        let hit = |reply| CityMsg::CrashChild(child, drill, reply);
        city.ask(ANSWER_LIMIT, hit).await.unwrap_or(false)
    }

    /// The city a path leads to, by its root, and the child in it.
    fn target(&self, path: &str) -> Option<(PathBuf, Option<String>)> {
        self.view().cities.iter().find_map(|city| {
            let child = match path.strip_prefix(city.name.as_str())? {
                "" => None,
                rest => Some(rest.strip_prefix('/')?.to_owned()),
            };
            Some((city.path.clone(), child))
        })
    }
}

/// One city of a machine. Stays valid while the city's supervisor comes and goes.
#[derive(Debug, Clone)]
pub struct CityRef {
    machine: MachineRef,
    path: PathBuf,
}

impl CityRef {
    /// Its root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How things are.
    ///
    /// # Errors
    /// If the city is not running or does not answer.
    pub async fn view(&self) -> Result<CityView, AskError> {
        self.addr()
            .await?
            .ask(ANSWER_LIMIT, CityMsg::View)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// The config in force.
    ///
    /// # Errors
    /// If the city is not running or does not answer.
    pub async fn spec(&self) -> Result<Arc<CitySpec>, AskError> {
        self.addr()
            .await?
            .ask(ANSWER_LIMIT, CityMsg::Spec)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// The same, with the agents as text: a JSON array of what [`Self::view`] has as `instances`.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub async fn detail(&self) -> Result<(CityView, String), AskError> {
        self.addr()
            .await?
            .ask(ANSWER_LIMIT, CityMsg::Detail)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// Reconciles now instead of at the next patrol tick.
    ///
    /// # Errors
    /// If the city is not running.
    pub async fn poke(&self) -> Result<(), AskError> {
        self.addr().await?.send(CityMsg::Tick(Trigger::Poke));
        Ok(())
    }

    /// Cuts the grace of a stop under way short, or stops without one.
    ///
    /// # Errors
    /// If the city is not running.
    pub async fn force_stop(&self) -> Result<(), AskError> {
        let stop = CityMsg::Stop {
            mode: StopMode::Force,
            reply: None,
        };
        self.addr().await?.send(stop);
        Ok(())
    }

    /// Loads the config now and says what came of it.
    ///
    /// # Errors
    /// If the city is not running or does not answer.
    pub async fn reload(&self) -> Result<ReloadOutcome, AskError> {
        let reload = |reply| CityMsg::Reload(Some(reply));
        self.addr()
            .await?
            .ask(RELOAD_LIMIT, reload)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// Does something with one agent; answers its state, or why not.
    ///
    /// # Errors
    /// If the city is not running or does not answer.
    pub async fn command(
        &self,
        agent: &AgentName,
        command: AgentCommand,
    ) -> Result<Result<AgentState, CommandError>, AskError> {
        let ask = |reply| CityMsg::Command(agent.clone(), command, reply);
        self.addr()
            .await?
            .ask(ANSWER_LIMIT, ask)
            .await
            .ok_or(AskError::NoAnswer)
    }

    /// A way to the session of one agent.
    ///
    /// # Errors
    /// If the city is not running or does not answer.
    pub async fn session(
        &self,
        agent: &AgentName,
    ) -> Result<Result<SessionRef, CommandError>, AskError> {
        let ask = |reply| CityMsg::Reach(agent.clone(), reply);
        self.addr()
            .await?
            .ask(ANSWER_LIMIT, ask)
            .await
            .ok_or(AskError::NoAnswer)
    }

    async fn addr(&self) -> Result<Addr<CityMsg>, AskError> {
        let find = |reply| MachineMsg::Find(self.path.clone(), reply);
        let found = self.machine.root.ask(ANSWER_LIMIT, find).await;
        found.ok_or(AskError::NoAnswer)?.ok_or(AskError::NotRunning)
    }
}
