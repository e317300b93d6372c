//! Lines out and in, with deadlines.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::ClientError;
use crate::control::wire::{Code, Request, WireError};

/// Longest answer that is taken; a server that sends more is broken.
const ANSWER_MAX: usize = 256 << 20;

/// One parsed line.
pub(super) enum Answer {
    Result(Value),
    Item(Value),
    Done,
}

#[derive(Deserialize)]
struct AnswerLine {
    #[serde(default)]
    id: Value,
    ok: bool,
    result: Option<Value>,
    item: Option<Value>,
    #[serde(default)]
    done: bool,
    error: Option<WireError>,
}

/// One connection's conversation.
#[derive(Debug)]
pub(super) struct Exchange {
    stream: UnixStream,
    buffer: Vec<u8>,
    last_id: u64,
    heard: bool,
}

impl Exchange {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            last_id: 0,
            heard: false,
        }
    }

    /// Sends a request; returns its id.
    pub(super) fn ask(
        &mut self,
        op: &str,
        params: Value,
        limit: Duration,
    ) -> Result<u64, ClientError> {
        self.last_id += 1;
        let request = Request {
            id: self.last_id.into(),
            op: op.to_owned(),
            params,
        };
        self.send(&request.line(), limit)?;
        Ok(self.last_id)
    }

    /// One plain word and its answer.
    pub(super) fn word(&mut self, word: &str, limit: Duration) -> Result<String, ClientError> {
        self.send(&format!("{word}\n"), limit)?;
        let line = self.line(Some(Instant::now() + limit))?;
        String::from_utf8(line).map_err(|e| ClientError::Protocol(e.to_string()))
    }

    fn send(&mut self, text: &str, limit: Duration) -> Result<(), ClientError> {
        self.stream.set_write_timeout(Some(limit))?;
        match self.stream.write_all(text.as_bytes()) {
            Ok(()) => Ok(()),
            // It may have said why before it closed (`busy`, `too_large`).
            Err(e) if is_hang_up(&e) => Ok(()),
            Err(e) if is_timeout(&e) => Err(ClientError::NoAnswer),
            Err(e) => Err(e.into()),
        }
    }

    /// The next answer to request `id`.
    pub(super) fn answer(
        &mut self,
        id: u64,
        limit: Option<Duration>,
    ) -> Result<Answer, ClientError> {
        let line = self.line(limit.map(|limit| Instant::now() + limit))?;
        if line == b"busy" {
            let busy = WireError::new(Code::Busy, "supervisor is busy: too many connections");
            return Err(busy.into());
        }
        let answer: AnswerLine =
            serde_json::from_slice(&line).map_err(|e| ClientError::Protocol(e.to_string()))?;
        if let (false, Some(error)) = (answer.ok, answer.error) {
            return Err(error.into());
        }
        if answer.id != id {
            let text = format!("an answer to {} in place of {id}", answer.id);
            return Err(ClientError::Protocol(text));
        }
        match (answer.result, answer.item) {
            (Some(result), _) => Ok(Answer::Result(result)),
            (None, Some(item)) => Ok(Answer::Item(item)),
            (None, None) if answer.done => Ok(Answer::Done),
            (None, None) => Err(ClientError::Protocol("neither result nor item".to_owned())),
        }
    }

    /// The next line without its end.
    pub(super) fn line(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, ClientError> {
        let mut searched = 0;
        loop {
            let unseen = &self.buffer[searched..];
            if let Some(at) = unseen.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.buffer.len();
            if searched > ANSWER_MAX {
                return Err(ClientError::Protocol("endless line".to_owned()));
            }
            self.fill(deadline)?;
        }
    }

    fn fill(&mut self, deadline: Option<Instant>) -> Result<(), ClientError> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(ClientError::NoAnswer);
        }
        self.stream.set_read_timeout(left)?;
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(self.hung_up()),
            Ok(count) => {
                self.heard = true;
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) if is_hang_up(&e) => Err(self.hung_up()),
            Err(e) if is_timeout(&e) => Err(ClientError::NoAnswer),
            Err(e) => Err(e.into()),
        }
    }

    /// Closed without a single byte means that we were turned away.
    fn hung_up(&self) -> ClientError {
        if self.heard {
            ClientError::Protocol("the connection was closed".to_owned())
        } else {
            ClientError::Denied
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
