//! One client: requests in sequence, one at a time, until it leaves or breaks a rule.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::lines::{LineError, Lines};
use super::{Handler, Limits, Reply};
use crate::control::wire::{self, Code, Request, WireError};

/// Methods of HTTP, whose request lines are longer than any word.
const HTTP: [&[u8]; 7] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"PATCH ",
    b"DELETE ",
    b"OPTIONS ",
];

/// How long a stream may go on after the server was told to stop.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How often a client that only listens is checked for life.
const LIFE_CHECK: Duration = Duration::from_secs(1);

/// Why a conversation ended.
enum Closed {
    /// The client left, is silent, or does not read.
    Gone,
    /// It has been told why.
    Told,
}

pub(super) struct Connection {
    lines: Lines<OwnedReadHalf>,
    output: OwnedWriteHalf,
    handler: Arc<dyn Handler>,
    limits: Arc<Limits>,
    stop: CancellationToken,
}

impl Connection {
    pub(super) fn new(
        stream: UnixStream,
        handler: Arc<dyn Handler>,
        limits: Arc<Limits>,
        stop: CancellationToken,
    ) -> Self {
        let (input, output) = stream.into_split();
        Self {
            lines: Lines::new(input),
            output,
            handler,
            limits,
            stop,
        }
    }

    pub(super) async fn run(mut self) {
        let ended = self.talk().await;
        let _ = self.output.shutdown().await;
        if matches!(ended, Ok(()) | Err(Closed::Told)) && !self.stop.is_cancelled() {
            let enough = self.limits.line.saturating_mul(4);
            self.lines.discard(enough, self.limits.write).await;
        }
    }

    async fn talk(&mut self) -> Result<(), Closed> {
        let first = self.first(self.limits.first_byte).await?;
        if first != b'{' {
            return self.word().await;
        }
        loop {
            self.request().await?;
            self.first(self.limits.idle).await?;
        }
    }

