//! `gc rig`: the directories that agents work in.

mod remove;

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::json;

use super::agent::{refused, take_up};
use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::output::Mark;
use super::status::text::row;
use super::values::{count, did_you_mean, table};
use crate::config::edit::{self, Edited, Target};
use crate::config::{self, LoadedCity, Loader, RigInfo};

/// Arguments of `gc rig`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc rig add ~/src/backend\n  gc rig list\n  gc rig suspend backend"
)]
pub(super) struct RigArgs {
    #[command(subcommand)]
    command: RigCommand,
}

#[derive(Debug, Subcommand)]
enum RigCommand {
    /// Add a directory to the config
    Add(AddArgs),
    /// List the rigs, the city itself first
    List(ListArgs),
    /// Show one rig and its agents
    Status(RigStatusArgs),
    /// Restart all agents of a rig that run
    Restart(RigRestartArgs),
    /// Hold all agents of a rig back, in the config
    Suspend(HoldArgs),
    /// Let them run again
    Resume(HoldArgs),
    /// Take a rig out of the config; its directory stays
    Remove(remove::RemoveArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc rig add ~/src/backend\n  gc rig add ../web --name front --include packs/base"
)]
struct AddArgs {
    /// The directory
    path: String,
    /// Name of the rig; that of the directory if not given
    #[arg(long)]
    name: Option<String>,
    /// Pack its agents come from; may be repeated
    #[arg(long, value_name = "PACK")]
    include: Vec<String>,
    /// Do not run its agents yet
    #[arg(long)]
    start_suspended: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc rig list\n  gc rig list --json")]
struct ListArgs {}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc rig suspend backend\n  gc rig resume backend")]
struct HoldArgs {
    /// Name of the rig
    rig: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc rig status backend\n  gc rig status backend --json")]
struct RigStatusArgs {
    /// Name of the rig
    rig: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc rig restart backend -y\n  gc rig restart backend -y --no-wait"
)]
struct RigRestartArgs {
    /// Name of the rig
    rig: String,
    /// Do not wait until they are up again
    #[arg(long)]
    no_wait: bool,
}

impl RigArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// As the command says.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            RigCommand::Add(args) => args.run(context),
            RigCommand::List(_) => list(context),
            RigCommand::Status(args) => args.run(context),
            RigCommand::Restart(args) => args.run(context),
            RigCommand::Suspend(args) => args.run(context, true),
            RigCommand::Resume(args) => args.run(context, false),
            RigCommand::Remove(args) => args.run(context),
        }
    }
}

impl AddArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Change)?;
        let path = self.written(&root)?;
        let name = match (&self.name, Path::new(&path).file_name()) {
            (Some(name), _) => name.clone(),
            (None, Some(last)) => last.to_string_lossy().into_owned(),
            (None, None) => {
                let message = format!("{} has no name", self.path);
                return Err(CliError::new(Code::Usage, message).hint("give it one with --name"));
            }
        };
        let loaded = Loader::new(&root).resolve();
        let defaults = loaded.show()["workspace"]["default_rig_includes"].clone();
        let mut includes: Vec<String> = serde_json::from_value(defaults).unwrap_or_default();
        includes.extend(self.include.iter().cloned());
        let mut pairs: Vec<(&str, toml_edit::Value)> =
            vec![("name", name.as_str().into()), ("path", path.into())];
        if !includes.is_empty() {
            let list: toml_edit::Array = includes.iter().map(String::as_str).collect();
            pairs.push(("includes", list.into()));
        }
        if self.start_suspended {
            pairs.push(("suspended", true.into()));
        }
        let _ = edit::append(&root, "rigs", &pairs).map_err(refused)?;
        let live = take_up(context, &root)?;
        if context.out.json {
            let source = if live { "live" } else { "files" };
            let document = json!({"added": name, "includes": includes, "source": source});
            context.out.document(&document)?;
        }
        let packs = match includes.len() {
            0 => String::new(),
            packs => format!(" with {}", count(packs, "pack")),
        };
        context
            .out
            .report(Mark::Done, format!("added rig {name}{packs}"))?;
        Ok(0)
    }

    /// The directory as the file should name it: seen from the city if it lies in it.
    fn written(&self, root: &Path) -> CliResult<String> {
        if self.path.starts_with("~/") {
            return Ok(self.path.clone());
        }
        let dir = std::fs::canonicalize(&self.path).map_err(|error| {
            let message = format!("{}: {error}", self.path);
            CliError::new(Code::NotFound, message).hint("make the directory first")
        })?;
        if !dir.is_dir() {
            let message = format!("{} is not a directory", dir.display());
            return Err(CliError::new(Code::Failed, message));
        }
        let root = std::fs::canonicalize(root)?;
        let shown = dir.strip_prefix(&root).unwrap_or(&dir);
        Ok(shown.to_string_lossy().into_owned())
    }
}

