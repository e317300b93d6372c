//! The provider `tmux`: agents in sessions of a tmux server that belongs to the city.
//!
//! All talk goes over one connection in control mode, so that no question costs a process. The
//! end of a run comes from the kernel, through a pidfd on the leader of its pane; tmux is then
//! asked whether it still lives, because the death of the server itself ends all panes. Sessions
//! outlive the supervisor: the next one finds them by their marks.

mod acts;
mod connection;
mod hint;
mod line;
mod link;
mod listing;
mod nudge;
mod parser;
mod program;
mod run;
mod server;
mod start;
mod stray;
#[cfg(test)]
mod tests;
mod version;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gascity_actors::model::{RunToken, SessionName};
use gascity_actors::ports::{
    Caps, Listing, PortFuture, Probe, SessionError, SessionEvents, Sessions, StartError, StartSpec,
    Started,
};

use hint::TmuxFile;
use link::Lost;
use run::Run;
use server::{Connector, Server};
use version::Version;

use super::delegate::delegate;
use super::prepare::Preparer;
use super::processes::census::Census;
use super::processes::{Mark, Slots, Subscribers, Watched, backend, check, lock};
use super::subprocess::SubprocessConfig;

pub(crate) use program::{find, usable};

/// Settings of [`Tmux`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TmuxConfig {
    /// What every provider needs to know of the city.
    pub city: SubprocessConfig,
    /// The program, as an absolute path.
    pub program: PathBuf,
    /// Name of the server's socket; `None`: as the city.
    pub socket: Option<String>,
    /// `user` (the user's own), `none`, or a file.
    pub tmux_config: String,
    /// Lines of output kept above each screen.
    pub history_lines: u32,
    /// How long a message waits for others that are being typed.
    pub nudge_lock: Duration,
    /// Time between a typed text and Enter.
    pub debounce: Duration,
    /// Where sockets are; `None`: where tmux puts them (`TMUX_TMPDIR`).
    pub socket_dir: Option<PathBuf>,
}

impl TmuxConfig {
    /// Settings with everything optional at its default.
    #[must_use]
    pub fn new(city: SubprocessConfig, program: PathBuf) -> Self {
        Self {
            city,
            program,
            socket: None,
            tmux_config: "user".to_owned(),
            history_lines: 10_000,
            nudge_lock: Duration::from_secs(30),
            debounce: Duration::from_millis(500),
            socket_dir: None,
        }
    }
}

/// The provider `tmux`.
///
/// Its calls need a tokio runtime with I/O and time enabled. A clone is the same provider;
/// dropping the last one ends the connection, never a session.
#[derive(Debug, Clone)]
pub struct Tmux(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    me: Weak<Inner>,
    config: TmuxConfig,
    version: Version,
    connector: Arc<Connector>,
    preparer: Preparer,
    mark: Mark,
    census: Arc<Census>,
    subscribers: Subscribers,
    slots: Slots<Slot>,
    server: tokio::sync::Mutex<Option<Arc<Server>>>,
    /// Servers of runs that may still be there.
    servers: Mutex<HashMap<i32, Arc<OwnedFd>>>,
    /// The run that was taken in last: news of the whole server are told with it.
    latest: Mutex<Option<Arc<Run>>>,
    closed: AtomicBool,
    pace: Mutex<Pace>,
}

/// How long a message waits for others that are being typed, and the time between a typed text
/// and Enter.
#[derive(Debug, Clone, Copy)]
struct Pace {
    turn: Duration,
    debounce: Duration,
}

/// One session name.
#[derive(Debug, Default)]
struct Slot {
    /// Held by whoever changes the session.
    gate: Arc<tokio::sync::Mutex<()>>,
    held: Mutex<Option<Watched<Run>>>,
    /// Held by whoever types into it.
    typing: tokio::sync::Mutex<()>,
}

impl Slot {
    fn run(&self) -> Option<Arc<Run>> {
        lock(&self.held).as_ref().map(|watched| watched.run.clone())
    }
}

fn lost(lost: Lost) -> SessionError {
    match lost {
        Lost::Silent => SessionError::Timeout,
        Lost::Ended(_) => backend(lost),
    }
}

