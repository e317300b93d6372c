//! Where the server of a city listens, for processes that do not know its name.

use std::fs;
use std::path::{Path, PathBuf};

/// Remembers where a city's server listens, for processes that do not know its name.
#[derive(Debug)]
pub(super) struct TmuxFile(PathBuf);

impl TmuxFile {
    pub(super) fn of(root: &Path) -> Self {
        Self(root.join(".gc/runtime/tmux"))
    }

    pub(super) fn read(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(&self.0).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// A hint only: without it the server is found by its name.
    pub(super) fn write(&self, socket: &Path) {
        if self.read().as_deref() == Some(socket) {
            return;
        }
        let text = format!("{}\n", socket.display());
        let dir = self.0.parent().unwrap_or(Path::new("/"));
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&self.0, text));
        if let Err(error) = written {
            tracing::warn!(%error, "failed to note where tmux listens");
        }
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.0); // there may be none
    }
}
