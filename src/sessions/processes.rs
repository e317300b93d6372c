//! The processes of runs: who belongs to one, and how all of them are ended.

pub(super) mod census;
mod leader;
pub(super) mod programs;
pub(super) mod sweep;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gascity_actors::model::{ExitStatus, RunToken};
use gascity_actors::ports::{SessionError, SessionEvent, SessionEvents};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

pub(super) use leader::{Ending, Led, Slots, Watched, check, copy_to, signal_led};

use super::proc::{self, Environ};
use super::sys;

/// What tells the processes of one city from all others.
#[derive(Debug, Clone)]
pub(super) struct Mark(pub(super) PathBuf);

impl Mark {
    /// Whether a process with this environment belongs to this city.
    pub(super) fn is_ours(&self, environ: &Environ) -> bool {
        environ.get("GC_CITY") == Some(self.0.as_os_str().as_bytes())
    }

    /// Whether a process with this environment belongs to the run `token` of this city.
    pub(super) fn owns(&self, environ: &Environ, token: &RunToken) -> bool {
        self.is_ours(environ) && environ.get("GC_SESSION_ID") == Some(token.as_str().as_bytes())
    }

    /// Whether a process carries the city and the token of a run.
    pub(super) fn carries(&self, pid: i32, token: &RunToken) -> bool {
        matches!(Environ::of(pid), Ok(Some(environ)) if self.owns(&environ, token))
    }
}

/// Whether the process behind a pidfd has ended.
pub(super) fn has_fired(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&now)), Ok(1..))
}

/// The status of a process that is, or was, somebody else's child; `None` if the kernel does not
/// tell, or not yet.
pub(super) fn foreign_status(pidfd: &OwnedFd, pid: i32, start: u64) -> Option<ExitStatus> {
    let zombie = proc::stat(pid).ok().flatten();
    zombie
        .filter(|stat| stat.dead && stat.start == start && proc::is_readable(stat.pid))
        .map(|stat| stat.exit_code)
        .or_else(|| sys::exit_info(pidfd.as_fd()))
        .map(proc::exit_status)
}

/// Those who want to hear of exits.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Mutex<Vec<mpsc::UnboundedSender<SessionEvent>>>);

impl Subscribers {
    pub(super) fn add(&self) -> SessionEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.add_sender(sender);
        receiver
    }

    pub(super) fn add_sender(&self, sender: mpsc::UnboundedSender<SessionEvent>) {
        lock(&self.0).push(sender);
    }

    pub(super) fn send(&self, event: &SessionEvent) {
        lock(&self.0).retain(|subscriber| subscriber.send(event.clone()).is_ok());
    }
}

/// Locks, whatever happened to an earlier holder: no holder leaves the data half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A backend that failed: nothing is known of its sessions.
pub(super) fn backend(error: impl std::fmt::Display) -> SessionError {
    SessionError::Backend(error.to_string())
}

/// Runs blocking work off the runtime's own threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SessionError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(backend)?.map_err(backend)
}
