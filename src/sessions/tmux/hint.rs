//! Where the server of a city listens, for processes that do not know its name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sessions::proc;

/// Remembers where a city's server listens, and which process it is.
#[derive(Debug)]
pub(super) struct TmuxFile(PathBuf);

impl TmuxFile {
    pub(super) fn of(root: &Path) -> Self {
        Self(root.join(".gc/runtime/tmux"))
    }

    /// Its socket.
    pub(super) fn read(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(&self.0).ok()?;
        text.lines().next().map(PathBuf::from)
    }

    /// Its process, if that still lives.
    pub(super) fn server(&self) -> Option<i32> {
        let text = fs::read_to_string(&self.0).ok()?;
        let (pid, start) = text.lines().nth(1)?.split_once(' ')?;
        let (pid, start) = (pid.parse().ok()?, start.parse::<u64>().ok()?);
        let stat = proc::stat(pid).ok().flatten()?;
        (stat.start == start && !stat.dead && proc::is_readable(pid)).then_some(pid)
    }

    /// A hint only: without it the server is found by its name.
    pub(super) fn write(&self, socket: &Path, pid: i32) {
        let start = proc::stat(pid).ok().flatten().map_or(0, |stat| stat.start);
        let text = format!("{}\n{pid} {start}\n", socket.display());
        if fs::read_to_string(&self.0).is_ok_and(|before| before == text) {
            return;
        }
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
