use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use crate::model::RunToken;
use crate::ports::{Clock, Tokens};

/// Wall time that moves with tokio's clock, from a fixed day.
#[derive(Debug)]
pub struct MemoryClock {
    origin: Instant,
}

impl MemoryClock {
    /// A clock that begins now, at midnight of 2026-01-01 UTC.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for MemoryClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MemoryClock {
    fn wall(&self) -> DateTime<Utc> {
        let midnight = DateTime::from_timestamp(1_767_225_600, 0).unwrap_or_default();
        midnight + TimeDelta::from_std(self.origin.elapsed()).unwrap_or_default()
    }
}

/// Tokens `run-1`, `run-2`, …
#[derive(Debug, Default)]
pub struct CountingTokens(AtomicU64);

impl Tokens for CountingTokens {
    fn fresh(&self) -> RunToken {
        let number = self.0.fetch_add(1, Relaxed) + 1;
        #[allow(clippy::expect_used)] // letters, digits and a dash
        RunToken::new(format!("run-{number}")).expect("a valid token")
    }
}
