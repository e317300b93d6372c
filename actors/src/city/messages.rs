//! What a city can be told.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::time::Instant;

use super::{AgentCommand, CommandError, ReloadOutcome};
use crate::mailbox::Drill;
use crate::model::{
    AgentEnd, AgentName, AgentState, CitySpec, CityView, RunToken, SessionName, StopSummary,
};
use crate::policy::Trigger;
use crate::ports::{Listing, LoadError, SessionError, SessionEvent, Sessions};
use crate::session::SessionRef;
use crate::tree::{Node, Past};
use crate::worker::Report;

/// How a city, or the whole machine, is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Interrupt, wait the grace, force.
    Graceful,
    /// No grace.
    Force,
    /// Leave the agents running for the next supervisor to adopt.
    Detach,
}

/// What a [`CitySupervisor`] can be told.
#[derive(Debug)]
pub(crate) enum CityMsg {
    /// The sessions, for adoption and for each tick.
    Listed(Gathered),
    /// Reconcile.
    Tick(Trigger),
    /// Load the config, and say what came of it.
    Reload(Option<RpcReplyPort<ReloadOutcome>>),
    /// The config was loaded.
    Loaded(
        Result<Arc<CitySpec>, LoadError>,
        Option<RpcReplyPort<ReloadOutcome>>,
    ),
    /// The config is watched, or why not.
    Watched(Option<String>),
    /// The provider saw something.
    Session(SessionEvent),
    /// A Worker tells of its run.
    Report {
        agent: AgentName,
        token: RunToken,
        report: Report,
    },
    /// A Worker could not even be spawned.
    Unspawned { agent: AgentName, end: AgentEnd },
    /// The crash history, as far as there is one.
    History(Option<String>),
    /// A pool check ended.
    Checked(AgentName, Result<u32, (String, bool)>),
    /// A user, or the agent itself, wants something of an agent.
    Command(
        AgentName,
        AgentCommand,
        RpcReplyPort<Result<AgentState, CommandError>>,
    ),
    /// Somebody wants to reach the session of an agent.
    Reach(AgentName, RpcReplyPort<Result<SessionRef, CommandError>>),
    /// The provider of a new config can be used, or not.
    Provided(
        Arc<CitySpec>,
        Result<Provided, String>,
        Option<RpcReplyPort<ReloadOutcome>>,
    ),
    /// The provider before has let go.
    Retired,
    /// A slot's delay is over.
    Due(AgentName),
    /// End the city.
    Stop {
        mode: StopMode,
        reply: Option<RpcReplyPort<StopSummary>>,
    },
    /// The grace of the shutdown is over.
    GraceOver,
    /// Leftovers were swept; the journal is flushed.
    Swept,
    /// How are things?
    View(RpcReplyPort<CityView>),
    /// What is in force?
    Spec(RpcReplyPort<Arc<CitySpec>>),
    /// The same, with the agents as JSON text instead.
    Detail(RpcReplyPort<(CityView, String)>),
    /// The city and everything below it.
    Tree(RpcReplyPort<Node>),
    /// What a child handled of late.
    Past(String, RpcReplyPort<Vec<Past>>),
    /// Panic, for fault drills.
    Crash,
    /// Handle nothing else for so long, for fault drills.
    Hold(Duration),
    /// Strike a child, for fault drills.
    CrashChild(String, Drill, RpcReplyPort<bool>),
}

impl CityMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Listed(_) => "Listed",
            Self::History(_) => "History",
            Self::Checked(..) => "Checked",
            Self::Command(..) => "Command",
            Self::Reach(..) => "Reach",
            Self::Provided(..) => "Provided",
            Self::Retired => "Retired",
            Self::Tick(_) => "Tick",
            Self::Reload(_) => "Reload",
            Self::Loaded(..) => "Loaded",
            Self::Watched(_) => "Watched",
            Self::Session(_) => "Session",
            Self::Report { .. } => "Report",
            Self::Unspawned { .. } => "Unspawned",
            Self::Due(_) => "Due",
            Self::Stop { .. } => "Stop",
            Self::GraceOver => "GraceOver",
            Self::Swept => "Swept",
            Self::View(_) => "View",
            Self::Spec(_) => "Spec",
            Self::Detail(_) => "Detail",
            Self::Tree(_) => "Tree",
            Self::Past(..) => "Past",
            Self::Crash => "Crash",
            Self::Hold(_) => "Hold",
            Self::CrashChild(..) => "CrashChild",
        }
    }
}

/// What one look at the sessions found.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(super) as_of: Instant,
    /// Looks under an older provider are no news.
    pub(super) epoch: u64,
    pub(super) result: Result<Listing, SessionError>,
    pub(super) zombies: HashSet<SessionName>,
}

/// A session provider that was built and can be used.
pub(crate) struct Provided(pub(super) Arc<dyn Sessions>);

impl std::fmt::Debug for Provided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Provided({})", self.0.provider())
    }
}
