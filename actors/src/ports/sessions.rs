mod told;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub use told::{Facts, Listing, SessionError, SessionEvent, SessionEventKind, StartError};
pub use values::{Note, check_note, inside, nudge_text};

use super::{Key, Limits, PortFuture};
use crate::model::{AgentName, ExitStatus, Launch, RunToken, SessionName};

/// Runs sessions (sessions.md 1).
///
/// "Cannot observe" is an error, never "dead". Events are hints, a listing is the truth. Nothing
/// without this city's mark and a token is signalled or deleted. Calls may run concurrently; the
/// adapter serialises them per name.
pub trait Sessions: Send + Sync + 'static {
    /// Word for the provider in config and status, e.g. `subprocess`.
    fn provider(&self) -> &str;

    /// The same for one session, where that differs.
    fn provider_of(&self, name: &SessionName) -> String {
        let _ = name;
        self.provider().to_owned()
    }

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
    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError>;

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

/// A run that began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Started {
    /// Process id of the leader.
    pub pid: Option<u32>,
    /// What went wrong without keeping it from running, for a person.
    pub warnings: Vec<String>,
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