fn list(context: &Context) -> CliResult<u8> {
    let root = context.existing_city(None, Access::Read)?;
    let loaded = config::load(&root).map_err(|error| CliError::config(&root, error))?;
    let rigs = &loaded.rigs;
    let agents =
        |dir: &str| {
            let of = loaded.spec.agents.iter().filter(|agent| {
                match agent.name.as_str().rsplit_once('/') {
                    Some((own, _)) => own == dir,
                    None => dir.is_empty(),
                }
            });
            of.count()
        };
    if context.out.json {
        let items: Vec<_> = rigs
            .iter()
            .map(|rig| {
                let agents = agents(&rig.name);
                json!({"name": rig.name, "path": rig.path, "prefix": rig.prefix,
                       "state": rig.state(), "agents": agents})
            })
            .collect();
        context
            .out
            .document(&json!({"items": items, "total": items.len()}))?;
        return Ok(0);
    }
    let state = if loaded.spec.suspended {
        "suspended"
    } else {
        "active"
    };
    let city = vec![
        loaded.spec.name.to_string(),
        root.display().to_string(),
        loaded.prefix.clone(),
        state.to_owned(),
        agents("").to_string(),
    ];
    let rows = rigs.iter().map(|rig| {
        vec![
            rig.name.clone(),
            rig.path.display().to_string(),
            rig.prefix.clone(),
            rig.state().to_owned(),
            agents(&rig.name).to_string(),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(city).chain(rows).collect();
    let header = ["NAME", "PATH", "PREFIX", "STATE", "AGENTS"];
    context.out.line(table(&header, &rows))?;
    Ok(0)
}

/// The rig of that name.
fn find<'a>(loaded: &'a LoadedCity, name: &str) -> CliResult<&'a RigInfo> {
    let found = loaded.rigs.iter().find(|rig| rig.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = loaded.rigs.iter().map(|rig| rig.name.as_str()).collect();
        let mut error = CliError::new(Code::NotFound, format!("no rig {name:?}"));
        error.hint = did_you_mean(name, &names).or_else(|| Some("gc rig add".to_owned()));
        error
    })
}

impl RigStatusArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Read)?;
        let loaded = config::load(&root).map_err(|error| CliError::config(&root, error))?;
        let rig = find(&loaded, &self.rig)?;
        let (agents, source) = super::agent::of_rig(context, &rig.name)?;
        if context.out.json {
            return context
                .out
                .document(&json!({
                    "name": rig.name, "path": rig.path, "prefix": rig.prefix,
                    "state": rig.state(), "agents": agents, "source": source
                }))
                .map(|()| 0);
        }
        let state = rig.state();
        let head = format!("{}  {}  {state}", rig.name, rig.path.display());
        context.out.line(head)?;
        if agents.is_empty() {
            context.out.note("no agents");
            return Ok(0);
        }
        let now = chrono::Utc::now();
        let rows: Vec<Vec<String>> = agents.iter().map(|agent| row(agent, now)).collect();
        let header = ["NAME", "STATE", "UP", "RESTARTS", "NOTE"];
        context.out.line(table(&header, &rows))?;
        Ok(0)
    }
}

impl RigRestartArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Change)?;
        let loaded = config::load(&root).map_err(|error| CliError::config(&root, error))?;
        let rig = find(&loaded, &self.rig)?;
        super::agent::restart_rig(context, &rig.name, !self.no_wait)
    }
}

impl HoldArgs {
    fn run(&self, context: &Context, suspended: bool) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Change)?;
        let target = Target::Rig(self.rig.clone());
        let edited = edit::set_suspended(&root, &target, suspended).map_err(refused)?;
        let changed = edited == Edited::Changed;
        let live = match changed {
            true => take_up(context, &root)?,
            false => false,
        };
        if context.out.json {
            let document = json!({"rig": self.rig, "suspended": suspended, "changed": changed});
            context.out.document(&document)?;
        }
        let word = if suspended { "suspended" } else { "resumed" };
        let text = match (changed, live) {
            (false, _) => format!("rig {} is {word} already", self.rig),
            (true, true) => format!("{word} rig {}", self.rig),
            (true, false) => format!("{word} rig {}; takes effect at the next gc start", self.rig),
        };
        context.out.report(Mark::Done, text)?;
        Ok(0)
    }
}
