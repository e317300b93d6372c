//! Launching the leader of a run.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use gascity_actors::model::{Command, FailureClass, StartFailure};
use rustix::io::Errno;

use crate::sessions::environment::Environment;
use crate::sessions::prepare::{agent_failure, provider_failure};

/// What the leader is connected to.
pub(super) struct Streams {
    pub(super) input: Option<File>,
    pub(super) log: File,
}

/// Spawns the leader in a process group of its own and returns its pid.
///
/// No pre-exec hook, no change of user, and the program as an absolute path: only then does the
/// standard library use `posix_spawn`, whose cost does not grow with our memory.
pub(super) fn spawn(
    command: &Command,
    dir: &Path,
    env: &Environment,
    streams: Streams,
) -> Result<process::Child, StartFailure> {
    let (program, words): (PathBuf, Vec<&str>) = match command {
        Command::Shell(line) => ("/bin/sh".into(), vec!["sh", "-c", line]),
        Command::Words(words) => {
            let first = words.first().map_or("", String::as_str);
            (
                look_up(first, dir, env)?,
                words.iter().map(String::as_str).collect(),
            )
        }
    };
    let Streams { input, log } = streams;
    let errors = log
        .try_clone()
        .map_err(|error| provider_failure("log", error.to_string()))?;
    process::Command::new(&program)
        .arg0(words[0])
        .args(&words[1..])
        .env_clear()
        .envs(env)
        .current_dir(dir)
        .process_group(0)
        .stdin(input.map_or_else(Stdio::null, Stdio::from))
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| {
            StartFailure::new(
                "spawn",
                blame(&error),
                format!("{}: {error}", program.display()),
            )
        })
}

/// The machine's lack of something is not the agent's fault.
fn blame(error: &io::Error) -> FailureClass {
    let lack = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) if lack.contains(&errno) => FailureClass::Provider,
        _ => FailureClass::Agent,
    }
}

/// The absolute path of a program, searched for as the agent itself would.
pub(in crate::sessions) fn look_up(
    program: &str,
    dir: &Path,
    env: &Environment,
) -> Result<PathBuf, StartFailure> {
    if program.is_empty() {
        return Err(agent_failure("spawn", "the command is empty"));
    }
    if program.contains('/') {
        let path = dir.join(program);
        return match fs::metadata(&path) {
            Ok(_) => Ok(path), // whether it can be run, the kernel says better than we can
            Err(error) => Err(agent_failure("spawn", format!("{program}: {error}"))),
        };
    }
    let path = env
        .get(OsStr::new("PATH"))
        .cloned()
        .unwrap_or_else(OsString::new);
    std::env::split_paths(&path)
        .map(|entry| dir.join(entry).join(program))
        .find(|path| is_program(path))
        .ok_or_else(|| agent_failure("spawn", format!("{program}: program not found on PATH")))
}

fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_on_the_agents_own_path() {
        let dir = tempfile::tempdir().unwrap();
        let env = Environment::from([("PATH".into(), "/nowhere:/bin:/usr/bin".into())]);
        assert!(look_up("sh", dir.path(), &env).unwrap().is_absolute());
        let failure = look_up("no-such-program", dir.path(), &env).unwrap_err();
        assert!(failure.detail.contains("no-such-program"), "{failure}");
        assert!(look_up("./no-such-file", dir.path(), &env).is_err());
        assert!(look_up("", dir.path(), &env).is_err());
        assert!(look_up("sh", dir.path(), &Environment::new()).is_err());
    }
}
