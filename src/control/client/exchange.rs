//! Lines out and in, with deadlines.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ClientError;
use crate::control::wire::{self, Code, Request, WireError};

/// Longest answer that is taken; a server that sends more is broken.
const ANSWER_MAX: usize = 256 << 20;

/// One line, with as much of it read as is needed.
pub(super) enum Answer {
    Result(Raw),
    Item(Value),
    Done,
}

/// A result as the text it came in.
#[derive(Debug)]
pub struct Raw {
    line: String,
    range: Range<usize>,
}

impl Raw {
    /// JSON.
    #[must_use]
    pub fn get(&self) -> &str {
        &self.line[self.range.clone()]
    }
}

#[derive(Deserialize)]
struct AnswerLine<'a> {
    #[serde(default)]
    id: Value,
    ok: bool,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
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
    /// How long a read may take at most.
    read_limit: Option<Duration>,
}

impl Exchange {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            last_id: 0,
            heard: false,
            read_limit: None,
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
        let line = String::from_utf8(line).map_err(|e| ClientError::Protocol(e.to_string()))?;
        // The form that our own server writes need not be looked through, however long it is.
        let (before, behind) = wire::around_result(&id.into());
        if line.starts_with(&before) && line.ends_with(behind.trim_end()) {
            let range = before.len()..line.len() - behind.trim_end().len();
            return Ok(Answer::Result(Raw { line, range }));
        }
        let answer: AnswerLine<'_> =
            serde_json::from_str(&line).map_err(|e| ClientError::Protocol(e.to_string()))?;
        if let (false, Some(error)) = (answer.ok, answer.error) {
            return Err(error.into());
        }
        if answer.id != id {
            let text = format!("an answer to {} in place of {id}", answer.id);
            return Err(ClientError::Protocol(text));
        }
        match (answer.result, answer.item) {
            (Some(result), _) => {
                let begin = result.get().as_ptr() as usize - line.as_ptr() as usize;
                let range = begin..begin + result.get().len();
                Ok(Answer::Result(Raw { line, range }))
            }
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
            if let Some(at) = memchr::memchr(b'\n', unseen) {
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
        self.limit_reads(left)?;
        let begin = self.buffer.len();
        // Small at first: most answers are.
        self.buffer
            .resize(begin + begin.clamp(4 << 10, 64 << 10), 0);
        let result = self.stream.read(&mut self.buffer[begin..]);
        let count = result.as_ref().map_or(0, |count| *count);
        self.buffer.truncate(begin + count);
        match result {
            Ok(0) => Err(self.hung_up()),
            Ok(_) => {
                self.heard = true;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) if is_hang_up(&e) => Err(self.hung_up()),
            Err(e) if is_timeout(&e) => Err(ClientError::NoAnswer),
            Err(e) => Err(e.into()),
        }
    }

    /// Has reads end after `left`. Nothing is said anew for a difference that nobody notices.
    fn limit_reads(&mut self, left: Option<Duration>) -> io::Result<()> {
        let near = |a: Duration, b: Duration| a.abs_diff(b) < Duration::from_millis(50);
        let same = match (self.read_limit, left) {
            (Some(set), Some(left)) => near(set, left),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.stream.set_read_timeout(left)?;
            self.read_limit = left;
        }
        Ok(())
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
