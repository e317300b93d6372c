//! What an agent of a case does.

use crate::model::Command;

/// The behaviour of an agent, the same on every provider.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Does nothing, and leaves when asked.
    Idle,
    /// Ends at once with this code.
    Exit(i32),
    /// Ends at once by this signal.
    Die(i32),
    /// Prints `ready`; ends with this code when interrupted.
    Trap(i32),
    /// Prints `ready`; neither an interrupt nor a polite signal moves it.
    Stubborn,
    /// Prints `line 1` to `line <n>`, then does nothing.
    Lines(u32),
    /// Prints `line 1` to `line <n>`, then soon ends with code 1.
    LastWords(u32),
    /// Prints each line it reads, `got ` in front, once it has said `ready`.
    Echo,
    /// Prints each byte that is typed, in hexadecimal and one on a line, once it has said `ready`.
    Bytes,
    /// A command of the shell, for providers that run commands.
    Shell(String),
}

impl Act {
    /// As a command.
    #[must_use]
    pub fn command(&self) -> Command {
        Command::Shell(match self {
            Self::Idle => return Command::Words(["sleep", "1000"].map(String::from).to_vec()),
            Self::Exit(code) => format!("exit {code}"),
            Self::Die(signal) => format!("kill -{signal} $$; sleep 1000"),
            Self::Trap(code) => {
                format!("trap 'exit {code}' INT; echo ready; while :; do sleep 0.1; done")
            }
            Self::Stubborn => {
                "trap '' INT TERM HUP; echo ready; while :; do sleep 1; done".to_owned()
            }
            Self::Lines(count) => format!("{}; exec sleep 1000", lines(*count)),
            // Not in the same instant: some backends read the rest only of a program that lives.
            Self::LastWords(count) => format!("{}; sleep 0.2; exit 1", lines(*count)),
            Self::Echo => {
                "echo ready; while IFS= read -r line; do printf 'got %s\\n' \"$line\"; done"
                    .to_owned()
            }
            Self::Bytes => "stty -icanon -echo -isig -icrnl -ixon min 1; echo ready; \
                            exec od -An -tx1 -v -w1"
                .to_owned(),
            Self::Shell(line) => line.clone(),
        })
    }
}

fn lines(count: u32) -> String {
    format!("i=1; while [ $i -le {count} ]; do echo line $i; i=$((i+1)); done")
}
