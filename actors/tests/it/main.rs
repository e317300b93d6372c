//! The whole tree under paused time, on ports in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod adoption;
mod isolation;
mod patrol;
mod quarantine;
mod reload;
mod restart;
mod shutdown;
mod util;
