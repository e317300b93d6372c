//! Shell lines gc runs for itself, as processes: the adapter of the port
//! [`Shell`].
//!
//! Each line is `sh -c` in a process group of its own, looked after by one task until it is over.
//! That task, not the caller, owns the group: a caller that goes away leaves a line that is being
//! ended, never one that runs on.

mod capture;
mod group;
mod lines;
mod program;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use lines::Lines;
pub(crate) use program::Program;

use crate::model::ExitStatus;
use crate::ports::{PortFuture, Shell, ShellError, ShellJob};
use crate::sessions::SubprocessConfig;
use crate::sessions::environment::Environment;
use crate::sessions::prepare::Preparer;

/// How much of what a line prints is kept; the rest is read and dropped.
const OUTPUT: usize = 64 << 10;

/// How much of the end of its complaints is kept.
const COMPLAINTS: usize = 4 << 10;

/// Runs lines with the environment of agents: what they inherit, the job's own variables
/// (expanded as those of agents), and the city's. A line for a run has that run's environment.
///
/// Needs a tokio runtime with I/O and time enabled. A line's limit of zero means none.
#[derive(Debug)]
pub struct ProcessShell {
    preparer: Preparer,
}

impl ProcessShell {
    /// A shell for the city of these settings.
    #[must_use]
    pub fn new(config: SubprocessConfig) -> Self {
        Self::with_runner_env(config, std::env::vars_os())
    }

    /// Globs over the names of variables that lines inherit, from the next one on.
    pub fn set_passthrough(&self, globs: &[String]) {
        self.preparer.set_passthrough(globs);
    }

    fn with_runner_env(
        config: SubprocessConfig,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let preparer = Preparer::new(config, vars);
        Self { preparer }
    }

    fn program(&self, job: ShellJob) -> Result<Program, ShellError> {
        let unrunnable = |why: String| ShellError::Unrunnable(why);
        let env = match &job.run {
            Some(run) => (self.preparer.run_environment(run, &job.env))
                .map_err(|failure| unrunnable(failure.to_string()))?,
            None => (self.preparer.line_environment(&job.env))
                .map_err(|unset| unrunnable(unset.to_string()))?,
        };
        // Said here, since a spawn does not tell which of its files is missing.
        if !job.dir.is_dir() {
            let missing = format!("{}: no such directory", job.dir.display());
            return Err(ShellError::Unrunnable(missing));
        }
        Ok(line(job.line, job.dir, env, job.limit))
    }
}

/// A line for `sh -c`.
pub(crate) fn line(line: String, dir: PathBuf, env: Environment, limit: Duration) -> Program {
    Program {
        path: "/bin/sh".into(),
        words: ["sh".into(), "-c".into(), line.into()].into(),
        env,
        dir,
        input: Vec::new(),
        output: OUTPUT,
        complaints: COMPLAINTS,
        limit,
    }
}

/// What a line printed, if it ended well.
pub(crate) async fn output_of(program: Program) -> Result<String, ShellError> {
    let limit = program.limit;
    let ended = program.run().await;
    let ended = ended.map_err(|error| ShellError::Unrunnable(error.to_string()))?;
    match ended.status {
        None => Err(ShellError::TimedOut(limit)),
        Some(ExitStatus::Code(0)) => Ok(String::from_utf8_lossy(&ended.output).into_owned()),
        Some(status) => Err(ShellError::Failed {
            status: status.to_string(),
            stderr: ended.complaints.trim().to_owned(),
        }),
    }
}

impl Shell for ProcessShell {
    fn run(&self, job: ShellJob) -> PortFuture<'_, String, ShellError> {
        Box::pin(async move { output_of(self.program(job)?).await })
    }
}

#[cfg(test)]
mod tests;
