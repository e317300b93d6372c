//! The floor: what the kernel charges for a spawn and the news of an exit, without a supervisor.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Spawns what a city would spawn: own group, output appended to a file, few variables.
pub(crate) fn spawn(words: &[String], log: &File) -> Child {
    Command::new(&words[0])
        .args(&words[1..])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap())
        .spawn()
        .unwrap()
}

pub(crate) fn log(dir: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("floor.log"))
        .unwrap()
}

/// Waits on a pidfd until the child has ended, and reaps it.
pub(crate) fn wait(child: &mut Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    child.wait().unwrap();
}
