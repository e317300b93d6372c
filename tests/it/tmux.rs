//! Agents in sessions of a real tmux.

mod choice;
mod conformance;
mod life;
mod talk;
pub(crate) mod town;
mod trouble;

use std::path::PathBuf;

/// The tmux to test with: that of `GC_TEST_TMUX`, else the one on the path. `None`: the test is
/// skipped, which must not happen in CI.
pub(crate) fn program() -> Option<PathBuf> {
    let named = std::env::var_os("GC_TEST_TMUX").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join("tmux"));
    let program = named.or_else(|| found.find(|path| path.is_file()));
    if program.is_none() {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "tmux not installed");
        println!("skipped: tmux not installed");
    }
    program
}
