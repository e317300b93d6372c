//! What a run is launched with, as plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::template::Template;

/// What a provider needs to know to start a run; opaque to the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// The command: a shell line, or plain words.
    pub command: Command,
    /// Configured environment, `${NAME}` not yet expanded.
    pub env: BTreeMap<String, String>,
    /// Absolute working directory.
    pub work_dir: PathBuf,
    /// What the agent's standard input is connected to.
    pub stdin: Stdin,
    /// Word for its session provider, if it is not the city's (`session`).
    pub session: Option<String>,
    /// The rig it belongs to.
    pub rig: Option<RigRef>,
    /// What it is told when it starts, and how (`prompt_template`, `prompt_mode`, `prompt_flag`).
    pub prompt: Prompt,
    /// The file by which it shows that it is not stuck, relative to `work_dir`; the path is empty
    /// for the usual one (`[agent.heartbeat] file`).
    pub heartbeat: Option<PathBuf>,
    /// Typed once it is ready; empty: nothing.
    pub nudge: String,
    /// Shell lines run before the session is created; a failure is a failed start.
    pub pre_start: Vec<String>,
    /// Shell lines run after it is created.
    pub session_setup: Vec<String>,
    /// Program run after those.
    pub session_setup_script: Option<PathBuf>,
    /// Directories copied into `work_dir`, in this order: those of packs, hook sets, the agent's
    /// own `overlay_dir`.
    pub overlays: Vec<PathBuf>,
    /// Names of variables inherited beyond those of `[session] env_passthrough`.
    pub env_passthrough: Vec<String>,
    /// Wait before a run without a known prompt counts as ready (`ready_delay_ms`).
    pub ready_delay: Option<Duration>,
    /// How the line begins on which the program waits for input.
    pub ready_prompt_prefix: Option<String>,
    /// Dialogs answered until the run is ready.
    pub dismiss: Vec<Dismiss>,
}

/// The rig of an agent (`GC_RIG`, `GC_RIG_ROOT`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RigRef {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub root: PathBuf,
}

/// A dialog of a program and the keys that answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dismiss {
    /// Text on the screen.
    pub matches: String,
    /// Keys, one after the other.
    pub keys: Vec<String>,
}

/// The first prompt of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// How it reaches the program.
    pub mode: PromptMode,
    /// The option in front of it, for [`PromptMode::Flag`].
    pub flag: String,
    /// Its text; `None` if none is configured. Only variables that are known at the start alone
    /// are left in it: names of the agent's `env`, and `DefaultBranch`.
    pub text: Option<Template>,
}

/// How a prompt reaches a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptMode {
    /// As the last argument.
    Arg,
    /// As the value of an option.
    Flag,
    /// As the path of a file that holds it.
    File,
    /// Not at all.
    #[default]
    None,
}

/// The program of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments, passed on unchanged.
    Words(Vec<String>),
}

impl Default for Command {
    fn default() -> Self {
        Self::Shell(String::new())
    }
}

/// Standard input of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// A pipe that never ends and carries nudges.
    #[default]
    Fifo,
    /// Empty, for programs that read to the end.
    Null,
}

impl std::fmt::Display for Command {
    /// The command as one would type it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shell(line) => f.write_str(line),
            Self::Words(words) => {
                for (i, word) in words.iter().enumerate() {
                    if i > 0 {
                        f.write_str(" ")?;
                    }
                    f.write_str(&shell_quote(word))?;
                }
                Ok(())
            }
        }
    }
}

/// Quotes `word` for a shell, if it needs quoting.
pub(super) fn shell_quote(word: &str) -> std::borrow::Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''")).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shown_as_a_shell_would_read_them() {
        let words = Command::Words(["sh", "-c", "echo 'hi' $X", ""].map(String::from).to_vec());
        assert_eq!(words.to_string(), r"sh -c 'echo '\''hi'\'' $X' ''");
    }
}
