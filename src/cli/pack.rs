//! `gc pack`: packs from git repositories.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::output::Mark;
use super::values::{count, table};
use crate::config::packs::fetch::{self, FetchError, Fetched, Listed, PackState, Wanted};

/// How long one `git` may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Arguments of `gc pack`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc pack fetch           # get what city.toml names, pin what is new\n  gc pack update base     # move one pin to the newest commit\n  gc pack list"
)]
pub(super) struct PackArgs {
    #[command(subcommand)]
    command: PackCommand,
}

#[derive(Debug, Subcommand)]
enum PackCommand {
    /// Get the pinned commits, and pin packs that are new
    Fetch(FetchArgs),
    /// Move pins to the newest commits
    Update(UpdateArgs),
    /// List the packs with their pins
    List(ListArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc pack fetch")]
struct FetchArgs {}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc pack update\n  gc pack update base")]
struct UpdateArgs {
    /// The pack; all if not given
    name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc pack list --json")]
struct ListArgs {}

impl PackArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// As the command says.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let wanted = match &self.command {
            PackCommand::List(_) => return list(context),
            PackCommand::Fetch(_) => Wanted::Missing,
            PackCommand::Update(args) => Wanted::Newest(args.name.clone()),
        };
        let root = context.existing_city(None, Access::Change)?;
        let packs = fetch::fetch(&root, &wanted, LIMIT).map_err(failed)?;
        if context.out.json {
            context.out.document(&json!({"packs": packs}))?;
        } else if packs.is_empty() {
            context.out.note("no packs from git repositories");
        }
        for pack in &packs {
            context.out.report(Mark::Done, told(pack))?;
        }
        Ok(0)
    }
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

fn told(pack: &Fetched) -> String {
    let (name, commit) = (&pack.name, short(&pack.commit));
    match (&pack.from, pack.fetched) {
        (Some(from), _) => format!("{name}: {} to {commit}", short(from)),
        (None, true) => format!("{name}: fetched {commit}"),
        (None, false) => format!("{name}: {commit}, nothing new"),
    }
}

fn list(context: &Context) -> CliResult<u8> {
    let root = context.existing_city(None, Access::Read)?;
    let packs = fetch::list(&root).map_err(failed)?;
    if context.out.json {
        let total = packs.len();
        context
            .out
            .document(&json!({"items": packs, "total": total}))?;
        return Ok(0);
    }
    if packs.is_empty() {
        context.out.note("no packs from git repositories");
        return Ok(0);
    }
    let row = |pack: &Listed| {
        let reference = match pack.reference.as_str() {
            "" => "HEAD",
            reference => reference,
        };
        let commit = pack.commit.as_deref().map_or("-", short);
        [
            &pack.name,
            &pack.source,
            reference,
            commit,
            pack.state.as_str(),
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let rows: Vec<Vec<String>> = packs.iter().map(row).collect();
    let header = ["NAME", "SOURCE", "REF", "COMMIT", "STATE"];
    context.out.line(table(&header, &rows))?;
    let gone = [PackState::Missing, PackState::Unpinned];
    let missing = packs
        .iter()
        .filter(|pack| gone.contains(&pack.state))
        .count();
    if missing > 0 {
        let text = format!("{} not here: gc pack fetch", count(missing, "pack"));
        context.out.note(text);
    }
    Ok(0)
}

fn failed(error: FetchError) -> CliError {
    let code = match &error {
        FetchError::Invalid(_) => Code::Config,
        FetchError::Unknown(_) => Code::NotFound,
        _ => Code::Failed,
    };
    let text = error.to_string();
    let mut lines = text.lines();
    let first = CliError::new(code, lines.next().unwrap_or_default());
    let first = first.cause(lines.collect::<Vec<_>>().join("\n"));
    match error {
        FetchError::Unknown(_) => first.hint("gc pack list"),
        _ => first,
    }
}
