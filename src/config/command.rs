//! What a `start_command` runs: plain words directly, everything else through a shell.

use gascity_actors::model::Command;

/// Words a shell acts on itself, so that it must be asked.
const SHELL_WORDS: &[&str] = &[
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "case", "cd", "command", "continue",
    "coproc", "declare", "dirs", "disown", "do", "done", "echo", "elif", "else", "enable", "esac",
    "eval", "exec", "exit", "export", "false", "fc", "fg", "fi", "for", "function", "getopts",
    "hash", "help", "history", "if", "in", "jobs", "kill", "let", "local", "logout", "popd",
    "printf", "pushd", "pwd", "read", "readonly", "return", "select", "set", "shift", "shopt",
    "source", "suspend", "test", "then", "time", "times", "trap", "true", "type", "typeset",
    "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
];

/// The command for a configured line and its extra arguments.
pub(super) fn from_line(line: &str, args: &[String]) -> Command {
    match plain_words(line) {
        Some(words) => Command::Words(
            words
                .map(str::to_owned)
                .chain(args.iter().cloned())
                .collect(),
        ),
        None => Command::Shell(with_args(line, args)),
    }
}

/// The line as typed, with its arguments quoted for a shell.
pub(super) fn with_args(line: &str, args: &[String]) -> String {
    if args.is_empty() {
        line.to_owned()
    } else {
        format!("{line} {}", Command::Words(args.to_vec()))
    }
}

/// The words of a line in which a shell would see nothing but words.
fn plain_words(line: &str) -> Option<impl Iterator<Item = &str>> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./=:,@%+ \t".contains(&b);
    let words = line.split_ascii_whitespace();
    let program = words.clone().next()?;
    // `A=1 program` is an assignment; a leading `=` or a job such as `%1` is not plain either.
    let for_shell =
        program.contains('=') || program.starts_with('%') || SHELL_WORDS.contains(&program);
    (line.bytes().all(plain) && !for_shell).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_do_without_a_shell() {
        let words =
            |words: &[&str]| Command::Words(words.iter().map(|w| (*w).to_owned()).collect());
        for (line, expected) in [
            ("sleep 60", words(&["sleep", "60"])),
            ("  ./run.sh\t--to=x ", words(&["./run.sh", "--to=x"])),
            (
                "/usr/bin/env A=1 agent",
                words(&["/usr/bin/env", "A=1", "agent"]),
            ),
        ] {
            assert_eq!(from_line(line, &[]), expected, "{line}");
        }
        for line in [
            "sh -c 'sleep 60'",
            "a && b",
            "a | b",
            "a; b",
            "a > out",
            "$AGENT",
            "~/agent",
            "A=1 agent",
            "echo hi",
            "exec agent",
            "cd x",
            "a # b",
            "ls *.txt",
            "a\nb",
            "[ -f x ]",
            "{ a",
            "ä",
        ] {
            assert_eq!(from_line(line, &[]), Command::Shell(line.into()), "{line}");
        }
    }

    #[test]
    fn arguments_follow_the_line_unchanged() {
        let args = ["a b".to_owned(), "$X".to_owned()];
        assert_eq!(
            from_line("agent -v", &args),
            Command::Words(["agent", "-v", "a b", "$X"].map(String::from).to_vec())
        );
        assert_eq!(
            from_line("a && b", &args),
            Command::Shell("a && b 'a b' '$X'".into())
        );
        assert_eq!(with_args("agent -v", &args), "agent -v 'a b' '$X'");
    }
}
