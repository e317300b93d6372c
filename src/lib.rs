//! gc: an Erlang/OTP-style supervisor for fleets of coding agents.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod cli;
pub mod config;
pub mod control;

pub use gascity_actors::{model, ports};

pub mod events;
pub mod sessions;
