//! What a tmux server says on a control-mode connection.
//!
//! Answers to commands stand between guards, one block for each command; everything else is a
//! notification. Text inside a block is whatever the command printed, among it the screens of
//! agents: it may look like a guard or a notification. A block ends only with the guard that
//! repeats its own numbers, and whatever is not understood is skipped.

use std::mem;

/// More than any answer: the whole scrollback of a pane is a few megabytes.
const BLOCK_LIMIT: usize = 64 << 20;

/// The answer to one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// The command succeeded; else the lines say why not.
    pub(super) ok: bool,
    /// What it printed.
    pub(super) lines: Vec<Vec<u8>>,
}

impl Block {
    /// The first line as text.
    pub(super) fn text(&self) -> String {
        let line = self.lines.first().map_or(&b""[..], Vec::as_slice);
        String::from_utf8_lossy(line).into_owned()
    }
}

/// Something the server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// The answer to a command that came over this connection.
    Answer(Block),
    /// Something else was carried out: first of all the command that makes the connection.
    Other,
    /// A terminal was put on a session, or left it.
    Clients,
    /// The connection is about to end, and why, if the server says so.
    Exit(String),
}

/// An answer larger than any that makes sense: the connection cannot be trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an answer of tmux has no end")]
pub(super) struct Endless;

/// Numbers that tell one block from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guard {
    time: u64,
    number: u64,
    flags: u64,
}

impl Guard {
    /// Third number of blocks that answer commands of this connection. Others are the doing of
    /// key bindings and of the command line that made the connection.
    const OURS: u64 = 1;

    fn parse(rest: &str) -> Option<Self> {
        let mut numbers = rest.split(' ').map(|text| text.parse::<u64>().ok());
        let guard = Self {
            time: numbers.next()??,
            number: numbers.next()??,
            flags: numbers.next()??,
        };
        numbers.next().is_none().then_some(guard)
    }
}

#[derive(Debug)]
struct Open {
    guard: Guard,
    lines: Vec<Vec<u8>>,
}

/// Takes bytes as they come and gives what they say.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// A line that has no end yet.
    line: Vec<u8>,
    open: Option<Open>,
    /// Bytes in the open block.
    size: usize,
}

impl Parser {
    /// Reads on.
    ///
    /// # Errors
    /// If an answer grows beyond all bounds.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Said>, Endless> {
        let mut said = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.size += part.len();
            if self.size > BLOCK_LIMIT {
                return Err(Endless);
            }
            self.line.extend_from_slice(part);
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
                let line = mem::take(&mut self.line);
                said.extend(self.take(line));
            }
        }
        Ok(said)
    }

    fn take(&mut self, line: Vec<u8>) -> Option<Said> {
        let Some(open) = &mut self.open else {
            self.size = 0;
            if let Some(guard) = guard(&line, "%begin ") {
                let lines = Vec::new();
                self.open = Some(Open { guard, lines });
                return None;
            }
            return notification(&line);
        };
        let ok = guard(&line, "%end ") == Some(open.guard);
        if !ok && guard(&line, "%error ") != Some(open.guard) {
            open.lines.push(line);
            return None;
        }
        let Open { guard, lines } = self.open.take()?;
        self.size = 0;
        Some(match guard.flags {
            Guard::OURS => Said::Answer(Block { ok, lines }),
            _ => Said::Other,
        })
    }
}

fn guard(line: &[u8], word: &str) -> Option<Guard> {
    let rest = line.strip_prefix(word.as_bytes())?;
    Guard::parse(std::str::from_utf8(rest).ok()?)
}

