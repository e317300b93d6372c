//! Where answers and notes go: stdout for the answer, stderr for everything else.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use owo_colors::OwoColorize as _;
use serde::Serialize;

use super::error::{CliError, CliResult, Code};

/// How a command speaks.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// `--json`: exactly one document on stdout.
    pub json: bool,
    /// `-q`: no progress or notes.
    pub quiet: bool,
    /// Colour on stdout.
    pub colour: bool,
    /// Colour on stderr.
    pub colour_err: bool,
    /// The terminal shows more than ASCII.
    pub unicode: bool,
    /// Columns of the terminal on stdout; `None` where it is none, and nothing is cut.
    pub width: Option<usize>,
}

/// The sign in front of a line; never carried by colour alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Done.
    Done,
    /// Done, with something to look at.
    Warn,
    /// Failed.
    Failed,
}

impl Mark {
    /// The sign, in the given form.
    #[must_use]
    pub fn sign(self, unicode: bool, colour: bool) -> String {
        let sign = match (self, unicode) {
            (Self::Done, true) => "✓",
            (Self::Done, false) => "+",
            (Self::Warn, _) => "!",
            (Self::Failed, true) => "✗",
            (Self::Failed, false) => "x",
        };
        match self {
            _ if !colour => sign.to_owned(),
            Self::Done => sign.green().to_string(),
            Self::Warn => sign.yellow().to_string(),
            Self::Failed => sign.red().to_string(),
        }
    }
}

impl Output {
    /// Prints a line of the answer behind a sign; nothing with `--quiet` or `--json`, whose
    /// answer is the exit code or a document.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub fn report(&self, mark: Mark, text: impl AsRef<str>) -> CliResult {
        if self.quiet || self.json {
            return Ok(());
        }
        let sign = mark.sign(self.unicode, self.colour);
        self.line(format!("{sign} {}", text.as_ref()))
    }

    /// Prints one line of the answer.
    ///
    /// # Errors
    /// If stdout cannot be written. A closed pipe ends the process with 0 instead: whoever read
    /// the answer had enough.
    pub fn line(&self, text: impl AsRef<str>) -> CliResult {
        match self.try_line(text) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            result => Ok(result?),
        }
    }

    /// The same for whoever has something to clean up: a closed pipe is an error like any other.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn try_line(&self, text: impl AsRef<str>) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", self.shown(text.as_ref()))?;
        stdout.flush()
    }

    /// The text as the terminal can show it: drawings and signs in ASCII where that is all.
    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.unicode || self.json {
            true => Cow::Borrowed(text),
            false => Cow::Owned(plain(text)),
        }
    }

    /// Prints the answer as one JSON document.
    ///
    /// # Errors
    /// As [`Self::line`].
    pub fn document(&self, value: &impl Serialize) -> CliResult {
        let text = serde_json::to_string(value)
            .map_err(|error| CliError::new(Code::Internal, error.to_string()))?;
        self.line(text)
    }

    /// Prints a note on stderr, unless `--quiet` or `--json`.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            let _ = writeln!(io::stderr().lock(), "{}", self.shown(text.as_ref())); // nobody to tell
        }
    }

    /// Progress may redraw a line: stderr is a terminal and nobody asked for silence.
    #[must_use]
    pub fn live(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }
}

fn plain(text: &str) -> String {
    const SIGNS: [(&str, &str); 9] = [
        ("├─", "|-"),
        ("└─", "`-"),
        ("│", "|"),
        ("∞", "*"),
        ("…", "."),
        ("─", "-"),
        ("→", ">"),
        ("✓", "+"),
        ("✗", "x"),
    ];
    let replace = |text: String, (sign, ascii): (&str, &str)| text.replace(sign, ascii);
    SIGNS.into_iter().fold(text.to_owned(), replace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_and_signs_have_an_ascii_form_of_equal_width() {
        let (drawn, flat) = ("├─ a…\n│  └─ 1/∞", "|- a.\n|  `- 1/*");
        assert_eq!(plain(drawn), flat);
        assert_eq!(Mark::Done.sign(false, false), "+");
        assert_eq!(Mark::Failed.sign(true, true), "\u{1b}[31m✗\u{1b}[39m");
    }
}
