//! The long-running processes: the machine-wide supervisor and a standalone city.
//!
//! Both take their lock, serve the control socket, wait for a signal, a `stop` or the end of the
//! tree, and leave. What they supervise is the library's business.

mod logging;
mod ops;

use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use self::ops::{Ops, StopWish};
use crate::City;
use crate::cli::{CliError, CliResult, Code, Output, count};
use crate::control::daemon::Detached;
use crate::control::home::{Addr, CityDir, Home};
use crate::control::lock::{LockError, SupervisorLock};
use crate::control::server::{ControlSocket, Limits, Serving};
use crate::host::{Opener, RegisteredCities, open_journal};
use crate::{Machine, MachinePorts, MachineRef, MachineSettings, StopMode, SystemClock};

/// What SIGTERM does to the agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnSigterm {
    /// They are stopped.
    #[default]
    Stop,
    /// They run on, for the next supervisor to adopt.
    Detach,
}

/// Exit code of a process ended by a second signal.
const FORCED: u8 = 130;
/// Exit code when the root supervisor itself failed.
const INTERNAL: u8 = 70;

/// Runs the machine-wide supervisor until it is told to stop; returns the exit code.
///
/// # Errors
/// If another supervisor runs, or a directory, lock or socket cannot be had.
pub fn supervisor(home: &Home, detached: bool, on_sigterm: Option<OnSigterm>) -> CliResult<u8> {
    let detached = match detached {
        true => Some(Detached::enter(&home.out())?),
        false => None,
    };
    match Supervisor::prepare(home, detached.is_none()) {
        Ok(supervisor) => supervisor.run(detached, on_sigterm.unwrap_or_default()),
        Err(error) => {
            if let Some(parent) = detached {
                let _ = parent.failed(&error.message); // our own exit code says it too
            }
            Err(error)
        }
    }
}

/// A supervisor that holds its lock and its socket and does nothing yet.
struct Supervisor {
    home: Home,
    runtime: Runtime,
    /// Held until the process is gone: whoever waits for it waits for the end of the process.
    _lock: ManuallyDrop<SupervisorLock>,
    socket: ControlSocket,
}

impl Supervisor {
    fn prepare(home: &Home, foreground: bool) -> CliResult<Self> {
        let failed = |error: &dyn std::fmt::Display| CliError::new(Code::Failed, error.to_string());
        home.create().map_err(|error| failed(&error))?;
        let lock = SupervisorLock::acquire(home).map_err(held)?;
        logging::start(&home.log(), foreground)?;
        let runtime = runtime()?;
        let socket = {
            let _context = runtime.enter();
            ControlSocket::bind(&home.socket()).map_err(|error| failed(&error))?
        };
        Ok(Self {
            home: home.clone(),
            runtime,
            _lock: ManuallyDrop::new(lock),
            socket,
        })
    }

    fn run(self, detached: Option<Detached>, on_sigterm: OnSigterm) -> CliResult<u8> {
        let Self {
            home,
            runtime,
            _lock,
            socket,
        } = self;
        runtime.block_on(async move {
            // Before anything runs: a signal must find somebody who stops it properly.
            let signals = Signals::new()?;
            let settings = MachineSettings {
                mode: "supervisor".into(),
                ..MachineSettings::default()
            };
            let ports = MachinePorts {
                cities: Arc::new(RegisteredCities::new(&home, settings.patrol_interval)),
                journal: open_journal(home.dir())
                    .map_err(|e| CliError::new(Code::Failed, e.message))?,
                clock: Arc::new(SystemClock),
            };
            let mut machine = Machine::spawn(settings, ports)
                .await
                .map_err(|error| CliError::new(Code::Internal, error))?;
            let door = machine.door();
            // Ready means: whoever asks gets a true answer.
            let _ = door.views().wait_for(|view| view.registry_read).await;
            let (ops, wishes) = Ops::new(door.clone(), Some(home.clone()));
            let serving = socket.serve(Arc::new(ops), Limits::default())?;
            let addr = Addr {
                socket: serving.path().to_owned(),
                pid: std::process::id(),
                api_url: None,
            };
            addr.write(&home.addr())
                .map_err(|e| CliError::new(Code::Failed, e.to_string()))?;
            tracing::info!(pid = addr.pid, home = %home.dir().display(), "supervisor ready");
            if let Some(parent) = detached {
                parent.ready()?;
            }
            let exit = wait(&door, machine.ended(), wishes, signals, on_sigterm).await?;
            close(serving).await;
            addr.remove(&home.addr());
            tracing::info!(exit, "supervisor ended");
            Ok(exit)
        })
    }
}

/// Runs one city in this terminal until it is told to stop; returns the exit code.
///
/// # Errors
/// If the city cannot be opened or its socket cannot be had.
pub fn standalone(root: &Path, home: &Home, out: Output) -> CliResult<u8> {
    let city_dir = CityDir::new(root);
    let runtime = runtime()?;
    runtime.block_on(async {
        // Before anything runs: a signal must find somebody who stops it properly.
        let signals = Signals::new()?;
        let opener = Opener::new(Some(home.dir().to_owned()));
        let city = City::open_with(root, &opener)
            .await
            .map_err(|error| open_failed(root, &error))?
            .running_as("standalone", env!("CARGO_PKG_VERSION"));
        logging::start(&city_dir.log(), true)?;
        let socket = ControlSocket::bind(&city_dir.socket())
            .map_err(|error| CliError::new(Code::Failed, error.to_string()))?;
        let mut city = city
            .spawn()
            .await
            .map_err(|error| open_failed(root, &error))?;
        let (ops, wishes) = Ops::new(city.door(), None);
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
        let door = city.door();
        let exit = wait(&door, city.ended(), wishes, signals, OnSigterm::Stop).await?;
        close(serving).await;
        Ok(exit)
    })
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

/// What the process does when told to leave, and with which exit code.
async fn wait(
    door: &MachineRef,
    ended: impl Future<Output = bool>,
    mut wishes: mpsc::Receiver<StopWish>,
    mut signals: Signals,
    on_sigterm: OnSigterm,
) -> CliResult<u8> {
    tokio::pin!(ended);
    let mut asked = 0_u32;
    loop {
        tokio::select! {
            clean = &mut ended => {
                let forced = asked > 1;
                return Ok(if !clean { INTERNAL } else if forced { FORCED } else { 0 });
            }
            Some(wish) = wishes.recv() => {
                let door = door.clone();
                tokio::spawn(async move {
                    let summary = door.stop(wish.mode).await;
                    if let (Some(reply), Ok(summary)) = (wish.reply, summary) {
                        let _ = reply.send(summary); // the client may be gone
                    }
                });
            }
            kind = signals.next() => match kind {
                Kind::Reload => {
                    let door = door.clone();
                    tokio::spawn(async move { door.reconcile().await });
                }
                Kind::Stop { term } => {
                    asked += 1;
                    let mode = match (asked, term, on_sigterm) {
                        (2.., ..) => StopMode::Force,
                        (_, true, OnSigterm::Detach) => StopMode::Detach,
                        _ => StopMode::Graceful,
                    };
                    tracing::info!(?mode, "told to stop by a signal");
                    let door = door.clone();
                    tokio::spawn(async move { door.stop(mode).await });
                }
            }
        }
    }
}

enum Kind {
    Stop { term: bool },
    Reload,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Kind {
        tokio::select! {
            _ = self.interrupt.recv() => Kind::Stop { term: false },
            _ = self.terminate.recv() => Kind::Stop { term: true },
            _ = self.hangup.recv() => Kind::Reload,
        }
    }
}
