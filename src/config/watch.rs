//! The port [`Desired`] on files: loads on request, notices changes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gascity_actors::model::CitySpec;
use gascity_actors::ports::{Desired, Diagnostic, LoadError, PortFuture};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::source::file_of;
use super::{LoadedCity, Loader};

/// Quiet time after the last event before a change is told.
const QUIET: Duration = Duration::from_millis(200);
/// Time after the first event when it is told anyhow.
const FORCED: Duration = Duration::from_secs(2);
/// Symbolic links followed from the file before it counts as a loop.
const MOST_LINKS: usize = 40;

/// The config files of one city. Watches as long as it lives.
#[derive(Debug)]
pub struct ConfigFiles {
    loader: Loader,
    /// Never read, so that a clone also shows what changed before it was made.
    changes: watch::Receiver<u64>,
    loaded: watch::Sender<Option<Arc<LoadedCity>>>,
    files: Arc<Files>,
    _watching: Option<AbortOnDropHandle<()>>,
    /// Keeps `changes` open when nothing is watched.
    _changed: Arc<watch::Sender<u64>>,
}

impl ConfigFiles {
    /// Watches the files that `loader` reads. Must be called within a Tokio runtime.
    ///
    /// Where watching is not possible, a warning is logged and `changes` never changes.
    #[must_use]
    pub fn watch(loader: Loader) -> Self {
        let changed = Arc::new(watch::Sender::new(0));
        let files = Arc::new(Files::default());
        let watching = Watching::start(loader.root(), files.clone())
            .map_err(|error| tracing::warn!(root = %loader.root().display(), %error, "config is not watched"))
            .ok()
            .map(|watching| AbortOnDropHandle::new(tokio::spawn(watching.run(changed.clone()))));
        Self {
            changes: changed.subscribe(),
            loaded: watch::Sender::new(None),
            files,
            _watching: watching,
            _changed: changed,
            loader,
        }
    }

    /// The root of the city, as given.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.loader.root()
    }

    /// The last load that succeeded, with what the tree does not need of it.
    #[must_use]
    pub fn loaded(&self) -> watch::Receiver<Option<Arc<LoadedCity>>> {
        self.loaded.subscribe()
    }
}

