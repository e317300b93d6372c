//! Tells when a registry may have changed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch;

use crate::control::files;

/// How long the file must be quiet before a change is told.
const QUIET: Duration = Duration::from_millis(200);
/// Under constant writes a change is told after this many quiet times.
const PATIENCE: u32 = 10;

/// Watches the directories of registries, not the files: writers replace files by renaming.
/// Watching ends when this is dropped.
#[derive(Debug)]
pub struct RegistryWatch {
    changes: watch::Receiver<u64>,
    error: Option<String>,
    /// Its callback owns the sending side of the debouncing thread, which ends with it.
    _watcher: Option<RecommendedWatcher>,
    /// Keeps receivers open when there is no watcher.
    _idle: Option<watch::Sender<u64>>,
}

impl RegistryWatch {
    /// Watches `files`. Where the system cannot, [`RegistryWatch::error`] says why and changes there
    /// are not told; regular reads then have to do.
    #[must_use]
    pub fn start(files: &[PathBuf]) -> Self {
        Self::with_quiet(files, QUIET)
    }

    /// As [`RegistryWatch::start`], telling a change after `quiet` in place of 200 ms.
    #[must_use]
    pub fn with_quiet(files: &[PathBuf], quiet: Duration) -> Self {
        let (sender, changes) = watch::channel(0);
        match watch(files, quiet, &sender) {
            Ok((watcher, error)) => Self {
                changes,
                error,
                _watcher: Some(watcher),
                _idle: None,
            },
            Err(e) => Self {
                changes,
                error: Some(e.to_string()),
                _watcher: None,
                _idle: Some(sender),
            },
        }
    }

    /// A counter that grows after each change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Why something is not watched, if so.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

fn watch(
    files: &[PathBuf],
    quiet: Duration,
    changes: &watch::Sender<u64>,
) -> notify::Result<(RecommendedWatcher, Option<String>)> {
    let mut places: Vec<PathBuf> = Vec::new();
    for file in files {
        places.push(file.clone());
        places.extend(
            files::link_target(file)
                .ok()
                .filter(|target| target != file),
        );
    }
    let names: Vec<OsString> = places
        .iter()
        .filter_map(|p| p.file_name().map(Into::into))
        .collect();

    let (sender, events) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| concerns(&event, &names)) {
            let _ = sender.send(()); // the thread ends only after this closure is gone
        }
    })?;
    let mut dirs: Vec<&Path> = places.iter().filter_map(|p| p.parent()).collect();
    dirs.sort_unstable();
    dirs.dedup();
    let mut error = None;
    for dir in dirs {
        if let Err(e) = watcher.watch(dir, RecursiveMode::NonRecursive) {
            error = Some(format!("{}: {e}", dir.display())); // the others are still worth watching
        }
    }
    let changes = changes.clone();
    std::thread::Builder::new()
        .name("registry-watch".to_owned())
        .spawn(move || debounce(&events, quiet, &changes))?;
    Ok((watcher, error))
}

/// Reading the file is an event too; answering it with a read would never end.
fn concerns(event: &Event, names: &[OsString]) -> bool {
    if matches!(event.kind, EventKind::Access(_)) {
        return false;
    }
    event.need_rescan()
        || event.paths.iter().any(|path| {
            path.file_name()
                .is_some_and(|found| names.iter().any(|name| name == found))
        })
}

/// Tells a change once the events have been quiet, until the watcher is gone.
fn debounce(events: &mpsc::Receiver<()>, quiet: Duration, changes: &watch::Sender<u64>) {
    while events.recv().is_ok() {
        let latest = Instant::now() + quiet * PATIENCE;
        while Instant::now() < latest && events.recv_timeout(quiet).is_ok() {}
        changes.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn told(changes: &mut watch::Receiver<u64>) {
        tokio::time::timeout(PATIENCE, changes.changed())
            .await
            .expect("told in time")
            .expect("still watching");
    }

    #[tokio::test]
    async fn writes_renames_and_removals_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cities.toml");
        let watch =
            RegistryWatch::with_quiet(std::slice::from_ref(&file), Duration::from_millis(5));
        assert_eq!(watch.error(), None);
        let mut changes = watch.changes();
        std::fs::write(&file, "a = 1").unwrap();
        told(&mut changes).await;
        for content in ["b = 1", "c = 1"] {
            files::replace(&file, content.as_bytes()).unwrap();
            told(&mut changes).await;
        }
        std::fs::remove_file(&file).unwrap();
        told(&mut changes).await;
    }

    #[tokio::test]
    async fn a_change_behind_a_symlink_is_told() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, real) = (
            dir.path().join("cities.toml"),
            elsewhere.path().join("mine.toml"),
        );
        std::os::unix::fs::symlink(&real, &file).unwrap();
        let watch = RegistryWatch::with_quiet(&[file], Duration::from_millis(5));
        let mut changes = watch.changes();
        std::fs::write(&real, "a = 1").unwrap();
        told(&mut changes).await;
    }

    #[tokio::test]
    async fn without_a_watcher_nothing_is_told_and_nothing_breaks() {
        let watch = RegistryWatch::start(&[PathBuf::from("/nonexistent/cities.toml")]);
        assert!(watch.error().is_some());
        assert!(!watch.changes().has_changed().unwrap());
    }

    #[test]
    fn other_files_and_reads_are_no_change() {
        use notify::event::{AccessKind, CreateKind};
        let names = [OsString::from("cities.toml")];
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let create = EventKind::Create(CreateKind::File);
        let read = EventKind::Access(AccessKind::Read);
        assert!(concerns(&event(create, "/h/cities.toml"), &names));
        assert!(!concerns(&event(create, "/h/cities.toml.lock"), &names));
        assert!(!concerns(&event(read, "/h/cities.toml"), &names));
    }
}
