//! What all runs have whose leaders are processes of this machine.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gascity_actors::model::{ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{Fence, SessionError, inside};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{blocking, has_fired, lock};
use crate::sessions::prepare::copy_files;
use crate::sessions::proc::Environ;

/// A run, as far as its processes go.
pub(in crate::sessions) trait Led {
    /// Its id, which its processes carry.
    fn token(&self) -> &RunToken;
    /// Its leader.
    fn pid(&self) -> Pid;
    /// Start of the leader in ticks since boot.
    fn start(&self) -> u64;
    /// What becomes readable when the leader ends; `None`: it was dead when it was found.
    fn pidfd(&self) -> Option<&OwnedFd>;
    /// The leader was seen to have ended.
    fn was_seen_ended(&self) -> bool;

    /// Where it was started, if that is known better than from the leader, which at first is
    /// still what it was forked from.
    fn dir(&self) -> Option<PathBuf> {
        None
    }

    /// Whether the leader has not exited, as the kernel says.
    fn is_live(&self) -> bool {
        !self.was_seen_ended() && self.pidfd().is_some_and(|pidfd| !has_fired(pidfd))
    }

    /// Signals the leader's process group; `false` if the leader has ended.
    fn signal_group(&self, signal: Signal) -> rustix::io::Result<bool> {
        signal_led(self, signal)
    }
}

/// Signals the group of a leader, unless it has ended.
pub(in crate::sessions) fn signal_led<R: Led + ?Sized>(
    run: &R,
    signal: Signal,
) -> rustix::io::Result<bool> {
    if !run.is_live() {
        return Ok(false);
    }
    match kill_process_group(run.pid(), signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A run may be touched if the fence lets it.
pub(in crate::sessions) fn check(fence: &Fence, run: &impl Led) -> Result<(), SessionError> {
    match fence {
        Fence::Token(token) if token != run.token() => Err(SessionError::Fenced),
        Fence::Token(_) | Fence::Any => Ok(()),
    }
}

/// How a run ended, once that is known. Set right before the event goes out.
#[derive(Debug)]
pub(in crate::sessions) struct Ending(watch::Sender<Option<ExitStatus>>);

impl Ending {
    pub(in crate::sessions) fn new(known: Option<ExitStatus>) -> Self {
        Self(watch::Sender::new(known))
    }

    pub(in crate::sessions) fn set(&self, status: ExitStatus) {
        self.0.send_replace(Some(status));
    }

    pub(in crate::sessions) fn is_known(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(in crate::sessions) async fn wait(&self) -> ExitStatus {
        let mut exit = self.0.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let exit = exit.wait_for(Option::is_some).await.map(|exit| *exit);
        exit.ok().flatten().unwrap_or(ExitStatus::Unknown)
    }
}

/// A run that is watched for as long as this exists. The run itself does not end with it.
#[derive(Debug)]
pub(in crate::sessions) struct Watched<R> {
    pub(in crate::sessions) run: Arc<R>,
    /// `None`: there is nothing to wait for any more.
    pub(in crate::sessions) watch: Option<AbortHandle>,
}

impl<R> Drop for Watched<R> {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Session names, each with what is known and held for it.
#[derive(Debug)]
pub(in crate::sessions) struct Slots<S>(
    pub(in crate::sessions) Mutex<HashMap<SessionName, Arc<S>>>,
);

impl<S> Default for Slots<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: Default> Slots<S> {
    pub(in crate::sessions) fn of(&self, name: &SessionName) -> Arc<S> {
        lock(&self.0).entry(name.clone()).or_default().clone()
    }

    pub(in crate::sessions) fn all(&self) -> Vec<Arc<S>> {
        lock(&self.0).values().cloned().collect()
    }

    /// Forgets a slot nobody uses any more and that is `free`. Slots are handed out under the same
    /// lock, so none can be in use that this does not see.
    pub(in crate::sessions) fn forget(&self, name: &SessionName, free: impl FnOnce(&S) -> bool) {
        let mut slots = lock(&self.0);
        let slot = slots.get(name);
        if slot.is_some_and(|slot| Arc::strong_count(slot) == 1 && free(slot)) {
            slots.remove(name);
        }
    }
}

/// Copies a file, or what is in a directory, into the working directory of a run.
pub(in crate::sessions) async fn copy_to<R: Led + Send + Sync + 'static>(
    run: Arc<R>,
    from: PathBuf,
    to: &str,
) -> Result<usize, SessionError> {
    let to = inside(to)?.to_owned();
    if !run.is_live() {
        return Err(SessionError::NotFound);
    }
    blocking(move || copy_files(&from, &work_dir(&*run)?, &to)).await
}

/// Where a run was started: as known, as its leader was told, else where the leader is now.
fn work_dir(run: &impl Led) -> std::io::Result<PathBuf> {
    let pid = run.pid().as_raw_nonzero();
    let told = || {
        let environ = Environ::of(pid.get()).ok()??;
        let dir = environ.get("GC_DIR")?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(dir)))
    };
    let dir = match run.dir().or_else(told) {
        Some(dir) => dir,
        None => std::fs::read_link(format!("/proc/{pid}/cwd"))?,
    };
    match run.is_live() {
        true => dir.canonicalize(),
        false => Err(std::io::Error::other("the session has ended")),
    }
}
