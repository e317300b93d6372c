use std::sync::Mutex;

use tokio::sync::watch;

use crate::mailbox::lock;
use crate::ports::{Cities, CityEntry, CityPorts, OpenError, Opened, PortFuture, Registered};

/// A registry in memory. An entry's ports are made by the caller, once.
#[derive(Debug)]
pub struct MemoryCities {
    entries: Mutex<Vec<(CityEntry, CityPorts)>>,
    changes: watch::Sender<u64>,
}

impl Default for MemoryCities {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }
}

impl MemoryCities {
    /// Registers a city.
    pub fn register(&self, entry: CityEntry, ports: CityPorts) {
        lock(&self.entries).push((entry, ports));
        self.changes.send_modify(|count| *count += 1);
    }

    /// Unregisters the city of that name.
    pub fn unregister(&self, name: &str) {
        lock(&self.entries).retain(|(entry, _)| entry.name.as_str() != name);
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Cities for MemoryCities {
    fn registered(&self) -> PortFuture<'_, Registered, String> {
        let cities = lock(&self.entries)
            .iter()
            .map(|(entry, _)| entry.clone())
            .collect();
        Box::pin(async move {
            Ok(Registered {
                cities,
                refused: Vec::new(),
            })
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn open(&self, entry: CityEntry) -> PortFuture<'_, Opened, OpenError> {
        let found = lock(&self.entries)
            .iter()
            .find(|(e, _)| *e == entry)
            .map(|(_, p)| p.clone());
        Box::pin(async move {
            let unknown = OpenError {
                message: "not registered".into(),
                diagnostics: Vec::new(),
            };
            let ports = found.ok_or(unknown)?;
            let spec = ports.desired.load().await.map_err(|error| OpenError {
                message: error.summary,
                diagnostics: error.diagnostics,
            })?;
            Ok(Opened { spec, ports })
        })
    }
}
