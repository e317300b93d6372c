//! The command line: one file per command family.

mod error;
mod output;

pub use error::{CliError, CliResult, Code};
pub use output::Output;
