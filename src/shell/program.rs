//! A program run to its end, within bounds of time and output.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::oneshot;

use super::capture::{Capture, Keep};
use super::group::Group;
use crate::model::ExitStatus;
use crate::sessions::environment::Environment;

/// How long a program may take to leave on TERM, and how long its output is read after its end: a
/// process it left behind may hold the pipe for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program to run, in a process group of its own.
#[derive(Debug)]
pub(crate) struct Program {
    /// Absolute path: only then spawning costs the same however large we are.
    pub(crate) path: PathBuf,
    /// Its name for itself, and its arguments.
    pub(crate) words: Vec<OsString>,
    pub(crate) env: Environment,
    pub(crate) dir: PathBuf,
    /// What it reads; nothing if empty.
    pub(crate) input: Vec<u8>,
    /// How much of what it prints is kept; the rest is read and dropped.
    pub(crate) output: usize,
    /// How much of the end of its complaints is kept.
    pub(crate) complaints: usize,
    /// How long it may take; zero is no limit.
    pub(crate) limit: Duration,
}

/// A program that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How it ended; `None`: it took too long and was killed.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) output: Vec<u8>,
    pub(crate) complaints: String,
}

impl Program {
    /// Runs it. One task, not the caller, owns the group: a caller that goes away leaves a
    /// program that is being ended, never one that runs on.
    pub(crate) async fn run(self) -> io::Result<Ended> {
        let limit = self.limit;
        let running = Running::new(self)?;
        let (asked, answer) = oneshot::channel();
        tokio::spawn(running.attend(limit, asked));
        let lost = |_| Err(io::Error::other("the runtime is ending"));
        answer.await.unwrap_or_else(lost)
    }
}

/// Someone who waits for the result, or has left.
type Asked = oneshot::Sender<io::Result<Ended>>;

/// A program at work.
#[derive(Debug)]
struct Running {
    group: Group,
    input: Option<(Sender, Vec<u8>)>,
    output: Capture,
    complaints: Capture,
}

impl Running {
    /// Spawns it. Absolute program, no hook before exec: see the sessions' own spawn.
    fn new(program: Program) -> io::Result<Self> {
        let stdin = match program.input.is_empty() {
            true => Stdio::null(),
            false => Stdio::piped(),
        };
        let mut command = Command::new(&program.path);
        if let Some(name) = program.words.first() {
            command.arg0(name).args(&program.words[1..]);
        }
        let mut child = command
            .env_clear()
            .envs(&program.env)
            .current_dir(&program.dir)
            .process_group(0)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let stdin = child.stdin.take();
        let group = Group::new(child)?;
        let (Some(output), Some(complaints)) = pipes else {
            return Err(io::Error::other("a pipe is missing"));
        };
        let input = match stdin {
            Some(pipe) => Some((Sender::from_owned_fd(OwnedFd::from(pipe))?, program.input)),
            None => None,
        };
        Ok(Self {
            group,
            input,
            output: Capture::new(output.into(), Keep::First(program.output))?,
            complaints: Capture::new(complaints.into(), Keep::Last(program.complaints))?,
        })
    }

    /// Sees it to its end and answers.
    async fn attend(mut self, limit: Duration, mut asked: Asked) {
        let in_time = self.finishes(limit, &mut asked).await;
        if !in_time {
            self.group.kill();
        }
        let status = self.group.reap().await;
        let ended = status.map(|status| Ended {
            status: in_time.then_some(status),
            output: self.output.take(),
            complaints: self.complaints.text(),
        });
        let _ = asked.send(ended); // they may have left
    }

    /// Reads until it is over. `false`: it took too long, or nobody wants it any more; it has
    /// been asked to end and had its time to.
    async fn finishes(&mut self, limit: Duration, asked: &mut Asked) -> bool {
        let (group, output, complaints) = (&self.group, &mut self.output, &mut self.complaints);
        let input = self.input.take();
        let reading = async {
            tokio::join!(feed(input), output.read_on(), complaints.read_on());
        };
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
                () = &mut reading, if !closed => closed = true,
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

/// Writes the input and closes the pipe. A program may leave without reading it.
async fn feed(input: Option<(Sender, Vec<u8>)>) {
    if let Some((mut pipe, bytes)) = input {
        let _ = pipe.write_all(&bytes).await;
    }
}
