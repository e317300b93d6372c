//! The control socket's client side. Blocking, since a command line that asks one question starts
//! faster without a runtime.

mod connect;
mod exchange;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{Code, VERSION, WireError};
pub use exchange::Raw;
use exchange::{Answer, Exchange};

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
            Self::Version { .. } => {
                Some("restart the supervisor: gc supervisor stop, then gc supervisor start")
            }
            Self::Denied | Self::Foreign { .. } => {
                Some("ask as the user who started it, or use a home of your own: gc --home DIR")
            }
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
    exchange: Exchange,
    hello: Box<Hello>,
    patience: Patience,
}

impl Client {
    /// Connects to the first of `sockets` behind which somebody answers, checks that it is our own
    /// user or root, and says `hello`. See [`super::home::Home::client_sockets`].
    ///
    /// # Errors
    /// [`ClientError::NotRunning`] when there is nobody anywhere; otherwise the first problem met.
    pub fn connect(sockets: &[PathBuf], patience: Patience) -> Result<Self, ClientError> {
        first_answering(sockets, |socket| {
            Self::greet(connect::connect(socket, patience.connect)?, patience)
        })
    }

    /// Says one plain word (`ping`, `stop`, …) to the first of `sockets` that answers, and returns
    /// the answer. Words are the same in every protocol version.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn word(
        sockets: &[PathBuf],
        word: &str,
        patience: Patience,
    ) -> Result<String, ClientError> {
        first_answering(sockets, |socket| {
            let stream = connect::connect(socket, patience.connect)?;
            Exchange::new(stream).word(word, patience.answer)
        })
    }

    fn greet(stream: UnixStream, patience: Patience) -> Result<Self, ClientError> {
        let mut client = Self {
            exchange: Exchange::new(stream),
            hello: Box::default(),
            patience,
        };
        let hello: Hello = client.ask("hello", json!({}))?;
        if !hello.protocol.contains(&VERSION) {
            let supported = hello.protocol;
            return Err(ClientError::Version { supported });
        }
        client.hello = Box::new(hello);
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

    /// Asks and reads the answer as a `T`, which for large ones is far quicker than by way of a
    /// [`Value`].
    ///
    /// # Errors
    /// As [`Client::call`]; [`ClientError::Protocol`] if the answer is no `T`.
    pub fn ask<T: DeserializeOwned>(&mut self, op: &str, params: Value) -> Result<T, ClientError> {
        parsed(&self.call_raw(op, params)?)
    }

    /// Asks and leaves the answer as the text it came in.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_raw(&mut self, op: &str, params: Value) -> Result<Raw, ClientError> {
        self.raw_within(op, params, Some(self.patience.answer))
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
        parsed(&self.raw_within(op, params, limit)?)
    }

    fn raw_within(
        &mut self,
        op: &str,
        params: Value,
        limit: Option<Duration>,
    ) -> Result<Raw, ClientError> {
        let id = self.exchange.ask(op, params, self.patience.answer)?;
        match self.exchange.answer(id, limit)? {
            Answer::Result(text) => Ok(text),
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
        let id = self.exchange.ask(op, params, self.patience.answer)?;
        Ok(Items {
            exchange: self.exchange,
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
            match self.exchange.line(Some(deadline)) {
                Ok(_) => {}
                Err(ClientError::NoAnswer) => return Ok(false),
                Err(ClientError::Io(e)) => return Err(e.into()),
                Err(_) => return Ok(true),
            }
        }
    }
}

fn parsed<T: DeserializeOwned>(text: &Raw) -> Result<T, ClientError> {
    serde_json::from_str(text.get()).map_err(|e| ClientError::Protocol(e.to_string()))
}

/// Tries each place; where nobody is, the next one counts.
fn first_answering<T>(
    sockets: &[PathBuf],
    attempt: impl Fn(&Path) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut problem = ClientError::NotRunning;
    for socket in sockets {
        match attempt(socket) {
            Ok(answer) => return Ok(answer),
            Err(e) if matches!(problem, ClientError::NotRunning) => problem = e,
            Err(_) => {} // the first problem is the one to report
        }
    }
    Err(problem)
}

/// The items of a stream, until the server is done or an error ends it.
#[derive(Debug)]
pub struct Items {
    exchange: Exchange,
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
        match self.exchange.answer(self.id, self.limit) {
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

#[cfg(test)]
mod tests;
