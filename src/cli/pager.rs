//! Long answers a screen at a time, where somebody reads them on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use super::context::Context;
use super::error::CliResult;

const USUAL: &str = "less -FRX";

impl Context {
    /// Prints a long answer through the pager, if there is one to be used.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(super) fn page(&self, text: &str) -> CliResult {
        let var = |name| std::env::var(name).ok();
        let wanted = !self.globals.no_pager && !self.out.json && std::io::stdout().is_terminal();
        match chosen(var("GC_PAGER"), var("PAGER")).filter(|_| wanted) {
            Some(pager) if show(&pager, text) => Ok(()),
            _ => self.out.line(text),
        }
    }
}

/// An empty `GC_PAGER` means none at all; an empty `PAGER` says nothing.
fn chosen(own: Option<String>, common: Option<String>) -> Option<String> {
    let set = |pager: &String| !pager.trim().is_empty();
    match own {
        Some(own) => Some(own).filter(set),
        None => Some(common.filter(set).unwrap_or_else(|| USUAL.to_owned())),
    }
}

/// Whether the pager took it. One that the user leaves early has done its work.
fn show(pager: &str, text: &str) -> bool {
    let child = Command::new("sh")
        .args(["-c", pager])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return false };
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(text.as_bytes());
        let _ = input.write_all(b"\n");
    }
    // 127: the shell did not find it, so nothing was shown.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_pager_wins_and_an_empty_one_disables() {
        let text = |value: &str| Some(value.to_owned());
        assert_eq!(chosen(None, None).as_deref(), Some(USUAL));
        assert_eq!(chosen(None, text("")).as_deref(), Some(USUAL));
        assert_eq!(chosen(None, text("more")).as_deref(), Some("more"));
        assert_eq!(chosen(text("most"), text("more")).as_deref(), Some("most"));
        assert_eq!(chosen(text(" "), text("more")), None);
    }

    #[test]
    fn a_pager_that_is_missing_shows_nothing_and_one_that_is_left_is_fine() {
        assert!(!show("no-such-pager-anywhere", "text"));
        assert!(show("true", &"text\n".repeat(100_000)));
    }
}
