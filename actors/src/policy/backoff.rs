use std::time::Duration;

use crate::model::Daemon;

/// Counts ends in a row, to space out automatic restarts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pacing {
    in_a_row: u32,
}

impl Pacing {
    /// One more end in a row.
    pub fn note(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    /// The row is broken.
    pub fn reset(&mut self) {
        self.in_a_row = 0;
    }

    /// Ends in a row so far.
    #[must_use]
    pub fn in_a_row(self) -> u32 {
        self.in_a_row
    }

    /// Delay before the next restart: none for the first end in a row, then doubling.
    #[must_use]
    pub fn delay(self, daemon: &Daemon) -> Duration {
        match self.in_a_row {
            0 | 1 => Duration::ZERO,
            k => doubling(daemon.restart_delay, daemon.restart_delay_max, k - 2),
        }
    }
}

/// `first * 2^step`, at most `max`.
#[must_use]
pub fn doubling(first: Duration, max: Duration, step: u32) -> Duration {
    // Beyond 2^20 any delay worth the name has passed any maximum; a zero stays zero.
    first.saturating_mul(1 << step.min(20)).min(max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn delays_are_none_none_then_double_up_to_the_maximum() {
        let daemon = Daemon::default();
        let mut pacing = Pacing::default();
        let mut seconds = vec![pacing.delay(&daemon).as_secs()];
        for _ in 0..8 {
            pacing.note();
            seconds.push(pacing.delay(&daemon).as_secs());
        }
        assert_eq!(seconds, [0, 0, 1, 2, 4, 8, 16, 30, 30]);
        pacing.reset();
        assert_eq!(pacing.delay(&daemon), Duration::ZERO);
    }

    #[test]
    fn a_zero_delay_stays_zero() {
        assert_eq!(
            doubling(Duration::ZERO, Duration::from_secs(30), 40),
            Duration::ZERO
        );
    }

    proptest! {
        #[test]
        fn delays_never_fall_and_never_exceed_the_maximum(first in 1_u64..5_000, max in 1_u64..100_000) {
            let daemon = Daemon {
                restart_delay: Duration::from_millis(first),
                restart_delay_max: Duration::from_millis(max),
                ..Daemon::default()
            };
            let mut pacing = Pacing::default();
            let mut last = Duration::ZERO;
            for _ in 0..80 {
                pacing.note();
                let delay = pacing.delay(&daemon);
                prop_assert!(delay >= last && delay <= daemon.restart_delay_max);
                last = delay;
            }
        }
    }
}
