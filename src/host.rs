//! Puts cities together: lock, config, session provider and event log behind the ports of the
//! tree, and the registry of the machine.

mod follow;
mod providers;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::packs::fetch::fetch_for_start;
use crate::config::{ConfigFiles, LoadedCity, Loader, hooks};
use crate::control::home::{CityDir, Home};
use crate::control::lock::Lock;
use crate::control::registry::{Contents, Digest, EmptyGuard, Registry, RegistryWatch};
use crate::events::{EventLog, FileJournal};
use crate::model::{CityName, CitySpec, StopSummary};
use crate::notes::FileNotes;
use crate::ports::{
    Cities, CityEntry, CityPorts, Desired as _, Journal, LoadError, OpenError, Opened, PortFuture,
    Providers, Registered, Sessions,
};
use crate::sessions::SubprocessConfig;
use crate::shell::ProcessShell;
use crate::system::{RandomTokens, SystemClock};

pub use providers::HostProviders;

/// Opens cities from their directories.
#[derive(Debug, Clone)]
pub struct Opener {
    /// Told to agents as `GC_HOME`.
    home: Option<PathBuf>,
    gc_bin: PathBuf,
}

impl Opener {
    /// An opener whose agents find `gc` at the path of this program.
    #[must_use]
    pub fn new(home: Option<PathBuf>) -> Self {
        // Asked once: after an upgrade in place the system's answer names a deleted file.
        Self {
            home,
            gc_bin: std::env::current_exe().unwrap_or_else(|_| "gc".into()),
        }
    }

    /// Sets the `gc` program that agents find in `GC_BIN` and that preset agents run.
    #[must_use]
    pub fn gc_bin(mut self, path: impl Into<PathBuf>) -> Self {
        self.gc_bin = path.into();
        self
    }

    /// Takes the city's lock, loads its config, opens its log and builds its provider.
    ///
    /// # Errors
    /// If the directory is no city, its config has errors, or somebody else runs it.
    pub async fn open(&self, root: &Path) -> Result<Opened, OpenError> {
        self.open_with(Arc::new(self.config(root))).await
    }

    /// The same with config files that are watched already.
    async fn open_with(&self, files: Arc<ConfigFiles>) -> Result<Opened, OpenError> {
        let root = files.root();
        let root = std::fs::canonicalize(root)
            .map_err(|error| failed(format!("{}: {error}", root.display())))?;
        // Before the lock: a directory that is no city is left without a trace.
        let spec = load_for_start(&files, &root).await?;
        let loaded = files.loaded().borrow().clone();
        let loaded = loaded.ok_or_else(|| failed("the config was not kept".into()))?;
        report_warnings(&loaded);
        files.taken(&spec);
        let city = CityDir::new(&root);
        city.create().map_err(|error| failed(error.to_string()))?;
        let lock = Lock::city(&city).map_err(|error| failed(error.to_string()))?;
        hooks::install(&root).map_err(|error| failed(format!("hook sets: {error}")))?;
        let mut config = self.subprocess(&root, spec.name.clone());
        config
            .env_passthrough
            .clone_from(&loaded.session.env_passthrough);
        config.log_bytes = loaded.session.log_bytes;
        config.log_keep = loaded.session.log_keep;
        let own = spec.agents.iter().filter_map(|a| a.launch.session.clone());
        let providers =
            HostProviders::with(config.clone(), loaded.session.clone()).others(own.collect());
        let providers = Arc::new(providers);
        let sessions = providers.provide(spec.clone()).await;
        let shell = Arc::new(ProcessShell::new(config));
        follow::sessions(&files, &providers, &shell);
        let log = EventLog::new(city.state_dir()).rotating(loaded.rotation);
        let journal = journal(log.clone())?;
        follow::rotation(&files, log);
        let ports = CityPorts {
            sessions: sessions.map_err(failed)?,
            journal,
            desired: files,
            clock: Arc::new(SystemClock),
            tokens: Arc::new(RandomTokens),
            shell,
            notes: Arc::new(FileNotes::new(&city)),
            providers,
            held: Arc::new(lock),
        };
        Ok(Opened { spec, ports })
    }

