//! A process group of ours, from its first process to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open,
    waitid,
};
use tokio::io::unix::AsyncFd;

use crate::model::ExitStatus;
use crate::sessions::sys;

/// A child that leads its own process group. Until it is reaped its number, and so the group's,
/// is given to nobody else, which makes signals to the group safe.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    pidfd: Arc<OwnedFd>,
    exit: AsyncFd<Arc<OwnedFd>>,
    reaped: bool,
}

impl Group {
    /// Takes over a child. On error the child is gone.
    pub(super) fn new(mut child: Child) -> io::Result<Self> {
        let leader = Pid::from_child(&child);
        let watch = || {
            let pidfd = Arc::new(pidfd_open(leader, PidfdFlags::empty())?);
            let exit = sys::watchable(pidfd.clone())?;
            Ok((pidfd, exit))
        };
        match watch() {
            Ok((pidfd, exit)) => Ok(Self {
                leader,
                pidfd,
                exit,
                reaped: false,
            }),
            Err(error) => {
                let _ = kill_process_group(leader, Signal::KILL);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Waits until the leader has ended. An error means that the runtime is ending.
    pub(super) async fn ended(&self) {
        if self.exit.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Asks all to end.
    pub(super) fn terminate(&self) {
        let _ = kill_process_group(self.leader, Signal::TERM);
    }

    /// Ends all.
    pub(super) fn kill(&self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
    }

    /// Waits for the leader's end and says how it ended. The group must not be signalled
    /// afterwards.
    pub(super) async fn reap(mut self) -> io::Result<ExitStatus> {
        self.ended().await;
        // Before the outcome is known: whatever it is, the number may mean somebody else now.
        self.reaped = true;
        let status = wait(&self.pidfd, WaitIdOptions::NOHANG)?;
        let status = status.ok_or_else(|| io::Error::other("it has not ended"))?;
        Ok(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (_, Some(signal)) => ExitStatus::Signal(signal),
            _ => ExitStatus::Unknown,
        })
    }
}

impl Drop for Group {
    /// Nobody looks after it any more, because the runtime is ending.
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.kill();
        let pidfd = self.pidfd.clone();
        // Even a killed process takes its time to end; who drops this cannot wait for it.
        let reap = move || drop(wait(&pidfd, WaitIdOptions::empty()));
        let _ = std::thread::Builder::new().name("reap".into()).spawn(reap);
    }
}

fn wait(pidfd: &OwnedFd, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
    loop {
        match waitid(
            WaitId::PidFd(pidfd.as_fd()),
            WaitIdOptions::EXITED | options,
        ) {
            Err(Errno::INTR) => {}
            status => return Ok(status?),
        }
    }
}
