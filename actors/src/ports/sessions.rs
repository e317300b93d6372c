use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;

use super::{Key, Limits, PortFuture};
use crate::model::{AgentName, ExitStatus, Launch, RunToken, SessionName, StartFailure};

/// Runs sessions (sessions.md 1).
///
/// "Cannot observe" is an error, never "dead". Events are hints, a listing is the truth. Nothing
/// without this city's mark and a token is signalled or deleted. Calls may run concurrently; the
/// adapter serialises them per name.
pub trait Sessions: Send + Sync + 'static {
    /// Word for the provider in config and status, e.g. `subprocess`.
    fn provider(&self) -> &str;

    /// Why it was chosen, or in what shape it is, for a person; empty if there is nothing to say.
    fn why(&self) -> String {
        String::new()
    }

    /// What it can do.
    fn caps(&self) -> Caps;

    /// What it can do for one session, where that differs.
    fn caps_of(&self, name: &SessionName) -> Caps {
        let _ = name;
        self.caps()
    }

    /// What it will be able to do for a session that is launched like this.
    fn caps_for(&self, launch: &Launch) -> Caps {
        let _ = launch;
        self.caps()
    }

    /// Why sessions that start now lack the terminal they were meant to have; `None` if they do
    /// not. Asked for the city's own provider, or for the one an agent names.
    fn degraded(&self, named: Option<&str>) -> Option<String> {
        let _ = named;
        None
    }

    /// Variables that agents of a session see beyond those of every session, for whatever is run
    /// on their behalf.
    fn vars_of(&self, name: &SessionName) -> BTreeMap<String, String> {
        let _ = name;
        BTreeMap::new()
    }

    /// How long its calls may take. Whoever calls holds it to that.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// How often its sessions may be listed for the sake of activity alone.
    fn look_every(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Whether it can be used right now. Starts nothing.
    fn probe(&self) -> PortFuture<'_, Probe, SessionError> {
        Box::pin(async {
            Ok(Probe {
                usable: true,
                ..Probe::default()
            })
        })
    }

    /// Launches the run. An owned dead session of that name is replaced. On error, or when the
    /// future is dropped, nothing is left behind.
    fn start(&self, token: RunToken, spec: Arc<StartSpec>)
    -> PortFuture<'_, Started, StartFailure>;

    /// Ends the session with all its processes. `Ok` means that none with that token is left.
    /// Stopping a missing session succeeds.
    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError>;

    /// Sends Ctrl-C / SIGINT once and does not wait. `false`: there is no such session.
    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError>;

    /// Every session of this backend, with facts, in one batch.
    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError>;

    /// Whether the run's leader still lives. Cheap; asked when a notification may have been lost.
    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError>;

    /// Whether a program of one of these names runs in the session. Asked only for agents that
    /// name programs, since it may cost a look at many processes.
    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError>;

    /// Forgets the output so far, as a fresh run after a planned restart should not show it.
    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError>;

    /// The last `lines` lines of output; works on a dead session too.
    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError>;

    /// Sets (`Some`) or removes (`None`) one entry of the session's metadata.
    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError>;

    /// Gives the agent a message as if somebody had typed it, and submits it. Control characters
    /// other than newlines are left out; an empty text does nothing.
    fn nudge(
        &self,
        name: SessionName,
        fence: Fence,
        text: String,
    ) -> PortFuture<'_, Delivery, SessionError> {
        let _ = (name, fence, text);
        Box::pin(async { Err(SessionError::Unsupported("nudge")) })
    }

    /// Presses single keys, without an Enter of its own. `false`: there is no live session.
    fn send_keys(
        &self,
        name: SessionName,
        fence: Fence,
        keys: Vec<Key>,
    ) -> PortFuture<'_, bool, SessionError> {
        let _ = (name, fence, keys);
        Box::pin(async { Err(SessionError::Unsupported("keys")) })
    }

    /// How a terminal gets onto the session. The caller runs the plan; a supervisor never owns a
    /// terminal.
    fn attach(
        &self,
        name: SessionName,
        read_only: bool,
    ) -> PortFuture<'_, AttachPlan, SessionError> {
        let _ = (name, read_only);
        Box::pin(async { Err(SessionError::Unsupported("attach")) })
    }

    /// Copies a file, or what is in a directory, to a place in the session's working directory,
    /// over whatever is there. Answers how many files that were: none if there is nothing at
    /// `from`.
    fn copy_to(
        &self,
        name: SessionName,
        from: PathBuf,
        to: String,
    ) -> PortFuture<'_, usize, SessionError> {
        let _ = (name, from, to);
        Box::pin(async { Err(SessionError::Unsupported("files")) })
    }

    /// The city ends, or goes to another provider, and no session of it is left: lets go of
    /// whatever was kept for them.
    fn retire(&self) -> PortFuture<'_, (), SessionError> {
        Box::pin(async { Ok(()) })
    }

    /// Exits and other events from now on. Exactly one exit per token, never lost.
    fn subscribe(&self) -> SessionEvents;

    /// The same into a channel that is there already, until its receiver is gone. Needs a tokio
    /// runtime.
    fn forward(&self, to: mpsc::UnboundedSender<SessionEvent>) {
        let mut events = self.subscribe();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if to.send(event).is_err() {
                    return;
                }
            }
        });
    }
}

