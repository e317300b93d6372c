//! A connection that is made in time and leads to someone we trust.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::ClientError;
use crate::control::server::is_trusted_uid;

/// Connects within `limit` and checks whose process listens, before a byte is sent.
pub(super) fn connect(path: &Path, limit: Duration) -> Result<UnixStream, ClientError> {
    let failed = |e: Errno| match e {
        Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED | Errno::NOTSOCK => {
            ClientError::NotRunning
        }
        Errno::ACCESS | Errno::PERM => ClientError::Denied,
        // The backlog stayed full: there is a process, and it does not accept.
        Errno::AGAIN | Errno::TIMEDOUT => ClientError::NoAnswer,
        e => ClientError::Io(e.into()),
    };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let socket = socket().map_err(failed)?;
    // For a local socket this bounds the wait for a place in the backlog, too.
    set_socket_timeout(&socket, Timeout::Send, Some(limit)).map_err(failed)?;
    rustix::net::connect(&socket, &address).map_err(failed)?;
    let stream = UnixStream::from(socket);
    let uid = server_uid(&stream, path)?;
    if is_trusted_uid(uid) {
        Ok(stream)
    } else {
        Err(ClientError::Foreign { uid })
    }
}

#[cfg(target_os = "linux")]
fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

#[cfg(not(target_os = "linux"))]
fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::empty();
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// The user of the process that listens.
#[cfg(target_os = "linux")]
fn server_uid(stream: &UnixStream, _path: &Path) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

/// The owner of the socket file: no safe call tells the peer's user here, and only the owner of a
/// private directory can put a socket into it.
#[cfg(not(target_os = "linux"))]
fn server_uid(_stream: &UnixStream, path: &Path) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::symlink_metadata(path)?.uid())
}
