//! The provider `tmux`: agents in sessions of a tmux server that belongs to the city.
//!
//! All talk goes over one connection in control mode, so that no question costs a process. The
//! end of a run comes from the kernel, through a pidfd on the leader of its pane; tmux is then
//! asked whether it still lives, because the death of the server itself ends all panes. Sessions
//! outlive the supervisor: the next one finds them by their marks.

mod line;
mod link;
mod listing;
mod nudge;
mod parser;
mod program;
mod run;
mod server;
mod start;
#[cfg(test)]
mod tests;
mod version;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gascity_actors::model::{RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    AttachPlan, Caps, Delivery, Fence, Listing, Liveness, Note, PortFuture, SessionError,
    SessionEvents, Sessions, StartSpec, Started, Stopped, check_note,
};
use tokio::time::{sleep, timeout};

use line::{Line, encode};
use link::Lost;
use run::{Run, Watched};
use server::{ConnectError, Connector, KEEPER, Server};
use version::Version;

use super::output;
use super::prepare::Preparer;
use super::processes::census::Census;
use super::processes::{Led as _, Mark, Subscribers, has_fired, lock, programs, sweep};
use super::subprocess::SubprocessConfig;

pub(crate) use program::{find, usable};

/// When a lost connection is made anew.
const RETRIES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// How long the report of an end may take once every process is gone.
const END_WAIT: Duration = Duration::from_secs(2);

/// No more of a screen is given.
const PEEK_LIMIT: usize = 1 << 20;

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
    slots: Mutex<HashMap<SessionName, Arc<Slot>>>,
    server: tokio::sync::Mutex<Option<Arc<Server>>>,
    /// Servers of runs that may still be there.
    servers: Mutex<HashMap<i32, Arc<OwnedFd>>>,
    closed: AtomicBool,
}

/// One session name.
#[derive(Debug, Default)]
struct Slot {
    /// Held by whoever changes the session.
    gate: Arc<tokio::sync::Mutex<()>>,
    held: Mutex<Option<Watched>>,
    /// Held by whoever types into it.
    typing: tokio::sync::Mutex<()>,
}

impl Slot {
    fn run(&self) -> Option<Arc<Run>> {
        lock(&self.held).as_ref().map(|watched| watched.run.clone())
    }
}

fn backend(error: impl std::fmt::Display) -> SessionError {
    SessionError::Backend(error.to_string())
}

fn lost(lost: Lost) -> SessionError {
    match lost {
        Lost::Silent => SessionError::Timeout,
        Lost::Ended(_) => backend(lost),
    }
}

/// Remembers where a city's server listens, for processes that do not know its name.
#[derive(Debug)]
struct TmuxFile(PathBuf);

impl TmuxFile {
    fn of(root: &Path) -> Self {
        Self(root.join(".gc/runtime/tmux"))
    }

    fn read(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(&self.0).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// A hint only: without it the server is found by its name.
    fn write(&self, socket: &Path) {
        if self.read().as_deref() == Some(socket) {
            return;
        }
        let text = format!("{}\n", socket.display());
        let dir = self.0.parent().unwrap_or(Path::new("/"));
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&self.0, text));
        if let Err(error) = written {
            tracing::warn!(%error, "failed to note where tmux listens");
        }
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.0); // there may be none
    }
}

impl Tmux {
    /// A provider for one city. Proves that the program can be used; a server is started with the
    /// first session. Blocks for as long as `tmux -V` takes.
    ///
    /// # Errors
    /// Why the program cannot be used, for a person.
    pub fn new(config: TmuxConfig) -> Result<Self, String> {
        let version = server::version(&config.program)?;
        let preparer = Preparer::new(config.city.clone(), std::env::vars_os());
        let mut environment = preparer.inherited().clone();
        let socket_dir = config.socket_dir.clone().map(OsString::from);
        if let Some(dir) = socket_dir.or_else(|| std::env::var_os("TMUX_TMPDIR")) {
            environment.insert("TMUX_TMPDIR".into(), dir);
        }
        let connector = Arc::new(Connector {
            config: config.clone(),
            environment,
        });
        Ok(Self(Arc::new_cyclic(|me| Inner {
            me: me.clone(),
            version,
            connector,
            preparer,
            mark: Mark(config.city.root.clone()),
            census: Arc::default(),
            subscribers: Subscribers::default(),
            slots: Mutex::default(),
            server: tokio::sync::Mutex::default(),
            servers: Mutex::default(),
            closed: AtomicBool::new(false),
            config,
        })))
    }

