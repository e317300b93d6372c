//! A program that is listened to line by line for as long as it runs.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;

use super::Program;
use super::group::Group;

/// No line is longer than this; the rest of it is a line of its own.
const LINE: u64 = 64 << 10;

/// What a program prints. It is ended with this.
#[derive(Debug)]
pub(crate) struct Lines {
    pipe: BufReader<Receiver>,
    part: Vec<u8>,
    _group: Group,
}

impl Lines {
    /// Runs the program. What it complains about is dropped.
    pub(crate) fn of(program: Program) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        if let Some(name) = program.words.first() {
            command.arg0(name).args(&program.words[1..]);
        }
        let mut child = command
            .env_clear()
            .envs(&program.env)
            .current_dir(&program.dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = child.stdout.take();
        let group = Group::new(child)?;
        let pipe = pipe.ok_or_else(|| io::Error::other("a pipe is missing"))?;
        Ok(Self {
            pipe: BufReader::new(Receiver::from_owned_fd(pipe.into())?),
            part: Vec::new(),
            _group: group,
        })
    }

    /// The next line; `None` at the end. Can be dropped at any time without losing anything.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        let room = LINE.saturating_sub(self.part.len() as u64);
        let read = (&mut self.pipe)
            .take(room)
            .read_until(b'\n', &mut self.part)
            .await;
        match read {
            Ok(0) if room > 0 => None,
            Ok(_) => Some(std::mem::take(&mut self.part)),
            Err(_) => None,
        }
    }
}
