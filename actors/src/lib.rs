//! The supervision tree of gc and every decision it takes.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod city;
mod handle;
mod machine;
mod mailbox;
pub mod memory;
pub mod model;
pub mod policy;
pub mod ports;
mod session;
mod tracker;
mod tree;
mod worker;

pub use city::{AgentCommand, CommandError, ReloadOutcome, StopMode};
pub use handle::{AskError, CityRef, Machine, MachineRef};
pub use machine::{MachinePorts, MachineSettings, Reconciled, stop_sessions};
pub use session::{Nudged, ReachError, SessionRef, When};
pub use tree::{Cells, Handling, Kind, LastError, Node, Past, Shown, Tree, age};
