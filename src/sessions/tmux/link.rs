//! One connection to a tmux server in control mode.
//!
//! One task owns both ends. Callers hand it command lines; it writes them as they come and gives
//! each caller the answers to its own. After each line a question with a random answer is asked:
//! it says where the answers to the line end, however many there were, and whatever an agent has
//! put on its screen.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::line::Line;
use super::parser::{Block, Parser, Said};

/// How long the oldest unanswered line may take.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long the end of a connection may take before its client is left alone.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Why a connection cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Lost {
    /// It ended.
    #[error("the connection to tmux ended{0}")]
    Ended(String),
    /// The server did not answer in time.
    #[error("tmux does not answer")]
    Silent,
}

struct Ask {
    line: Line,
    reply: oneshot::Sender<Result<Vec<Block>, Lost>>,
}

/// A connection. Dropping it ends it, and nothing else.
#[derive(Debug)]
pub(super) struct Link {
    asks: mpsc::UnboundedSender<Ask>,
    lost: watch::Receiver<Option<Lost>>,
    clients: Arc<Notify>,
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ask({})", String::from_utf8_lossy(self.line.bytes()))
    }
}

impl Link {
    /// Runs the client `command` and speaks with it. Needs a tokio runtime.
    pub(super) fn open(mut command: Command) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the client has no pipes"));
        };
        let input = pipe::Sender::from_owned_fd(OwnedFd::from(input))?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
        let (asks, asked) = mpsc::unbounded_channel();
        let (losing, lost) = watch::channel(None);
        let clients = Arc::new(Notify::new());
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
        let pump = Pump {
            input: Some(input),
            begun: false,
            output,
            parser: Parser::default(),
            unsent: Vec::new(),
            pending: VecDeque::new(),
            nonce: u64::from_ne_bytes(nonce),
            clients: clients.clone(),
        };
        tokio::spawn(pump.run(child, asked, losing));
        Ok(Self {
            asks,
            lost,
            clients,
        })
    }

    /// Carries out a line. The answers of its commands, up to the first that failed.
    pub(super) async fn ask(&self, line: Line) -> Result<Vec<Block>, Lost> {
        self.send(line).await
    }

    /// The same; the line is on its way when this returns.
    pub(super) fn send(
        &self,
        line: Line,
    ) -> impl Future<Output = Result<Vec<Block>, Lost>> + use<> {
        let (reply, answer) = oneshot::channel();
        let sent = self.asks.send(Ask { line, reply });
        async move {
            let ended = || Lost::Ended(String::new());
            sent.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        }
    }

    /// Waits until terminals have come or gone since the last call.
    pub(super) async fn clients_changed(&self) {
        self.clients.notified().await;
    }

    /// The connection is over.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// Waits for its end.
    pub(super) async fn lost(&self) -> Lost {
        let mut lost = self.lost.clone();
        let seen = lost.wait_for(Option::is_some).await;
        let lost = seen.ok().and_then(|lost| lost.clone());
        lost.unwrap_or_else(|| Lost::Ended(String::new()))
    }
}

struct Pending {
    /// What the question after the line is answered with.
    mark: String,
    blocks: Vec<Block>,
    reply: oneshot::Sender<Result<Vec<Block>, Lost>>,
    /// Set when it becomes the oldest.
    deadline: Instant,
}

struct Pump {
    /// `None` once nobody wants anything any more.
    input: Option<pipe::Sender>,
    /// The server has taken the connection in. What it is told before may come too early.
    begun: bool,
    output: pipe::Receiver,
    parser: Parser,
    unsent: Vec<u8>,
    pending: VecDeque<Pending>,
    nonce: u64,
    clients: Arc<Notify>,
}

impl Pump {
    async fn run(
        mut self,
        child: Child,
        asked: mpsc::UnboundedReceiver<Ask>,
        losing: watch::Sender<Option<Lost>>,
    ) {
        let lost = self.speak(asked).await;
        losing.send_replace(Some(lost.clone()));
        for pending in self.pending.drain(..) {
            let _ = pending.reply.send(Err(lost.clone())); // nobody may wait for it any more
        }
        self.input = None;
        end(child, self.output).await;
    }

