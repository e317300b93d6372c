//! Which tmux program there is.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::server;

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
    let version = server::version(&find()?)?;
    Ok(format!("tmux {}", version.text))
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
