//! Watches the directories that lead to the files of a config.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::source::file_of;
use super::Files;

/// Quiet time after the last event before a change is told.
const QUIET: Duration = Duration::from_millis(200);
/// Time after the first event when it is told anyhow.
const FORCED: Duration = Duration::from_secs(2);
/// Symbolic links followed from the file before it counts as a loop.
const MOST_LINKS: usize = 40;

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);
/// `EMFILE`: too many watchers.
const TOO_MANY: i32 = 24;

/// Watches the files of the city at `root` and counts their changes in `changed`. While that does
/// not work, `said` says why, and it is tried again now and then. The watch is on when this
/// returns, if it is possible at all; the future goes on with it.
pub(super) fn watch(
    root: PathBuf,
    files: Arc<Files>,
    changed: Arc<watch::Sender<u64>>,
    said: watch::Sender<Option<String>>,
) -> impl Future<Output = ()> {
    let mut started = Watching::start(&root, files.clone()).map_err(|error| why(&error));
    tell(&said, started.as_ref().err().cloned());
    async move {
        loop {
            let trouble = match started {
                Ok(watching) => watching.run(&changed, &said).await,
                Err(trouble) => trouble,
            };
            tell(&said, Some(trouble));
            tokio::time::sleep(files.patrol()).await;
            let (at, followed) = (root.clone(), files.clone());
            let again = tokio::task::spawn_blocking(move || Watching::start(&at, followed));
            started = match again.await {
                Ok(again) => again.map_err(|error| why(&error)),
                Err(error) => Err(error.to_string()),
            };
            if started.is_ok() {
                // Whatever happened before was not seen.
                changed.send_modify(|count| *count += 1);
            }
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
    /// Why some of what is wanted is not watched.
    trouble: Option<String>,
}

/// The directory entries whose change can change a file.
pub(super) type Entries = BTreeSet<(PathBuf, OsString)>;

/// What a watcher must tell.
#[derive(Debug, Default)]
pub(super) struct Concern {
    pub(super) entries: Entries,
    /// The directories they are in.
    pub(super) holders: BTreeSet<PathBuf>,
    pub(super) trees: BTreeSet<PathBuf>,
}

impl Concern {
    pub(super) fn has(&self, event: &notify::Event) -> bool {
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
            trouble: None,
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
        self.trouble = None;
        for new in wanted
            .difference(&self.directories)
            .cloned()
            .collect::<Vec<_>>()
        {
            // One that has just gone is watched by its parent.
            let there = new.is_dir();
            if let Err(error) = self.watch_directory(new)
                && there
            {
                self.trouble = Some(why(&error));
            }
        }
    }

    /// Waits for changes and tells them. Returns if watching came to an end.
    async fn run(
        mut self,
        changed: &watch::Sender<u64>,
        said: &watch::Sender<Option<String>>,
    ) -> String {
        loop {
            tell(said, self.trouble.clone());
            let touched = self.files.touched.notified();
            // What could not be watched is tried again; meanwhile others look at the files.
            let again = match self.trouble {
                Some(_) => self.files.patrol(),
                None => FOR_EVER,
            };
            if tokio::time::timeout(again, touched).await.is_ok() {
                self.quiet().await;
            }
            // Watch first, tell then: a change in between is seen either by the load or here.
            let followed = tokio::task::spawn_blocking(move || {
                self.follow();
                self
            });
            match followed.await {
                Ok(watching) => self = watching,
                Err(error) => return error.to_string(),
            }
            changed.send_modify(|count| *count += 1);
        }
    }

    /// Waits for the end of a burst of events.
    async fn quiet(&self) {
        let mut burst = Burst::new(Instant::now());
        while let Ok(()) = tokio::time::timeout_at(burst.due(), self.files.touched.notified()).await
        {
            burst.extend(Instant::now());
            if burst.due() <= Instant::now() {
                break;
            }
        }
    }
}

fn tell(said: &watch::Sender<Option<String>>, trouble: Option<String>) {
    said.send_if_modified(|before| {
        let news = *before != trouble;
        *before = trouble;
        news
    });
}

/// What a person can do something about.
fn why(error: &notify::Error) -> String {
    match &error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "the limit on watched directories is reached (fs.inotify.max_user_watches)".into()
        }
        notify::ErrorKind::Io(io) if io.raw_os_error() == Some(TOO_MANY) => {
            "the limit on watchers is reached (fs.inotify.max_user_instances)".into()
        }
        _ => error.to_string(),
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
pub(super) struct Burst {
    first: Instant,
    last: Instant,
}

impl Burst {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            first: now,
            last: now,
        }
    }

    pub(super) fn extend(&mut self, now: Instant) {
        self.last = now;
    }

    /// When it is told, if nothing follows.
    pub(super) fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + FORCED)
    }
}