    /// Until the connection is of no more use.
    async fn speak(&mut self, mut asked: mpsc::UnboundedReceiver<Ask>) -> Lost {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let deadline = self.pending.front().map(|oldest| oldest.deadline);
            let ends = deadline.unwrap_or_else(Instant::now);
            tokio::select! {
                ask = asked.recv(), if self.input.is_some() => match ask {
                    Some(ask) => {
                        self.enqueue(ask);
                        while let Ok(ask) = asked.try_recv() {
                            self.enqueue(ask);
                        }
                    }
                    None => self.input = None,
                },
                sent = writable(&mut self.input), if self.begun && !self.unsent.is_empty() => {
                    if let Err(error) = sent.and_then(|()| self.write()) {
                        return Lost::Ended(format!(": {error}"));
                    }
                },
                read = self.output.readable() => {
                    let read = read.and_then(|()| self.output.try_read(&mut buffer));
                    match read {
                        Ok(0) => return Lost::Ended(String::new()),
                        Ok(size) => if let Some(lost) = self.take(&buffer[..size]) {
                            return lost;
                        },
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Lost::Ended(format!(": {error}")),
                    }
                },
                () = sleep_until(ends), if deadline.is_some() => return Lost::Silent,
            }
        }
    }

    fn enqueue(&mut self, ask: Ask) {
        self.nonce = self.nonce.wrapping_add(1);
        let mark = format!("gc{:016x}", self.nonce);
        self.unsent.extend_from_slice(ask.line.bytes());
        self.unsent.push(b'\n');
        let question = Line::new(["display-message", "-p", &mark]);
        self.unsent.extend_from_slice(question.bytes());
        self.unsent.push(b'\n');
        self.pending.push_back(Pending {
            mark,
            blocks: Vec::new(),
            reply: ask.reply,
            deadline: Instant::now() + ANSWER_LIMIT,
        });
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(input) = &self.input else {
            return Ok(());
        };
        match input.try_write(&self.unsent) {
            Ok(size) => drop(self.unsent.drain(..size)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Option<Lost> {
        let Ok(said) = self.parser.feed(bytes) else {
            return Some(Lost::Ended(": it makes no sense".into()));
        };
        for said in said {
            match said {
                Said::Answer(block) => self.answer(block),
                Said::Other => self.begun = true,
                Said::Clients => self.clients.notify_one(),
                Said::Exit(why) if why.is_empty() => return Some(Lost::Ended(why)),
                Said::Exit(why) => return Some(Lost::Ended(format!(": {why}"))),
            }
        }
        None
    }

    fn answer(&mut self, block: Block) {
        let Some(oldest) = self.pending.front_mut() else {
            return;
        };
        if !block.ok || block.lines != [oldest.mark.as_bytes()] {
            oldest.blocks.push(block);
            return;
        }
        if let Some(done) = self.pending.pop_front() {
            let _ = done.reply.send(Ok(done.blocks)); // nobody may wait for it any more
        }
        if let Some(next) = self.pending.front_mut() {
            next.deadline = Instant::now() + ANSWER_LIMIT;
        }
    }
}

async fn writable(input: &mut Option<pipe::Sender>) -> io::Result<()> {
    match input {
        Some(input) => input.writable().await,
        None => std::future::pending().await,
    }
}

/// Ends the client. What the server still has to say is read: it may wait for that.
async fn end(mut child: Child, output: pipe::Receiver) {
    let mut buffer = vec![0; 64 << 10];
    let drain = async {
        loop {
            if output.readable().await.is_err() {
                return;
            }
            match output.try_read(&mut buffer) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    };
    if timeout(END_LIMIT, drain).await.is_err() {
        let _ = child.kill();
    }
    let _ = tokio::task::spawn_blocking(move || child.wait()).await;
}
