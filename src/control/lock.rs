//! Locks that say who runs. A held `flock` is the only proof of life.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::files;
use super::home::{CityDir, Home};

/// What a lock stands for; its name in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// The machine-wide supervisor.
    Supervisor,
    /// Whoever runs one city.
    Controller,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Supervisor => "supervisor",
            Self::Controller => "controller",
        })
    }
}

/// A lock that was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process holds it.
    #[error("{role} already running{}", pid_suffix(.pid))]
    Held {
        /// What is running.
        role: Role,
        /// The process that wrote itself into the file, if it could be read.
        pid: Option<u32>,
    },
    /// The file system cannot lock.
    #[error("{}: locks are not supported here", .path.display())]
    Unsupported {
        /// The lock file.
        path: PathBuf,
    },
    /// The file could not be opened or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn pid_suffix(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// What a holder writes into its lock file: for people, never for decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// When it took the lock, RFC 3339.
    pub started_at: String,
}

impl Holder {
    /// This process, now.
    #[must_use]
    pub fn this_process() -> Self {
        Self {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        }
    }

    /// What the last holder of `path` wrote.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(path)
            .ok()?
            .take(4096)
            .read_to_string(&mut text)
            .ok()?;
        serde_json::from_str(text.lines().next()?).ok()
    }
}

/// A lock held until it is dropped or the process ends. The file stays.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes `path` at once or not at all, creating it 0600, and notes this process in it.
    ///
    /// # Errors
    /// [`LockError::Held`] names the holder; [`LockError::Unsupported`] on file systems without
    /// locks.
    pub fn acquire(path: &Path, role: Role) -> Result<Self, LockError> {
        let io = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let file = open(path).map_err(io)?;
        match try_exclusive(&file) {
            Ok(true) => {}
            Ok(false) => {
                let pid = Holder::read(path).map(|holder| holder.pid);
                return Err(LockError::Held { role, pid });
            }
            Err(Errno::NOLCK | Errno::OPNOTSUPP) => {
                let path = path.to_owned();
                return Err(LockError::Unsupported { path });
            }
            Err(e) => return Err(io(e.into())),
        }
        let lock = Self { file };
        lock.note(&Holder::this_process()).map_err(io)?;
        Ok(lock)
    }

    /// Takes the lock of a city; held by whoever runs it, supervised or standalone.
    ///
    /// # Errors
    /// As [`Lock::acquire`]: `controller already running (pid N)`.
    pub fn city(city: &CityDir) -> Result<Self, LockError> {
        Self::acquire(&city.lock(), Role::Controller)
    }

    /// A lock that another program of this process has taken.
    fn inherit(descriptor: OwnedFd, path: &Path) -> io::Result<Self> {
        let file = File::from(descriptor);
        if !same_file(&file, path) || !try_exclusive(&file)? {
            return Err(io::Error::other("the inherited lock is another one"));
        }
        let lock = Self { file };
        lock.note(&Holder::this_process())?;
        Ok(lock)
    }

    /// Overwrites before it truncates: a reader sees the old line or the new one, never none.
    fn note(&self, holder: &Holder) -> io::Result<()> {
        let mut line = serde_json::to_vec(holder)?;
        line.push(b'\n');
        self.file.write_all_at(&line, 0)?;
        self.file.set_len(line.len() as u64)
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would not do: a process being forked right now shares the description.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// The supervisor's locks: one in the runtime directory, one in the home when that is another.
#[derive(Debug)]
pub struct SupervisorLock {
    runtime: Lock,
    home: Option<Lock>,
}

impl SupervisorLock {
    /// Takes both locks. A home on a file system without locks is a warning only; the runtime lock
    /// still holds.
    ///
    /// # Errors
    /// [`LockError::Held`]: `supervisor already running (pid N)`.
    pub fn acquire(home: &Home) -> Result<Self, LockError> {
        let runtime = Lock::acquire(&home.runtime_lock(), Role::Supervisor)?;
        if same_file(&runtime.file, &home.home_lock()) {
            return Ok(Self {
                runtime,
                home: None,
            });
        }
        let home = match Lock::acquire(&home.home_lock(), Role::Supervisor) {
            Ok(lock) => Some(lock),
            Err(e @ LockError::Unsupported { .. }) => {
                tracing::warn!("{e}; two supervisors could share this home");
                None
            }
            Err(e) => return Err(e),
        };
        Ok(Self { runtime, home })
    }

    /// The locks that another program of this process has taken, in the order of
    /// [`Self::descriptors`].
    ///
    /// # Errors
    /// If one of them is missing or another file's.
    pub fn inherit(
        home: &Home,
        descriptors: &mut dyn Iterator<Item = OwnedFd>,
    ) -> io::Result<Self> {
        let missing = || io::Error::other("a lock was not handed over");
        let first = descriptors.next().ok_or_else(missing)?;
        let runtime = Lock::inherit(first, &home.runtime_lock())?;
        let single = same_file(&runtime.file, &home.home_lock());
        let home = match descriptors.next() {
            Some(second) if !single => Some(Lock::inherit(second, &home.home_lock())?),
            _ => None,
        };
        Ok(Self { runtime, home })
    }

    /// The descriptors, for a successor in the same process.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.runtime.as_fd()).chain(self.home.as_ref().map(AsFd::as_fd))
    }
}

