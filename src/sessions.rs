//! Where agents run: the adapters of the port [`Sessions`](crate::ports::Sessions).
//!
//! [`Subprocess`] runs plain child processes that outlive the supervisor. [`Fake`] runs nothing
//! and [`Fail`] never works: for trying out configs and for tests.

pub(crate) mod environment;
mod fail;
mod fake;
mod output;
#[cfg(target_os = "linux")]
mod proc;
#[cfg(target_os = "linux")]
mod subprocess;
#[cfg(target_os = "linux")]
pub(crate) mod sys;

pub use environment::DEFAULT_PASSTHROUGH;
pub use fail::Fail;
pub use fake::Fake;
#[cfg(target_os = "linux")]
pub use subprocess::{Subprocess, SubprocessConfig};
