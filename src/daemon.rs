//! The long-running processes: the machine-wide supervisor and a standalone city.
//!
//! Both take their lock, serve the control socket, wait for a signal, a `stop` or the end of the
//! tree, and leave. What they supervise is the library's business.

mod live;
mod logging;
mod notify;
mod ops;
pub mod settings;
mod wait;

use std::mem::ManuallyDrop;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use self::live::Live;
use self::logging::Log;
use self::notify::Notifier;
use self::ops::Ops;
use self::settings::Settings;
use self::wait::{End, Signals, wait};
use crate::City;
use crate::cli::{CliError, CliResult, Code, Output, count};
use crate::control::client::{Client, Patience};
use crate::control::daemon::Detached;
use crate::control::handoff::Handoff;
use crate::control::home::{Addr, CityDir, Home};
use crate::control::lock::{self, LockError, SupervisorLock};
use crate::control::registry::RegistryWatch;
use crate::control::server::{ControlSocket, Limits, Serving};
use crate::host::{Opener, RegisteredCities, open_journal};
use crate::model::EventDraft;
use crate::{Machine, MachinePorts, MachineRef, SystemClock};

/// What SIGTERM does to the agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnSigterm {
    /// They are stopped.
    #[default]
    Stop,
    /// They run on, for the next supervisor to adopt.
    Detach,
}

/// How a supervisor begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// In this terminal.
    Foreground,
    /// In the background; the parent waits for a word.
    Detached,
    /// In place of another program of this very process.
    Handoff,
}

/// Exit code of a process ended by a second SIGINT, and by a second SIGTERM.
const FORCED: u8 = 130;
const TERMINATED: u8 = 143;
/// Exit code when the root supervisor itself failed.
const INTERNAL: u8 = 70;
/// How long a killed process may take to let go of its locks.
const DYING_LIMIT: Duration = Duration::from_secs(1);

/// Runs the machine-wide supervisor until it is told to stop; returns the exit code.
///
/// # Errors
/// If another supervisor runs, or a directory, lock or socket cannot be had.
pub fn supervisor(home: &Home, begin: Begin, on_sigterm: Option<OnSigterm>) -> CliResult<u8> {
    let parent = match begin {
        Begin::Detached => Some(Detached::enter(&home.out())?),
        _ => None,
    };
    let runtime = runtime()?;
    let prepared = {
        let _context = runtime.enter();
        match begin {
            Begin::Handoff => Supervisor::take_over(home, on_sigterm),
            _ => Supervisor::prepare(home, begin, on_sigterm),
        }
    };
    match prepared {
        Ok(mut supervisor) => {
            let exit = runtime.block_on(supervisor.serve(parent));
            // Not dropped: that would wait for work on a disk that hangs.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            if let Some(parent) = parent {
                let _ = parent.failed(&error.message); // our own exit code says it too
            }
            Err(error)
        }
    }
}

/// A supervisor that holds its lock and its socket and does nothing yet.
struct Supervisor {
    home: Home,
    live: Live,
    /// Held until the process is gone: whoever waits for it waits for the end of the process.
    lock: ManuallyDrop<SupervisorLock>,
    socket: ControlSocket,
    /// It has no terminal.
    detached: bool,
    /// The version it took over from.
    upgraded_from: Option<String>,
}

impl Supervisor {
    fn prepare(home: &Home, begin: Begin, on_sigterm: Option<OnSigterm>) -> CliResult<Self> {
        home.create()?;
        let lock = acquire(home).map_err(held)?;
        let settings = Settings::load(&home.config()).map_err(|error| {
            let failure = CliError::new(Code::Config, error.to_string());
            failure.hint(format!("mend {}, then again", home.config().display()))
        })?;
        let detached = begin == Begin::Detached;
        let log = Log::start(&home.log(), !detached, &settings.log_level)?;
        let socket = ControlSocket::bind(&home.socket()).map_err(failed)?;
        let notifier = Notifier::from_env();
        Ok(Self {
            home: home.clone(),
            live: Live::new(Some(home.clone()), log, notifier, on_sigterm, settings),
            lock: ManuallyDrop::new(lock),
            socket,
            detached,
            upgraded_from: None,
        })
    }

