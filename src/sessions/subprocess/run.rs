//! One run: its leader, what is known of it, and how its end is seen.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{SessionEvent, SessionEventKind};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use tokio::io::unix::AsyncFd;

use super::meta::Meta;
use super::note::{Files, NoteFile};
use super::rotate::Growth;
use crate::sessions::processes::{
    Ending, Led, Subscribers, Watched, foreign_status, lock, signal_led, sweep,
};
use crate::sessions::sys;

/// How long the status of a process that is not our child is asked for, and how often.
const STATUS_PATIENCE: Duration = Duration::from_millis(500);
const STATUS_STEP: Duration = Duration::from_millis(2);

/// One run of an agent.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: SessionName,
    pub(super) token: RunToken,
    pub(super) agent: AgentName,
    pub(super) pid: Pid,
    pub(super) start: u64,
    pub(super) started_at: DateTime<Utc>,
    pub(super) meta: Mutex<Meta>,
    pub(super) growth: Mutex<Growth>,
    /// `None`: it was dead when it was found.
    pidfd: Option<Arc<OwnedFd>>,
    /// The leader was seen to have ended.
    ended: AtomicBool,
    /// A stop is under way and looks after the other processes itself.
    pub(super) stopping: AtomicBool,
    ending: Ending,
    /// Held while the process group is signalled or the leader reaped: a zombie keeps its group
    /// id from being given to strangers.
    group: Mutex<()>,
}

impl Run {
    /// The run a note tells of. Without `pidfd` it is dead, nobody can say how.
    pub(super) fn new(name: SessionName, note: NoteFile, pid: Pid, pidfd: Option<OwnedFd>) -> Self {
        let exit = pidfd.is_none().then_some(ExitStatus::Unknown);
        Self {
            growth: Mutex::new(Growth::new(note.log_offset)),
            meta: Mutex::new(Meta::of(&note)),
            name,
            token: note.token,
            agent: note.agent,
            pid,
            start: note.start,
            started_at: note.started_at,
            ended: AtomicBool::new(pidfd.is_none()),
            stopping: AtomicBool::new(false),
            pidfd: pidfd.map(Arc::new),
            ending: Ending::new(exit),
            group: Mutex::new(()),
        }
    }

    /// The note of this run with this metadata.
    pub(super) fn note_with(&self, files: &Files, meta: &Meta) -> NoteFile {
        NoteFile {
            token: self.token.clone(),
            pid: self.pid.as_raw_nonzero().get(),
            start: self.start,
            boot: files.boot.clone(),
            agent: self.agent.clone(),
            city: files.city(),
            started_at: self.started_at,
            log_offset: meta.log_offset,
            rotated: meta.rotated,
            meta: meta.entries.clone(),
        }
    }

    /// It was dead already when this provider found it, so nobody has looked after what it left.
    pub(super) fn was_found_dead(&self) -> bool {
        self.pidfd.is_none()
    }

    /// Waits until the end has been reported, and says how it ended.
    pub(super) async fn ended(&self) -> ExitStatus {
        self.ending.wait().await
    }

    /// If the leader was our child: kills what it leaves in its group, so that nothing of it
    /// doubles with a successor, and reaps it.
    fn reap(&self, pidfd: &OwnedFd) -> Option<ExitStatus> {
        let _group = lock(&self.group);
        let id = || WaitId::PidFd(pidfd.as_fd());
        let seen = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(id(), seen | WaitIdOptions::NOWAIT).ok().flatten()?;
        if !self.stopping.load(Ordering::Acquire) {
            // The zombie is still a member, so the group is this one and no other.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = waitid(id(), seen);
        Some(exit_status(&status))
    }
}

impl Led for Run {
    fn token(&self) -> &RunToken {
        &self.token
    }

    fn pid(&self) -> Pid {
        self.pid
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

    fn signal_group(&self, signal: Signal) -> rustix::io::Result<bool> {
        let _group = lock(&self.group);
        signal_led(self, signal)
    }
}

fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (_, Some(signal)) => ExitStatus::Signal(signal),
        _ => ExitStatus::Unknown,
    }
}

/// Begins to watch. Needs a tokio runtime.
pub(super) fn watched(
    run: Run,
    files: &Arc<Files>,
    subscribers: &Arc<Subscribers>,
) -> std::io::Result<Watched<Run>> {
    let run = Arc::new(run);
    let Some(pidfd) = run.pidfd.clone() else {
        return Ok(Watched { run, watch: None });
    };
    let pidfd = sys::watchable(pidfd)?;
    let task = watch(run.clone(), pidfd, files.clone(), subscribers.clone());
    let watch = Some(tokio::spawn(task).abort_handle());
    Ok(Watched { run, watch })
}

/// Waits for the end of a run and reports it, once.
async fn watch(
    run: Arc<Run>,
    pidfd: AsyncFd<Arc<OwnedFd>>,
    files: Arc<Files>,
    subscribers: Arc<Subscribers>,
) {
    if pidfd.readable().await.is_err() {
        return; // the runtime is shutting down; the run goes on
    }
    run.ended.store(true, Ordering::Release);
    let status = match run.reap(pidfd.get_ref()) {
        Some(status) => status,
        None => adopted_end(&run, pidfd.get_ref(), files).await,
    };
    run.ending.set(status);
    subscribers.send(&SessionEvent {
        session: run.name.clone(),
        token: run.token.clone(),
        kind: SessionEventKind::Exited(status),
    });
}

/// The end of a run whose parent is not us.
async fn adopted_end(run: &Arc<Run>, pidfd: &OwnedFd, files: Arc<Files>) -> ExitStatus {
    let mut status = foreign_status(pidfd, run.pid.as_raw_nonzero().get(), run.start);
    if !run.stopping.load(Ordering::Acquire) {
        let run = run.clone();
        let _ = tokio::task::spawn_blocking(move || sweep::kill_group(&files.mark, &*run)).await;
    }
    let deadline = tokio::time::Instant::now() + STATUS_PATIENCE;
    while status.is_none() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(STATUS_STEP).await;
        status = foreign_status(pidfd, run.pid.as_raw_nonzero().get(), run.start);
    }
    status.unwrap_or(ExitStatus::Unknown)
}
