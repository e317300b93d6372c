//! One run in a tmux session: its leader, and how its end is seen.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{Note, SessionEvent, SessionEventKind};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Inner;
use super::line::Line;
use super::link::Lost;
use super::server::Server;
use crate::sessions::processes::{Ending, Led, Watched, foreign_status, lock, sweep};
use crate::sessions::{proc, sys};

/// How long tmux may take to notice the end of a pane by itself.
const NOTICE: Duration = Duration::from_millis(10);
/// How often it is asked after that, and how long.
const ASK_STEP: Duration = Duration::from_millis(2);
const ASK_LIMIT: Duration = Duration::from_millis(500);
/// A pane that is gone is the user's doing, or the first sign of a server that leaves.
const LEAVING: Duration = Duration::from_millis(150);
/// How long a server may take to die after its connection has ended.
const DYING: Duration = Duration::from_secs(2);

/// Where a run is shown: ids mean something only to the server that gave them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    /// Process id of the server.
    pub(super) server: i32,
    /// `$n`
    pub(super) session: String,
    /// `%n`
    pub(super) pane: String,
}

/// One run of an agent.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: SessionName,
    pub(super) token: RunToken,
    pub(super) agent: AgentName,
    pub(super) seat: Seat,
    pub(super) pid: Pid,
    pub(super) start: u64,
    pub(super) started_at: DateTime<Utc>,
    /// Where it was started, if this process did that.
    dir: Option<PathBuf>,
    /// Metadata that only the supervisor writes; the rest is read with each listing.
    pub(super) notes: Mutex<BTreeMap<Note, String>>,
    /// `None`: it was dead when it was found.
    pidfd: Option<Arc<OwnedFd>>,
    ended: AtomicBool,
    /// Somebody has a terminal on it, as was last told.
    pub(super) attached: AtomicBool,
    /// A stop is under way and looks after the other processes itself.
    pub(super) stopping: AtomicBool,
    ending: Ending,
    /// Ends what the leader left in its group.
    clearing: Mutex<Option<JoinHandle<()>>>,
}

/// What is known of a run when it is taken in.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) name: SessionName,
    pub(super) token: RunToken,
    pub(super) agent: AgentName,
    pub(super) seat: Seat,
    pub(super) pid: Pid,
    pub(super) started_at: DateTime<Utc>,
    pub(super) attached: bool,
    /// Where it was started, if this process did that.
    pub(super) dir: Option<PathBuf>,
    pub(super) notes: BTreeMap<Note, String>,
}

impl Run {
    /// A run whose leader is the process behind `pidfd`, which began at `start`.
    pub(super) fn live(identity: Identity, pidfd: OwnedFd, start: u64) -> Self {
        Self::new(identity, Some(pidfd), start, None)
    }

    /// A run that was over before it could be watched.
    pub(super) fn dead(identity: Identity, status: ExitStatus) -> Self {
        Self::new(identity, None, 0, Some(status))
    }

    fn new(
        identity: Identity,
        pidfd: Option<OwnedFd>,
        start: u64,
        exit: Option<ExitStatus>,
    ) -> Self {
        let Identity {
            name,
            token,
            agent,
            seat,
            pid,
            started_at,
            attached,
            dir,
            notes,
        } = identity;
        Self {
            name,
            token,
            agent,
            seat,
            pid,
            start,
            started_at,
            dir,
            notes: Mutex::new(notes),
            ended: AtomicBool::new(pidfd.is_none()),
            attached: AtomicBool::new(attached),
            pidfd: pidfd.map(Arc::new),
            stopping: AtomicBool::new(false),
            ending: Ending::new(exit),
            clearing: Mutex::new(None),
        }
    }

    pub(super) fn raw_pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// It was dead when it was found: nobody has looked after what it left.
    pub(super) fn was_found_dead(&self) -> bool {
        self.pidfd.is_none()
    }

    /// News of it.
    pub(super) fn event(&self, kind: SessionEventKind) -> SessionEvent {
        SessionEvent {
            session: self.name.clone(),
            token: self.token.clone(),
            kind,
        }
    }

    /// Waits until the end has been reported, and says how it ended.
    pub(super) async fn ended(&self) -> ExitStatus {
        self.ending.wait().await
    }

    /// The end has been reported.
    pub(super) fn is_told(&self) -> bool {
        self.ending.is_known()
    }

    /// Waits until nothing is left in the leader's process group.
    pub(super) async fn cleared(&self) {
        let clearing = lock(&self.clearing).take();
        if let Some(clearing) = clearing {
            let _ = clearing.await; // a failure leaves strays, which a stop ends
        }
    }

    /// How the kernel says that the leader ended.
    fn kernel_status(&self) -> Option<ExitStatus> {
        foreign_status(self.pidfd.as_deref()?, self.raw_pid(), self.start)
    }
}

impl Led for Run {
    fn token(&self) -> &RunToken {
        &self.token
    }

    fn pid(&self) -> Pid {
        self.pid
    }

    fn dir(&self) -> Option<PathBuf> {
        self.dir.clone()
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_deref()
    }

