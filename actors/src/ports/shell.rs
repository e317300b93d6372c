use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{PortFuture, StartSpec};
use crate::model::RunToken;

/// Runs shell lines for gc itself: pool checks, hooks, gates.
pub trait Shell: Send + Sync + 'static {
    /// Runs a line to its end and returns what it printed. At its limit the process group gets
    /// TERM and, two seconds later, KILL; so it does when the future is dropped.
    fn run(&self, job: ShellJob) -> PortFuture<'_, String, ShellError>;
}

/// A line to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellJob {
    /// For `sh -c`.
    pub line: String,
    /// Working directory.
    pub dir: PathBuf,
    /// Added to the environment agents get.
    pub env: BTreeMap<String, String>,
    /// The run it is for: it then sees what the agent itself sees.
    pub run: Option<RunOf>,
    /// How long it may take.
    pub limit: Duration,
}

/// A run of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOf {
    /// Its id.
    pub token: RunToken,
    /// What it was started with.
    pub spec: Arc<StartSpec>,
}

/// A line that did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// It could not be run.
    #[error("{0}")]
    Unrunnable(String),
    /// It exited with something else than 0.
    #[error("{status}{}{stderr}", if .stderr.is_empty() { "" } else { ": " })]
    Failed {
        /// How it ended, e.g. `exit 1`.
        status: String,
        /// The end of what it complained about.
        stderr: String,
    },
    /// It took too long and was killed.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
}