impl Desired for ConfigFiles {
    fn load(&self) -> PortFuture<'_, Arc<CitySpec>, LoadError> {
        Box::pin(async move {
            let loader = self.loader.clone();
            let attempt = tokio::task::spawn_blocking(move || loader.attempt())
                .await
                .map_err(|error| broken(&error))?;
            self.files.follow(attempt.sources, attempt.result.is_err());
            let loaded = attempt.result?;
            let spec = loaded.spec.clone();
            self.loaded.send_replace(Some(Arc::new(loaded)));
            Ok(spec)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

/// The load itself panicked or the runtime is going down.
fn broken(error: &tokio::task::JoinError) -> LoadError {
    let message = format!("the load did not finish: {error}");
    LoadError {
        summary: message.clone(),
        diagnostics: vec![Diagnostic {
            severity: "error".into(),
            code: "internal".into(),
            message,
            ..Diagnostic::default()
        }],
    }
}

/// The files a load depends on, be they there or not.
#[derive(Debug, Default)]
struct Files {
    paths: Mutex<BTreeSet<PathBuf>>,
    /// Something happened to one of them, or there are others.
    touched: Notify,
}

impl Files {
    /// Takes the sources of a load. One that failed may not have come to all of them, so the
    /// earlier ones stay.
    fn follow(&self, mut found: BTreeSet<PathBuf>, failed: bool) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if failed {
            found.extend(paths.iter().cloned());
        }
        if *paths != found {
            *paths = found;
            // Told as a change: one that came between the load and the watch is seen then.
            self.touched.notify_one();
        }
    }

    fn paths(&self) -> BTreeSet<PathBuf> {
        self.paths
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A watcher on the directories that lead to the files.
struct Watching {
    watcher: RecommendedWatcher,
    root: PathBuf,
    files: Arc<Files>,
    sources: Arc<Mutex<Sources>>,
    directories: BTreeSet<PathBuf>,
}

/// The directory entries whose change can change a file.
type Sources = BTreeSet<(PathBuf, OsString)>;

impl Watching {
    fn start(root: &Path, files: Arc<Files>) -> notify::Result<Self> {
        let root = std::fs::canonicalize(root)?;
        let sources = Arc::new(Mutex::new(Sources::new()));
        files
            .paths
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(file_of(&root));
        let watcher = notify::recommended_watcher({
            let (sources, files) = (sources.clone(), files.clone());
            move |event: notify::Result<notify::Event>| {
                let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
                // An error of the watcher may hide anything, so it counts as a change.
                if event.map_or(true, |event| concerns(&event, &sources)) {
                    files.touched.notify_one();
                }
            }
        })?;
        let mut this = Self {
            watcher,
            root: root.clone(),
            files,
            sources,
            directories: BTreeSet::new(),
        };
        this.watch_directory(root)?;
        this.follow();
        Ok(this)
    }

    fn watch_directory(&mut self, directory: PathBuf) -> notify::Result<()> {
        self.watcher
            .watch(&directory, RecursiveMode::NonRecursive)?;
        self.directories.insert(directory);
        Ok(())
    }

    /// Watches what leads to the files now: links may point elsewhere than before.
    fn follow(&mut self) {
        let files = self.files.paths();
        let sources: Sources = files
            .iter()
            .flat_map(|file| entries_to(reachable(file)))
            .collect();
        let wanted: BTreeSet<PathBuf> = sources
            .iter()
            .map(|(directory, _)| directory.clone())
            .chain([self.root.clone()])
            .collect();
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) = sources;
        for gone in self
            .directories
            .difference(&wanted)
            .cloned()
            .collect::<Vec<_>>()
        {
            let _ = self.watcher.unwatch(&gone); // the directory may have gone before
            self.directories.remove(&gone);
        }
        for new in wanted
            .difference(&self.directories)
            .cloned()
            .collect::<Vec<_>>()
        {
            if let Err(error) = self.watch_directory(new) {
                tracing::warn!(%error, "a directory of the config is not watched");
            }
        }
    }

    async fn run(mut self, changed: Arc<watch::Sender<u64>>) {
        loop {
            self.files.touched.notified().await;
            let mut burst = Burst::new(Instant::now());
            while let Ok(()) =
                tokio::time::timeout_at(burst.due(), self.files.touched.notified()).await
            {
                burst.extend(Instant::now());
                if burst.due() <= Instant::now() {
                    break;
                }
            }
            // Watch first, tell then: a change in between is seen either by the load or here.
            let followed = tokio::task::spawn_blocking(move || {
                self.follow();
                self
            });
            match followed.await {
                Ok(watching) => self = watching,
                Err(error) => return tracing::warn!(%error, "config is no longer watched"),
            }
            changed.send_modify(|count| *count += 1);
        }
    }
}

fn concerns(event: &notify::Event, sources: &Sources) -> bool {
    if matches!(event.kind, EventKind::Access(_)) {
        return false;
    }
    event.need_rescan()
        || event.paths.is_empty()
        || event.paths.iter().any(|path| {
            sources
                .iter()
                .any(|(directory, name)| path == directory || *path == directory.join(name))
        })
}

/// `file`, or the first directory missing on the way to it.
fn reachable(file: &Path) -> &Path {
    file.ancestors()
        .find(|path| path.parent().is_none_or(Path::is_dir))
        .unwrap_or(file)
}

/// The directory entries that a lookup of `file` passes behind symbolic links, and the last one.
fn entries_to(file: &Path) -> Sources {
    let mut entries = Sources::new();
    let Some((directory, name)) = file.parent().zip(file.file_name()) else {
        return entries;
    };
    let mut at = directory.to_owned();
    let mut todo = vec![name.to_owned()];
    entries.insert((at.clone(), name.to_owned()));
    let mut links = 0;
    while let Some(name) = todo.pop() {
        let path = at.join(&name);
        match std::fs::read_link(&path) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                entries.insert((at.clone(), name));
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                todo.extend(target.components().rev().filter_map(|part| match part {
                    Component::Normal(name) => Some(name.to_owned()),
                    Component::ParentDir => Some("..".into()),
                    _ => None,
                }));
            }
            _ if name == ".." => at = at.parent().map_or_else(|| "/".into(), Path::to_owned),
            _ if todo.is_empty() => {
                entries.insert((at.clone(), name));
            }
            _ => at = path,
        }
    }
    entries
}

/// Events in quick succession that are told as one.
#[derive(Debug, Clone, Copy)]
struct Burst {
    first: Instant,
    last: Instant,
}

impl Burst {
    fn new(now: Instant) -> Self {
        Self {
            first: now,
            last: now,
        }
    }

    fn extend(&mut self, now: Instant) {
        self.last = now;
    }

    /// When it is told, if nothing follows.
    fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + FORCED)
    }
}

#[cfg(test)]
mod tests;
