//! The port [`Desired`] on files: loads on request, notices changes.

mod watcher;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gascity_actors::model::CitySpec;
use gascity_actors::ports::{Desired, Diagnostic, LoadError, PortFuture};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::sources::Sources;
use super::{LoadedCity, Loader, Resolved};

/// How often sources are looked at before any load succeeded.
const UNKNOWN_PATROL: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// The config files of one city. Watches as long as it lives.
#[derive(Debug)]
pub struct ConfigFiles {
    loader: Loader,
    /// Never read, so that a clone also shows what changed before it was made.
    changes: watch::Receiver<u64>,
    loaded: watch::Sender<Option<Arc<LoadedCity>>>,
    in_force: watch::Sender<Option<Arc<LoadedCity>>>,
    files: Arc<Files>,
    trouble: watch::Receiver<Option<String>>,
    _watching: AbortOnDropHandle<()>,
    _looking: AbortOnDropHandle<()>,
}

impl ConfigFiles {
    /// Watches the files that `loader` reads. Must be called within a Tokio runtime.
    ///
    /// Where watching is not possible, [`Desired::watch_trouble`] says so and changes are found by
    /// looking at the files once in a while, as often as the city patrols.
    #[must_use]
    pub fn watch(loader: Loader) -> Self {
        let changed = Arc::new(watch::Sender::new(0));
        let files = Arc::new(Files::default());
        let (said, trouble) = watch::channel(None);
        let changes = changed.subscribe();
        let root = loader.root().to_owned();
        let watching = watcher::watch(root, files.clone(), changed.clone(), said);
        let looking = tokio::spawn(look_now_and_then(files.clone(), changed));
        Self {
            _watching: AbortOnDropHandle::new(tokio::spawn(watching)),
            _looking: AbortOnDropHandle::new(looking),
            changes,
            loaded: watch::Sender::new(None),
            in_force: watch::Sender::new(None),
            files,
            trouble,
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

    /// The load that the city runs with, which may be an earlier one.
    #[must_use]
    pub fn in_force(&self) -> watch::Receiver<Option<Arc<LoadedCity>>> {
        self.in_force.subscribe()
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

    fn taken(&self, spec: &CitySpec) {
        let loaded = self.loaded.borrow().clone();
        // A later load is taken itself, or not at all.
        let same = |city: &Arc<LoadedCity>| city.spec.revision == spec.revision;
        if let Some(city) = loaded.filter(same) {
            self.in_force.send_replace(Some(city));
        }
    }

    fn watch_trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.clone()
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

    /// How often the files are looked at.
    fn patrol(&self) -> Duration {
        let last = &self.lock().last;
        last.as_ref().map_or(UNKNOWN_PATROL, |(_, often)| *often)
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
        tokio::time::sleep(files.patrol()).await;
        let Some((sources, _)) = files.lock().last.clone() else {
            continue;
        };
        let look = tokio::task::spawn_blocking(move || sources.changed());
        if look.await.unwrap_or(false) {
            changed.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests;
