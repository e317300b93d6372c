//! `gc actors`: the supervision tree.

mod draw;
mod show;
mod tree;
mod watch;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::context::{Context, Seat};
use super::discover::Access;
use super::error::CliResult;
use super::output::Mark;
use super::values::millis;
use crate::config::duration;
use crate::control::client::{Client, ClientError};

/// Arguments of `gc actors`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc actors tree\n  gc actors tree 'bright-lights/hello/*'\n  gc actors tree --problems --watch"
)]
pub(super) struct ActorsArgs {
    #[command(subcommand)]
    command: ActorsCommand,
}

#[derive(Debug, Subcommand)]
enum ActorsCommand {
    /// Draw the tree: machine, cities, agents
    #[command(
        after_help = "Examples:\n  gc actors tree\n  gc actors tree 'bright-lights/hello/*' --watch\n  gc actors tree --kind worker --state quarantined\n  gc actors tree --problems --json"
    )]
    Tree(tree::TreeArgs),
    /// Show one actor and the messages it handled of late
    Show(show::ShowArgs),
    /// Make an actor panic, to see it come back
    #[command(hide = true)]
    Crash(DrillArgs),
    /// Have an actor handle nothing any more, to see who notices
    #[command(hide = true)]
    Hang(DrillArgs),
    /// Give an actor many messages at once, to see it work them off
    #[command(hide = true)]
    Flood(FloodArgs),
}

#[derive(Debug, Args)]
struct DrillArgs {
    /// The actor's path, as in the tree's JSON form
    path: String,
}

#[derive(Debug, Args)]
struct FloodArgs {
    /// The actor's path, as in the tree's JSON form
    path: String,
    /// How many messages
    #[arg(long, default_value = "10000")]
    messages: usize,
    /// How long it is busy before it begins with them
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse)]
    held: Duration,
}

impl ActorsArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// If nothing runs, or it does not answer.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            ActorsCommand::Tree(args) => args.run(context),
            ActorsCommand::Show(args) => args.run(context),
            ActorsCommand::Crash(args) => {
                drill(context, "actors.crash", "crashed", &args.path, json!({}))
            }
            ActorsCommand::Hang(args) => {
                drill(context, "actors.hang", "hanging:", &args.path, json!({}))
            }
            ActorsCommand::Flood(args) => {
                let params = json!({"messages": args.messages, "held_ms": millis(args.held)});
                drill(context, "actors.flood", "flooded", &args.path, params)
            }
        }
    }
}

fn drill(context: &Context, op: &str, done: &str, path: &str, mut params: Value) -> CliResult<u8> {
    params["path"] = json!(path);
    let answer = controller(context)?.call(op, params)?;
    if context.out.json {
        context.out.document(&answer)?;
    }
    (context.out).report(Mark::Done, format!("{done} {path}"))?;
    Ok(0)
}

/// Whoever runs the city one is in; outside of cities the supervisor.
fn controller(context: &Context) -> CliResult<Client> {
    let Ok(root) = context.city(None, Access::Change) else {
        return context.running_supervisor();
    };
    match context.seat(&root)? {
        Seat::Standalone(client) | Seat::Supervisor(client) => Ok(client),
        Seat::Nobody => Err(ClientError::NotRunning.into()),
    }
}
