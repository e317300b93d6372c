//! Agents as plain child processes (sessions.md 2.2).
//!
//! No host or shim process per session: the supervisor spawns the agent itself, with its output
//! appended to a log file by the agent's own writes. Agents outlive the supervisor; the next one
//! finds them by their notes and by the mark in their environment.
//!
//! One task for each run waits on the leader's pidfd. Nothing polls, and nothing here costs
//! more the more sessions there are, except a listing and the search for stray processes when a
//! run is stopped.

mod acts;
mod adopt;
mod listing;
mod meta;
mod note;
mod nudge;
mod rotate;
mod run;
mod spawn;
mod start;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gascity_actors::model::{CityName, Launch, RunToken, SessionName, Stdin};
use gascity_actors::ports::{
    Caps, Fence, Listing, PortFuture, SessionError, SessionEvent, SessionEvents, Sessions,
    StartError, StartSpec, Started, Stopped,
};
use rustix::process::Pid;
use tokio::sync::{OnceCell, mpsc};

use adopt::Found;
pub(crate) use note::metadata;
use note::{Files, NoteFile};
use rotate::{Bounds, Keeper};
use run::Run;
pub(super) use spawn::look_up;

use super::delegate::delegate;
use super::environment::DEFAULT_PASSTHROUGH;
use super::prepare::Preparer;
use super::proc;
use super::processes::census::Census;
use super::processes::{Slots, Subscribers, Watched, backend, blocking, check, lock, sweep};

/// How long the report of an end may take once every process is gone.
const END_WAIT: Duration = Duration::from_secs(2);

/// Settings of [`Subprocess`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubprocessConfig {
    /// Canonical root of the city, the mark of ownership on every process.
    pub root: PathBuf,
    /// The city's name, for agents to see.
    pub city_name: CityName,
    /// Home of the machine supervisor, for agents to see.
    pub home: Option<PathBuf>,
    /// The program `gc`, for agents to see.
    pub gc_bin: PathBuf,
    /// Globs over the names of variables that agents inherit from the supervisor.
    pub env_passthrough: Vec<String>,
    /// A log that is larger is begun anew.
    pub log_bytes: u64,
    /// How many old logs of a session are kept.
    pub log_keep: u32,
}

impl SubprocessConfig {
    /// Settings with everything optional at its default.
    #[must_use]
    pub fn new(root: PathBuf, city_name: CityName, gc_bin: PathBuf) -> Self {
        Self {
            root,
            city_name,
            home: None,
            gc_bin,
            env_passthrough: DEFAULT_PASSTHROUGH.map(String::from).to_vec(),
            log_bytes: 8 << 20,
            log_keep: 3,
        }
    }

    /// Variables that tell a process which city it is in.
    pub(crate) fn city_vars(&self) -> Vec<(&'static str, OsString)> {
        let mut vars: Vec<(&'static str, OsString)> = vec![
            ("GC_BIN", self.gc_bin.clone().into()),
            ("GC_CITY", self.root.clone().into()),
            ("GC_CITY_NAME", self.city_name.as_str().into()),
            ("GC_CITY_RUNTIME_DIR", self.root.join(".gc/runtime").into()),
        ];
        if let Some(home) = &self.home {
            vars.push(("GC_HOME", home.clone().into()));
        }
        vars
    }
}

/// The provider `subprocess`.
///
/// Its calls need a tokio runtime with I/O and time enabled. A clone is the same provider;
/// dropping the last one ends the watching, never a session.
#[derive(Debug, Clone)]
pub struct Subprocess(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    preparer: Preparer,
    files: Arc<Files>,
    census: Arc<Census>,
    subscribers: Arc<Subscribers>,
    slots: Slots<Slot>,
    adopted: OnceCell<()>,
    keeper: Arc<Keeper>,
    log_bytes: AtomicU64,
    log_keep: AtomicU32,
}

/// One session name.
#[derive(Debug, Default)]
struct Slot {
    /// Held by whoever changes the session.
    gate: tokio::sync::Mutex<()>,
    held: Mutex<Option<Watched<Run>>>,
}

impl Slot {
    fn run(&self) -> Option<Arc<Run>> {
        lock(&self.held).as_ref().map(|watched| watched.run.clone())
    }
}

impl Subprocess {
    /// A provider for one city. Touches nothing until the first call.
    ///
    /// # Errors
    /// If the identity of this boot cannot be read.
    pub fn new(config: SubprocessConfig) -> io::Result<Self> {
        Self::with_runner_env(config, std::env::vars_os())
    }

    /// Other bounds for logs, from the next look at each on.
    pub fn set_log_bounds(&self, bytes: u64, keep: u32) {
        self.0.log_bytes.store(bytes, Ordering::Relaxed);
        self.0.log_keep.store(keep, Ordering::Relaxed);
    }

    /// Globs over the names of variables that agents inherit, from the next start on.
    pub fn set_passthrough(&self, globs: &[String]) {
        self.0.preparer.set_passthrough(globs);
    }

    fn with_runner_env(
        config: SubprocessConfig,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            files: Arc::new(Files::new(config.root.clone(), proc::boot_id()?)),
            census: Arc::default(),
            subscribers: Arc::default(),
            slots: Slots::default(),
            adopted: OnceCell::new(),
            keeper: Arc::default(),
            log_bytes: AtomicU64::new(config.log_bytes),
            log_keep: AtomicU32::new(config.log_keep),
            preparer: Preparer::new(config, vars),
        })))
    }
}