/// Stream of session events; see [`Sessions::subscribe`].
pub type SessionEvents = mpsc::UnboundedReceiver<SessionEvent>;

/// Abilities of a provider. What one lacks, the rest of gc does without (sessions.md 1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent of each other, and named by the spec
pub struct Caps {
    /// What [`Sessions::peek`] shows is a screen, not a log.
    pub screen: bool,
    /// Output can be read.
    pub log: bool,
    /// Text can be sent to an agent.
    pub nudge: bool,
    /// Single keys can be sent to it.
    pub keys: bool,
    /// A terminal can be put on a session.
    pub attach: bool,
    /// It is known whether one is.
    pub attached: bool,
    /// Last activity is known.
    pub activity: bool,
    /// Exits are pushed, not polled.
    pub exit_push: bool,
    /// It is known how a run ended.
    pub exit_status: bool,
    /// The programs of a session are known.
    pub process_tree: bool,
    /// Metadata is kept with the session itself.
    pub meta: bool,
    /// It runs the setup lines of agents itself, on its own side.
    pub stages: bool,
    /// Sessions outlive the supervisor.
    pub survives: bool,
}

/// What [`Sessions::probe`] finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probe {
    /// Sessions can be started and seen.
    pub usable: bool,
    /// Version of the program behind it, if there is one.
    pub version: Option<String>,
    /// For a person: where its sessions are, or what is wrong.
    pub notes: Vec<String>,
}

/// Everything a provider needs to start one run.
#[derive(Debug, Clone, PartialEq)]
pub struct StartSpec {
    /// Name of the session.
    pub session: SessionName,
    /// Qualified instance name (`GC_AGENT`).
    pub agent: AgentName,
    /// The `[[agent]]` it comes from (`GC_TEMPLATE`).
    pub template: AgentName,
    /// Count of runs of this instance, from 1.
    pub generation: u64,
    /// What to run.
    pub launch: Arc<Launch>,
    /// How long one of its setup lines may take.
    pub setup_timeout: Duration,
    /// Programs of which one must run in its session.
    pub process_names: Vec<String>,
    /// The `session_live` lines, for providers that want to know; they are run from outside.
    pub live: Vec<String>,
    /// Metadata set together with the launch; dies with the session.
    pub notes: BTreeMap<Note, String>,
}

/// Keys of session metadata the tree uses. Ownership (`GC_CITY`, `GC_AGENT`, `GC_SESSION_ID`) is
/// the adapter's own business. Agents and other gc processes write some of them, so a listing
/// must read them afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Note {
    /// Count of runs of this instance.
    Generation,
    /// Fingerprint the run was started with.
    ConfigHash,
    /// Its parts, as JSON.
    ConfigHashFields,
    /// Hash of the `session_live` lines that were run last.
    LiveHash,
    /// A planned stop is under way, and why.
    StopIntent,
    /// A drain is under way, since this Unix time in seconds.
    Drain,
    /// Why it drains: `pool-excess`, `config-drift` or `user`.
    DrainReason,
    /// After how many seconds a drain by a user is forced; absent: never, or as the pool says.
    DrainTimeout,
    /// The agent has finished.
    DrainAck,
    /// The agent asks for a fresh session.
    RestartRequested,
}

impl Note {
    /// All keys with their stored names.
    const NAMES: [(Self, &'static str); 10] = [
        (Self::Generation, "generation"),
        (Self::ConfigHash, "config_hash"),
        (Self::ConfigHashFields, "config_hash_fields"),
        (Self::LiveHash, "live_hash"),
        (Self::StopIntent, "GC_STOP_INTENT"),
        (Self::Drain, "GC_DRAIN"),
        (Self::DrainReason, "GC_DRAIN_REASON"),
        (Self::DrainTimeout, "GC_DRAIN_TIMEOUT"),
        (Self::DrainAck, "GC_DRAIN_ACK"),
        (Self::RestartRequested, "GC_RESTART_REQUESTED"),
    ];

    /// The key as stored.
    #[must_use]
    pub fn key(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(note, _)| *note == self)
            .map_or("", |(_, name)| name)
    }

    /// The key behind a stored name.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, name)| *name == key)
            .map(|(note, _)| *note)
    }
}

/// The largest value of metadata, in bytes.
const NOTE_LIMIT: usize = 64 << 10;

