//! What is kept with a session, said to it or copied into it, in a form all providers can take.

use std::path::{Component, Path};

use super::SessionError;

/// Keys of session metadata the tree uses. Ownership (`GC_CITY`, `GC_AGENT`, `GC_SESSION_ID`) is
/// the adapter's own business. Agents and other gc processes write some of them, so a listing
/// must read them afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Note {
    /// Count of runs of this instance.
    Generation,
    /// Fingerprint the run was started with.
    ConfigHash,
    /// Its parts, as JSON.
    ConfigHashFields,
    /// Hash of the `session_live` lines that were run last.
    LiveHash,
    /// A planned stop is under way, and why.
    StopIntent,
    /// A drain is under way, since this Unix time in seconds.
    Drain,
    /// Why it drains: `pool-excess`, `config-drift` or `user`.
    DrainReason,
    /// After how many seconds a drain by a user is forced; absent: never, or as the pool says.
    DrainTimeout,
    /// The agent has finished.
    DrainAck,
    /// The agent asks for a fresh session.
    RestartRequested,
}

impl Note {
    /// All keys with their stored names.
    const NAMES: [(Self, &'static str); 10] = [
        (Self::Generation, "generation"),
        (Self::ConfigHash, "config_hash"),
        (Self::ConfigHashFields, "config_hash_fields"),
        (Self::LiveHash, "live_hash"),
        (Self::StopIntent, "GC_STOP_INTENT"),
        (Self::Drain, "GC_DRAIN"),
        (Self::DrainReason, "GC_DRAIN_REASON"),
        (Self::DrainTimeout, "GC_DRAIN_TIMEOUT"),
        (Self::DrainAck, "GC_DRAIN_ACK"),
        (Self::RestartRequested, "GC_RESTART_REQUESTED"),
    ];

    /// The key as stored.
    #[must_use]
    pub fn key(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(note, _)| *note == self)
            .map_or("", |(_, name)| name)
    }

    /// The key behind a stored name.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, name)| *name == key)
            .map(|(note, _)| *note)
    }
}

/// The largest value of metadata, in bytes.
const NOTE_LIMIT: usize = 64 << 10;

/// Whether a value can be kept as metadata: a value must survive any way of being stored.
///
/// # Errors
/// [`SessionError::TooLarge`], and [`SessionError::Invalid`] for a NUL byte.
pub fn check_note(value: Option<&str>) -> Result<(), SessionError> {
    match value {
        Some(value) if value.len() > NOTE_LIMIT => Err(SessionError::TooLarge(NOTE_LIMIT)),
        Some(value) if value.contains('\0') => {
            Err(SessionError::Invalid("the value holds a NUL byte"))
        }
        _ => Ok(()),
    }
}

/// The largest message, in bytes.
const NUDGE_LIMIT: usize = 64 << 10;

/// A message as it is typed: tabs become spaces, lines end with a line feed, control characters
/// are left out. All providers clean it the same way.
///
/// # Errors
/// [`SessionError::TooLarge`].
pub fn nudge_text(text: &str) -> Result<String, SessionError> {
    if text.len() > NUDGE_LIMIT {
        return Err(SessionError::TooLarge(NUDGE_LIMIT));
    }
    let mut clean = text.replace("\r\n", "\n").replace('\t', " ");
    clean.retain(|c| c == '\n' || !c.is_ascii_control());
    Ok(clean)
}

/// A place in a working directory, as [`Sessions::copy_to`](super::Sessions::copy_to) takes it.
///
/// # Errors
/// [`SessionError::Invalid`] if it leads elsewhere.
pub fn inside(to: &str) -> Result<&Path, SessionError> {
    let path = Path::new(to);
    let mut parts = path.components();
    match parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        true => Ok(path),
        false => Err(SessionError::Invalid(
            "the destination must be inside the working directory: no \"..\", not absolute",
        )),
    }
}
