//! Scripts of the demo agent: one action for each line.
//!
//! ```text
//! # comments and empty lines are skipped
//! print looking around
//! sleep 500ms
//! run date
//! exit 3
//! ```

use std::time::Duration;

use crate::config::duration;

/// One thing the agent does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Wait.
    Sleep(Duration),
    /// Print a line.
    Print(String),
    /// Run a line through `sh -c` and wait for it.
    Run(String),
    /// End with this code.
    Exit(u8),
    /// Stay alive and do nothing more.
    Hang,
}

/// Reads a script.
///
/// # Errors
/// The first line that makes no sense, with its number.
pub(super) fn parse(text: &str) -> Result<Vec<Action>, String> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| action(line).map_err(|why| format!("line {number}: {why}")))
        .collect()
}

fn action(line: &str) -> Result<Action, String> {
    let (word, rest) = line
        .split_once(char::is_whitespace)
        .map_or((line, ""), |(word, rest)| (word, rest.trim_start()));
    match word {
        "sleep" => duration::parse(rest)
            .map(Action::Sleep)
            .map_err(|why| format!("sleep {rest:?}: {why}")),
        "print" => Ok(Action::Print(rest.to_owned())),
        "run" if rest.is_empty() => Err("run needs a command".into()),
        "run" => Ok(Action::Run(rest.to_owned())),
        "exit" => rest
            .parse()
            .map(Action::Exit)
            .map_err(|_| format!("exit {rest:?}: expected a code from 0 to 255")),
        "hang" if rest.is_empty() => Ok(Action::Hang),
        "hang" => Err("hang takes nothing".into()),
        _ => Err(format!(
            "unknown action {word:?} (sleep print run exit hang)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_one_action() {
        let script = "\
# warm up
print  hello  world
\tsleep 1.5s

run echo a | wc -c
print
exit 3
hang";
        let expected = [
            Action::Print("hello  world".into()),
            Action::Sleep(Duration::from_millis(1500)),
            Action::Run("echo a | wc -c".into()),
            Action::Print(String::new()),
            Action::Exit(3),
            Action::Hang,
        ];
        assert_eq!(parse(script), Ok(expected.to_vec()));
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (script, why) in [
            ("\nsleep", "line 2: sleep \"\": expected numbers"),
            ("sleep 5", "line 1: sleep \"5\": expected numbers"),
            ("exit 256", "line 1: exit \"256\": expected a code"),
            ("exit", "line 1: exit \"\": expected a code"),
            ("run", "line 1: run needs a command"),
            ("hang 5s", "line 1: hang takes nothing"),
            ("print a\ndance b", "line 2: unknown action \"dance\""),
        ] {
            let found = parse(script).expect_err(script);
            assert!(found.starts_with(why), "{script:?}: {found}");
        }
    }
}
