//! What the root can be told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorId, RpcReplyPort};

use super::MachineSettings;
use crate::city::{CityMsg, StopMode};
use crate::mailbox::Addr;
use crate::model::{CityName, CitySpec, CityStatus, StopSummary};
use crate::ports::{OpenError, Opened, Registered};
use crate::tree::Tree;

/// What a reconciliation of the registry set in motion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Cities being started.
    pub started: Vec<PathBuf>,
    /// Cities being stopped.
    pub stopped: Vec<PathBuf>,
    /// Cities that cannot be hosted, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// What a [`MachineSupervisor`] can be told.
#[derive(Debug)]
pub(crate) enum MachineMsg {
    /// Read the registry. On request (with a reply) delays of failing cities are ignored.
    Reconcile(Option<RpcReplyPort<Result<Reconciled, String>>>),
    /// The registry was read.
    Registry(
        Result<Registered, String>,
        Option<RpcReplyPort<Result<Reconciled, String>>>,
    ),
    /// A city was opened, or not.
    Opened {
        path: PathBuf,
        attempt: u64,
        result: Result<Opened, OpenError>,
    },
    /// A city says where it stands.
    CityStatus {
        path: PathBuf,
        id: ActorId,
        status: CityStatus,
    },
    /// A city finished a tick; the next is due within a few of these intervals.
    Ticked {
        path: PathBuf,
        id: ActorId,
        interval: Duration,
    },
    /// A city has another config in force.
    Configured {
        path: PathBuf,
        id: ActorId,
        spec: Arc<CitySpec>,
    },
    /// A city has not finished a tick for too long.
    Stalled { path: PathBuf, id: ActorId },
    /// A failing city's delay is over.
    Retry { path: PathBuf, attempt: u64 },
    /// A city answered its stop; `None`: it did not.
    CityStopped {
        path: PathBuf,
        summary: Option<StopSummary>,
    },
    /// End the machine.
    Stop(StopMode, RpcReplyPort<StopSummary>),
    /// The supervisor of the city at that path.
    Find(PathBuf, RpcReplyPort<Option<Addr<CityMsg>>>),
    /// The whole tree.
    Tree(RpcReplyPort<Tree>),
    /// Other settings are in force.
    Configure(MachineSettings),
    /// A city takes long to start.
    Slow { path: PathBuf, attempt: u64 },
    /// The config of a city asks for another name, or no longer does.
    PendingName {
        path: PathBuf,
        id: ActorId,
        name: Option<CityName>,
    },
    /// Panic, for fault drills.
    Crash,
    /// Handle nothing else for so long, for fault drills.
    Hold(Duration),
}

impl MachineMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Reconcile(_) => "Reconcile",
            Self::Registry(..) => "Registry",
            Self::Opened { .. } => "Opened",
            Self::CityStatus { .. } => "CityStatus",
            Self::Ticked { .. } => "Ticked",
            Self::Configured { .. } => "Configured",
            Self::Stalled { .. } => "Stalled",
            Self::Retry { .. } => "Retry",
            Self::CityStopped { .. } => "CityStopped",
            Self::Stop(..) => "Stop",
            Self::Find(..) => "Find",
            Self::Tree(_) => "Tree",
            Self::Configure(_) => "Configure",
            Self::Slow { .. } => "Slow",
            Self::PendingName { .. } => "PendingName",
            Self::Crash => "Crash",
            Self::Hold(_) => "Hold",
        }
    }
}