/// The few notifications that matter. Output is switched off, and what became of sessions is asked
/// for: anybody could write such a line.
fn notification(line: &[u8]) -> Option<Said> {
    let (word, rest) = match line.iter().position(|byte| *byte == b' ') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &b""[..]),
    };
    let why = || String::from_utf8_lossy(rest).into_owned();
    match word {
        b"%exit" => Some(Said::Exit(why())),
        b"%client-session-changed" | b"%client-detached" => Some(Said::Clients),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(text: &str) -> Vec<Said> {
        Parser::default().feed(text.as_bytes()).unwrap()
    }

    fn answer(ok: bool, lines: &[&str]) -> Said {
        let lines = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
        Said::Answer(Block { ok, lines })
    }

    #[test]
    fn answers_come_between_their_guards() {
        let text = "%begin 7 1 1\na\n\nb\n%end 7 1 1\n%begin 7 2 1\nno\n%error 7 2 1\n";
        assert_eq!(
            said(text),
            [answer(true, &["a", "", "b"]), answer(false, &["no"])]
        );
    }

    #[test]
    fn blocks_that_answer_nothing_of_ours_are_no_answers() {
        let text = "%begin 7 1 0\nx\n%end 7 1 0\n%begin 7 2 1\n%end 7 2 1\n";
        assert_eq!(said(text), [Said::Other, answer(true, &[])]);
    }

    #[test]
    fn text_that_looks_like_a_guard_or_a_notification_is_text() {
        let inside = [
            "%end 7 2 1",
            "%end 7 1",
            "%end 7 1 1 ",
            "%error 8 1 1",
            "%begin 7 9 1",
            "%exit",
            "%sessions-changed",
            "\u{1b}[0m%end 7 1 1",
        ];
        let text = format!("%begin 7 1 1\n{}\n%end 7 1 1\n", inside.join("\n"));
        assert_eq!(said(&text), [answer(true, &inside)]);
    }

    #[test]
    fn the_end_is_told_and_all_other_lines_are_ignored() {
        let text = "hello\n%end 1 2 1\n%output %1 x\n%window-add @1\n\n%\n\
                    %session-changed $1 x\n%sessions-changed\n%exit server exited\n%exit\n";
        let expected = [
            Said::Exit("server exited".into()),
            Said::Exit(String::new()),
        ];
        assert_eq!(said(text), expected);
    }

    #[test]
    fn bytes_that_are_no_text_stay_what_they_are() {
        let bytes = b"%begin 7 1 1\n\xff\x00\xfe\x07\n%end 7 1 1\n\xff%exit\n";
        let found = Parser::default().feed(bytes).unwrap();
        let lines = vec![b"\xff\x00\xfe\x07".to_vec()];
        assert_eq!(found, [Said::Answer(Block { ok: true, lines })]);
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let mut parser = Parser::default();
        parser.feed(b"%begin 7 1 1\n").unwrap();
        let chunk = vec![b'x'; 1 << 20];
        let fed = (0..65).try_for_each(|_| parser.feed(&chunk).map(drop));
        assert_eq!(fed, Err(Endless));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_are_cut(
            lines in proptest::collection::vec("[ -~]{0,20}", 0..20),
            cuts in proptest::collection::vec(1_usize..30, 1..40),
        ) {
            let text = format!("%begin 7 1 1\n{}\n%end 7 1 1\n%exit x\n", lines.join("\n"));
            let whole = said(&text);
            let (mut parser, mut rest, mut found) = (Parser::default(), text.as_bytes(), vec![]);
            for cut in cuts.iter().cycle() {
                let (part, more) = rest.split_at((*cut).min(rest.len()));
                found.extend(parser.feed(part).unwrap());
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, whole);
        }

        #[test]
        fn whatever_an_agent_prints_comes_back_as_one_answer(
            lines in proptest::collection::vec(
                prop_oneof!["%(begin|end|error|exit|output)[ 0-9]{0,9}", "[ -~]{0,30}"], 1..30),
        ) {
            prop_assume!(lines.iter().all(|l| l != "%end 77777 1 1" && l != "%error 77777 1 1"));
            let text = format!("%begin 77777 1 1\n{}\n%end 77777 1 1\n", lines.join("\n"));
            let borrowed: Vec<&str> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(said(&text), [answer(true, &borrowed)]);
        }

        #[test]
        fn garbage_is_never_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assume!(!bytes.windows(6).any(|w| w == b"%begin"));
            let found = Parser::default().feed(&bytes).unwrap();
            prop_assert!(!found.iter().any(|said| matches!(said, Said::Answer(_))));
        }
    }
}
