//! Making sure that a supervisor runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::context::Context;
use super::error::{CliError, CliResult, Code};
use super::supervisor::start_installed;
use crate::control::client::Client;
use crate::control::daemon::{DaemonError, READY_LIMIT, spawn_detached};
use crate::control::home::Home;
use crate::control::lock::{self, Held};

/// A supervisor that answers.
#[derive(Debug)]
pub(super) struct Ensured {
    /// A connection to it.
    pub(super) client: Client,
    /// It was started by this command.
    pub(super) started: bool,
}

/// Connects to the supervisor and starts it first if there is none. When another process is just
/// starting one, that one is waited for.
///
/// # Errors
/// If it does not become ready; the end of its log is the cause.
pub(super) fn ensure(context: &Context) -> CliResult<Ensured> {
    if let Some(client) = context.supervisor()? {
        let started = false;
        return Ok(Ensured { client, started });
    }
    let home = context.home()?;
    home.create()?;
    let started = match start_any(&home) {
        Ok(_) => true,
        // Lost a race: two starts at once, one supervisor.
        Err(_) if is_held(&home) => false,
        Err(error) => return Err(not_started(error, &home)),
    };
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        if let Some(client) = context.supervisor()? {
            return Ok(Ensured { client, started });
        }
        if Instant::now() >= deadline {
            let message = "a supervisor holds the lock and does not answer";
            return Err(
                CliError::new(Code::Timeout, message).hint(format!("see {}", home.log().display()))
            );
        }
        // Whoever took the lock tells its readiness to its own parent, not to us.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts the installed service, or else a detached process.
fn start_any(home: &Home) -> Result<(), DaemonError> {
    match start_installed(home) {
        Some(Ok(())) => return Ok(()),
        // A service that does not start is no reason to go without a supervisor.
        Some(Err(error)) => tracing::warn!(%error, "the installed service does not start"),
        None => {}
    }
    start(home).map(drop)
}

/// Starts a detached supervisor on `home`; returns its process id.
///
/// # Errors
/// If it does not become ready.
pub(super) fn start(home: &Home) -> Result<u32, DaemonError> {
    let exe = std::env::current_exe().map_err(|source| DaemonError::Io {
        path: "gc".into(),
        source,
    })?;
    let mut args = Vec::new();
    // With `--home` lock and socket are in the home as well. Where they are elsewhere, the child
    // finds the same places in the same environment.
    if home.runtime_dir() == home.dir() {
        args.push("--home".into());
        args.push(home.dir().as_os_str().to_owned());
    }
    args.extend(["supervisor", "run", "--detached"].map(Into::into));
    spawn_detached(&exe, &args, &home.out(), READY_LIMIT)
}

/// The failure with the last lines of the log.
pub(super) fn not_started(error: DaemonError, home: &Home) -> CliError {
    let log = [home.log(), home.out()]
        .into_iter()
        .find(|file| file.metadata().is_ok_and(|meta| meta.len() > 0));
    let failure = CliError::from(error);
    match log {
        Some(log) => failure
            .cause(last_lines(&log, 10))
            .hint(format!("see {}", log.display())),
        None => failure,
    }
}

fn is_held(home: &Home) -> bool {
    [home.runtime_lock(), home.home_lock()]
        .iter()
        .any(|path| matches!(lock::holder(path), Ok(Held::By(_))))
}

fn last_lines(file: &Path, count: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        assert_eq!(last_lines(&file, 2), "");
        fs::write(&file, "a\nb\nc\n").unwrap();
        assert_eq!(last_lines(&file, 2), "b\nc");
        assert_eq!(last_lines(&file, 9), "a\nb\nc");
    }
}