    /// Goes on with what an earlier program of this process held. Agents depend on it, so settings
    /// that are broken by now are no reason to fail.
    fn take_over(home: &Home, on_sigterm: Option<OnSigterm>) -> CliResult<Self> {
        let (handoff, descriptors) = Handoff::receive(&home.handoff())?;
        let mut descriptors = descriptors.into_iter();
        let socket = descriptors
            .next()
            .ok_or_else(|| failed("no socket was handed over"))?;
        let socket = ControlSocket::inherit(socket, &home.socket())?;
        let lock = SupervisorLock::inherit(home, &mut descriptors)?;
        let (settings, refused) = match Settings::load(&home.config()) {
            Ok(settings) => (settings, None),
            Err(error) => (Settings::default(), Some(error)),
        };
        let log = Log::start(&home.log(), !handoff.detached, &settings.log_level)?;
        if let Some(error) = refused {
            tracing::warn!(%error, "supervisor.toml is not taken; defaults are in force");
        }
        let notifier = Notifier::from_env();
        Ok(Self {
            home: home.clone(),
            live: Live::new(Some(home.clone()), log, notifier, on_sigterm, settings),
            lock: ManuallyDrop::new(lock),
            socket,
            detached: handoff.detached,
            upgraded_from: Some(handoff.version),
        })
    }

    async fn serve(&mut self, mut parent: Option<Detached>) -> CliResult<u8> {
        let mut signals = Signals::new()?;
        loop {
            let settings = self.live.settings();
            let ports = MachinePorts {
                cities: Arc::new(RegisteredCities::new(
                    &self.home,
                    settings.machine.patrol_interval,
                )),
                journal: open_journal(self.home.dir())
                    .map_err(|e| CliError::new(Code::Failed, e.message))?,
                clock: Arc::new(SystemClock),
            };
            let journal = ports.journal.clone();
            let mut machine = Machine::spawn(settings.machine, ports)
                .await
                .map_err(|error| CliError::new(Code::Internal, error))?;
            let door = machine.door();
            // Ready means: whoever asks gets a true answer.
            let _ = door.views().wait_for(|view| view.registry_read).await;
            if let Some(from) = self.upgraded_from.take() {
                let to = env!("CARGO_PKG_VERSION");
                let event = EventDraft::new("supervisor.upgraded", "");
                journal.append(event.with("from", from).with("to", to));
            }
            drop(journal);
            let (ops, mut wishes) = Ops::new(door.clone(), self.live.clone());
            let serving = self
                .socket
                .try_clone()?
                .serve(Arc::new(ops), Limits::default())?;
            let addr = self.announce(&serving)?;
            if let Some(parent) = parent.take() {
                parent.ready()?;
            }
            let notifier = self.live.notifier().clone();
            notifier.tell("READY=1");
            let _following = notifier.follow(&door);
            let _watching = self.watch_settings(&door);
            let end = wait(
                &door,
                machine.ended(),
                &mut wishes,
                &mut signals,
                &self.live,
            )
            .await;
            match end {
                End::Exit(exit) => {
                    close(serving).await;
                    addr.remove(&self.home.addr());
                    tracing::info!(exit, "supervisor ended");
                    return Ok(exit);
                }
                End::Upgrade(upgrade) => {
                    let error = self.hand_over(&upgrade.exe, &door);
                    tracing::error!(error, "upgrade failed; this program goes on");
                    self.live.upgraded(Err(error.clone()));
                    let _ = upgrade.failed.send(error); // the client may be gone
                    close(serving).await;
                }
            }
        }
    }

    fn announce(&self, serving: &Serving) -> CliResult<Addr> {
        let addr = Addr {
            socket: serving.path().to_owned(),
            pid: std::process::id(),
            api_url: None,
        };
        addr.write(&self.home.addr())?;
        tracing::info!(pid = addr.pid, home = %self.home.dir().display(), "supervisor ready");
        Ok(addr)
    }

