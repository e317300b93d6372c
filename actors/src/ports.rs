//! The traits through which the tree sees the world.
//!
//! Object-safe and held as `Arc<dyn …>`, since configuration picks the adapter. A call may be
//! slow or hang: the caller brings the deadline. Dropping a future or a port never ends a session.

mod cities;
mod clock;
mod desired;
mod follow;
mod journal;
mod keys;
mod limits;
mod notes;
mod sessions;
mod shell;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::model::CitySpec;

pub use cities::{Cities, CityEntry, OpenError, Opened, Registered};
pub use clock::{Clock, Tokens};
pub use desired::{Desired, Diagnostic, LoadError, Related};
pub use follow::{Followed, follow};
pub use journal::{EventStream, Journal, JournalError};
pub use keys::Key;
pub use limits::Limits;
pub use notes::{Notes, NotesError};
pub use sessions::{
    AttachPlan, Caps, Delivery, Facts, Fence, Listing, Liveness, Note, Probe, SessionError,
    SessionEvent, SessionEventKind, SessionEvents, Sessions, StartError, StartSpec, Started,
    Stopped, check_note, inside, nudge_text,
};
pub use shell::{RunOf, Shell, ShellError, ShellJob};

/// What every port call returns: a boxed future, so that ports stay object-safe.
pub type PortFuture<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Builds session providers as the config asks for them.
pub trait Providers: Send + Sync + 'static {
    /// Builds the provider that `spec` names, with its settings, and proves that it can be used.
    /// Sessions of the one in use are not touched.
    fn provide(&self, spec: Arc<CitySpec>) -> PortFuture<'_, Arc<dyn Sessions>, String>;
}

/// The ports of one city.
#[derive(Clone)]
pub struct CityPorts {
    /// Where agents run.
    pub sessions: Arc<dyn Sessions>,
    /// Where events go.
    pub journal: Arc<dyn Journal>,
    /// Where the config comes from.
    pub desired: Arc<dyn Desired>,
    /// Runs pool checks and hooks.
    pub shell: Arc<dyn Shell>,
    /// Small state beside the city.
    pub notes: Arc<dyn Notes>,
    /// Other session providers, for a config that asks for one.
    pub providers: Arc<dyn Providers>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Fresh run tokens.
    pub tokens: Arc<dyn Tokens>,
    /// Whatever must live as long as the city is hosted here, such as its lock.
    pub held: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for CityPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CityPorts").finish_non_exhaustive()
    }
}
