//! Waiting for a file to grow.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// How often is looked where nobody tells of changes.
const PACE: Duration = Duration::from_millis(200);
/// How often is looked all the same: what tells of changes may miss one.
const AT_LEAST: Duration = Duration::from_secs(5);

/// Tells when something changed in a directory.
#[derive(Debug)]
pub(super) struct Changes {
    told: Receiver<()>,
    watcher: Option<RecommendedWatcher>,
}

impl Changes {
    /// Changes in the directory of `file` from now on, so also of what takes its place.
    pub(super) fn around(file: &Path) -> Self {
        let (tell, told) = sync_channel(1);
        let on_event = move |event: notify::Result<notify::Event>| {
            // Our own reading is no news.
            let reading = |event: &notify::Event| matches!(event.kind, EventKind::Access(_));
            if !event.as_ref().is_ok_and(reading) {
                let _ = tell.try_send(()); // one that waits to be seen is enough
            }
        };
        let watcher = notify::recommended_watcher(on_event).and_then(|mut watcher| {
            let dir = file.parent().unwrap_or(file);
            watcher.watch(dir, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        Self {
            told,
            watcher: watcher.ok(),
        }
    }

    /// Waits for the next change, or for a while where none are told.
    pub(super) fn wait(&self) {
        let limit = if self.watcher.is_some() {
            AT_LEAST
        } else {
            PACE
        };
        let _ = self.told.recv_timeout(limit);
    }
}
