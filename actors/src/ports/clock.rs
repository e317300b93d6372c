use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::model::RunToken;

/// What time it is. Monotonic time decides, wall time is shown and recorded.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic now. Always tokio's, so that paused tests rule it.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Wall-clock now.
    fn wall(&self) -> DateTime<Utc>;
}

/// A source of fresh run tokens. They must never repeat, also across restarts of the process.
pub trait Tokens: Send + Sync + 'static {
    /// A token never given out before.
    fn fresh(&self) -> RunToken;
}