    async fn first(&mut self, limit: Duration) -> Result<u8, Closed> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Closed::Gone),
            first = self.lines.first(limit) => first.ok_or(Closed::Gone),
        }
    }

    /// One word, one answer.
    async fn word(&mut self) -> Result<(), Closed> {
        let line = self
            .lines
            .line(self.limits.word, self.limits.full_line)
            .await;
        let http = HTTP.iter().any(|m| self.lines.pending().starts_with(m));
        let answer = match line {
            Ok(line) => {
                let word = String::from_utf8_lossy(&line).trim().to_owned();
                match wire::word_request(&word) {
                    Some(request) => wire::word_answer(&word, &self.single(request).await),
                    None => "error: unknown command\n".to_owned(),
                }
            }
            Err(LineError::TooLong) if http => "error: unknown command\n".to_owned(),
            Err(LineError::TooLong) => format!("error: {}\n", Code::TooLarge),
            Err(LineError::TooSlow) => format!("error: {}\n", Code::Timeout),
            Err(LineError::Gone) => return Err(Closed::Gone),
        };
        self.send(&answer).await
    }

    /// No word asks for a stream or for a large result.
    async fn single(&mut self, request: Request) -> Result<Value, WireError> {
        match self.call(request.op, request.params).await? {
            Reply::One(value) => Ok(value),
            Reply::Text(_) | Reply::Stream(_) => {
                Err(WireError::new(Code::Internal, "no answer to a word"))
            }
        }
    }

    /// One JSON line and its answer.
    async fn request(&mut self) -> Result<(), Closed> {
        let line = self
            .lines
            .line(self.limits.line, self.limits.full_line)
            .await;
        let refusal = match line {
            Ok(line) => match Request::parse(&line) {
                Ok(request) => return self.reply(request).await,
                Err(rejected) => {
                    self.send(&wire::answer(&rejected.id, &Err(rejected.error)))
                        .await?;
                    return if rejected.close {
                        Err(Closed::Told)
                    } else {
                        Ok(())
                    };
                }
            },
            Err(LineError::TooLong) => {
                let max = self.limits.line;
                WireError::new(Code::TooLarge, format!("line longer than {max} bytes"))
            }
            Err(LineError::TooSlow) => WireError::new(Code::Timeout, "line not complete in time"),
            Err(LineError::Gone) => return Err(Closed::Gone),
        };
        self.send(&wire::answer(&Value::Null, &Err(refusal)))
            .await?;
        Err(Closed::Told)
    }

    async fn reply(&mut self, request: Request) -> Result<(), Closed> {
        let id = request.id;
        match self.call(request.op, request.params).await {
            Ok(Reply::One(value)) => self.send(&wire::answer(&id, &Ok(value))).await,
            Ok(Reply::Text(pieces)) => {
                let (before, behind) = wire::around_result(&id);
                let mut all = vec![before.as_str()];
                all.extend(pieces.iter().map(String::as_str));
                all.push(behind);
                self.send_all(&all).await
            }
            Ok(Reply::Stream(items)) => self.stream(&id, items).await,
            Err(error) => self.send(&wire::answer(&id, &Err(error))).await,
        }
    }

    /// The handler runs in a task: its panic is an answer, and stopping does not wait for it.
    async fn call(&mut self, op: String, params: Value) -> Result<Reply, WireError> {
        let handler = self.handler.clone();
        let mut task = tokio::spawn(async move { handler.call(op, params).await });
        let finished = tokio::select! {
            biased; // an answer that is there goes out even while stopping
            finished = &mut task => finished,
            () = self.stop.cancelled() => {
                return Err(WireError::new(Code::ShuttingDown, "shutting down"));
            }
        };
        finished.unwrap_or_else(|e| {
            tracing::error!("control request failed: {e}");
            Err(WireError::new(Code::Internal, "internal error"))
        })
    }

    async fn stream(&mut self, id: &Value, mut items: mpsc::Receiver<Value>) -> Result<(), Closed> {
        let max = self.limits.line;
        let mut listening_only = false;
        let stop = self.stop.clone();
        // The last item of a stop says how it went, and is still on its way when all has stopped.
        let too_late = async move {
            stop.cancelled().await;
            tokio::time::sleep(LAST_WORD).await;
        };
        tokio::pin!(too_late);
        loop {
            let item = tokio::select! {
                item = items.recv() => item,
                () = &mut too_late => return Err(Closed::Gone),
                () = self.lines.until_end(max), if !listening_only => {
                    if self.is_hung_up() {
                        return Err(Closed::Gone);
                    }
                    // It closed its sending side alone, as pipes into a socket do.
                    listening_only = true;
                    continue;
                }
                () = tokio::time::sleep(LIFE_CHECK), if listening_only => {
                    if self.is_hung_up() {
                        return Err(Closed::Gone);
                    }
                    continue;
                }
            };
            match item {
                Some(item) => self.send(&wire::item(id, &item)).await?,
                None => return self.send(&wire::done(id)).await,
            }
        }
    }

    /// Whether the other end is closed in both directions.
    fn is_hung_up(&self) -> bool {
        let stream: &UnixStream = self.output.as_ref();
        let mut fds = [PollFd::new(stream, PollFlags::empty())];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Sends pieces as one line, without putting them together first.
    async fn send_all(&mut self, pieces: &[&str]) -> Result<(), Closed> {
        let mut slices: Vec<IoSlice<'_>> =
            pieces.iter().map(|p| IoSlice::new(p.as_bytes())).collect();
        let mut left = slices.as_mut_slice();
        let output = &mut self.output;
        let write = async {
            while !left.is_empty() {
                match output.write_vectored(left).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => IoSlice::advance_slices(&mut left, written),
                }
            }
            io::Result::Ok(())
        };
        match timeout(self.limits.write, write).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Closed::Gone),
        }
    }

    async fn send(&mut self, line: &str) -> Result<(), Closed> {
        match timeout(self.limits.write, self.output.write_all(line.as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Closed::Gone),
        }
    }
}
