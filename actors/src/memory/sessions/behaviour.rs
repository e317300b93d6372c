//! What scripted agents do, and what was asked of their provider.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::{ExitStatus, RunToken, StartFailure};

/// What a scripted agent does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// How long the start takes.
    pub start_after: Duration,
    /// The start fails.
    pub start_fails: Option<StartFailure>,
    /// The start goes on, and the session comes up, although nobody waits for it any more.
    pub start_lingers: bool,
    /// The start panics.
    pub start_panics: bool,
    /// It ends by itself, this long after its start.
    pub exits: Option<(Duration, ExitStatus)>,
    /// The same for one run after the other; runs beyond these go by `exits`.
    pub exits_in_turn: Vec<(Duration, ExitStatus)>,
    /// When it shows its prompt, or says `ready` if it has none.
    pub ready_after: Option<Duration>,
    /// What it says later, and when.
    pub says: Vec<(Duration, String)>,
    /// Somebody has a terminal on it from its start on.
    pub attached: bool,
    /// It does not leave when interrupted.
    pub ignores_interrupt: bool,
    /// How it ends when interrupted; `None`: with exit 0.
    pub interrupted: Option<ExitStatus>,
    /// What it says.
    pub output: String,
    /// It repeats what it is told, `got ` in front of each line.
    pub echoes: bool,
    /// It prints each byte of keys that are sent to it, in hexadecimal, one on a line.
    pub echoes_keys: bool,
    /// Programs in its session; for agents that name programs.
    pub processes: Vec<String>,
}

/// One call of the provider, for tests that look at what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When.
    pub at: Instant,
    /// The method.
    pub op: &'static str,
    /// The session, if it was about one.
    pub session: String,
    /// The run it was meant for, if it named one.
    pub token: Option<RunToken>,
    /// What else it was given, for a person.
    pub args: String,
    /// What came of it; `None`: it is under way, or was given up.
    pub outcome: Option<Result<(), String>>,
    pub(super) id: u64,
}

impl Call {
    /// It changes something, or tries to.
    #[must_use]
    pub fn is_mutating(&self) -> bool {
        matches!(
            self.op,
            "start"
                | "stop"
                | "interrupt"
                | "set_note"
                | "nudge"
                | "send_keys"
                | "clear_scrollback"
                | "copy_to"
        )
    }
}
