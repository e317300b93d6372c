use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::{CityPorts, Diagnostic, PortFuture};
use crate::model::{CityName, CitySpec};

/// The cities this machine is meant to host.
pub trait Cities: Send + Sync + 'static {
    /// Reads the registry. On an error the last good set stays in force.
    fn registered(&self) -> PortFuture<'_, Registered, String>;

    /// Changes whenever the registry may have changed; see [`super::Desired::changes`].
    fn changes(&self) -> watch::Receiver<u64>;

    /// Takes the city's lock, loads its config and builds its ports.
    fn open(&self, entry: CityEntry) -> PortFuture<'_, Opened, OpenError>;

    /// Changes when the config of a city that failed to open may have changed since that attempt;
    /// `None` where nobody can tell.
    fn mended(&self, _: &CityEntry) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// The registry's content, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registered {
    /// Cities to host.
    pub cities: Vec<CityEntry>,
    /// Entries that cannot be hosted, and why (e.g. a name used twice).
    pub refused: Vec<(CityEntry, String)>,
}

/// One registered city.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CityEntry {
    /// Its name.
    pub name: CityName,
    /// Canonical root directory, the primary key.
    pub path: PathBuf,
}

/// A city ready to be supervised.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The config it starts with.
    pub spec: Arc<CitySpec>,
    /// Its ports.
    pub ports: CityPorts,
}

/// A city that cannot be hosted now.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct OpenError {
    /// Why, for a person.
    pub message: String,
    /// The config problems, if that is the reason.
    pub diagnostics: Vec<Diagnostic>,
}
