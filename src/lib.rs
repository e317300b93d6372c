//! gc: an Erlang/OTP-style supervisor for fleets of coding agents.
//!
//! A *city* is a directory with a `city.toml` that declares agents. [`City`] supervises one inside
//! your own program: it starts the agents, restarts those that die, quarantines crash loops,
//! follows config edits live, and adopts what a killed supervisor left running. The `gc` program
//! is built on this library and on nothing deeper.
//!
//! | You want | Look at |
//! |---|---|
//! | a city from a directory | [`City::open`] |
//! | a city from code, on your own adapters | [`City::from_spec`], [`ports`], [`memory`] |
//! | many cities, as the supervisor hosts them | [`Machine`] and [`host`] |
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod city;
pub mod cli;
pub mod config;
pub mod conformance;
pub mod control;
pub mod daemon;
pub mod events;
mod glob;
pub mod host;
pub mod notes;
pub mod sessions;
pub mod shell;
mod system;

pub use city::{City, CityBuilder, CityError, RunningCity};
pub use gascity_actors::{
    AskError, CityRef, Machine, MachinePorts, MachineRef, MachineSettings, Node, Reconciled,
    ReloadOutcome, StopMode, Tree, memory, model, ports,
};
pub use system::{RandomTokens, SystemClock};

/// The snippets of the library page, compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
mod library_page {}