impl Tmux {
    /// A provider for one city. Proves that the program can be used; a server is started with the
    /// first session. Blocks for as long as `tmux -V` takes.
    ///
    /// # Errors
    /// Why the program cannot be used, for a person.
    pub fn new(config: TmuxConfig) -> Result<Self, String> {
        let version = program::version(&config.program)?;
        let preparer = Preparer::new(config.city.clone(), std::env::vars_os());
        let mut environment = preparer.inherited();
        let socket_dir = config.socket_dir.clone().map(OsString::from);
        if let Some(dir) = socket_dir.or_else(|| std::env::var_os("TMUX_TMPDIR")) {
            environment.insert("TMUX_TMPDIR".into(), dir);
        }
        let connector = Arc::new(Connector {
            config: config.clone(),
            environment,
            searched: AtomicBool::new(false),
        });
        Ok(Self(Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            version,
            connector,
            preparer,
            mark: Mark(config.city.root.clone()),
            census: Arc::default(),
            subscribers: Subscribers::default(),
            slots: Slots::default(),
            server: tokio::sync::Mutex::default(),
            servers: Mutex::default(),
            latest: Mutex::default(),
            closed: AtomicBool::new(false),
            pace: Mutex::new(Pace {
                turn: config.nudge_lock,
                debounce: config.debounce,
            }),
            config,
        })))
    }

    /// Whether the city may have its server where the config says. Starts nothing; blocks for as long
    /// as a question to tmux takes.
    ///
    /// # Errors
    /// Why not, for a person.
    pub(crate) fn probe(&self) -> Result<(), String> {
        self.0.connector.probe()
    }

    /// Globs over the names of variables that agents inherit, from the next start on.
    pub fn set_passthrough(&self, globs: &[String]) {
        self.0.preparer.set_passthrough(globs);
    }

    /// Changes how messages are typed from now on; see [`TmuxConfig`].
    pub fn set_nudging(&self, nudge_lock: Duration, debounce: Duration) {
        let turn = nudge_lock;
        *lock(&self.0.pace) = Pace { turn, debounce };
    }

    /// Lets go of the server: no session is touched, none is looked at any more, and no connection
    /// is made again.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// Whether a server that was once started for the city at `root` still runs.
    #[must_use]
    pub fn is_left(root: &Path) -> bool {
        let file = TmuxFile::of(root);
        let socket = file.read();
        socket.is_some_and(|socket| UnixStream::connect(socket).is_ok()) || file.server().is_some()
    }
}

impl Inner {
    fn slot(&self, name: &SessionName) -> Arc<Slot> {
        self.slots.of(name)
    }

    fn forget(&self, name: &SessionName) {
        self.slots.forget(name, |slot| lock(&slot.held).is_none());
    }

    fn hold(&self, slot: &Slot, run: Run) -> Result<Arc<Run>, SessionError> {
        let watched = run::watched(run, &self.me).map_err(backend)?;
        let run = watched.run.clone();
        *lock(&self.latest) = Some(run.clone());
        *lock(&slot.held) = Some(watched);
        Ok(run)
    }

    /// The run of a session, also one that another process has started meanwhile.
    async fn seen(self: &Arc<Self>, name: &SessionName) -> Result<Arc<Run>, SessionError> {
        let server = self.server().await?;
        if let Some(run) = self.slot(name).run() {
            return Ok(run);
        }
        let slot = self.slot(name);
        let found = {
            let _gate = slot.gate.lock().await;
            match slot.run() {
                Some(run) => Some(run),
                None => match self.look_for(&server, name).await? {
                    Some(run) => Some(self.hold(&slot, run)?),
                    None => None,
                },
            }
        };
        drop(slot);
        self.forget(name);
        found.ok_or(SessionError::NotFound)
    }

    /// The same, with the server it is on; its ids mean nothing to another one.
    async fn seated(
        self: &Arc<Self>,
        name: &SessionName,
    ) -> Result<(Arc<Run>, Arc<Server>), SessionError> {
        let run = self.seen(name).await?;
        let server = self.server().await?;
        if run.seat.server != server.pid {
            return Err(SessionError::NotFound);
        }
        Ok((run, server))
    }

    /// What agents and users call the server.
    fn socket_name(&self, server: &Server) -> OsString {
        server.socket.file_name().unwrap_or_default().to_owned()
    }
}

impl Sessions for Tmux {
    fn provider(&self) -> &'static str {
        "tmux"
    }

    fn why(&self) -> String {
        let version = &self.0.version.text;
        let server = self.0.server.try_lock();
        let server = server.ok().and_then(|server| server.clone());
        match server.map(|server| self.0.socket_name(&server)) {
            Some(socket) => format!("tmux {version}, socket {}", socket.display()),
            None => format!("tmux {version}"),
        }
    }

    fn caps(&self) -> Caps {
        Caps {
            stages: false,
            screen: true,
            log: true,
            nudge: true,
            keys: true,
            attach: true,
            attached: true,
            activity: true,
            exit_push: true,
            exit_status: true,
            process_tree: true,
            meta: true,
            survives: true,
        }
    }

    fn vars_of(&self, _: &SessionName) -> BTreeMap<String, String> {
        let socket = TmuxFile::of(&self.0.config.city.root).read();
        let name = socket.as_deref().and_then(Path::file_name);
        let var = name.map(|name| ("GC_TMUX_SOCKET".to_owned(), name.to_string_lossy().into()));
        var.into_iter().collect()
    }

    fn probe(&self) -> PortFuture<'_, Probe, SessionError> {
        Box::pin(async move {
            let version = Some(self.0.version.text.clone());
            Ok(match self.0.server().await {
                Ok(server) => Probe {
                    usable: true,
                    version,
                    notes: vec![format!("socket {}", self.0.socket_name(&server).display())],
                },
                // It is started with the first session.
                Err(SessionError::NotFound) => Probe {
                    usable: true,
                    version,
                    notes: Vec::new(),
                },
                Err(error) => Probe {
                    usable: false,
                    version,
                    notes: vec![error.to_string()],
                },
            })
        })
    }

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        Box::pin(self.0.start(token, spec))
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(async move {
            match self.0.snapshot().await {
                // Without a server there are no sessions.
                Err(SessionError::NotFound) => Ok(Listing::default()),
                listing => listing,
            }
        })
    }

    delegate!(inner self name => self.0;
        stop interrupt liveness process_alive clear_scrollback peek set_note nudge send_keys attach
        copy_to);

    fn retire(&self) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move { self.0.retire().await })
    }

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribers.add()
    }
}
