//! Black-box tests: the real binary, real processes, the library as its users see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod bad_input;
mod config;
mod conformance;
mod demo;
mod discovery;
mod docs;
mod dry_run;
mod events;
mod everything;
mod idle;
mod inherited;
mod init;
mod invariants;
mod isolation;
mod json;
mod library;
mod lifecycle;
mod registry;
mod sessions;
mod starting;
mod supervisor;
mod terminal;
mod tidy;
mod tmux;
mod top;
mod util;
mod version;