    /// Lets go of the server: no session is touched, none is looked at any more, and no connection
    /// is made again.
    pub fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    /// Whether a server that was once started for the city at `root` still runs.
    #[must_use]
    pub fn is_left(root: &Path) -> bool {
        let socket = TmuxFile::of(root).read();
        socket.is_some_and(|socket| UnixStream::connect(socket).is_ok())
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

    fn hold(&self, slot: &Slot, run: Run) -> Result<Arc<Run>, SessionError> {
        let watched = Watched::new(run, &self.me).map_err(backend)?;
        let run = watched.run.clone();
        *lock(&slot.held) = Some(watched);
        Ok(run)
    }

    /// The city's server. [`SessionError::NotFound`] if there is none.
    async fn server(&self) -> Result<Arc<Server>, SessionError> {
        self.connected(false).await
    }

    /// The city's server. Connects if need be, and takes in what runs there.
    async fn connected(&self, start: bool) -> Result<Arc<Server>, SessionError> {
        let mut held = self.server.lock().await;
        if let Some(server) = held.as_ref().filter(|server| !server.link.is_lost()) {
            return Ok(server.clone());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(backend("the provider is closed"));
        }
        // One that lives must not be taken for gone because somebody removed its socket.
        let lost = held.as_ref().filter(|server| !has_fired(&server.pidfd));
        if let Some(lost) = lost {
            lost.check_socket().await;
        }
        let server = match self.connector.connect(start && lost.is_none()).await {
            Ok(server) => Arc::new(server),
            Err(ConnectError::NoServer) if lost.is_some_and(|s| !has_fired(&s.pidfd)) => {
                return Err(backend("the tmux server cannot be reached"));
            }
            Err(ConnectError::NoServer) => return Err(SessionError::NotFound),
            Err(ConnectError::Failed(why)) => return Err(SessionError::Backend(why)),
        };
        let me = self.me.upgrade();
        let me = me.ok_or_else(|| backend("the provider is gone"))?;
        me.resync(&server).await?;
        *held = Some(server.clone());
        drop(held);
        {
            let mut known = lock(&self.servers);
            known.retain(|_, pidfd| !has_fired(pidfd));
            known.insert(server.pid, server.pidfd.clone());
        }
        me.end_outlived(Some(&server));
        tokio::spawn(reconnect(self.me.clone(), server.clone()));
        Ok(server)
    }

    /// The connection to the server of that process id, if it is in use.
    async fn connection(&self, server: i32) -> Option<Arc<Server>> {
        let held = self.server.lock().await.clone();
        held.filter(|held| held.pid == server && !held.link.is_lost())
    }

    /// Whether a server has died, or does so within this time.
    async fn dies(&self, server: i32, limit: Duration) -> bool {
        let pidfd = lock(&self.servers).get(&server).cloned();
        match pidfd {
            Some(pidfd) => timeout(limit, server::gone(pidfd)).await.is_ok(),
            None => true, // it was forgotten because it was dead
        }
    }

    /// Runs whose server has died are over, also those that did not die with it.
    fn end_outlived(self: &Arc<Self>, server: Option<&Server>) {
        let server = server.map(|server| server.pid);
        let slots: Vec<Arc<Slot>> = lock(&self.slots).values().cloned().collect();
        let runs = slots.iter().filter_map(|slot| slot.run());
        for run in runs.filter(|run| Some(run.seat.server) != server && run.is_live()) {
            let (mark, census) = (self.mark.clone(), self.census.clone());
            tokio::task::spawn_blocking(move || {
                if let Err(error) = sweep::end_all(&mark, &census, &*run) {
                    tracing::warn!(session = %run.name, %error, "outlived its tmux server");
                }
            });
        }
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

    async fn stop(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        match self.seen(name).await {
            Err(SessionError::NotFound) => return Ok(Stopped::Absent),
            run => drop(run?),
        }
        let slot = self.slot(name);
        let stopped = {
            let _gate = slot.gate.lock().await;
            match slot.run() {
                Some(run) => self.stop_run(&slot, &run, fence).await,
                None => Ok(Stopped::Absent),
            }
        };
        drop(slot);
        self.forget(name);
        stopped
    }

    async fn stop_run(
        self: &Arc<Self>,
        slot: &Slot,
        run: &Arc<Run>,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        check(fence, run)?;
        let swept = self.sweep(slot, run).await?;
        let reported = timeout(END_WAIT, run.ended()).await;
        reported.map_err(|_| SessionError::Timeout)?;
        let server = self.server().await?;
        if server.pid == run.seat.server {
            let line = Line::new(["kill-session", "-t", &run.seat.session]);
            server.link.ask(line).await.map_err(lost)?; // it may be gone already
        }
        *lock(&slot.held) = None;
        Ok(if swept.forced {
            Stopped::Forced
        } else {
            Stopped::Clean
        })
    }

    /// Ends every process of a run.
    async fn sweep(&self, _: &Slot, run: &Arc<Run>) -> Result<sweep::Swept, SessionError> {
        run.stopping.store(true, Ordering::Release);
        let (mark, census, swept) = (self.mark.clone(), self.census.clone(), run.clone());
        let work = move || {
            let done = sweep::end_all(&mark, &census, &*swept);
            swept.stopping.store(false, Ordering::Release);
            done
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(backend)?.map_err(backend)
    }

    async fn process_alive(
        self: &Arc<Self>,
        name: &SessionName,
        names: Vec<String>,
    ) -> Result<bool, SessionError> {
        let run = match self.seen(name).await {
            Err(SessionError::NotFound) => return Ok(false),
            run => run?,
        };
        if names.is_empty() {
            return Ok(run.is_live());
        }
        let (mark, census) = (self.mark.clone(), self.census.clone());
        let look = move || programs::any_alive(&mark, &census, &*run, &names);
        let done: Result<io::Result<bool>, _> = tokio::task::spawn_blocking(look).await;
        done.map_err(backend)?.map_err(backend)
    }

    async fn peek(
        self: &Arc<Self>,
        name: &SessionName,
        lines: u32,
    ) -> Result<String, SessionError> {
        let (run, server) = self.seated(name).await?;
        screen(&server, &run.seat.pane, lines).await
    }

    async fn set_note(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
        note: Note,
        value: Option<String>,
    ) -> Result<(), SessionError> {
        let (run, server) = self.seated(name).await?;
        check(fence, &run)?;
        check_note(value.as_deref())?;
        let option = listing::option(note.key());
        let target = run.seat.session.as_str();
        let line = match &value {
            Some(value) => Line::new(["set-option", "-t", target, &option, &encode(value)]),
            None => Line::new(["set-option", "-u", "-t", target, &option]),
        };
        let blocks = server.link.ask(line).await.map_err(lost)?;
        if blocks.iter().any(|block| !block.ok) {
            return Err(SessionError::NotFound);
        }
        if !listing::is_changing(note) {
            let mut notes = lock(&run.notes);
            match value {
                Some(value) => drop(notes.insert(note, value)),
                None => drop(notes.remove(&note)),
            }
        }
        Ok(())
    }

    async fn interrupt(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<bool, SessionError> {
        let (run, server) = match self.seated(name).await {
            Err(SessionError::NotFound) => return Ok(false),
            found => found?,
        };
        check(fence, &run)?;
        if !run.is_live() {
            return Ok(false);
        }
        let pane = run.seat.pane.as_str();
        let line = leave_copy_mode(pane).and(["send-keys", "-t", pane, "C-c"]);
        let blocks = server.link.ask(line).await.map_err(lost)?;
        Ok(blocks.iter().all(|block| block.ok))
    }

    /// Nothing of the city is left: ends the server, unless somebody else uses it too.
    async fn retire(self: &Arc<Self>) -> Result<(), SessionError> {
        let server = match self.server().await {
            Err(SessionError::NotFound) => return Ok(()),
            server => server?,
        };
        let line = Line::new(["list-sessions", "-F", "#{session_name}"]);
        let blocks = server.link.ask(line).await.map_err(lost)?;
        let mut names = blocks.iter().flat_map(|block| &block.lines);
        if names.all(|name| name == KEEPER.as_bytes()) {
            *self.server.lock().await = None;
            server.end().await;
            self.connector.hint().remove();
        }
        Ok(())
    }

    /// What agents and users call the server.
    fn socket_name(&self, server: &Server) -> OsString {
        server.socket.file_name().unwrap_or_default().to_owned()
    }
}

/// The last lines above and on a screen.
async fn screen(server: &Server, pane: &str, lines: u32) -> Result<String, SessionError> {
    let from = match lines {
        0 => "-".to_owned(),
        lines => format!("-{lines}"),
    };
    let line = Line::new(["capture-pane", "-p", "-J", "-t", pane, "-S", &from]);
    let mut blocks = server.link.ask(line).await.map_err(lost)?;
    let Some(block) = blocks.pop().filter(|block| block.ok) else {
        return Err(SessionError::NotFound);
    };
    let mut text = Vec::new();
    for line in &block.lines {
        text.extend_from_slice(line.trim_ascii_end());
        text.push(b'\n');
    }
    let text = output::last_lines(&output::clean(&text), lines);
    let mut from = text.len().saturating_sub(PEEK_LIMIT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    Ok(text[from..].to_owned())
}

/// A pane in which somebody scrolls takes keys for commands.
fn leave_copy_mode(pane: &str) -> Line {
    let cancel = format!("send-keys -t {pane} -X cancel");
    Line::new(["if-shell", "-F", "-t", pane, "#{pane_in_mode}", &cancel])
}

/// A run may be touched if the fence lets it.
fn check(fence: &Fence, run: &Run) -> Result<(), SessionError> {
    match fence {
        Fence::Token(token) if *token != run.token => Err(SessionError::Fenced),
        Fence::Token(_) | Fence::Any => Ok(()),
    }
}

/// Connects anew when a connection is lost, as long as anybody cares. Boxed, because a new
/// connection is looked after in the same way.
fn reconnect(
    inner: Weak<Inner>,
    server: Arc<Server>,
) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(reconnected(inner, server))
}

async fn reconnected(inner: Weak<Inner>, server: Arc<Server>) {
    let why = server.link.lost().await;
    for delay in RETRIES {
        sleep(delay).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let held = inner.server.lock().await.clone();
        if !held.is_some_and(|held| Arc::ptr_eq(&held, &server)) {
            return; // retired, or somebody was quicker
        }
        match inner.server().await {
            Ok(_) => {
                tracing::warn!(%why, "connected to tmux again");
                return;
            }
            Err(SessionError::NotFound) => {
                tracing::warn!(%why, "the tmux server has died");
                inner.end_outlived(None);
                return;
            }
            Err(error) => tracing::warn!(%why, %error, "failed to connect to tmux again"),
        }
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

    fn start(
        &self,
        token: RunToken,
        spec: Arc<StartSpec>,
    ) -> PortFuture<'_, Started, StartFailure> {
        Box::pin(self.0.start(token, spec))
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        Box::pin(async move { self.0.stop(&name, &fence).await })
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move { self.0.interrupt(&name, &fence).await })
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

    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError> {
        Box::pin(async move {
            let run = match self.0.slot(&name).run() {
                Some(run) if run.token == token => Ok(run),
                _ => self.0.seen(&name).await,
            };
            match run {
                Err(SessionError::NotFound) => Ok(Liveness::Absent),
                Err(error) => Err(error),
                Ok(run) if run.token != token => Ok(Liveness::Absent),
                Ok(run) if run.is_live() => Ok(Liveness::Live {
                    pid: Some(run.raw_pid().cast_unsigned()),
                }),
                Ok(run) => Ok(Liveness::Dead(run.ended().await)),
            }
        })
    }

    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move { self.0.process_alive(&name, names).await })
    }

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move {
            let (run, server) = self.0.seated(&name).await?;
            let line = Line::new(["clear-history", "-t", &run.seat.pane]);
            server.link.ask(line).await.map_err(lost).map(drop)
        })
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        Box::pin(async move { self.0.peek(&name, lines).await })
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

    fn nudge(
        &self,
        name: SessionName,
        fence: Fence,
        text: String,
    ) -> PortFuture<'_, Delivery, SessionError> {
        Box::pin(async move { self.0.nudge(&name, &fence, &text).await })
    }

    fn attach(
        &self,
        name: SessionName,
        read_only: bool,
    ) -> PortFuture<'_, AttachPlan, SessionError> {
        Box::pin(async move {
            let (_, server) = self.0.seated(&name).await?;
            let program = self.0.config.program.to_string_lossy().into_owned();
            let socket = server.socket.to_string_lossy().into_owned();
            let target = format!("={name}");
            let words = ["-u", "-S", &socket, "attach-session", "-t", &target];
            let mut argv = vec![program];
            argv.extend(words.map(str::to_owned));
            argv.extend(read_only.then(|| "-r".to_owned()));
            Ok(AttachPlan {
                argv,
                unset: vec!["TMUX".to_owned(), "TMUX_PANE".to_owned()],
            })
        })
    }

    fn retire(&self) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move { self.0.retire().await })
    }

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribers.add()
    }
}
