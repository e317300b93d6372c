//! How the demo agent learns that it should finish, and says that it has.

use std::path::PathBuf;

use crate::cli::CliResult;
use crate::cli::agent::{Own, acknowledge};
use crate::cli::context::Context;
use crate::cli::discover::Access;

/// The drain mark of the agent's own session.
#[derive(Debug)]
pub(super) struct Drain {
    own: Own,
    root: Option<PathBuf>,
    context: Context,
}

impl Drain {
    /// The mark of this session.
    pub(super) fn new(own: Own, context: &Context) -> Self {
        Self {
            own,
            root: context.city(None, Access::Read).ok(),
            context: context.clone(),
        }
    }

    /// Whether it is set. Reads one small file.
    pub(super) fn is_asked(&self) -> bool {
        let root = self.root.as_deref();
        root.and_then(|root| self.own.is_draining(root))
            .unwrap_or(false)
    }

    /// Says that the work is finished.
    ///
    /// # Errors
    /// If nobody hears it.
    pub(super) fn acknowledge(&self) -> CliResult {
        acknowledge(&self.context, &self.own)
    }
}
