//! `gc agent add`: another `[[agent]]` in `city.toml`.

use clap::Args;
use serde_json::json;

use super::hold::{refused, take_up};
use crate::cli::context::Context;
use crate::cli::discover::Access;
use crate::cli::error::CliResult;
use crate::cli::output::Mark;
use crate::config::edit;

/// Arguments of `gc agent add`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent add --name planner --provider claude\n  gc agent add --name watcher --dir backend --command \"./watch.sh --all\" --suspended"
)]
pub(super) struct AddArgs {
    /// Name of the agent
    #[arg(long)]
    name: String,
    /// Rig it belongs to, or directory of the city
    #[arg(long)]
    dir: Option<String>,
    /// Program it runs; see `[providers]`
    #[arg(long)]
    provider: Option<String>,
    /// Command line instead of a provider
    #[arg(long, value_name = "CMD", conflicts_with = "provider")]
    command: Option<String>,
    /// File with its first prompt
    #[arg(long, value_name = "FILE")]
    prompt_template: Option<String>,
    /// Do not run it yet
    #[arg(long)]
    suspended: bool,
}

impl AddArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Change)?;
        let texts = [
            ("name", Some(&self.name)),
            ("dir", self.dir.as_ref()),
            ("provider", self.provider.as_ref()),
            ("start_command", self.command.as_ref()),
            ("prompt_template", self.prompt_template.as_ref()),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(key, text)| Some((key, text?.as_str().into())));
        let suspended = self.suspended.then(|| ("suspended", true.into()));
        let pairs: Vec<(&str, toml_edit::Value)> = texts.chain(suspended).collect();
        let _ = edit::append(&root, "agent", &pairs).map_err(refused)?;
        let live = take_up(context, &root)?;
        let name = match &self.dir {
            Some(dir) if !dir.is_empty() => format!("{dir}/{}", self.name),
            _ => self.name.clone(),
        };
        if context.out.json {
            let source = if live { "live" } else { "files" };
            let document = json!({"added": name, "source": source});
            context.out.document(&document)?;
        }
        let text = match live {
            true => format!("added {name}"),
            false => format!("added {name}; it runs after gc start"),
        };
        context.out.report(Mark::Done, text)?;
        Ok(0)
    }
}
