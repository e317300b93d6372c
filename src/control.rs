//! How a running supervisor is found, reached and kept single: directories, locks, the registry
//! of cities, the control socket (both sides) and the detached start.
//!
//! ```text
//! home      where everything lives          lock      who runs (the only proof of life)
//! registry  which cities are meant to run   daemon    a supervisor that outlives its shell
//! wire      one request, one answer         server, client   the two ends of it
//! ```
//!
//! Nothing here knows an actor: the socket answers through a [`server::Handler`], and the registry
//! speaks the types of [`crate::ports`].

pub mod client;
pub mod daemon;
pub mod detail;
pub mod handoff;
pub mod home;
pub mod inherited;
pub mod lock;
pub mod registry;
pub mod server;
pub mod service;
pub mod wire;

pub(crate) mod files;