    /// Follows edits of `supervisor.toml`.
    fn watch_settings(&self, door: &MachineRef) -> tokio_util::task::AbortOnDropHandle<()> {
        let (live, door) = (self.live.clone(), door.clone());
        let file = self.home.config();
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
            let watch = RegistryWatch::start(&[file]);
            let mut changes = watch.changes();
            while changes.changed().await.is_ok() {
                live.reload(&door);
            }
        }))
    }

    /// Becomes another program. Returns why that did not work.
    fn hand_over(&self, exe: &Path, door: &MachineRef) -> String {
        let cities = door
            .view()
            .cities
            .iter()
            .map(|city| city.path.clone())
            .collect();
        let handoff = Handoff {
            exe: exe.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            detached: self.detached,
            cities,
        };
        let mut descriptors = vec![self.socket.as_fd()];
        descriptors.extend(self.lock.descriptors());
        let error = handoff.replace_program(&self.home.handoff(), &descriptors);
        format!("{}: {error}", exe.display())
    }
}

/// Runs one city in this terminal until it is told to stop; returns the exit code.
///
/// # Errors
/// If the city cannot be opened or its socket cannot be had.
pub fn standalone(root: &Path, home: &Home, out: Output) -> CliResult<u8> {
    let runtime = runtime()?;
    let exit = runtime.block_on(serve_one(root, home, out));
    runtime.shutdown_background(); // as in `supervisor`
    exit
}

async fn serve_one(root: &Path, home: &Home, out: Output) -> CliResult<u8> {
    let city_dir = CityDir::new(root);
    let mut signals = Signals::new()?;
    let opener = Opener::new(Some(home.dir().to_owned()));
    let city = City::open_with(root, &opener)
        .await
        .map_err(|error| open_failed(root, &error))?
        .running_as("standalone", env!("CARGO_PKG_VERSION"));
    let settings = Settings::default();
    let log = Log::start(&city_dir.log(), true, &settings.log_level)?;
    let live = Live::new(None, log, Notifier::from_env(), None, settings);
    let socket = ControlSocket::bind(&city_dir.socket()).map_err(failed)?;
    let mut city = city
        .spawn()
        .await
        .map_err(|error| open_failed(root, &error))?;
    let (ops, mut wishes) = Ops::new(city.door(), live.clone());
    let serving = socket.serve(Arc::new(ops), Limits::default())?;
    let agents = city
        .status()
        .await
        .map(|view| view.instances.len())
        .unwrap_or_default();
    let agents = count(agents, "agent");
    out.note(format!(
        "✓ {} is up: {agents}; Ctrl-C stops it",
        root.display()
    ));
    live.notifier().tell("READY=1");
    let door = city.door();
    let _following = live.notifier().follow(&door);
    let end = wait(&door, city.ended(), &mut wishes, &mut signals, &live).await;
    close(serving).await;
    match end {
        End::Exit(exit) => Ok(exit),
        End::Upgrade(_) => Ok(INTERNAL), // a standalone city refuses upgrades
    }
}

/// Takes the locks. A process that was just killed may hold them for a moment longer, but it no
/// longer answers.
fn acquire(home: &Home) -> Result<SupervisorLock, LockError> {
    let answers = || Client::word(&home.client_sockets(), "ping", Patience::default()).is_ok();
    match SupervisorLock::acquire(home) {
        Err(LockError::Held { .. }) if !answers() => {
            for path in [home.runtime_lock(), home.home_lock()] {
                let _ = lock::wait_free(&path, DYING_LIMIT); // the next attempt tells
            }
            SupervisorLock::acquire(home)
        }
        other => other,
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(Code::Failed, error.to_string())
}

fn open_failed(root: &Path, error: &crate::CityError) -> CliError {
    let text = error.to_string();
    let is_config = matches!(error, crate::CityError::Open(open) if !open.diagnostics.is_empty());
    if is_config {
        CliError::config(root, text)
    } else {
        CliError::new(Code::Failed, text).hint(format!("gc status {}", root.display()))
    }
}

fn held(error: LockError) -> CliError {
    let code = if matches!(error, LockError::Held { .. }) {
        Code::Conflict
    } else {
        Code::Failed
    };
    CliError::new(code, error.to_string()).hint("gc supervisor status")
}

/// Two threads: one may be in a spawn while the other answers. More would only contend.
fn runtime() -> CliResult<Runtime> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.map_err(|error| CliError::new(Code::Internal, format!("no runtime: {error}")))
}

async fn close(serving: Serving) {
    // Answers to the stop itself are still on their way.
    if tokio::time::timeout(Duration::from_secs(10), serving.stop())
        .await
        .is_err()
    {
        tracing::warn!("control connections did not close in time");
    }
}
