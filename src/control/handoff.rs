//! Handing a running supervisor over to another program in the same process.
//!
//! Locks and the listening socket wait as messages in a socket pair while the program is replaced:
//! so they stay held without a gap, and no descriptor ever loses its close-on-exec mark. The other
//! end of the pair is the new program's stdin.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

use super::files;
use crate::model::ExitStatus;
use crate::shell::Program;

/// The hidden flag that makes a supervisor take over.
pub const FLAG: &str = "--handoff";

/// Most descriptors of one handoff: two locks and a socket.
const MOST: usize = 3;

/// How long a program may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// `handoff.json`: what the new program must know and cannot ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// The program that takes over.
    pub exe: PathBuf,
    /// The version that hands over.
    pub version: String,
    /// It has no terminal: its output goes to a file.
    pub detached: bool,
    /// Cities that ran, by path.
    pub cities: Vec<PathBuf>,
}

/// What `exe --version` says, without its name. Refuses whatever is no gc.
///
/// # Errors
/// If it cannot be run, is not done in time, or is something else.
pub async fn version_of(exe: &Path) -> io::Result<String> {
    let program = Program {
        path: exe.to_owned(),
        words: vec![exe.into(), "--version".into()],
        env: std::env::vars_os().collect(),
        dir: std::env::current_dir()?,
        input: Vec::new(),
        output: 1024,
        complaints: 0,
        limit: VERSION_LIMIT,
    };
    let ended = program.run().await?;
    let text = String::from_utf8_lossy(&ended.output);
    match (ended.status, text.trim().strip_prefix("gc ")) {
        (None, _) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it does not say its version",
        )),
        (Some(ExitStatus::Code(0)), Some(version)) => Ok(version.to_owned()),
        _ => Err(io::Error::other("it is no gc")),
    }
}

impl Handoff {
    /// Replaces this program by `exe`, started with the same arguments and [`FLAG`]. Returns only
    /// if that failed; then everything is as before.
    pub fn replace_program(&self, file: &Path, descriptors: &[BorrowedFd<'_>]) -> io::Error {
        let stdin = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
            Ok(stdin) => stdin,
            Err(error) => return error.into(),
        };
        let failed = self
            .prepare(file, descriptors)
            .map(|()| Command::new(&self.exe).args(arguments()).exec());
        let _ = rustix::stdio::dup2_stdin(&stdin);
        let _ = fs::remove_file(file); // never read by anybody now
        failed.unwrap_or_else(|error| error)
    }

    fn prepare(&self, file: &Path, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        files::replace(file, &serde_json::to_vec(self)?)?;
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        if !message.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors"));
        }
        sendmsg(
            &ours,
            &[IoSlice::new(b"gc")],
            &mut message,
            SendFlags::empty(),
        )?;
        Ok(rustix::stdio::dup2_stdin(&theirs)?)
    }

    /// The new program's side: what was handed over, and the descriptors in their order. Stdin is
    /// `/dev/null` from here on.
    ///
    /// # Errors
    /// If nothing was handed over.
    pub fn receive(file: &Path) -> io::Result<(Self, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 2];
        recvmsg(
            rustix::stdio::stdin(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut message,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let received = message.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = received.flatten().collect();
        let nothing = fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(nothing.as_fd())?;
        let handoff = serde_json::from_slice(&fs::read(file)?)?;
        let _ = fs::remove_file(file); // read once; a leftover is replaced by the next
        Ok((handoff, descriptors))
    }
}

/// The arguments of this process, as the program that takes over needs them.
fn arguments() -> Vec<OsString> {
    let own = std::env::args_os().skip(1);
    let mut kept: Vec<OsString> = own
        .filter(|arg| arg != FLAG && arg != "--detached")
        .collect();
    kept.push(FLAG.into());
    kept
}
