//! The control socket's client side. Blocking, since a command line that asks one question starts
//! faster without a runtime.

mod connect;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{Code, Request, VERSION, WireError};

/// Longest answer that is taken; a server that sends more is broken.
const ANSWER_MAX: usize = 256 << 20;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No socket, or nobody behind it.
    #[error("supervisor is not running")]
    NotRunning,
    /// The server closed the connection without a byte: we are not its user.
    #[error("supervisor refused the connection")]
    Denied,
    /// The socket belongs to another user; nothing was sent.
    #[error("the control socket belongs to another user (uid {uid})")]
    Foreign {
        /// That user.
        uid: u32,
    },
    /// Connected, but silent for too long.
    #[error("supervisor does not answer")]
    NoAnswer,
    /// The server speaks other protocol versions.
    #[error("supervisor speaks protocol {supported:?}, this gc speaks [{VERSION}]")]
    Version {
        /// What it speaks, as far as it said.
        supported: Vec<u64>,
    },
    /// The server answered with an error.
    #[error("{message}")]
    Remote {
        /// Its kind.
        code: Code,
        /// What it says.
        message: String,
    },
    /// The server said something that is no answer, or left in the middle of one.
    #[error("unexpected answer from the supervisor: {0}")]
    Protocol(String),
    /// The system said no.
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
}

impl ClientError {
    /// The error code of the command line.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotRunning => "not_running",
            Self::Denied | Self::Foreign { .. } => "denied",
            Self::NoAnswer => "timeout",
            Self::Version { .. } | Self::Protocol(_) | Self::Io(_) => "failed",
            Self::Remote { code, .. } => code.as_str(),
        }
    }

    /// What to do about it, if that is always the same.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotRunning => Some("gc start"),
            Self::Version { .. } => Some("restart the supervisor: gc supervisor upgrade"),
            _ => None,
        }
    }
}

impl From<WireError> for ClientError {
    fn from(error: WireError) -> Self {
        match error.code {
            Code::UnsupportedVersion => Self::Version {
                supported: error.supported,
            },
            code => Self::Remote {
                code,
                message: error.message,
            },
        }
    }
}

/// How long the client waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the connection.
    pub connect: Duration,
    /// For the answer to an ordinary request.
    pub answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_millis(500),
            answer: Duration::from_secs(2),
        }
    }
}

/// What the server says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// Its version.
    pub version: String,
    /// Its build.
    pub build_id: String,
    /// Its process id.
    pub pid: u32,
    /// `supervisor` or `standalone`.
    pub mode: String,
    /// The protocol versions it speaks.
    pub protocol: Vec<u64>,
    /// The city of a standalone controller.
    pub city: Option<String>,
}

/// A connection to a control socket, past its `hello`.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    hello: Hello,
    patience: Patience,
}

impl Client {
    /// Connects to the first of `sockets` behind which somebody answers, checks that it is our own
    /// user or root, and says `hello`. See [`super::home::Home::client_sockets`].
    ///
    /// # Errors
    /// [`ClientError::NotRunning`] when there is nobody anywhere; otherwise the first problem met.
    pub fn connect(sockets: &[PathBuf], patience: Patience) -> Result<Self, ClientError> {
        let mut problem = ClientError::NotRunning;
        for socket in sockets {
            match connect::connect(socket, patience.connect)
                .and_then(|stream| Self::greet(stream, patience))
            {
                Ok(client) => return Ok(client),
                Err(ClientError::NotRunning) => {}
                Err(e) if matches!(problem, ClientError::NotRunning) => problem = e,
                Err(_) => {}
            }
        }
        Err(problem)
    }

    fn greet(stream: UnixStream, patience: Patience) -> Result<Self, ClientError> {
        let mut client = Self {
            wire: Wire::new(stream),
            hello: Hello::default(),
            patience,
        };
        let answer = client.call("hello", json!({}))?;
        let hello: Hello = serde_json::from_value(answer)
            .map_err(|e| ClientError::Protocol(format!("hello: {e}")))?;
        if !hello.protocol.contains(&VERSION) {
            let supported = hello.protocol;
            return Err(ClientError::Version { supported });
        }
        client.hello = hello;
        Ok(client)
    }

