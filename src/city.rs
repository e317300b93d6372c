//! A supervised city inside your own program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gascity_actors::memory::{
    MemoryClock, MemoryDesired, MemoryJournal, MemoryNotes, MemoryProviders, MemoryShell,
};
use gascity_actors::{
    AskError, CityRef, Machine, MachinePorts, MachineRef, MachineSettings, ReloadOutcome, StopMode,
    Tree,
};

use crate::control::home::CityDir;
use crate::control::lock::Lock;
use crate::host::{HostProviders, OneCity, Opener, open_journal};
use crate::model::{CitySpec, CityStatus, CityView, Event, StopSummary};
use crate::notes::FileNotes;
use crate::ports::{
    CityPorts, Clock, EventStream, Journal, JournalError, Notes, OpenError, Opened, Providers,
    Sessions, Shell,
};
use crate::shell::ProcessShell;
use crate::system::{RandomTokens, SystemClock};

/// A city that could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CityError {
    /// It cannot be opened: no city, bad config, or somebody else runs it.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// It was opened, but its start failed.
    #[error("the city did not start: {0}")]
    Start(String),
    /// A question was not answered.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The event log cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A city that is not running yet.
///
/// ```no_run
/// # async fn example() -> Result<(), gascity::CityError> {
/// let city = gascity::City::open("bright-lights").await?.spawn().await?;
/// println!("{}", city.tree().await?);
/// city.stop().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a city does nothing until `spawn`"]
pub struct City {
    opened: Opened,
    settings: MachineSettings,
    journal: Arc<dyn Journal>,
}

/// A city from code that still lacks its adapters; see [`City::from_spec`].
#[must_use = "a city does nothing until `spawn`"]
pub struct CityBuilder {
    spec: CitySpec,
    sessions: Option<Arc<dyn Sessions>>,
    journal: Option<Arc<dyn Journal>>,
    shell: Option<Arc<dyn Shell>>,
    notes: Option<Arc<dyn Notes>>,
    clock: Option<Arc<dyn Clock>>,
}

impl City {
    /// Opens the city in a directory: takes its lock, loads `city.toml`, opens its event log.
    ///
    /// # Errors
    /// [`CityError::Open`] if the directory is no city, its config has errors (the message shows
    /// them with their lines), or somebody else runs it.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self, CityError> {
        Self::open_with(dir, &Opener::new(None)).await
    }

    /// The same with an opener of your own, e.g. one that knows where `gc` is.
    ///
    /// # Errors
    /// As [`City::open`].
    pub async fn open_with(dir: impl AsRef<Path>, opener: &Opener) -> Result<Self, CityError> {
        Ok(Self::from_opened(opener.open(dir.as_ref()).await?))
    }

    /// A city built in code, on adapters of your own choice.
    ///
    /// With a root directory in the spec, agents and shell lines run as processes, and events and
    /// state are kept in its `.gc`, unless you bring other adapters. Without one,
    /// [`CityBuilder::sessions`] is needed, shell lines do nothing, and all state is in memory.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use gascity::memory::{MemoryClock, MemorySessions};
    /// use gascity::model::{AgentSpec, CitySpec};
    ///
    /// let spec = CitySpec::builder("demo").agent(AgentSpec::command("worker", ["sleep", "60"])).build()?;
    /// let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
    /// let city = gascity::City::from_spec(spec).sessions(sessions).spawn().await?;
    /// assert!(city.status().await?.instances[0].running);
    /// city.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_spec(spec: CitySpec) -> CityBuilder {
        CityBuilder {
            spec,
            sessions: None,
            journal: None,
            shell: None,
            notes: None,
            clock: None,
        }
    }

    fn from_opened(opened: Opened) -> Self {
        // One city: its own log is the machine's too, but nobody reads machine events there.
        let journal = Arc::new(MemoryJournal::new(Arc::new(MemoryClock::new())));
        Self {
            opened,
            settings: MachineSettings::default(),
            journal,
        }
    }

    /// Names the program in `controller.started`: its version and how it runs the city.
    pub fn running_as(mut self, mode: &str, version: &str) -> Self {
        self.settings.mode = mode.to_owned();
        self.settings.version = version.to_owned();
        self
    }

    /// Starts the supervision tree and waits until every agent has been started once, or failed to.
    ///
    /// # Errors
    /// [`CityError::Start`] if the city cannot begin. Agents that fail do not prevent it.
    pub async fn spawn(self) -> Result<RunningCity, CityError> {
        let events = self.opened.ports.journal.clone();
        let cities = OneCity::new(self.opened);
        let path = cities.path().to_owned();
        let ports = MachinePorts {
            cities: Arc::new(cities),
            journal: self.journal,
            clock: Arc::new(SystemClock),
        };
        let machine = Machine::spawn(self.settings, ports)
            .await
            .map_err(CityError::Start)?;
        let running = RunningCity {
            door: machine.door(),
            machine,
            path,
            events,
        };
        running.wait_until_up().await?;
        Ok(running)
    }
}