    /// Stops whatever a killed supervisor left running in the city at `root`.
    ///
    /// # Errors
    /// If somebody runs the city, or its sessions cannot be listed.
    pub async fn stop_leftovers(&self, root: &Path) -> io::Result<StopSummary> {
        let _lock = Lock::city(&CityDir::new(root)).map_err(io::Error::other)?;
        // Any name will do: sessions are found by the root, whatever the config says by now.
        let name = CityName::new("leftovers").map_err(io::Error::other)?;
        let sessions = self.left(root, name).map_err(io::Error::other)?;
        gascity_actors::stop_sessions(&*sessions)
            .await
            .map_err(io::Error::other)
    }

    /// The sessions that run in the city at `root`, whatever they run on. Starts nothing.
    ///
    /// # Errors
    /// If they cannot be looked at.
    pub fn left(&self, root: &Path, name: CityName) -> Result<Arc<dyn Sessions>, String> {
        providers::left(self.subprocess(root, name))
    }

    /// Settings of a subprocess provider for the city at `root`, with nothing configured.
    #[must_use]
    pub fn subprocess(&self, root: &Path, name: CityName) -> SubprocessConfig {
        let mut config = SubprocessConfig::new(root.to_owned(), name, self.gc_bin.clone());
        config.home.clone_from(&self.home);
        config
    }

    fn config(&self, root: &Path) -> ConfigFiles {
        ConfigFiles::watch(Loader::new(root).gc_exe(&self.gc_bin))
    }
}

/// Opens the event log in `dir`.
///
/// # Errors
/// If it cannot be opened.
pub fn open_journal(dir: &Path) -> Result<Arc<dyn Journal>, OpenError> {
    journal(EventLog::new(dir))
}

fn journal(log: EventLog) -> Result<Arc<dyn Journal>, OpenError> {
    let dir = log.dir().display().to_string();
    let journal = FileJournal::open(log);
    let journal = journal.map_err(|error| failed(format!("event log in {dir}: {error}")))?;
    Ok(Arc::new(journal))
}

/// Loads the config; packs that are pinned and not here are fetched first.
async fn load_for_start(files: &ConfigFiles, root: &Path) -> Result<Arc<CitySpec>, OpenError> {
    let refused = |error: LoadError| OpenError {
        message: error.summary,
        diagnostics: error.diagnostics,
    };
    let error = match files.load().await {
        Ok(spec) => return Ok(spec),
        Err(error) => error,
    };
    let (at, cause) = (root.to_owned(), error.clone());
    let fetched = tokio::task::spawn_blocking(move || fetch_for_start(&at, &cause)).await;
    match fetched {
        Ok(Ok(true)) => files.load().await.map_err(refused),
        Ok(Err(failed)) => Err(OpenError {
            message: format!("{failed}\n{}", error.summary),
            diagnostics: error.diagnostics,
        }),
        _ => Err(refused(error)),
    }
}

fn report_warnings(loaded: &LoadedCity) {
    if !loaded.report.is_empty() {
        tracing::warn!(city = %loaded.spec.name, "config has warnings:\n{}", loaded.report);
    }
}

fn failed(message: String) -> OpenError {
    OpenError {
        message,
        diagnostics: Vec::new(),
    }
}

/// The cities of `cities.toml`.
#[derive(Debug)]
pub struct RegisteredCities {
    registry: Registry,
    /// Cities that could not be opened, watched for the edit that mends them.
    broken: Mutex<HashMap<PathBuf, Broken>>,
    watch: RegistryWatch,
    opener: Opener,
    patrol_interval: Duration,
    seen: Mutex<Seen>,
}

/// A config that could not be used, and its changes since it was read.
#[derive(Debug, Clone)]
struct Broken {
    files: Arc<ConfigFiles>,
    changes: watch::Receiver<u64>,
}

/// What earlier reads of the registry said.
#[derive(Debug, Default)]
struct Seen {
    last: Registered,
    empty: EmptyGuard,
    /// Hash of the content whose warnings were told.
    reported: Option<Digest>,
}

