//! Which tmux program there is.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::version::Version;

/// How long a question to the program may take.
pub(super) const QUESTION: Duration = Duration::from_secs(2);

/// Names the program to use; empty: none.
const SETTING: &str = "GC_TMUX";

/// The program, as an absolute path.
///
/// # Errors
/// Why there is none, for a person.
pub(crate) fn find() -> Result<PathBuf, String> {
    match std::env::var_os(SETTING) {
        Some(set) if set.is_empty() => Err(format!("tmux is switched off by {SETTING}")),
        Some(set) => std::path::absolute(&set).map_err(|error| format!("{SETTING}: {error}")),
        None => on(&std::env::var_os("PATH").unwrap_or_default()),
    }
}

fn on(path: &OsStr) -> Result<PathBuf, String> {
    let mut found = std::env::split_paths(path).map(|dir| dir.join("tmux"));
    let is_program = |path: &PathBuf| {
        path.is_absolute()
            && path.is_file()
            && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    let found = found.find(is_program);
    found.ok_or_else(|| "tmux not found on PATH".to_owned())
}

/// What can be used here, e.g. `tmux 3.3a`. Runs the program; blocks.
///
/// # Errors
/// Why there is none, for a person.
pub(crate) fn usable() -> Result<String, String> {
    let version = version(&find()?)?;
    Ok(format!("tmux {}", version.text))
}

/// What a short-lived program prints; `None` if it fails. Blocks.
pub(super) fn answer(mut command: Command, limit: Duration) -> io::Result<Option<String>> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let wait = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    if !matches!(poll(&mut fds, Some(&wait)), Ok(1..)) {
        child.kill()?;
        child.wait()?;
        let late = "the program does not answer";
        return Err(io::Error::new(io::ErrorKind::TimedOut, late));
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(output.status.success().then_some(text))
}

/// The version of a tmux program. Blocks.
///
/// # Errors
/// Why it cannot be used, for a person.
pub(super) fn version(program: &Path) -> Result<Version, String> {
    let mut command = Command::new(program);
    command.arg("-V");
    match answer(command, QUESTION) {
        Ok(Some(text)) => Version::parse(&text),
        Ok(None) => Err(format!("{} -V fails", program.display())),
        Err(error) => Err(format!("{}: {error}", program.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_on_the_path_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let none = on(dir.path().as_os_str());
        assert_eq!(none, Err("tmux not found on PATH".to_owned()));
        std::fs::write(dir.path().join("tmux"), "").unwrap();
        assert!(on(dir.path().as_os_str()).is_err(), "not a program");
        assert!(on(OsStr::new("")).is_err());
    }
}
