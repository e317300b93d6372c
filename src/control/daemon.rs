//! A supervisor that outlives the shell it was started from.
//!
//! The parent starts `gc supervisor run --detached …` with a pipe as its stdout and waits for one
//! line on it: `READY <pid>` or `ERROR <text>`. The child leaves the session of its parent, keeps
//! its descriptors from its own children, and swaps the pipe for `supervisor.out` once it has
//! spoken. Nobody polls.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::files;
use super::inherited::forget_session;

/// How long a supervisor may take to be ready.
pub const READY_LIMIT: Duration = Duration::from_secs(15);

/// The longest message a child may send.
const LINE_MAX: usize = 64 * 1024;

/// A supervisor that did not become ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// It said why.
    #[error("{0}")]
    Failed(String),
    /// It ended without a word.
    #[error("the supervisor ended before it was ready ({status}); see {}", .out.display())]
    Ended {
        /// How it ended.
        status: String,
        /// Where its output is.
        out: PathBuf,
    },
    /// It is still running and has not said a word. It is left alone: agents may be its already.
    #[error("the supervisor (pid {pid}) is not ready after {limit:?}; see {}", .out.display())]
    NotReady {
        /// Its process id.
        pid: u32,
        /// How long it was given.
        limit: Duration,
        /// Where its output is.
        out: PathBuf,
    },
    /// It could not be started or heard.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The program or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Starts `exe args…` detached and waits until it is ready; returns its process id. `args` must
/// lead to [`Detached::enter`], and all paths in them must be absolute: the child starts in `/`.
/// Its output goes to `out` ([`super::home::Home::out`]).
///
/// # Errors
/// [`DaemonError::Failed`] carries the child's own words.
pub fn spawn_detached<A: AsRef<OsStr>>(
    exe: &Path,
    args: &[A],
    out: &Path,
    limit: Duration,
) -> Result<u32, DaemonError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| DaemonError::Io { path, source }
    };
    let mut command = Command::new(exe);
    forget_session(&mut command);
    let mut child = command
        .args(args)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(open_out(out).map_err(io(out))?)
        .spawn()
        .map_err(io(exe))?;
    let Some(pipe) = child.stdout.take() else {
        return Err(io(exe)(io::Error::other("no pipe to the child")));
    };
    match hear(&pipe, Instant::now() + limit).map_err(io(exe))? {
        Heard::Ready(pid) => Ok(pid),
        Heard::Failed(text) => {
            let _ = child.wait(); // it ends after its last word
            Err(DaemonError::Failed(text))
        }
        Heard::Nothing => Err(DaemonError::NotReady {
            pid: child.id(),
            limit,
            out: out.to_owned(),
        }),
        Heard::End => Err(DaemonError::Ended {
            status: ending(&mut child),
            out: out.to_owned(),
        }),
    }
}

fn ending(child: &mut Child) -> String {
    match child.wait() {
        Ok(status) => status.to_string(),
        Err(e) => e.to_string(),
    }
}

enum Heard {
    Ready(u32),
    Failed(String),
    End,
    Nothing,
}

/// Waits for a line that says how it went; others are passed over.
fn hear(pipe: &ChildStdout, deadline: Instant) -> io::Result<Heard> {
    let mut heard = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        while let Some(end) = heard.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = heard.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(pid) = line.strip_prefix("READY ") {
                let pid = pid.trim().parse().map_err(io::Error::other)?;
                return Ok(Heard::Ready(pid));
            }
            if let Some(text) = line.strip_prefix("ERROR ") {
                return Ok(Heard::Failed(text.trim().to_owned()));
            }
        }
        if heard.len() > LINE_MAX {
            return Err(io::Error::other("the child said too much"));
        }
        if !readable(pipe, deadline)? {
            return Ok(Heard::Nothing);
        }
        match rustix::io::read(pipe, &mut chunk) {
            Ok(0) => return Ok(Heard::End),
            Ok(count) => heard.extend_from_slice(&chunk[..count]),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether there is something to read before the deadline.
fn readable(pipe: &ChildStdout, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The child's side: a process that is leaving its parent.
#[derive(Debug)]
#[must_use = "the parent waits for `ready` or `failed`"]
pub struct Detached {
    out: File,
}

impl Detached {
    /// Leaves the parent's session and keeps inherited descriptors from whatever is started later.
    /// Call it first, before other threads exist and before anything is spawned.
    ///
    /// # Errors
    /// If `out` cannot be opened or the session cannot be left.
    pub fn enter(out: &Path) -> io::Result<Self> {
        match rustix::process::setsid() {
            Ok(_) => {}
            // Already the leader of a group, as under a shell with job control or a service
            // manager: there is no terminal to leave, or somebody wants to keep it.
            Err(Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        close_fds::set_fds_cloexec_threadsafe(3, &[]);
        let out = open_out(out)?;
        Ok(Self { out })
    }

    /// Tells the parent that the service is up; from here on stdout is `supervisor.out`.
    ///
    /// # Errors
    /// If stdout cannot be redirected. A parent that no longer listens is no error.
    pub fn ready(self) -> io::Result<()> {
        self.tell(&format!("READY {}\n", std::process::id()))
    }

    /// Tells the parent why there will be no service.
    ///
    /// # Errors
    /// As [`Detached::ready`].
    pub fn failed(self, text: &str) -> io::Result<()> {
        let text = text.replace(['\n', '\r'], " ");
        self.tell(&format!("ERROR {text}\n"))
    }

    fn tell(self, line: &str) -> io::Result<()> {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => break, // the parent gave up waiting
                Err(e) => return Err(e.into()),
            }
        }
        Ok(rustix::stdio::dup2_stdout(&self.out)?)
    }
}

fn open_out(path: &Path) -> io::Result<File> {
    files::private().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests;
