//! Black-box tests: the real binary, real processes, the library as its users see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod demo;
mod discovery;
mod docs;
mod events;
mod inherited;
mod init;
mod json;
mod agent;
mod dry_run;
mod library;
mod lifecycle;
mod tidy;
mod util;
mod version;
