use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::mailbox::lock;
use crate::model::CitySpec;
use crate::ports::{Desired, LoadError, PortFuture};

/// A config that changes when told to.
#[derive(Debug)]
pub struct MemoryDesired {
    current: Mutex<Result<Arc<CitySpec>, LoadError>>,
    changes: watch::Sender<u64>,
    trouble: watch::Sender<Option<String>>,
}

impl MemoryDesired {
    /// Begins with this spec.
    #[must_use]
    pub fn new(spec: CitySpec) -> Self {
        Self {
            current: Mutex::new(Ok(Arc::new(spec))),
            changes: watch::channel(0).0,
            trouble: watch::channel(None).0,
        }
    }

    /// "Saves" another spec, or a broken one.
    pub fn set(&self, spec: Result<CitySpec, LoadError>) {
        *lock(&self.current) = spec.map(Arc::new);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Says why changes may be noticed late, or that they are not.
    pub fn set_trouble(&self, why: Option<&str>) {
        self.trouble.send_replace(why.map(str::to_owned));
    }
}

impl Desired for MemoryDesired {
    fn load(&self) -> PortFuture<'_, Arc<CitySpec>, LoadError> {
        let current = lock(&self.current).clone();
        Box::pin(async move { current })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn watch_trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }
}
