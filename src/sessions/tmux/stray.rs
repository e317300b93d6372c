//! A server that lives although its socket is gone. It makes the socket anew when it is told to;
//! until then nobody may start another one, or all agents would be there twice.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::server::{Address, ConnectError, Connector, Owner, Server};
use crate::sessions::proc::{self, Environ};
use crate::sessions::processes::{Mark, has_fired};

/// How often, and in which steps, is waited for a socket to be made anew.
const TRIES: u32 = 60;
const STEP: Duration = Duration::from_millis(5);

/// What the kernel calls the process of a server.
const SERVER: &str = "tmux: server";

impl Server {
    /// Has it make its socket anew if somebody removed the file.
    pub(super) async fn check_socket(&self) {
        for _ in 0..TRIES {
            if self.socket.exists() {
                return;
            }
            wake(&self.pidfd, &self.socket);
            tokio::time::sleep(STEP).await;
        }
    }
}

/// Tells a server to make its socket anew, in a directory that may be gone as well.
fn wake(server: &OwnedFd, socket: &Path) {
    if let Some(dir) = socket.parent().filter(|dir| !dir.exists()) {
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    }
    let _ = pidfd_send_signal(server, Signal::USR1); // it may be gone
}

impl Connector {
    /// Finds the city's server by its process, and has it make its socket anew. `None`: there is
    /// no such process. Blocks.
    ///
    /// # Errors
    /// If it lives and cannot be reached all the same.
    pub(super) fn recall(&self, places: &[Address]) -> Result<Option<Address>, ConnectError> {
        let Some(pid) = self.stray() else {
            return Ok(None);
        };
        let Some(Ok(server)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
        else {
            return Ok(None);
        };
        if proc::comm(pid).ok().flatten().as_deref() != Some(SERVER) {
            return Ok(None); // another process by now
        }
        for _ in 0..TRIES {
            for place in places {
                wake(&server, &self.socket(place));
            }
            std::thread::sleep(STEP);
            for place in places {
                let answers = UnixStream::connect(self.socket(place)).is_ok();
                if answers && self.owner(place)? == Owner::Us {
                    return Ok(Some(place.clone()));
                }
            }
            if has_fired(&server) {
                return Ok(None);
            }
        }
        Err(ConnectError::Failed(format!(
            "the tmux server of the city (pid {pid}) lives but cannot be reached: its socket is \
             gone; end it, or put the socket back"
        )))
    }

    /// The process of the city's server: as noted, else, once, whose children agents are.
    fn stray(&self) -> Option<i32> {
        if let Some(pid) = self.hint().server() {
            return Some(pid);
        }
        if self.searched.swap(true, Ordering::Relaxed) {
            return None;
        }
        let mark = Mark(self.config.city.root.clone());
        let all = proc::all().ok()?;
        let is_server = |pid: i32| proc::comm(pid).ok().flatten().as_deref() == Some(SERVER);
        let servers: Vec<i32> = all
            .iter()
            .filter(|stat| !stat.dead && proc::is_readable(stat.pid) && is_server(stat.pid))
            .map(|stat| stat.pid)
            .collect();
        let agents = all.iter().filter(|stat| servers.contains(&stat.ppid));
        let mut ours = agents.filter(
            |stat| matches!(Environ::of(stat.pid), Ok(Some(environ)) if mark.is_ours(&environ)),
        );
        ours.next().map(|stat| stat.ppid)
    }
}
