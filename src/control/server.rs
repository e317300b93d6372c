//! The control socket's server side. Each connection is a task of its own, with limits on size and
//! time, so a stalled client delays nobody.
//!
//! [`ControlSocket::bind`] makes the file, [`ControlSocket::serve`] answers on it through a
//! [`Handler`], [`Serving::stop`] closes the connections and removes the file.

mod connection;
mod lines;

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::Mode;
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::wire::WireError;
use crate::ports::PortFuture;
use connection::Connection;

/// What answers requests. Called once for each, whichever dialect it came in; runs in a task of
/// its own, and goes on when the client leaves.
pub trait Handler: Send + Sync + 'static {
    /// Carries out `op`. `params` is always an object.
    fn call(&self, op: String, params: Value) -> PortFuture<'_, Reply, WireError>;
}

/// What a handler answers.
#[derive(Debug)]
pub enum Reply {
    /// One result.
    One(Value),
    /// One large result, JSON text already, in pieces.
    Text(Vec<String>),
    /// Items as they come; the answer ends when the sender is dropped. The receiver is dropped
    /// when the client is gone.
    Stream(mpsc::Receiver<Value>),
}

/// What a client may use before it is cut off.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at the same time; further ones are told `busy`.
    pub connections: usize,
    /// Bytes of a plain word.
    pub word: usize,
    /// Bytes of a JSON line.
    pub line: usize,
    /// Time to the first byte.
    pub first_byte: Duration,
    /// Time from the first byte of a line to its end.
    pub full_line: Duration,
    /// Time between requests.
    pub idle: Duration,
    /// Time to take one line of an answer.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            word: 64,
            line: 1 << 20,
            first_byte: Duration::from_secs(5),
            full_line: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(5),
        }
    }
}

/// A socket that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Something that is no socket has its path; it is left alone.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system said no.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A bound control socket that nobody serves yet.
#[derive(Debug)]
pub struct ControlSocket {
    listener: StdListener,
    file: Arc<SocketFile>,
}

/// The umask belongs to the process: two sockets made at once must not restore each other's.
static UMASK: Mutex<()> = Mutex::new(());

impl ControlSocket {
    /// Makes the socket, 0600. Bind only while holding the lock: a socket found here is then a
    /// leftover and is replaced.
    ///
    /// # Errors
    /// [`BindError::NotASocket`] leaves what it found untouched.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let io = |source| BindError::Io {
            path: path.to_owned(),
            source,
        };
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => fs::remove_file(path).map_err(io)?,
            Ok(_) => return Err(BindError::NotASocket(path.to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io(e)),
        }
        let listener = {
            let _guard = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
            let before = rustix::process::umask(Mode::from_raw_mode(0o077));
            let bound = StdListener::bind(path);
            rustix::process::umask(before);
            bound.map_err(io)?
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        Self::of(listener, path).map_err(io)
    }

    /// A listening socket at `path` that another program of this process has bound.
    ///
    /// # Errors
    /// If it listens elsewhere, or nowhere.
    pub fn inherit(descriptor: OwnedFd, path: &Path) -> io::Result<Self> {
        let listener = StdListener::from(descriptor);
        if listener.local_addr()?.as_pathname() != Some(path) {
            return Err(io::Error::other("the inherited socket is another one"));
        }
        listener.set_nonblocking(true)?;
        Self::of(listener, path)
    }

    fn of(listener: StdListener, path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let file = Arc::new(SocketFile {
            path: path.to_owned(),
            identity: (meta.dev(), meta.ino()),
        });
        Ok(Self { listener, file })
    }

    /// The same socket once more; its file goes with the last of them.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            listener: self.listener.try_clone()?,
            file: self.file.clone(),
        })
    }

    /// Answers on the socket until stopped. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the runtime refuses the descriptor.
    pub fn serve(self, handler: Arc<dyn Handler>, limits: Limits) -> io::Result<Serving> {
        let listener = UnixListener::from_std(self.listener)?;
        let serving = Serving {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            rejected: Arc::default(),
            patience: limits.write,
            file: self.file,
        };
        let accept = Accept {
            slots: Arc::new(Semaphore::new(limits.connections)),
            limits: Arc::new(limits),
            handler,
            stop: serving.stop.clone(),
            tasks: serving.tasks.clone(),
            rejected: serving.rejected.clone(),
        };
        serving.tasks.spawn(accept.run(listener));
        Ok(serving)
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Removes the file it stands for, unless another process has put its own there.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path).map(|meta| (meta.dev(), meta.ino()));
        if found.is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path); // the next supervisor replaces a leftover
        }
    }
}

/// A control socket being served. Dropping it stops the service without waiting.
#[derive(Debug)]
pub struct Serving {
    stop: CancellationToken,
    tasks: TaskTracker,
    rejected: Arc<AtomicU64>,
    patience: Duration,
    file: Arc<SocketFile>,
}

impl Serving {
    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Connections of other users turned away so far (`gc_control_rejected_total`).
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Accepts no more, ends the connections (answers being written are finished) and removes the
    /// file.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(self.patience, self.tasks.wait()).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The accepting task.
struct Accept {
    handler: Arc<dyn Handler>,
    limits: Arc<Limits>,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
    rejected: Arc<AtomicU64>,
}

impl Accept {
    async fn run(self, listener: UnixListener) {
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    failing = false;
                    self.admit(stream);
                }
                Err(e) => {
                    // Most likely out of descriptors: trying again at once would only spin.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("control socket: accept failed: {e}");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn admit(&self, stream: UnixStream) {
        if !self.is_trusted(&stream) {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return; // closed without a byte
        }
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            // The buffer of a new connection has room, so this does not wait.
            if let Ok(mut stream) = stream.into_std() {
                let _ = stream.write_all(b"busy\n");
            }
            return;
        };
        let connection = Connection::new(
            stream,
            self.handler.clone(),
            self.limits.clone(),
            self.stop.clone(),
        );
        self.tasks.spawn(async move {
            connection.run().await;
            drop(slot);
        });
    }

    fn is_trusted(&self, stream: &UnixStream) -> bool {
        match stream.peer_cred() {
            Ok(peer) if is_trusted_uid(peer.uid()) => true,
            Ok(peer) => {
                let (uid, pid) = (peer.uid(), peer.pid().unwrap_or_default());
                tracing::warn!(uid, pid, "control socket: another user turned away");
                false
            }
            Err(e) => {
                tracing::warn!("control socket: unknown peer turned away: {e}");
                false
            }
        }
    }
}

/// Our own user and root may command us, and be commanded by us.
pub(super) fn is_trusted_uid(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests;