/// Whether a value can be kept as metadata: a value must survive any way of being stored.
///
/// # Errors
/// [`SessionError::TooLarge`], and [`SessionError::Invalid`] for a NUL byte.
pub fn check_note(value: Option<&str>) -> Result<(), SessionError> {
    match value {
        Some(value) if value.len() > NOTE_LIMIT => Err(SessionError::TooLarge(NOTE_LIMIT)),
        Some(value) if value.contains('\0') => {
            Err(SessionError::Invalid("the value holds a NUL byte"))
        }
        _ => Ok(()),
    }
}

/// The largest message, in bytes.
const NUDGE_LIMIT: usize = 64 << 10;

/// A message as it is typed: tabs become spaces, lines end with a line feed, control characters
/// are left out. All providers clean it the same way.
///
/// # Errors
/// [`SessionError::TooLarge`].
pub fn nudge_text(text: &str) -> Result<String, SessionError> {
    if text.len() > NUDGE_LIMIT {
        return Err(SessionError::TooLarge(NUDGE_LIMIT));
    }
    let mut clean = text.replace("\r\n", "\n").replace('\t', " ");
    clean.retain(|c| c == '\n' || !c.is_ascii_control());
    Ok(clean)
}

/// A place in a working directory, as [`Sessions::copy_to`] takes it.
///
/// # Errors
/// [`SessionError::Invalid`] if it leads elsewhere.
pub fn inside(to: &str) -> Result<&Path, SessionError> {
    let path = Path::new(to);
    let mut parts = path.components();
    match parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        true => Ok(path),
        false => Err(SessionError::Invalid(
            "the destination must be inside the working directory: no \"..\", not absolute",
        )),
    }
}

/// A run that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Process id of the leader.
    pub pid: Option<u32>,
}

/// Which run a call may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// Only this one.
    Token(RunToken),
    /// Whichever owned run holds the name.
    Any,
}

/// Whether a run still goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its leader lives.
    Live {
        /// Process id of the leader.
        pid: Option<u32>,
    },
    /// Its leader ended; the session is still there.
    Dead(ExitStatus),
    /// There is no session of that run.
    Absent,
}

/// What a stop found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// There was nothing to stop.
    Absent,
    /// All processes left on the polite signal, or had left already.
    Clean,
    /// At least one had to be killed.
    Forced,
}

/// What became of a message for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// There is no live session to give it to.
    NoSession,
    /// It was typed and submitted.
    Delivered {
        /// The agent was seen to react.
        confirmed: bool,
    },
}

/// What to run for a terminal on a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachPlan {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables the program must not see.
    pub unset: Vec<String>,
}

/// Sessions of one backend.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// Owned sessions, live or dead.
    pub owned: Vec<Facts>,
    /// Names of sessions that are not ours. Never touched.
    pub foreign: Vec<String>,
    /// Why some sessions may be missing, one entry for each backend that could not be asked.
    pub errors: Vec<String>,
}

impl Listing {
    /// Whoever is not in it does not exist.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty()
    }
}

/// What a listing says of an owned session.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Its name.
    pub session: SessionName,
    /// The instance it was started for.
    pub agent: AgentName,
    /// Its run.
    pub token: RunToken,
    /// The leader has not exited.
    pub live: bool,
    /// Process id of the leader.
    pub pid: Option<u32>,
    /// When the run began.
    pub started_at: DateTime<Utc>,
    /// Last output, never before the start; `None` if unknown.
    pub last_activity: Option<DateTime<Utc>>,
    /// Somebody has a terminal on it.
    pub attached: bool,
    /// Metadata.
    pub notes: BTreeMap<Note, String>,
}

/// Something happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// Its name.
    pub session: SessionName,
    /// Its run.
    pub token: RunToken,
    /// What.
    pub kind: SessionEventKind,
}

/// Kinds of session events.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEventKind {
    /// The leader ended.
    Exited(ExitStatus),
    /// The agent did something visible. See [`follow`](super::follow).
    Activity,
    /// Events were dropped, beginning with one of this session: only a listing knows now. Exits
    /// are never among them.
    Lagged,
    /// The backend died and took the session along.
    BackendLost,
}

/// A call that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No such session.
    #[error("no such session")]
    NotFound,
    /// The session belongs to another run; nothing was touched.
    #[error("session belongs to another run")]
    Fenced,
    /// Others talk to the session right now.
    #[error("the session is busy")]
    Busy,
    /// More than a session takes at once.
    #[error("too large: at most {0} bytes")]
    TooLarge(usize),
    /// The provider cannot do this.
    #[error("not supported by this provider: {0}")]
    Unsupported(&'static str),
    /// What was asked for makes no sense, and why.
    #[error("{0}")]
    Invalid(&'static str),
    /// The backend did not answer in time; its state is unknown.
    #[error("timed out")]
    Timeout,
    /// The backend failed; its state is unknown.
    #[error("{0}")]
    Backend(String),
}