impl Inner {
    fn bounds(&self) -> Bounds {
        Bounds {
            bytes: self.log_bytes.load(Ordering::Relaxed),
            keep: self.log_keep.load(Ordering::Relaxed),
        }
    }

    fn slot(&self, name: &SessionName) -> Arc<Slot> {
        self.slots.of(name)
    }

    fn forget(&self, name: &SessionName) {
        self.slots.forget(name, |slot| lock(&slot.held).is_none());
    }

    fn hold(
        &self,
        slot: &Slot,
        name: &SessionName,
        note: NoteFile,
        pidfd: Option<OwnedFd>,
    ) -> io::Result<Option<Arc<Run>>> {
        let Some(pid) = Pid::from_raw(note.pid) else {
            return Ok(None);
        };
        let run = Run::new(name.clone(), note, pid, pidfd);
        let watched = run::watched(run, &self.files, &self.subscribers)?;
        let run = watched.run.clone();
        *lock(&slot.held) = Some(watched);
        Ok(Some(run))
    }

    /// Finds what ran before this provider existed. Once; an error is retried by the next call.
    async fn adopt(self: &Arc<Self>) -> Result<(), SessionError> {
        let init = async {
            let files = self.files.clone();
            for (name, found) in blocking(move || adopt::all(&files)).await? {
                if self.take_in(&self.slot(&name), &name, found)?.is_some() {
                    self.watch_log(&name, Duration::from_secs(1));
                }
                self.forget(&name);
            }
            Ok(())
        };
        self.adopted.get_or_try_init(|| init).await.copied()
    }

    /// Holds what was found; `None` if it is not ours.
    fn take_in(
        &self,
        slot: &Slot,
        name: &SessionName,
        found: Found,
    ) -> Result<Option<Arc<Run>>, SessionError> {
        match found {
            Found::Nothing | Found::Foreign => Ok(None),
            Found::Dead(note) => self.hold(slot, name, note, None).map_err(backend),
            Found::Live(note, pidfd) => self.hold(slot, name, note, Some(pidfd)).map_err(backend),
        }
    }

    /// The run of a session, also one another process has started meanwhile. The slot's gate
    /// must be held.
    fn find(&self, slot: &Slot, name: &SessionName) -> Result<Option<Arc<Run>>, SessionError> {
        if let Some(run) = slot.run() {
            return Ok(Some(run));
        }
        let found = adopt::look(&self.files, name).map_err(backend)?;
        self.take_in(slot, name, found)
    }

    /// The same for those who only look: does not wait for a change in progress.
    async fn seen(self: &Arc<Self>, name: &SessionName) -> Result<Arc<Run>, SessionError> {
        self.adopt().await?;
        let slot = self.slot(name);
        let run = match slot.run() {
            Some(run) => Some(run),
            None => {
                let _gate = slot.gate.lock().await;
                self.find(&slot, name)?
            }
        };
        drop(slot);
        self.forget(name);
        run.ok_or(SessionError::NotFound)
    }

    async fn stop(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        self.adopt().await?;
        let slot = self.slot(name);
        let stopped = {
            let _gate = slot.gate.lock().await;
            match self.find(&slot, name)? {
                Some(run) => self.stop_run(&slot, run, fence).await,
                None => Ok(Stopped::Absent),
            }
        };
        drop(slot);
        self.forget(name);
        stopped
    }

    async fn stop_run(
        &self,
        slot: &Slot,
        run: Arc<Run>,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        check(fence, &*run)?;
        run.stopping.store(true, Ordering::Release);
        let (files, census, swept) = (self.files.clone(), self.census.clone(), run.clone());
        let swept = blocking(move || {
            let swept_all = sweep::end_all(&files.mark, &census, &*swept);
            swept.stopping.store(false, Ordering::Release);
            swept_all
        })
        .await?;
        let reported = tokio::time::timeout(END_WAIT, run.ended()).await;
        reported.map_err(|_| SessionError::Timeout)?;
        let (files, name) = (self.files.clone(), run.name.clone());
        blocking(move || {
            let _turn = files.turn(&name)?;
            files.remove(&name)
        })
        .await?;
        *lock(&slot.held) = None;
        Ok(if swept.forced {
            Stopped::Forced
        } else {
            Stopped::Clean
        })
    }
}

impl Sessions for Subprocess {
    fn provider(&self) -> &'static str {
        "subprocess"
    }

    fn caps(&self) -> Caps {
        Caps {
            log: true,
            nudge: true,
            activity: true,
            exit_push: true,
            exit_status: true,
            process_tree: true,
            meta: true,
            survives: true,
            ..Caps::default()
        }
    }

    fn caps_for(&self, launch: &Launch) -> Caps {
        Caps {
            nudge: launch.stdin == Stdin::Fifo,
            ..self.caps()
        }
    }

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        Box::pin(async move { self.0.start(token, &spec).await })
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(self.0.clone().snapshot())
    }

    delegate!(inner self name => self.0;
        stop interrupt liveness process_alive peek set_note nudge copy_to);

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        Box::pin(self.0.clear_scrollback(name))
    }

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribers.add()
    }

    fn forward(&self, to: mpsc::UnboundedSender<SessionEvent>) {
        self.0.subscribers.add_sender(to);
    }
}
