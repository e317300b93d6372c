//! Where agents run: the adapters of the port [`Sessions`](crate::ports::Sessions).
//!
//! [`Subprocess`] runs plain child processes that outlive the supervisor, [`Tmux`] does so in
//! sessions of a tmux server, with screens to look at and to type on. [`Fake`] runs nothing
//! and [`Fail`] never works: for trying out configs and for tests.

pub(crate) mod choose;
mod delegate;
pub(crate) mod environment;
#[cfg(target_os = "linux")]
mod exec;
mod fail;
mod fake;
mod output;
#[cfg(target_os = "linux")]
pub(crate) mod prepare;
#[cfg(target_os = "linux")]
mod proc;
#[cfg(target_os = "linux")]
mod processes;
pub(crate) mod router;
#[cfg(target_os = "linux")]
mod subprocess;
#[cfg(target_os = "linux")]
pub(crate) mod sys;
#[cfg(target_os = "linux")]
pub(crate) mod tmux;

use std::path::{Path, PathBuf};

use gascity_actors::model::SessionName;

pub use environment::DEFAULT_PASSTHROUGH;
#[cfg(target_os = "linux")]
pub use exec::{Exec, ExecConfig};
pub use fail::Fail;
pub use fake::Fake;
pub(crate) use output::{clean, tail_across};
#[cfg(target_os = "linux")]
pub(crate) use subprocess::metadata;
#[cfg(target_os = "linux")]
pub use subprocess::{Subprocess, SubprocessConfig};
#[cfg(target_os = "linux")]
pub use tmux::{Tmux, TmuxConfig};

/// Where the output of a session is kept, whatever became of its runs.
pub(crate) fn log_file(root: &Path, session: &SessionName) -> PathBuf {
    root.join(".gc/runtime/logs").join(format!("{session}.log"))
}

/// Whether a process of this machine runs; one that ended and waits for its parent does not.
#[cfg(target_os = "linux")]
pub(crate) fn is_alive(pid: i32) -> bool {
    matches!(proc::stat(pid), Ok(Some(stat)) if !stat.dead)
}
