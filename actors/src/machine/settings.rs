//! What the root is born with.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::watch;

use crate::mailbox::Gauge;
use crate::model::MachineView;
use crate::ports::{Cities, Clock, Journal};

/// Settings of the machine (`supervisor.toml`).
#[derive(Debug, Clone)]
pub struct MachineSettings {
    /// Time between reads of the registry.
    pub patrol_interval: Duration,
    /// Cities being started at once.
    pub city_start_parallelism: usize,
    /// Delay before a failing city is tried again; doubles.
    pub city_restart_delay: Duration,
    /// Upper bound of that delay.
    pub city_restart_delay_max: Duration,
    /// For events: the program's version.
    pub version: String,
    /// For events: `supervisor`, `standalone` or `library`.
    pub mode: String,
}

impl Default for MachineSettings {
    fn default() -> Self {
        Self {
            patrol_interval: Duration::from_secs(10),
            city_start_parallelism: 4,
            city_restart_delay: Duration::from_secs(1),
            city_restart_delay_max: Duration::from_secs(300),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: "library".to_owned(),
        }
    }
}

/// Ports of the machine.
#[derive(Clone)]
pub struct MachinePorts {
    /// Which cities there are, and how to open one.
    pub cities: Arc<dyn Cities>,
    /// Machine events.
    pub journal: Arc<dyn Journal>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for MachinePorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachinePorts").finish_non_exhaustive()
    }
}

/// Everything a [`MachineSupervisor`] is born with.
#[derive(Debug)]
pub(crate) struct MachineArgs {
    pub(crate) settings: MachineSettings,
    pub(crate) ports: MachinePorts,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) views: watch::Sender<Arc<MachineView>>,
    /// Set before a normal end; a root that ends without it has failed.
    pub(crate) clean: Arc<AtomicBool>,
}
