//! Shell lines gc runs for itself, as processes: the adapter of the port
//! [`Shell`].
//!
//! Each line is `sh -c` in a process group of its own, looked after by one task until it is over.
//! That task, not the caller, owns the group: a caller that goes away leaves a line that is being
//! ended, never one that runs on.

mod capture;
mod group;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;

use capture::{Capture, Keep};
use group::Group;

use crate::ports::{PortFuture, Shell, ShellError, ShellJob};
use crate::sessions::SubprocessConfig;
use crate::sessions::environment::{Environment, Runner};

/// How much of what a line prints is kept; the rest is read and dropped.
const OUTPUT: usize = 64 << 10;

/// How much of the end of its complaints is kept.
const COMPLAINTS: usize = 4 << 10;

/// How long a line may take to leave on TERM, and how long its output is read after its end: a
/// process it left behind may hold the pipe for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs lines with the environment of agents: what they inherit, the job's own variables
/// (expanded as those of agents), and the city's.
///
/// Needs a tokio runtime with I/O and time enabled. A line's limit of zero means none.
#[derive(Debug)]
pub struct ProcessShell {
    runner: Runner,
    config: SubprocessConfig,
}

impl ProcessShell {
    /// A shell for the city of these settings.
    #[must_use]
    pub fn new(config: SubprocessConfig) -> Self {
        Self::with_runner_env(config, std::env::vars_os())
    }

    fn with_runner_env(
        config: SubprocessConfig,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        Self {
            runner: Runner::new(vars, &config.env_passthrough),
            config,
        }
    }

    fn spawn(&self, job: &ShellJob) -> Result<Running, ShellError> {
        let unrunnable = |error: &dyn std::fmt::Display| ShellError::Unrunnable(error.to_string());
        let bin = self.config.root.join(".gc/bin");
        let env = self
            .runner
            .environment(&job.env, self.config.city_vars(), bin.as_os_str())
            .map_err(|unset| unrunnable(&unset))?;
        // Said here, since a spawn does not tell which of its files is missing.
        if !job.dir.is_dir() {
            let missing = format!("{}: no such directory", job.dir.display());
            return Err(ShellError::Unrunnable(missing));
        }
        Running::new(&job.line, &job.dir, &env).map_err(|error| unrunnable(&error))
    }
}

impl Shell for ProcessShell {
    fn run(&self, job: ShellJob) -> PortFuture<'_, String, ShellError> {
        Box::pin(async move {
            let running = self.spawn(&job)?;
            let (asked, answer) = oneshot::channel();
            tokio::spawn(running.attend(job.limit, asked));
            let lost = |_| Err(ShellError::Unrunnable("the runtime is ending".into()));
            answer.await.unwrap_or_else(lost)
        })
    }
}

/// Someone who waits for a line's result, or has left.
type Asked = oneshot::Sender<Result<String, ShellError>>;

/// A line at work.
#[derive(Debug)]
struct Running {
    group: Group,
    output: Capture,
    complaints: Capture,
}

impl Running {
    /// Spawns a line. Absolute program, no hook before exec: see the sessions' own spawn.
    fn new(line: &str, dir: &Path, env: &Environment) -> io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .arg0("sh")
            .args(["-c", line])
            .env_clear()
            .envs(env)
            .current_dir(dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let group = Group::new(child)?;
        let (Some(output), Some(complaints)) = pipes else {
            return Err(io::Error::other("a pipe is missing"));
        };
        Ok(Self {
            group,
            output: Capture::new(output.into(), Keep::First(OUTPUT))?,
            complaints: Capture::new(complaints.into(), Keep::Last(COMPLAINTS))?,
        })
    }

    /// Sees a line to its end and answers.
    async fn attend(mut self, limit: Duration, mut asked: Asked) {
        let in_time = self.finishes(limit, &mut asked).await;
        if !in_time {
            self.group.kill();
        }
        let status = self.group.reap().await;
        let result = match status {
            _ if !in_time => Err(ShellError::TimedOut(limit)),
            Ok(status) if status == "exit 0" => Ok(self.output.text()),
            Ok(status) => Err(ShellError::Failed {
                status,
                stderr: self.complaints.text().trim().to_owned(),
            }),
            Err(error) => Err(ShellError::Unrunnable(error.to_string())),
        };
        let _ = asked.send(result); // they may have left
    }

    /// Reads until the line is over. `false`: it took too long, or nobody wants it any more; it
    /// has been asked to end and had its time to.
    async fn finishes(&mut self, limit: Duration, asked: &mut Asked) -> bool {
        let (group, output, complaints) = (&self.group, &mut self.output, &mut self.complaints);
        let reading = async { tokio::join!(output.read_on(), complaints.read_on()) };
        tokio::pin!(reading);
        let mut closed = false;
        let too_long = async {
            if limit.is_zero() {
                std::future::pending().await
            } else {
                tokio::time::sleep(limit).await;
            }
        };
        tokio::pin!(too_long);
        let in_time = loop {
            tokio::select! {
                () = group.ended() => break true,
                _ = &mut reading, if !closed => closed = true,
                () = &mut too_long => break false,
                () = asked.closed() => break false,
            }
        };
        let rest = async {
            if !in_time {
                group.terminate();
                group.ended().await;
            }
            if !closed {
                reading.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, rest).await; // then without the rest
        in_time
    }
}

#[cfg(test)]
mod tests;
