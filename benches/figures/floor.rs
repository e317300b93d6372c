//! The floor: what the kernel charges for a spawn and the news of an exit, without a supervisor.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gascity::sessions::DEFAULT_PASSTHROUGH;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Spawns what a city would spawn: own group, output appended to a file, and the variables an
/// agent inherits (a language alone makes many programs read their locale at their start).
pub(crate) fn spawn(words: &[String], log: &File) -> Child {
    let inherited = |(name, _): &(OsString, OsString)| {
        let name = name.to_string_lossy();
        DEFAULT_PASSTHROUGH
            .iter()
            .any(|glob| match glob.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == *glob,
            })
    };
    Command::new(&words[0])
        .args(&words[1..])
        .env_clear()
        .envs(std::env::vars_os().filter(inherited))
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
