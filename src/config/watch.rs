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
        let watching = Watching::start(loader.root())
            .map_err(|error| tracing::warn!(root = %loader.root().display(), %error, "config is not watched"))
            .ok()
            .map(|watching| AbortOnDropHandle::new(tokio::spawn(watching.run(changed.clone()))));
        Self {
            changes: changed.subscribe(),
            loaded: watch::Sender::new(None),
            _watching: watching,
            _changed: changed,
            loader,
        }
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
            let loaded = tokio::task::spawn_blocking(move || loader.load())
                .await
                .map_err(|error| broken(&error))??;
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

/// A watcher on the directories that lead to the file.
struct Watching {
    watcher: RecommendedWatcher,
    file: PathBuf,
    sources: Arc<Mutex<Sources>>,
    directories: BTreeSet<PathBuf>,
    touched: Arc<Notify>,
}

/// The directory entries whose change can change the file.
type Sources = BTreeSet<(PathBuf, OsString)>;

impl Watching {
    fn start(root: &Path) -> notify::Result<Self> {
        let root = std::fs::canonicalize(root)?;
        let sources = Arc::new(Mutex::new(Sources::new()));
        let touched = Arc::new(Notify::new());
        let watcher = notify::recommended_watcher({
            let (sources, touched) = (sources.clone(), touched.clone());
            move |event: notify::Result<notify::Event>| {
                let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
                // An error of the watcher may hide anything, so it counts as a change.
                if event.map_or(true, |event| concerns(&event, &sources)) {
                    touched.notify_one();
                }
            }
        })?;
        let mut this = Self {
            watcher,
            file: file_of(&root),
            sources,
            directories: BTreeSet::new(),
            touched,
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

    /// Watches what leads to the file now: links may point elsewhere than before.
    fn follow(&mut self) {
        let sources = entries_to(&self.file);
        let wanted: BTreeSet<PathBuf> = sources
            .iter()
            .map(|(directory, _)| directory.clone())
            .chain(self.file.parent().map(Path::to_owned))
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
            self.touched.notified().await;
            let mut burst = Burst::new(Instant::now());
            while let Ok(()) = tokio::time::timeout_at(burst.due(), self.touched.notified()).await {
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
