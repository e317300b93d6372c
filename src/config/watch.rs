//! The port [`Desired`] on files: loads on request, notices changes.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gascity_actors::model::CitySpec;
use gascity_actors::ports::{Desired, Diagnostic, LoadError, PortFuture};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::source::file_of;
use super::sources::Sources;
use super::{LoadedCity, Loader, Resolved};

/// Quiet time after the last event before a change is told.
const QUIET: Duration = Duration::from_millis(200);
/// Time after the first event when it is told anyhow.
const FORCED: Duration = Duration::from_secs(2);
/// How often sources are looked at before any load succeeded.
const UNKNOWN_PATROL: Duration = Duration::from_secs(30);
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
    _looking: AbortOnDropHandle<()>,
    /// Keeps `changes` open when nothing is watched.
    _changed: Arc<watch::Sender<u64>>,
}

impl ConfigFiles {
    /// Watches the files that `loader` reads. Must be called within a Tokio runtime.
    ///
    /// Where watching is not possible, a warning is logged and changes are found by looking at the
    /// files once in a while, as often as the city patrols.
    #[must_use]
    pub fn watch(loader: Loader) -> Self {
        let changed = Arc::new(watch::Sender::new(0));
        let files = Arc::new(Files::default());
        let watching = Watching::start(loader.root(), files.clone())
            .map_err(|error| tracing::warn!(root = %loader.root().display(), %error, "config is not watched"))
            .ok()
            .map(|watching| AbortOnDropHandle::new(tokio::spawn(watching.run(changed.clone()))));
        let looking = tokio::spawn(look_now_and_then(files.clone(), changed.clone()));
        Self {
            _looking: AbortOnDropHandle::new(looking),
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

impl ConfigFiles {
    /// Looks at all sources of the last load: whether one of them is not what it was. Blocks on
    /// the file system.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        let last = self.files.lock().last.clone();
        last.is_some_and(|(sources, _)| sources.changed())
    }
}

impl Desired for ConfigFiles {
    fn load(&self) -> PortFuture<'_, Arc<CitySpec>, LoadError> {
        Box::pin(async move {
            let loader = self.loader.clone();
            let load = move || {
                let mut attempt = loader.attempt();
                let sources = std::mem::take(&mut attempt.sources);
                let mut resolved = Resolved::of(attempt);
                resolved.keep_document();
                (resolved.result, sources)
            };
            let load = tokio::task::spawn_blocking(load).await;
            let (result, sources) = load.map_err(|error| broken(&error))?;
            let patrol = result.as_ref().ok();
            let patrol = patrol.map(|city| city.spec.daemon.patrol_interval);
            self.files.follow(sources, patrol);
            let loaded = result?;
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

/// What a load depends on, be it there or not.
#[derive(Debug, Default)]
struct Files {
    followed: Mutex<Followed>,
    /// Something happened to one of them, or there are others.
    touched: Notify,
}

#[derive(Debug, Default)]
struct Followed {
    paths: BTreeSet<PathBuf>,
    /// Directories in which anything counts.
    trees: BTreeSet<PathBuf>,
    /// The sources of the last load, and how often to look at them.
    last: Option<(Arc<Sources>, Duration)>,
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the sources of a load. One that failed may not have come to all of them, so the
    /// earlier ones stay. `patrol` says how often to look at them.
    fn follow(&self, sources: Sources, patrol: Option<Duration>) {
        let mut followed = self.lock();
        let (mut paths, mut trees) = (sources.paths(), sources.dirs().clone());
        let before = followed.last.as_ref().map(|(_, often)| *often);
        if patrol.is_none() {
            paths.extend(followed.paths.iter().cloned());
            trees.extend(followed.trees.iter().cloned());
        }
        let often = patrol.or(before).unwrap_or(UNKNOWN_PATROL);
        followed.last = Some((Arc::new(sources), often));
        if followed.paths != paths || followed.trees != trees {
            followed.paths = paths;
            followed.trees = trees;
            // Told as a change: one that came between the load and the watch is seen then.
            self.touched.notify_one();
        }
    }
}

/// Looks at all sources now and then: what no watcher told is found too.
async fn look_now_and_then(files: Arc<Files>, changed: Arc<watch::Sender<u64>>) {
    loop {
        let last = files.lock().last.clone();
        let often = last.as_ref().map_or(UNKNOWN_PATROL, |(_, often)| *often);
        tokio::time::sleep(often).await;
        let Some((sources, _)) = last else {
            continue;
        };
        let look = tokio::task::spawn_blocking(move || sources.changed());
        if look.await.unwrap_or(false) {
            changed.send_modify(|count| *count += 1);
        }
    }
}

/// A watcher on the directories that lead to the files.
struct Watching {
    watcher: RecommendedWatcher,
    root: PathBuf,
    files: Arc<Files>,
    concern: Arc<Mutex<Concern>>,
    directories: BTreeSet<PathBuf>,
}

/// The directory entries whose change can change a file.
type Entries = BTreeSet<(PathBuf, OsString)>;

/// What a watcher must tell.
#[derive(Debug, Default)]
struct Concern {
    entries: Entries,
    /// The directories they are in.
    holders: BTreeSet<PathBuf>,
    trees: BTreeSet<PathBuf>,
}

impl Concern {
    fn has(&self, event: &notify::Event) -> bool {
        if matches!(event.kind, EventKind::Access(_)) {
            return false;
        }
        event.need_rescan()
            || event.paths.is_empty()
            || event.paths.iter().any(|path| self.has_path(path))
    }

    fn has_path(&self, path: &Path) -> bool {
        if self.holders.contains(path) || self.trees.contains(path) {
            return true;
        }
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return true;
        };
        let state = name == ".git" || name == ".gc";
        self.entries.contains(&(dir.to_owned(), name.to_owned()))
            || (self.trees.contains(dir) && !state)
    }
}

impl Watching {
    fn start(root: &Path, files: Arc<Files>) -> notify::Result<Self> {
        let root = std::fs::canonicalize(root)?;
        let concern = Arc::new(Mutex::new(Concern::default()));
        files.lock().paths.insert(file_of(&root));
        let watcher = notify::recommended_watcher({
            let (concern, files) = (concern.clone(), files.clone());
            move |event: notify::Result<notify::Event>| {
                let concern = concern.lock().unwrap_or_else(PoisonError::into_inner);
                // An error of the watcher may hide anything, so it counts as a change.
                if event.map_or(true, |event| concern.has(&event)) {
                    files.touched.notify_one();
                }
            }
        })?;
        let mut this = Self {
            watcher,
            root: root.clone(),
            files,
            concern,
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
        let (files, trees) = {
            let followed = self.files.lock();
            (followed.paths.clone(), followed.trees.clone())
        };
        // What lies in a directory that is watched whole needs no look of its own.
        let alone = files
            .iter()
            .filter(|file| file.parent().is_none_or(|dir| !trees.contains(dir)));
        let entries: Entries = alone.flat_map(|file| entries_to(reachable(file))).collect();
        let holders: BTreeSet<PathBuf> = entries.iter().map(|(dir, _)| dir.clone()).collect();
        let wanted: BTreeSet<PathBuf> = holders
            .iter()
            .chain(&trees)
            .chain([&self.root])
            .cloned()
            .collect();
        *self.concern.lock().unwrap_or_else(PoisonError::into_inner) = Concern {
            entries,
            holders,
            trees,
        };
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

/// `file`, or the first directory missing on the way to it.
fn reachable(file: &Path) -> &Path {
    file.ancestors()
        .find(|path| path.parent().is_none_or(Path::is_dir))
        .unwrap_or(file)
}

/// The directory entries that a lookup of `file` passes behind symbolic links, and the last one.
fn entries_to(file: &Path) -> Entries {
    let mut entries = Entries::new();
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