/// Whether somebody holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nobody does.
    No,
    /// This process does, as far as its file can be read.
    By(Option<Holder>),
}

/// Who holds `path` now; a missing file is a free lock.
///
/// # Errors
/// Whatever opening or testing the file said.
pub fn holder(path: &Path) -> io::Result<Held> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Held::No),
        Err(e) => return Err(e),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(&file, FlockOperation::Unlock)?;
            Ok(Held::No)
        }
        Err(Errno::WOULDBLOCK) => Ok(Held::By(Holder::read(path))),
        Err(e) => Err(e.into()),
    }
}

/// Waits until nobody holds `path`; `false` when `limit` passed first.
///
/// # Errors
/// Whatever opening or locking the file said.
pub fn wait_free(path: &Path, limit: Duration) -> io::Result<bool> {
    match File::open(path) {
        Ok(file) => Ok(lock_within(file, FlockOperation::LockShared, limit)?.is_some()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
    }
}

/// A lock taken for one short piece of work, waiting for its turn; `None` after `limit`.
pub(crate) fn take_turn(path: &Path, limit: Duration) -> io::Result<Option<Lock>> {
    lock_within(open(path)?, FlockOperation::LockExclusive, limit)
}

/// `flock` has no time limit of its own, so a thread waits in it. One that outlives the limit
/// takes the lock later and lets go of it at once.
fn lock_within(file: File, operation: FlockOperation, limit: Duration) -> io::Result<Option<Lock>> {
    let at_once = match operation {
        FlockOperation::LockShared => FlockOperation::NonBlockingLockShared,
        _ => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&file, at_once) {
        Ok(()) => return Ok(Some(Lock { file })),
        Err(Errno::WOULDBLOCK) if limit.is_zero() => return Ok(None),
        Err(Errno::WOULDBLOCK) => {}
        Err(e) => return Err(e.into()),
    }
    let (done, result) = mpsc::sync_channel(0);
    std::thread::Builder::new()
        .name("flock".to_owned())
        .spawn(move || {
            let locked = loop {
                match rustix::fs::flock(&file, operation) {
                    Err(Errno::INTR) => {}
                    other => break other,
                }
            };
            // A rendezvous: if nobody waits any more, the file is dropped and with it the lock.
            let _ = done.send(locked.map(|()| Lock { file }));
        })?;
    match result.recv_timeout(limit) {
        Ok(locked) => Ok(Some(locked?)),
        Err(_) => Ok(None),
    }
}

/// Takes the lock unless somebody holds it. Those who only look ([`holder`], [`wait_free`]) share
/// it for an instant; as long as sharing is possible nobody holds it, and trying again is right.
fn try_exclusive(file: &File) -> rustix::io::Result<bool> {
    for _ in 0..100 {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {}
            other => return other.map(|()| true),
        }
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => rustix::fs::flock(file, FlockOperation::Unlock)?,
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(e) => return Err(e),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

fn open(path: &Path) -> io::Result<File> {
    files::private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

fn same_file(file: &File, path: &Path) -> bool {
    let (Ok(a), Ok(b)) = (file.metadata(), std::fs::metadata(path)) else {
        return false;
    };
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(test)]
mod tests;
