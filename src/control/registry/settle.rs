//! When an empty registry is believed.

use std::time::{Duration, Instant};

/// Holds back a registry that vanished while cities run: editors and sync tools empty files for a
/// moment, and stopping every city because of it would be the worst answer. It counts once it was
/// seen on two reads at least one patrol interval apart.
#[derive(Debug, Clone, Default)]
pub struct EmptyGuard {
    since: Option<Instant>,
}

impl EmptyGuard {
    /// Whether this read counts. `empty` is [`super::Contents::empty`], `running` whether any city
    /// runs, `interval` the patrol interval.
    #[must_use = "a read that does not count must not be acted on"]
    pub fn counts(&mut self, empty: bool, running: bool, interval: Duration, now: Instant) -> bool {
        if !empty || !running {
            self.since = None;
            return true;
        }
        let since = *self.since.get_or_insert(now);
        now > since && now.duration_since(since) >= interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn an_empty_file_counts_on_the_second_read_an_interval_later() {
        let start = Instant::now();
        let mut guard = EmptyGuard::default();
        let mut read = |empty, running, after| {
            guard.counts(empty, running, INTERVAL, start + Duration::from_secs(after))
        };
        assert!(!read(true, true, 0));
        assert!(!read(true, true, 9), "too early");
        assert!(read(true, true, 10));
        assert!(read(true, true, 11), "and stays so");
        assert!(read(false, true, 12), "entries count at once");
        assert!(!read(true, true, 30), "and start the wait anew");
        assert!(read(true, false, 31), "nothing runs, nothing to protect");
    }
}