impl CityBuilder {
    /// Where agents run.
    pub fn sessions(mut self, sessions: Arc<dyn Sessions>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Where events go.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Runs pool checks and hooks.
    pub fn shell(mut self, shell: Arc<dyn Shell>) -> Self {
        self.shell = Some(shell);
        self
    }

    /// Where crash history and captures go.
    pub fn notes(mut self, notes: Arc<dyn Notes>) -> Self {
        self.notes = Some(notes);
        self
    }

    /// What time it is.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts the city; see [`City::spawn`].
    ///
    /// # Errors
    /// As [`City::spawn`], and [`CityError::Open`] if it lacks a root or a provider.
    pub async fn spawn(self) -> Result<RunningCity, CityError> {
        City::from_opened(self.open().await?).spawn().await
    }

    async fn open(self) -> Result<Opened, OpenError> {
        let fail = |message: String| OpenError {
            message,
            diagnostics: Vec::new(),
        };
        let rooted = !self.spec.root.as_os_str().is_empty();
        let city = CityDir::new(&self.spec.root);
        let mut held: Arc<dyn std::any::Any + Send + Sync> = Arc::new(());
        if rooted {
            city.create().map_err(|error| fail(error.to_string()))?;
            held = Arc::new(Lock::city(&city).map_err(|error| fail(error.to_string()))?);
        }
        let config = Opener::new(None).subprocess(&self.spec.root, self.spec.name.clone());
        let providers: Arc<dyn Providers> = if rooted {
            Arc::new(HostProviders::new(config.clone()))
        } else {
            Arc::new(MemoryProviders::default())
        };
        let sessions = match self.sessions {
            Some(sessions) => sessions,
            None if rooted => {
                let sessions = providers.provide(Arc::new(self.spec.clone()));
                sessions.await.map_err(fail)?
            }
            None => {
                return Err(fail(
                    "a city without a root directory needs a session provider".into(),
                ));
            }
        };
        let journal = match self.journal {
            Some(journal) => journal,
            None if rooted => open_journal(&city.state_dir())?,
            None => Arc::new(MemoryJournal::new(Arc::new(MemoryClock::new()))),
        };
        let shell = self.shell.unwrap_or_else(|| match rooted {
            true => Arc::new(ProcessShell::new(config)),
            false => Arc::new(MemoryShell::default()),
        });
        let notes = self.notes.unwrap_or_else(|| match rooted {
            true => Arc::new(FileNotes::new(&city)),
            false => Arc::new(MemoryNotes::default()),
        });
        let ports = CityPorts {
            sessions,
            journal,
            desired: Arc::new(MemoryDesired::new(self.spec.clone())),
            clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock)),
            tokens: Arc::new(RandomTokens),
            shell,
            notes,
            providers,
            held,
        };
        Ok(Opened {
            spec: Arc::new(self.spec),
            ports,
        })
    }
}

/// A running city.
///
/// Dropping it leaves the tree running as long as the runtime; the agents outlive both, until
/// [`RunningCity::stop`].
pub struct RunningCity {
    machine: Machine,
    door: MachineRef,
    path: PathBuf,
    events: Arc<dyn Journal>,
}

impl RunningCity {
    /// How things are: agents, config, last tick.
    ///
    /// # Errors
    /// If the city is between a crash and its restart, or does not answer.
    pub async fn status(&self) -> Result<CityView, CityError> {
        Ok(self.handle().view().await?)
    }

    /// The actor tree.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn tree(&self) -> Result<Tree, CityError> {
        Ok(self.door.tree().await?)
    }

    /// Events from now on.
    #[must_use]
    pub fn subscribe(&self) -> EventStream {
        self.events.subscribe()
    }

    /// Recorded events with a number above `after`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn events(&self, after: u64, limit: usize) -> Result<Vec<Event>, CityError> {
        Ok(self.events.read(after, limit).await?)
    }

    /// Loads the config now and says what came of it.
    ///
    /// # Errors
    /// If the city does not answer.
    pub async fn reload(&self) -> Result<ReloadOutcome, CityError> {
        Ok(self.handle().reload().await?)
    }

    /// Reconciles now instead of at the next patrol tick.
    ///
    /// # Errors
    /// If the city is not running.
    pub async fn poke(&self) -> Result<(), CityError> {
        Ok(self.handle().poke().await?)
    }

    /// Interrupts all agents, waits `shutdown_timeout`, forces who is left, ends the tree.
    ///
    /// # Errors
    /// If the tree ended without an answer.
    pub async fn stop(self) -> Result<StopSummary, CityError> {
        self.end(StopMode::Graceful).await
    }

    /// Ends the tree and leaves the agents running, for the next supervisor to adopt.
    ///
    /// # Errors
    /// If the tree ended without an answer.
    pub async fn detach(self) -> Result<(), CityError> {
        self.end(StopMode::Detach).await.map(drop)
    }

    async fn end(mut self, mode: StopMode) -> Result<StopSummary, CityError> {
        let summary = self.door.stop(mode).await?;
        self.machine.ended().await;
        Ok(summary)
    }

    /// The tree itself, for whoever serves it to others.
    #[must_use]
    pub fn door(&self) -> MachineRef {
        self.door.clone()
    }

    /// Waits until the tree ended; see [`Machine::ended`].
    pub async fn ended(&mut self) -> bool {
        self.machine.ended().await
    }

    /// The city's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn handle(&self) -> CityRef {
        self.door.city(&self.path)
    }

    async fn wait_until_up(&self) -> Result<(), CityError> {
        let mut views = self.door.views();
        let settled = |status| {
            matches!(
                status,
                CityStatus::Running | CityStatus::InitFailed | CityStatus::Crashed
            )
        };
        let view = views
            .wait_for(|view| view.cities.first().is_some_and(|city| settled(city.status)))
            .await
            .map_err(|_| CityError::Start("the supervisor ended".into()))?
            .clone();
        match view.cities.first() {
            Some(city) if city.status == CityStatus::Running => Ok(()),
            Some(city) => {
                let error = city
                    .error
                    .clone()
                    .unwrap_or_else(|| city.status.as_str().to_owned());
                let _ = self.door.stop(StopMode::Detach).await; // nothing of it runs
                Err(CityError::Start(error))
            }
            None => Err(CityError::Start("the city vanished".into())),
        }
    }
}
