//! The event log: one JSON object per line, appended by any number of processes (api.md 7).
//!
//! [`FileJournal`] is the port [`Journal`](crate::ports::Journal) on such a file, with one writer
//! thread and group commit. [`EventLog`] reads and follows one, with or without a writer around.

mod append;
mod follow;
mod journal;
mod line;
mod log;
mod rotation;
#[cfg(test)]
mod tests;

pub use append::append_one;
pub use follow::Follower;
pub use journal::FileJournal;
pub use log::{Batch, EventLog};
pub use rotation::Rotation;
