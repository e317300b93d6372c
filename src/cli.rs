//! The command line: one file per command family.

#[allow(dead_code)] // until the commands are dispatched
mod demo_agent;
mod duration;
mod error;
#[allow(dead_code)] // until the commands are dispatched
mod init;
mod output;

pub use error::{CliError, CliResult, Code};
pub use output::Output;
