//! What a long-lived process must not inherit from whoever started it.
//!
//! Inside an agent's session the environment says whose session it is, and a stop of that agent
//! ends every process that says so. A supervisor started there belongs to nobody.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The variable that makes a process part of a session.
const MARK: &str = "GC_SESSION_ID";

/// What users set to steer gc itself; all other `GC_*` variables describe a session.
const SETTINGS: [&str; 5] = [
    "GC_HOME",
    "GC_LOG",
    "GC_ALLOW_FAULTS",
    "GC_TMUX",
    "GC_FAKE_SCRIPT",
];

/// Takes every variable of a session out of what `command` will inherit.
pub fn forget_session(command: &mut Command) {
    for name in session_variables(std::env::vars_os().map(|(name, _)| name)) {
        command.env_remove(name);
    }
}

/// Inside a session: runs this very command again in its place, without the session's variables.
/// Elsewhere it does nothing. `city` is what the session's `GC_CITY` may have decided.
///
/// # Errors
/// If the program cannot be run again.
pub fn leave_session(city: Option<&Path>) -> io::Result<()> {
    if std::env::var_os(MARK).is_none() {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1));
    forget_session(&mut again);
    if let Some(city) = city {
        again.env("GC_CITY", city);
    }
    Err(again.exec())
}

fn session_variables(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let describes = |name: &OsStr| {
        name.as_bytes().starts_with(b"GC_") && SETTINGS.iter().all(|kept| name != *kept)
    };
    names.filter(move |name| describes(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_forgotten_and_settings_are_kept() {
        let names = [
            "GC_SESSION_ID",
            "GC_HOME",
            "PATH",
            "GC_CITY",
            "GC_LOG",
            "GCC",
        ];
        let names = names.into_iter().map(OsString::from);
        let gone: Vec<OsString> = session_variables(names).collect();
        assert_eq!(gone, ["GC_SESSION_ID", "GC_CITY"]);
    }
}
