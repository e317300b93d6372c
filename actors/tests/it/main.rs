//! The whole tree under paused time, on ports in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod adoption;
mod cascades;
mod commands;
mod degraded;
mod drains;
mod drift;
mod ends;
mod following;
mod histories;
mod history;
mod idle;
mod invariants;
mod isolation;
mod limits;
mod patrol;
mod pools;
mod quarantine;
mod races;
mod readouts;
mod ready;
mod reasons;
mod reload;
mod restart;
mod sequences;
mod shutdown;
mod stall;
mod swap;
mod util;
mod waves;
mod zombies;
