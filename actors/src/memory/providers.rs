use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::MemorySessions;
use crate::mailbox::lock;
use crate::model::CitySpec;
use crate::ports::{PortFuture, Providers, Sessions};

/// Providers in memory, by their word. A word without one cannot be used.
#[derive(Debug, Default)]
pub struct MemoryProviders(Mutex<HashMap<String, Arc<MemorySessions>>>);

impl MemoryProviders {
    /// Makes a provider available under a word.
    pub fn add(&self, word: &str, sessions: Arc<MemorySessions>) {
        lock(&self.0).insert(word.to_owned(), sessions);
    }
}

impl Providers for MemoryProviders {
    fn provide(&self, spec: Arc<CitySpec>) -> PortFuture<'_, Arc<dyn Sessions>, String> {
        let word = spec.provider.clone();
        let found = lock(&self.0).get(&word).cloned();
        Box::pin(async move {
            let found = found.ok_or_else(|| format!("session provider {word} cannot be used"))?;
            Ok(found as Arc<dyn Sessions>)
        })
    }
}
