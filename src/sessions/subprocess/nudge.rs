//! Messages for an agent, down the pipe that is its standard input (sessions.md 2.2).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use gascity_actors::model::SessionName;
use gascity_actors::ports::{Delivery, Fence, SessionError, nudge_text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::run::Run;
use super::{Inner, backend, check};
use crate::sessions::processes::Led as _;

/// How long an agent may take to read what is in its pipe.
const FULL: Duration = Duration::from_secs(5);

impl Inner {
    pub(super) async fn nudge(
        self: &std::sync::Arc<Self>,
        name: &SessionName,
        fence: &Fence,
        text: &str,
    ) -> Result<Delivery, SessionError> {
        let run = match self.seen(name).await {
            Err(SessionError::NotFound) => return Ok(Delivery::NoSession),
            run => run?,
        };
        check(fence, &*run)?;
        let mut text = nudge_text(text)?;
        if !run.is_live() {
            return Ok(Delivery::NoSession);
        }
        if text.is_empty() {
            return Ok(Delivery::Delivered { confirmed: true });
        }
        text.push('\n');
        let files = self.files.clone();
        let sent = tokio::task::spawn_blocking(move || {
            let fifo = files.fifo(&run.name);
            let Some(pipe) = open(&fifo, &run)? else {
                return Err(SessionError::Unsupported("nudge"));
            };
            // One message at a time, from whichever process: a pipe mixes what exceeds its page.
            let _turn = files.turn(&run.name).map_err(|_| SessionError::Busy)?;
            send(&pipe, text.as_bytes(), &run)
        });
        sent.await.map_err(backend)?
    }
}

/// The writing end of an agent's input; `None` if its input is no pipe of ours.
fn open(fifo: &Path, run: &Run) -> Result<Option<File>, SessionError> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(flags)
        .open(fifo);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Nobody has it open for reading.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => return Ok(None),
        Err(error) => return Err(backend(error)),
    };
    let meta = file.metadata().map_err(backend)?;
    let ours = meta.file_type().is_fifo() && is_input_of(run, &meta);
    Ok(ours.then_some(file))
}

/// Whether the leader reads this pipe: one left by a run before it must not swallow a message.
/// Where the kernel does not tell, the pipe is believed to be the right one.
fn is_input_of(run: &Run, pipe: &std::fs::Metadata) -> bool {
    let input = format!("/proc/{}/fd/0", run.pid.as_raw_nonzero());
    match std::fs::metadata(input) {
        Ok(input) => (input.dev(), input.ino()) == (pipe.dev(), pipe.ino()),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Writes all of it, waiting while the pipe is full.
fn send(mut pipe: &File, text: &[u8], run: &Run) -> Result<Delivery, SessionError> {
    let deadline = Instant::now() + FULL;
    let mut rest = text;
    while !rest.is_empty() {
        match pipe.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Delivery::NoSession);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !run.is_live() {
                    return Ok(Delivery::NoSession);
                }
                if !has_room_by(pipe, deadline) {
                    return Err(SessionError::Busy);
                }
            }
            Err(error) => return Err(backend(error)),
        }
    }
    // It is in the pipe; whether the program has read it, nobody can see.
    Ok(Delivery::Delivered { confirmed: true })
}

fn has_room_by(pipe: &File, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let Ok(timeout) = Timespec::try_from(left) else {
        return false;
    };
    let mut fds = [PollFd::new(pipe, PollFlags::OUT)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(ready) => ready > 0,
        Err(error) => error == Errno::INTR && !left.is_zero(),
    }
}
