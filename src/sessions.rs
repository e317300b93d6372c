//! Where agents run: the adapters of the port [`Sessions`](crate::ports::Sessions).
//!
//! One provider so far, [`Subprocess`]: plain child processes that outlive the supervisor.

pub(crate) mod environment;
mod output;
#[cfg(target_os = "linux")]
mod proc;
#[cfg(target_os = "linux")]
mod subprocess;
#[cfg(target_os = "linux")]
pub(crate) mod sys;

pub use environment::DEFAULT_PASSTHROUGH;
#[cfg(target_os = "linux")]
pub use subprocess::{Subprocess, SubprocessConfig};
