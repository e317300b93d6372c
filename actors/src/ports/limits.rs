use std::time::Duration;

/// How long each call of a session provider may take, before it counts as
/// [`Timeout`](super::SessionError::Timeout). Starts are bounded by the agent's own
/// `startup_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of [`stop`](super::Sessions::stop).
    pub stop: Duration,
    /// Of [`interrupt`](super::Sessions::interrupt).
    pub interrupt: Duration,
    /// Of [`snapshot`](super::Sessions::snapshot).
    pub snapshot: Duration,
    /// Of [`liveness`](super::Sessions::liveness).
    pub liveness: Duration,
    /// Of [`process_alive`](super::Sessions::process_alive).
    pub process_alive: Duration,
    /// Of [`clear_scrollback`](super::Sessions::clear_scrollback).
    pub clear_scrollback: Duration,
    /// Of [`peek`](super::Sessions::peek).
    pub peek: Duration,
    /// Of [`set_note`](super::Sessions::set_note).
    pub set_note: Duration,
    /// Of [`nudge`](super::Sessions::nudge): waiting for others who type, for the text to arrive
    /// and for a reaction.
    pub nudge: Duration,
    /// Of [`send_keys`](super::Sessions::send_keys).
    pub send_keys: Duration,
    /// Of [`attach`](super::Sessions::attach).
    pub attach: Duration,
    /// Of [`copy_to`](super::Sessions::copy_to).
    pub copy_to: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (short, long) = (Duration::from_secs(2), Duration::from_secs(5));
        Self {
            stop: long,
            peek: long,
            snapshot: Duration::from_secs(10),
            nudge: Duration::from_secs(60),
            copy_to: Duration::from_secs(30),
            ..Self::all(short)
        }
    }
}

impl Limits {
    /// None at all, for a provider that bounds its calls itself.
    pub const NONE: Self = Self::all(Duration::MAX);

    const fn all(limit: Duration) -> Self {
        Self {
            stop: limit,
            interrupt: limit,
            snapshot: limit,
            liveness: limit,
            process_alive: limit,
            clear_scrollback: limit,
            peek: limit,
            set_note: limit,
            nudge: limit,
            send_keys: limit,
            attach: limit,
            copy_to: limit,
        }
    }
}