    fn was_seen_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Begins to watch. Needs a tokio runtime.
pub(super) fn watched(run: Run, inner: &Weak<Inner>) -> io::Result<Watched<Run>> {
    let run = Arc::new(run);
    let Some(pidfd) = run.pidfd.clone() else {
        return Ok(Watched { run, watch: None });
    };
    let pidfd = sys::watchable(pidfd)?;
    let task = watch(run.clone(), pidfd, inner.clone());
    let watch = Some(tokio::spawn(task).abort_handle());
    Ok(Watched { run, watch })
}

/// Waits for the end of a run and reports it, once.
async fn watch(run: Arc<Run>, pidfd: AsyncFd<Arc<OwnedFd>>, inner: Weak<Inner>) {
    if pidfd.readable().await.is_err() {
        return; // the runtime is shutting down; the run goes on
    }
    run.ended.store(true, Ordering::Release);
    let Some(inner) = inner.upgrade() else {
        return; // nobody is left to tell
    };
    inner.clear_group(&run);
    let end = inner.end_of(&run).await;
    let (status, kind) = match end {
        End::Exited(status) => (status, SessionEventKind::Exited(status)),
        End::ServerLost => {
            let why = format!("the tmux server (pid {}) has died", run.seat.server);
            (ExitStatus::Vanished, SessionEventKind::BackendLost(why))
        }
    };
    run.ending.set(status);
    inner.subscribers.send(&run.event(kind));
}

/// How a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Exited(ExitStatus),
    /// The server died, and took it along.
    ServerLost,
}

/// What tmux says of a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Alive,
    Dead(Option<ExitStatus>),
    Gone,
}

impl Pane {
    /// Reads `pane_dead`, `pane_dead_status` and `pane_dead_signal`.
    pub(super) fn read(dead: &str, status: &str, signal: &str) -> Self {
        if dead != "1" {
            return Self::Alive;
        }
        let signal = signal.parse().ok().map(ExitStatus::Signal);
        Self::Dead(signal.or_else(|| status.parse().ok().map(ExitStatus::Code)))
    }
}

impl Server {
    /// Asks for the state of a pane.
    pub(super) async fn pane(&self, pane: &str) -> Result<Pane, Lost> {
        let format = "#{pane_id}|#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}";
        let line = Line::new(["display-message", "-p", "-t", pane, format]);
        let blocks = self.link.ask(line).await?;
        let text = blocks.first().filter(|b| b.ok).map(|b| b.text());
        let text = text.unwrap_or_default();
        let fields: Vec<&str> = text.split('|').collect();
        Ok(match fields.as_slice() {
            [id, dead, status, signal] if *id == pane => Pane::read(dead, status, signal),
            _ => Pane::Gone,
        })
    }
}

impl Inner {
    /// Kills what a leader leaves in its process group, so that nothing of it doubles with a
    /// successor.
    fn clear_group(&self, run: &Arc<Run>) {
        if run.stopping.load(Ordering::Acquire) {
            return;
        }
        let pid = run.raw_pid();
        let zombie = proc::stat(pid).ok().flatten();
        // As long as it is not reaped, the group is this one and no other.
        if zombie.is_some_and(|stat| stat.start == run.start && stat.dead) {
            let _ = kill_process_group(run.pid, Signal::KILL);
            return;
        }
        let (mark, of) = (self.mark.clone(), run.clone());
        let clear = move || drop(sweep::kill_group(&mark, &*of));
        *lock(&run.clearing) = Some(tokio::task::spawn_blocking(clear));
    }

    /// Finds out how a run ended whose leader is no more.
    async fn end_of(self: &Arc<Self>, run: &Run) -> End {
        let began = Instant::now();
        loop {
            let status = || run.kernel_status();
            // Only this one: another server never had the run.
            let Some(server) = self.connection(run.seat.server).await else {
                if self.dies(run.seat.server, DYING).await {
                    return End::ServerLost;
                }
                match self.server().await {
                    Ok(server) if server.pid == run.seat.server => continue,
                    // It lives and cannot be asked; the kernel can.
                    _ => return End::Exited(status().unwrap_or(ExitStatus::Unknown)),
                }
            };
            match server.pane(&run.seat.pane).await {
                // It answers, so it lives: whatever ended the run, it was not its end.
                Ok(Pane::Dead(Some(exit))) => return End::Exited(exit),
                Ok(Pane::Dead(None)) if status().is_some() => {
                    return End::Exited(status().unwrap_or(ExitStatus::Unknown));
                }
                Ok(Pane::Alive | Pane::Dead(None)) => {
                    if let Some(exit) = status() {
                        self.remind(server, run);
                        return End::Exited(exit);
                    }
                    if began.elapsed() > ASK_LIMIT {
                        return End::Exited(ExitStatus::Unknown);
                    }
                    if began.elapsed() >= NOTICE {
                        server.poke();
                    }
                    sleep(ASK_STEP).await;
                }
                Ok(Pane::Gone) => {
                    return match timeout(LEAVING, server.link.lost()).await {
                        Ok(_) if timeout(DYING, server.gone()).await.is_ok() => End::ServerLost,
                        _ => End::Exited(status().unwrap_or(ExitStatus::Vanished)),
                    };
                }
                Err(_) => {} // the next look says whether only the connection was lost
            }
        }
    }

    /// Has a server notice the end of a pane that is known already. Some versions lose the
    /// signal, and the pane would stay unreaped until another one ends.
    fn remind(&self, server: Arc<Server>, run: &Run) {
        let pane = run.seat.pane.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            while began.elapsed() < ASK_LIMIT {
                sleep(NOTICE).await;
                if server.pane(&pane).await != Ok(Pane::Alive) {
                    return;
                }
                server.poke();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panes_are_read_by_what_ended_them() {
        let code = |n| Pane::Dead(Some(ExitStatus::Code(n)));
        assert_eq!(Pane::read("0", "", ""), Pane::Alive);
        assert_eq!(Pane::read("", "", ""), Pane::Alive);
        assert_eq!(Pane::read("1", "3", ""), code(3));
        let killed = Pane::Dead(Some(ExitStatus::Signal(9)));
        assert_eq!(Pane::read("1", "", "9"), killed);
        assert_eq!(Pane::read("1", "", ""), Pane::Dead(None));
    }
}
