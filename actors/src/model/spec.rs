//! Child specifications: what a city is meant to run, as plain data.
//!
//! Loaded from `city.toml` by the root crate, or built in code with [`CitySpec::builder`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::builder::CitySpecBuilder;
use super::fingerprint::Fingerprint;
use super::name::{AgentName, CityName, NameError, SessionName};

/// Everything a city is meant to run. Immutable; a reload swaps the whole `Arc`.
#[derive(Debug, Clone, PartialEq)]
pub struct CitySpec {
    /// The city's name.
    pub name: CityName,
    /// Canonical root, the mark of ownership on every session (`GC_CITY`).
    pub root: PathBuf,
    /// Content hash of all sources. Equal revisions mean equal specs.
    pub revision: String,
    /// Supervision settings (`[daemon]`).
    pub daemon: Daemon,
    /// How long one start may take (`[session] startup_timeout`).
    pub startup_timeout: Duration,
    /// `[workspace] suspended`: no agent runs.
    pub suspended: bool,
    /// The agents, in config order.
    pub agents: Vec<Arc<AgentSpec>>,
}

/// Supervision settings of a city (`[daemon]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Time between patrol ticks.
    pub patrol_interval: Duration,
    /// Delay before the second restart in a row; doubles from there.
    pub restart_delay: Duration,
    /// Upper bound of that delay.
    pub restart_delay_max: Duration,
    /// Grace between interrupt and force of every planned stop; zero forces at once.
    pub shutdown_timeout: Duration,
    /// Starts in flight at once.
    pub start_parallelism: usize,
    /// Forced stops in flight at once.
    pub stop_parallelism: usize,
    /// Lines of last output kept with a crash; zero keeps none.
    pub crash_capture_lines: u32,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            patrol_interval: Duration::from_secs(30),
            restart_delay: Duration::from_secs(1),
            restart_delay_max: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
            start_parallelism: 8,
            stop_parallelism: 8,
            crash_capture_lines: 50,
        }
    }
}

/// When an agent that ended is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartType {
    /// Always.
    #[default]
    Permanent,
    /// After a crash or a failed start, not after a clean exit.
    Transient,
    /// Never.
    Temporary,
}

/// How many charged ends are tolerated before quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartLimit {
    /// Charged ends that put the agent in quarantine; zero never does.
    pub max_restarts: u32,
    /// The sliding window they are counted in.
    pub window: Duration,
}

impl Default for RestartLimit {
    fn default() -> Self {
        Self {
            max_restarts: 5,
            window: Duration::from_secs(3600),
        }
    }
}

/// One instance to run: the child specification of a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// Qualified instance name.
    pub name: AgentName,
    /// The provider's name for its session.
    pub session: SessionName,
    /// What is run, and how.
    pub launch: Arc<Launch>,
    /// Hash of everything whose change needs a new run (config.md 6).
    pub fingerprint: Fingerprint,
    /// When it is started again.
    pub restart: RestartType,
    /// When it is quarantined.
    pub limit: RestartLimit,
    /// Held back by the user.
    pub suspended: bool,
}

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

/// A spec that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A name breaks its grammar.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two agents of one name.
    #[error("agent {0} is defined twice")]
    DuplicateAgent(AgentName),
}

impl CitySpec {
    /// Starts a spec for a city built in code.
    pub fn builder(name: impl Into<String>) -> CitySpecBuilder {
        CitySpecBuilder::new(name.into())
    }

    /// The spec of one agent.
    #[must_use]
    pub fn agent(&self, name: &AgentName) -> Option<&Arc<AgentSpec>> {
        self.agents.iter().find(|agent| agent.name == *name)
    }
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
fn shell_quote(word: &str) -> std::borrow::Cow<'_, str> {
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
