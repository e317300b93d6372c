//! `gc rig remove`: a rig leaves the config, its directory stays.

use clap::Args;
use serde_json::json;

use super::find;
use crate::cli::agent::{of_rig, refused, take_up};
use crate::cli::context::Context;
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Mark;
use crate::cli::values::count;
use crate::config;
use crate::config::edit::{EditError, remove_rig};

/// Arguments of `gc rig remove`.
#[derive(Debug, Args)]
#[command(
    long_about = "Take a rig out of the config; its directory stays.\n\nAgents that its packs made stop, as after any edit of the file. While other agents or patches need the rig, nothing is changed.",
    after_help = "Examples:\n  gc rig remove backend\n  gc rig remove backend -y   # also if that stops several agents"
)]
pub(super) struct RemoveArgs {
    /// Name of the rig
    rig: String,
}

impl RemoveArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Change)?;
        let loaded = config::load(&root).map_err(|error| CliError::config(&root, error))?;
        let rig = find(&loaded, &self.rig)?;
        let (agents, _) = of_rig(context, &rig.name)?;
        let running = agents.iter().filter(|agent| agent.running).count();
        if running > 1 {
            let stops = count(running, "agent");
            context.confirm(&format!("remove rig {} and stop {stops}", rig.name))?;
        }
        let _ = remove_rig(&root, &rig.name).map_err(|error| explained(error, &rig.name))?;
        let live = take_up(context, &root)?;
        if context.out.json {
            let source = if live { "live" } else { "files" };
            let document = json!({
                "removed": rig.name, "path": rig.path, "running": running, "source": source
            });
            context.out.document(&document)?;
        }
        let stops = match (running, live) {
            (0, _) => String::new(),
            (_, true) => format!("; {} of it stop", count(running, "agent")),
            (_, false) => format!(
                "; {} of it stop at the next gc start",
                count(running, "agent")
            ),
        };
        let path = rig.path.display();
        context.out.report(
            Mark::Done,
            format!("removed rig {}{stops}; {path} is kept", rig.name),
        )?;
        Ok(0)
    }
}

/// What to do about a rig that is needed.
fn explained(error: EditError, rig: &str) -> CliError {
    let hint = match &error {
        EditError::InUse { .. } => {
            "remove their [[agent]] tables from the config, or give them another dir".to_owned()
        }
        EditError::Refused(_) => format!("first remove from the config what needs the rig {rig}"),
        _ => return refused(error),
    };
    refused(error).hint(hint)
}
