//! Agents as plain child processes (sessions.md 2.2).
//!
//! No host or shim process per session: the supervisor spawns the agent itself, with its output
//! appended to a log file by the agent's own writes. Agents outlive the supervisor; the next one
//! finds them by their notes and by the mark in their environment.
//!
//! One task for each run waits on the leader's pidfd. Nothing polls, and nothing here costs
//! more the more sessions there are, except a listing and the search for stray processes when a
//! run is stopped.

mod adopt;
mod note;
mod run;
mod spawn;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use gascity_actors::model::{CityName, RunToken, SessionName, StartFailure, Stdin};
use gascity_actors::ports::{
    Caps, Facts, Fence, Listing, Note, PortFuture, SessionError, SessionEvents, Sessions,
    StartSpec, Started, Stopped,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open};
use tokio::sync::OnceCell;

use adopt::Found;
use note::{Files, NoteFile};
use run::{Run, Subscribers, Watched};
use spawn::{Streams, agent_failure, provider_failure};

use super::environment::{DEFAULT_PASSTHROUGH, Environment, Runner};
use super::{output, proc};

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
        }
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
    config: SubprocessConfig,
    runner: Runner,
    files: Arc<Files>,
    subscribers: Arc<Subscribers>,
    slots: Mutex<HashMap<SessionName, Arc<Slot>>>,
    adopted: OnceCell<()>,
}

/// One session name.
#[derive(Debug, Default)]
struct Slot {
    /// Held by whoever changes the session.
    gate: tokio::sync::Mutex<()>,
    held: Mutex<Option<Watched>>,
}

impl Slot {
    fn run(&self) -> Option<Arc<Run>> {
        lock(&self.held).as_ref().map(|watched| watched.run.clone())
    }
}

/// Locks, whatever happened to an earlier holder: no holder leaves the data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn backend(error: impl std::fmt::Display) -> SessionError {
    SessionError::Backend(error.to_string())
}

/// Runs blocking work off the runtime's own threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SessionError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(backend)?.map_err(backend)
}

impl Subprocess {
    /// A provider for one city. Touches nothing until the first call.
    ///
    /// # Errors
    /// If the identity of this boot cannot be read.
    pub fn new(config: SubprocessConfig) -> io::Result<Self> {
        Self::with_runner_env(config, std::env::vars_os())
    }

    fn with_runner_env(
        config: SubprocessConfig,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            runner: Runner::new(vars, &config.env_passthrough),
            files: Arc::new(Files::new(config.root.clone(), proc::boot_id()?)),
            subscribers: Arc::default(),
            slots: Mutex::default(),
            adopted: OnceCell::new(),
            config,
        })))
    }
}

impl Inner {
    fn slot(&self, name: &SessionName) -> Arc<Slot> {
        lock(&self.slots).entry(name.clone()).or_default().clone()
    }

    /// Forgets a slot nobody uses any more. Slots are handed out under the same lock, so none
    /// can be in use that this does not see.
    fn forget(&self, name: &SessionName) {
        let mut slots = lock(&self.slots);
        if slots
            .get(name)
            .is_some_and(|slot| Arc::strong_count(slot) == 1 && lock(&slot.held).is_none())
        {
            slots.remove(name);
        }
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
        let watched = Watched::new(run, &self.files, &self.subscribers)?;
        let run = watched.run.clone();
        *lock(&slot.held) = Some(watched);
        Ok(Some(run))
    }

