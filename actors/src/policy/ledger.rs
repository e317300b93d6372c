use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::RestartLimit;

/// Without a limit nothing reads the entries but the display, so they are not kept for ever.
const UNLIMITED_KEPT: usize = 100;

/// The charged ends of one slot: start instants of the runs, in a sliding window.
///
/// A run is charged when it ends, with the instant it began. A run older than the window is thus
/// forgotten at once: it has proven itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    starts: VecDeque<Instant>,
}

impl Ledger {
    /// Notes the end of a run that began at `started`.
    pub fn charge(&mut self, started: Instant, limit: RestartLimit, now: Instant) {
        self.starts.push_back(started);
        self.trim(limit, now);
    }

    /// Drops what is out of the window, and the oldest beyond what the limit can ever need.
    pub fn trim(&mut self, limit: RestartLimit, now: Instant) {
        self.prune(limit.window, now);
        let kept = match limit.max_restarts {
            0 => UNLIMITED_KEPT,
            max => max as usize,
        };
        while self.starts.len() > kept {
            self.starts.pop_front();
        }
    }

    /// Charged ends in the window that ends `now`.
    #[must_use]
    pub fn count(&self, window: Duration, now: Instant) -> u32 {
        let count = self
            .starts
            .iter()
            .filter(|start| !expired(**start, window, now))
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Until when no restart is allowed. At that instant it still is not; a millisecond later
    /// the oldest entry has left the window.
    #[must_use]
    pub fn quarantined_until(&self, limit: RestartLimit, now: Instant) -> Option<Instant> {
        if limit.max_restarts == 0 || self.count(limit.window, now) < limit.max_restarts {
            return None;
        }
        let oldest = self
            .starts
            .iter()
            .find(|start| !expired(**start, limit.window, now))?;
        Some(*oldest + limit.window)
    }

    /// A ledger with these starts, as read from a history.
    pub fn from_starts(starts: impl IntoIterator<Item = Instant>) -> Self {
        Self {
            starts: starts.into_iter().collect(),
        }
    }

    /// The start instants it holds, oldest first.
    pub fn starts(&self) -> impl Iterator<Item = &Instant> {
        self.starts.iter()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.starts.clear();
    }

    fn prune(&mut self, window: Duration, now: Instant) {
        self.starts.retain(|start| !expired(*start, window, now));
    }
}

/// An entry exactly `window` old still counts.
fn expired(start: Instant, window: Duration, now: Instant) -> bool {
    now.saturating_duration_since(start) > window
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);

    fn limit(max_restarts: u32) -> RestartLimit {
        RestartLimit {
            max_restarts,
            window: WINDOW,
        }
    }

    #[test]
    fn the_third_charge_of_three_quarantines_until_the_oldest_leaves_the_window() {
        let t0 = Instant::now();
        let mut ledger = Ledger::default();
        for second in [0, 0, 1] {
            assert_eq!(ledger.quarantined_until(limit(3), t0), None);
            ledger.charge(
                t0 + Duration::from_secs(second),
                limit(3),
                t0 + Duration::from_secs(second),
            );
        }
        let until = t0 + WINDOW;
        assert_eq!(
            ledger.quarantined_until(limit(3), t0 + Duration::from_secs(1)),
            Some(until)
        );
        assert_eq!(ledger.quarantined_until(limit(3), until), Some(until));
        let after = until + Duration::from_millis(1);
        assert_eq!(ledger.quarantined_until(limit(3), after), None);
        assert_eq!(ledger.count(WINDOW, after), 1, "the third start survives");
    }

    #[test]
    fn a_run_older_than_the_window_is_forgotten_at_once() {
        let t0 = Instant::now();
        let mut ledger = Ledger::default();
        ledger.charge(t0, limit(1), t0 + WINDOW * 2);
        assert_eq!(ledger.count(WINDOW, t0 + WINDOW * 2), 0);
    }

    #[test]
    fn without_a_limit_there_is_no_quarantine_and_no_growth() {
        let t0 = Instant::now();
        let mut ledger = Ledger::default();
        for _ in 0..10_000 {
            ledger.charge(t0, limit(0), t0);
        }
        assert_eq!(ledger.quarantined_until(limit(0), t0), None);
        assert_eq!(ledger.count(WINDOW, t0), 100);
    }

    proptest! {
        /// Invariant I4: the ledger is bounded by the limit and holds nothing older than the window.
        #[test]
        fn ledger_is_bounded_in_length_and_age(
            max in 1_u32..8,
            steps in prop::collection::vec((0_u64..400, 0_u64..900), 1..60),
        ) {
            let mut now = Instant::now() + Duration::from_secs(10_000);
            let mut ledger = Ledger::default();
            for (gap, age) in steps {
                now += Duration::from_secs(gap);
                ledger.charge(now - Duration::from_secs(age), limit(max), now);
                prop_assert!(ledger.starts.len() <= max as usize);
                prop_assert!(ledger.starts.iter().all(|start| now.duration_since(*start) <= WINDOW));
            }
        }

        /// Invariant I5, seen from the ledger: an agent that dies at once and is started whenever
        /// allowed has at most N starts in any window.
        #[test]
        fn at_most_n_starts_in_any_window(max in 1_u32..6, gaps in prop::collection::vec(0_u64..300, 1..80)) {
            let mut now = Instant::now();
            let mut ledger = Ledger::default();
            let mut starts: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_secs(gap);
                if ledger.quarantined_until(limit(max), now).is_none() {
                    starts.push(now);
                    ledger.charge(now, limit(max), now);
                }
                let recent = starts.iter().filter(|start| now.duration_since(**start) <= WINDOW).count();
                prop_assert!(recent <= max as usize);
            }
        }
    }
}