    /// Who answers.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks and waits for the answer, as long as for any ordinary request.
    ///
    /// # Errors
    /// [`ClientError::Remote`] is the server's own refusal.
    pub fn call(&mut self, op: &str, params: Value) -> Result<Value, ClientError> {
        self.call_within(op, params, Some(self.patience.answer))
    }

    /// Asks for something that takes long; without a limit, waits until the server leaves.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_within(
        &mut self,
        op: &str,
        params: Value,
        limit: Option<Duration>,
    ) -> Result<Value, ClientError> {
        let id = self.wire.ask(op, params, self.patience.answer)?;
        match self.wire.answer(id, limit)? {
            Answer::Result(value) => Ok(value),
            Answer::Item(_) | Answer::Done => {
                Err(ClientError::Protocol(format!("{op} answers as a stream")))
            }
        }
    }

    /// Asks for a stream. `limit` is the wait for each item, none for ever.
    ///
    /// # Errors
    /// If the request could not be sent; refusals come as the first item.
    pub fn stream(
        mut self,
        op: &str,
        params: Value,
        limit: Option<Duration>,
    ) -> Result<Items, ClientError> {
        let id = self.wire.ask(op, params, self.patience.answer)?;
        Ok(Items {
            wire: self.wire,
            id,
            limit,
            ended: false,
        })
    }

    /// Waits until the server closes the connection, as it does at the end of a stop; `false` when
    /// `limit` passed first.
    ///
    /// # Errors
    /// If the connection cannot be waited on.
    pub fn wait_closed(mut self, limit: Duration) -> Result<bool, ClientError> {
        let deadline = Instant::now() + limit;
        loop {
            match self.wire.line(Some(deadline)) {
                Ok(_) => {}
                Err(ClientError::NoAnswer) => return Ok(false),
                Err(ClientError::Io(e)) => return Err(e.into()),
                Err(_) => return Ok(true),
            }
        }
    }
}

/// The items of a stream, until the server is done or an error ends it.
#[derive(Debug)]
pub struct Items {
    wire: Wire,
    id: u64,
    limit: Option<Duration>,
    ended: bool,
}

impl Iterator for Items {
    type Item = Result<Value, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.wire.answer(self.id, self.limit) {
            Ok(Answer::Item(item)) => return Some(Ok(item)),
            Ok(Answer::Done) => self.ended = true,
            Ok(Answer::Result(_)) => {
                self.ended = true;
                let text = "a result in place of a stream".to_owned();
                return Some(Err(ClientError::Protocol(text)));
            }
            Err(e) => {
                self.ended = true;
                return Some(Err(e));
            }
        }
        None
    }
}

/// One parsed line.
enum Answer {
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

/// Lines out and in, with deadlines.
#[derive(Debug)]
struct Wire {
    stream: UnixStream,
    buffer: Vec<u8>,
    last_id: u64,
    heard: bool,
}

impl Wire {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            last_id: 0,
            heard: false,
        }
    }

    fn ask(&mut self, op: &str, params: Value, limit: Duration) -> Result<u64, ClientError> {
        self.last_id += 1;
        let request = Request {
            id: self.last_id.into(),
            op: op.to_owned(),
            params,
        };
        self.stream.set_write_timeout(Some(limit))?;
        match self.stream.write_all(request.line().as_bytes()) {
            Ok(()) => Ok(self.last_id),
            // It may have said why before it closed (`busy`, `too_large`).
            Err(e) if is_hang_up(&e) => Ok(self.last_id),
            Err(e) if is_timeout(&e) => Err(ClientError::NoAnswer),
            Err(e) => Err(e.into()),
        }
    }

    fn answer(&mut self, id: u64, limit: Option<Duration>) -> Result<Answer, ClientError> {
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

    fn line(&mut self, deadline: Option<Instant>) -> Result<Vec<u8>, ClientError> {
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

#[cfg(test)]
mod tests;