impl RegisteredCities {
    /// The registry of a home, watched. Must be called within a Tokio runtime.
    #[must_use]
    pub fn new(home: &Home, patrol_interval: Duration) -> Self {
        let registry = Registry::new(home.registry());
        let watch = RegistryWatch::start(&[home.registry()]);
        if let Some(error) = watch.error() {
            tracing::warn!(%error, "registry is not watched; changes are seen at the next tick");
        }
        Self {
            registry,
            watch,
            opener: Opener::new(Some(home.dir().to_owned())),
            broken: Mutex::default(),
            patrol_interval,
            seen: Mutex::default(),
        }
    }

    /// Opens a city. The files of one that fails stay watched, and the next attempt goes on with
    /// them: a watch of its own for each attempt would tell what it finds as news.
    async fn open_watched(&self, path: &Path) -> Result<Opened, OpenError> {
        let known = lock(&self.broken).get(path).cloned();
        let files = known.map_or_else(|| Arc::new(self.opener.config(path)), |b| b.files);
        let mut changes = crate::ports::Desired::changes(&*files);
        changes.mark_unchanged();
        // Off the runtime's own threads: a city on a disk that hangs must not take one along.
        let (opener, watched) = (self.opener.clone(), files.clone());
        let runtime = tokio::runtime::Handle::current();
        let open = move || runtime.block_on(opener.open_with(watched));
        let opened = tokio::task::spawn_blocking(open).await;
        let opened = opened.unwrap_or_else(|error| Err(failed(error.to_string())));
        if opened.is_ok() {
            follow::ignored_port(&files);
        }
        let mut broken = lock(&self.broken);
        match &opened {
            Ok(_) => drop(broken.remove(path)),
            Err(_) => drop(broken.insert(path.to_owned(), Broken { files, changes })),
        }
        opened
    }

    /// What counts of a read: a file an editor is just writing may look empty for a moment.
    fn settle(&self, contents: Contents) -> Registered {
        let mut seen = lock(&self.seen);
        if seen.reported.replace(contents.digest) != Some(contents.digest) {
            for warning in &contents.warnings {
                tracing::warn!("{warning}");
            }
        }
        let running = !seen.last.cities.is_empty();
        let now = Instant::now().into_std();
        if seen
            .empty
            .counts(contents.empty, running, self.patrol_interval, now)
        {
            seen.last = contents.registered;
        }
        seen.last.clone()
    }
}

impl Cities for RegisteredCities {
    fn registered(&self) -> PortFuture<'_, Registered, String> {
        Box::pin(async move {
            let registry = self.registry.clone();
            let read = tokio::task::spawn_blocking(move || registry.read()).await;
            let contents = read.map_err(|error| error.to_string())?;
            Ok(self.settle(contents.map_err(|error| error.to_string())?))
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.watch.changes()
    }

    fn open(&self, entry: CityEntry) -> PortFuture<'_, Opened, OpenError> {
        Box::pin(async move { self.open_watched(&entry.path).await })
    }

    fn mended(&self, entry: &CityEntry) -> Option<watch::Receiver<u64>> {
        let broken = lock(&self.broken);
        broken.get(&entry.path).map(|broken| broken.changes.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One city and no registry: standalone and library use.
pub struct OneCity {
    entry: CityEntry,
    opened: Opened,
    changes: watch::Sender<u64>,
}

impl OneCity {
    /// Hosts a city that is open already.
    #[must_use]
    pub fn new(opened: Opened) -> Self {
        let entry = CityEntry {
            name: opened.spec.name.clone(),
            path: opened.spec.root.clone(),
        };
        Self {
            entry,
            opened,
            changes: watch::Sender::new(0),
        }
    }

    /// Its key at the machine.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.entry.path
    }
}

impl std::fmt::Debug for OneCity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OneCity")
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

impl Cities for OneCity {
    fn registered(&self) -> PortFuture<'_, Registered, String> {
        let cities = vec![self.entry.clone()];
        Box::pin(async move {
            Ok(Registered {
                cities,
                refused: Vec::new(),
            })
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn open(&self, _: CityEntry) -> PortFuture<'_, Opened, OpenError> {
        let opened = self.opened.clone();
        Box::pin(async move { Ok(opened) })
    }
}
