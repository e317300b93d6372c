//! The one module with unsafe code: what the kernel offers and no crate wraps.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `PIDFD_INFO_EXIT`: the exit status is asked for, or given.
const INFO_EXIT: u64 = 1 << 3;

/// `PIDFD_GET_INFO`: `_IOWR(0xFF, 11, struct pidfd_info)`.
const GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xFF, 11);

/// `struct pidfd_info` in its first published size of 64 bytes. The kernel writes no more than
/// the size encoded in the request.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// The wait status of a process that has ended and been reaped by whoever was its parent.
/// `None` while it has not, and on kernels before 6.15.
pub(super) fn exit_info(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let mut info = PidfdInfo {
        mask: INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: `GET_INFO` is built from this very type, so the kernel reads and writes at most
    // `size_of::<PidfdInfo>()` bytes at the pointer, all of them plain integers for which every
    // bit pattern is valid. On any other kind of descriptor the request number is unknown.
    let done = unsafe { ioctl(pidfd, Updater::<GET_INFO, _>::new(&mut info)) };
    (done.is_ok() && info.mask & INFO_EXIT != 0).then_some(info.exit_code)
}

/// A descriptor whose readability can be awaited. Needs a tokio runtime with I/O.
pub(crate) fn watchable(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: an `OwnedFd` is open until it is dropped and never changes its number; the
    // `AsyncFd` holds a share of it, and no one can take it out of the other shares.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_structure_has_its_published_size() {
        assert_eq!(size_of::<PidfdInfo>(), 64);
    }
}
