//! What a Worker can be told.

use std::sync::Arc;
use std::time::Duration;

use super::run::Grace;
use crate::model::{Began, ExitStatus, RunToken, StartFailure, StopReason};
use crate::ports::{Liveness, Note, SessionError, StartSpec, Stopped};

/// What a [`Worker`](super::Worker) can be told. It knows one run only, so only what comes from outside carries
/// a token.
#[derive(Debug)]
pub(crate) enum WorkerMsg {
    /// The start task finished: the session is up, or never will be.
    StartDone(Result<Began, StartFailure>),
    /// A look at the session.
    Probed(Result<Liveness, SessionError>),
    /// The session ended. Comes from the provider's event stream, not from polling.
    Exited(RunToken, ExitStatus),
    /// Its last words.
    Captured(String),
    /// A listing missed the session: look closer.
    Check,
    /// End the run.
    Stop(StopReason, Grace),
    /// The interrupt was sent, or could not be.
    Interrupted,
    /// The grace is over: force.
    Force,
    /// The forced stop finished.
    StopDone(Result<Stopped, SessionError>),
    /// The session is there, its programs are not.
    Zombie,
    /// The backend died and took the session along.
    BackendLost(RunToken, String),
    /// Set (or remove) metadata of the session.
    Note(Note, Option<String>),
    /// Run these live lines; their hash goes into the metadata. `update`: they changed while the
    /// agent ran.
    ApplyLive {
        lines: Vec<String>,
        spec: Arc<StartSpec>,
        update: bool,
    },
    /// Live lines were run; those that failed are warnings.
    LiveApplied { update: bool, warnings: Vec<String> },
    /// Panic, for fault drills.
    Crash,
    /// Handle nothing else for so long, for fault drills.
    Hold(Duration),
}

impl WorkerMsg {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::StartDone(_) => "StartDone",
            Self::Probed(_) => "Probed",
            Self::Exited(..) => "Exited",
            Self::Captured(_) => "Captured",
            Self::Check => "Check",
            Self::Stop(..) => "Stop",
            Self::Interrupted => "Interrupted",
            Self::Force => "Force",
            Self::StopDone(_) => "StopDone",
            Self::Zombie => "Zombie",
            Self::BackendLost(..) => "BackendLost",
            Self::Note(..) => "Note",
            Self::ApplyLive { .. } => "ApplyLive",
            Self::LiveApplied { .. } => "LiveApplied",
            Self::Crash => "Crash",
            Self::Hold(_) => "Hold",
        }
    }
}