    /// Finds what ran before this provider existed. Once; an error is retried by the next call.
    async fn adopt(&self) -> Result<(), SessionError> {
        let init = async {
            let files = self.files.clone();
            for (name, found) in blocking(move || adopt::all(&files)).await? {
                self.take_in(&self.slot(&name), &name, found)?;
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
    async fn seen(&self, name: &SessionName) -> Result<Arc<Run>, SessionError> {
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

    async fn start(&self, token: RunToken, spec: &StartSpec) -> Result<Started, StartFailure> {
        let unseen = |error: SessionError| provider_failure("session", error.to_string());
        self.adopt().await.map_err(unseen)?;
        let slot = self.slot(&spec.session);
        let _gate = slot.gate.lock().await;
        match slot.run() {
            Some(run) => self.make_room(run).await?,
            None => match adopt::look(&self.files, &spec.session) {
                Ok(Found::Nothing) => {}
                Ok(Found::Foreign) => {
                    let detail = format!("{} belongs to another city", spec.session);
                    return Err(provider_failure("session", detail));
                }
                Ok(found) => {
                    if let Some(run) = self.take_in(&slot, &spec.session, found).map_err(unseen)? {
                        self.make_room(run).await?;
                    }
                }
                Err(error) => return Err(provider_failure("session", error.to_string())),
            },
        }
        // Nothing is awaited from here on, so a start cannot be abandoned half-way.
        self.launch(&slot, token, spec)
    }

    /// Makes sure that the run before is over, with nothing of it left.
    async fn make_room(&self, run: Arc<Run>) -> Result<(), StartFailure> {
        if run.is_live() {
            let detail = format!("{} is already running", run.name);
            return Err(provider_failure("session", detail));
        }
        run.ended().await;
        if run.was_found_dead() {
            let files = self.files.clone();
            let swept = blocking(move || sweep::end_all(&files, &run)).await;
            swept.map_err(|error| provider_failure("session", error.to_string()))?;
        }
        Ok(())
    }

    fn launch(
        &self,
        slot: &Slot,
        token: RunToken,
        spec: &StartSpec,
    ) -> Result<Started, StartFailure> {
        let name = &spec.session;
        let dir = spawn::work_dir(&self.config.root, &spec.launch.work_dir)?;
        let env = self.environment(&token, spec, dir.clone())?;
        let broken = |stage| move |error: io::Error| provider_failure(stage, error.to_string());
        let (log, log_offset) = self.files.open_log(name).map_err(broken("log"))?;
        let input = match spec.launch.stdin {
            Stdin::Fifo => Some(self.files.open_fifo(name).map_err(broken("stdin"))?),
            Stdin::Null => None,
        };
        let started_at = Utc::now();
        let streams = Streams { input, log };
        let mut child = spawn::spawn(&spec.launch.command, &dir, &env, streams)?;
        let note = NoteFile {
            token,
            pid: child.id().cast_signed(),
            start: 0,
            boot: self.files.boot.clone(),
            agent: spec.agent.clone(),
            city: self.files.city(),
            started_at,
            log_offset,
            meta: spec
                .notes
                .iter()
                .map(|(note, value)| (note.key().to_owned(), value.clone()))
                .collect(),
        };
        match self.watch_child(slot, name, note, &child) {
            Ok(run) => {
                self.write_note(&run);
                Ok(Started {
                    pid: Some(child.id()),
                })
            }
            Err(error) => {
                abandon(&mut child);
                Err(provider_failure("spawn", error.to_string()))
            }
        }
    }

    fn watch_child(
        &self,
        slot: &Slot,
        name: &SessionName,
        mut note: NoteFile,
        child: &Child,
    ) -> io::Result<Arc<Run>> {
        let lost = || io::Error::other("the process is gone, reaped by somebody else");
        let pid = Pid::from_child(child);
        // Nobody but us reaps it, so the number means our child.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        note.start = proc::stat(note.pid)?.ok_or_else(lost)?.start;
        self.hold(slot, name, note, Some(pidfd))?.ok_or_else(lost)
    }

    fn environment(
        &self,
        token: &RunToken,
        spec: &StartSpec,
        dir: PathBuf,
    ) -> Result<Environment, StartFailure> {
        let config = &self.config;
        let mut injected: Vec<(&'static str, OsString)> = vec![
            ("GC_BIN", config.gc_bin.clone().into()),
            ("GC_CITY", config.root.clone().into()),
            ("GC_CITY_NAME", config.city_name.as_str().into()),
            (
                "GC_CITY_RUNTIME_DIR",
                config.root.join(".gc/runtime").into(),
            ),
            ("GC_AGENT", spec.agent.as_str().into()),
            ("GC_TEMPLATE", spec.agent.as_str().into()),
            ("GC_SESSION_NAME", spec.session.as_str().into()),
            ("GC_SESSION_ID", token.as_str().into()),
            ("GC_DIR", dir.into()),
        ];
        if let Some(home) = &config.home {
            injected.push(("GC_HOME", home.clone().into()));
        }
        let bin = config.root.join(".gc/bin");
        self.runner
            .environment(&spec.launch.env, injected, bin.as_os_str())
            .map_err(|unset| agent_failure("env", unset.to_string()))
    }

    /// Writes the note of a run. Without it the run is still found, by its processes.
    fn write_note(&self, run: &Run) {
        if let Err(error) = self.files.write_note(&run.name, &run.note(&self.files)) {
            tracing::warn!(session = %run.name, %error, "failed to write the note of a session");
        }
    }

    async fn stop(&self, name: &SessionName, fence: &Fence) -> Result<Stopped, SessionError> {
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
        check(fence, &run)?;
        run.stopping.store(true, Ordering::Release);
        let (files, swept) = (self.files.clone(), run.clone());
        let swept = blocking(move || {
            let swept_all = sweep::end_all(&files, &swept);
            swept.stopping.store(false, Ordering::Release);
            swept_all
        })
        .await?;
        let reported = tokio::time::timeout(END_WAIT, run.ended()).await;
        reported.map_err(|_| SessionError::Timeout)?;
        self.files.remove(&run.name).map_err(backend)?;
        *lock(&slot.held) = None;
        Ok(if swept.forced {
            Stopped::Forced
        } else {
            Stopped::Clean
        })
    }

    async fn snapshot(self: Arc<Self>) -> Result<Listing, SessionError> {
        self.adopt().await?;
        blocking(move || {
            let mut listing = Listing::default();
            for name in self.files.noted()? {
                self.notice(name, &mut listing)?;
            }
            let slots: Vec<Arc<Slot>> = lock(&self.slots).values().cloned().collect();
            let runs = slots.iter().filter_map(|slot| slot.run());
            listing.owned = runs.map(|run| self.facts(&run)).collect();
            listing.owned.sort_by(|a, b| a.session.cmp(&b.session));
            Ok(listing)
        })
        .await
    }

    /// Takes in a session that another process has started.
    fn notice(&self, name: SessionName, listing: &mut Listing) -> io::Result<()> {
        let slot = self.slot(&name);
        // A gate that is held: someone is at work on it and knows better.
        if slot.run().is_none()
            && let Ok(_gate) = slot.gate.try_lock()
        {
            match adopt::look(&self.files, &name)? {
                Found::Foreign => listing.foreign.push(name.as_str().to_owned()),
                found => {
                    self.take_in(&slot, &name, found)
                        .map_err(io::Error::other)?;
                }
            }
        }
        drop(slot);
        self.forget(&name);
        Ok(())
    }

    fn facts(&self, run: &Run) -> Facts {
        let written = fs::metadata(self.files.log(&run.name)).and_then(|meta| meta.modified());
        let written = written.map_or(run.started_at, DateTime::<Utc>::from);
        let meta = lock(&run.meta);
        let notes: BTreeMap<Note, String> = meta
            .iter()
            .filter_map(|(key, value)| Some((Note::from_key(key)?, value.clone())))
            .collect();
        Facts {
            session: run.name.clone(),
            agent: run.agent.clone(),
            token: run.token.clone(),
            live: run.is_live(),
            pid: Some(run.pid.as_raw_nonzero().get().cast_unsigned()),
            started_at: run.started_at,
            last_activity: Some(written.max(run.started_at)),
            notes,
        }
    }

    async fn set_note(
        &self,
        name: &SessionName,
        fence: &Fence,
        note: Note,
        value: Option<String>,
    ) -> Result<(), SessionError> {
        self.adopt().await?;
        let slot = self.slot(name);
        let _gate = slot.gate.lock().await;
        let run = self.find(&slot, name)?.ok_or(SessionError::NotFound)?;
        check(fence, &run)?;
        let mut file = run.note(&self.files);
        match value {
            Some(value) => file.meta.insert(note.key().to_owned(), value),
            None => file.meta.remove(note.key()),
        };
        self.files.write_note(name, &file).map_err(backend)?;
        *lock(&run.meta) = file.meta;
        Ok(())
    }
}

/// A run may be touched if the fence lets it.
fn check(fence: &Fence, run: &Run) -> Result<(), SessionError> {
    match fence {
        Fence::Token(token) if *token != run.token => Err(SessionError::Fenced),
        Fence::Token(_) | Fence::Any => Ok(()),
    }
}

/// Takes back a spawn that cannot be watched.
fn abandon(child: &mut Child) {
    let pid = Pid::from_child(child);
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
}

impl Sessions for Subprocess {
    fn provider(&self) -> &'static str {
        "subprocess"
    }

    fn caps(&self) -> Caps {
        Caps {
            exit_push: true,
            log: true,
            activity: true,
            survives: true,
        }
    }

    fn start(
        &self,
        token: RunToken,
        spec: Arc<StartSpec>,
    ) -> PortFuture<'_, Started, StartFailure> {
        Box::pin(async move { self.0.start(token, &spec).await })
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        Box::pin(async move { self.0.stop(&name, &fence).await })
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move {
            let run = match self.0.seen(&name).await {
                Err(SessionError::NotFound) => return Ok(false),
                run => run?,
            };
            check(&fence, &run)?;
            run.interrupt().map_err(backend)
        })
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(self.0.clone().snapshot())
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        Box::pin(async move {
            let run = self.0.seen(&name).await?;
            let log = self.0.files.log(&name);
            blocking(move || output::tail(&log, run.log_offset, lines)).await
        })
    }

    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move { self.0.set_note(&name, &fence, note, value).await })
    }

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribers.add()
    }
}
