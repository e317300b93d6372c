//! Every port in memory: scripted sessions, a journal, config, registry, clock and tokens.
//!
//! They do no I/O and run on tokio's clock, so a whole city runs under paused time. Part of the
//! library: this is what a program that embeds a city tests with.

mod cities;
mod clock;
mod desired;
mod journal;
mod notes;
mod providers;
mod sessions;
mod shell;

use std::sync::Arc;

pub use cities::MemoryCities;
pub use clock::{CountingTokens, MemoryClock};
pub use desired::MemoryDesired;
pub use journal::MemoryJournal;
pub use notes::MemoryNotes;
pub use providers::MemoryProviders;
pub use sessions::{Behaviour, Call, Fault, MemorySessions, Times};
pub use shell::{Answer, MemoryShell};

use crate::model::CitySpec;
use crate::ports::CityPorts;

/// All ports of one city in memory, each at hand for a test to steer.
#[derive(Debug, Clone)]
pub struct MemoryCity {
    /// Its sessions. They outlive the tree, like real ones.
    pub sessions: Arc<MemorySessions>,
    /// Its event log.
    pub journal: Arc<MemoryJournal>,
    /// Its config.
    pub desired: Arc<MemoryDesired>,
    /// Its clock.
    pub clock: Arc<MemoryClock>,
    /// Its tokens.
    pub tokens: Arc<CountingTokens>,
    /// Its shell.
    pub shell: Arc<MemoryShell>,
    /// Its state.
    pub notes: Arc<MemoryNotes>,
    /// Providers a config may ask for.
    pub providers: Arc<MemoryProviders>,
}

impl MemoryCity {
    /// Ports for a city of this spec. Needs a tokio runtime.
    #[must_use]
    pub fn new(spec: CitySpec) -> Self {
        let clock = Arc::new(MemoryClock::new());
        Self {
            sessions: Arc::new(MemorySessions::new(clock.clone())),
            journal: Arc::new(MemoryJournal::new(clock.clone())),
            desired: Arc::new(MemoryDesired::new(spec)),
            tokens: Arc::new(CountingTokens::default()),
            shell: Arc::default(),
            notes: Arc::default(),
            providers: Arc::default(),
            clock,
        }
    }

    /// The ports as the tree takes them.
    #[must_use]
    pub fn ports(&self) -> CityPorts {
        CityPorts {
            sessions: self.sessions.clone(),
            journal: self.journal.clone(),
            desired: self.desired.clone(),
            clock: self.clock.clone(),
            tokens: self.tokens.clone(),
            shell: self.shell.clone(),
            notes: self.notes.clone(),
            providers: self.providers.clone(),
            held: Arc::new(()),
        }
    }
}
