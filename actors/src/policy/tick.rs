use std::time::Duration;

use tokio::time::Instant;

/// What asked for a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// The city begins.
    Startup,
    /// The patrol interval passed.
    Patrol,
    /// Somebody wants it now.
    Poke,
}

/// At most one tick at a time, and no pile-up of missed ones.
///
/// A tick is a message that is re-armed when a tick completes, never a repeating timer: mailboxes
/// are unbounded, and a slow backend would fill them.
#[derive(Debug, Clone)]
pub struct TickGate {
    last_patrol: Instant,
    in_progress: Option<Instant>,
    pending: bool,
    missed: u64,
}

impl TickGate {
    /// A gate whose patrol schedule begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            last_patrol: now,
            in_progress: None,
            pending: false,
            missed: 0,
        }
    }

    /// Asks to begin a tick. `false`: one is in progress; exactly one more follows it, however
    /// often this is asked. Only patrol ticks move the schedule.
    #[must_use]
    pub fn begin(&mut self, trigger: Trigger, interval: Duration, now: Instant) -> bool {
        if self.in_progress.is_some() {
            self.pending = true;
            return false;
        }
        if trigger == Trigger::Patrol {
            let periods = now.saturating_duration_since(self.last_patrol).as_nanos()
                / interval.as_nanos().max(1);
            self.missed += u64::try_from(periods.saturating_sub(1)).unwrap_or(u64::MAX);
            self.last_patrol = now;
        }
        self.in_progress = Some(now);
        true
    }

    /// The tick in progress is complete: how long it took.
    pub fn complete(&mut self, now: Instant) -> Duration {
        let began = self.in_progress.take().unwrap_or(now);
        now.saturating_duration_since(began)
    }

    /// Somebody asked for a tick while one was in progress; asking takes the wish away.
    #[must_use]
    pub fn take_pending(&mut self) -> bool {
        std::mem::take(&mut self.pending)
    }

    /// When the next patrol tick is due.
    #[must_use]
    pub fn due(&self, interval: Duration, now: Instant) -> Instant {
        (self.last_patrol + interval).max(now)
    }

    /// A tick is in progress.
    #[must_use]
    pub fn in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// Patrol periods dropped so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn a_slow_tick_is_followed_by_one_at_once_and_the_rest_is_counted() {
        let t0 = Instant::now();
        let mut gate = TickGate::new(t0);
        let first = gate.due(INTERVAL, t0);
        assert_eq!(first, t0 + INTERVAL);
        assert!(gate.begin(Trigger::Patrol, INTERVAL, first));
        let end = first + INTERVAL * 10;
        assert_eq!(gate.complete(end), INTERVAL * 10);
        assert_eq!(gate.due(INTERVAL, end), end);
        assert!(gate.begin(Trigger::Patrol, INTERVAL, end));
        assert_eq!(gate.missed(), 9);
        gate.complete(end);
        assert_eq!(gate.due(INTERVAL, end), end + INTERVAL);
    }

    #[test]
    fn any_number_of_pokes_during_a_tick_ask_for_one_more() {
        let t0 = Instant::now();
        let mut gate = TickGate::new(t0);
        assert!(gate.begin(Trigger::Startup, INTERVAL, t0));
        for _ in 0..1000 {
            assert!(!gate.begin(Trigger::Poke, INTERVAL, t0));
        }
        gate.complete(t0);
        assert!(gate.take_pending());
        assert!(!gate.take_pending());
    }

    #[test]
    fn pokes_do_not_move_the_patrol_schedule() {
        let t0 = Instant::now();
        let mut gate = TickGate::new(t0);
        let poked = t0 + Duration::from_secs(29);
        assert!(gate.begin(Trigger::Poke, INTERVAL, poked));
        gate.complete(poked);
        assert_eq!(gate.due(INTERVAL, poked), t0 + INTERVAL);
        assert_eq!(gate.missed(), 0);
    }
}
