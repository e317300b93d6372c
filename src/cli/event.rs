//! `gc event emit`: a word of one's own in a city's log.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::output::Mark;
use crate::control::home::CityDir;
use crate::events::{EventLog, append_one};
use crate::model::EventDraft;

/// Arguments of `gc event`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc event emit deploy.done --message 'version 3'"
)]
pub(super) struct EventArgs {
    #[command(subcommand)]
    command: EventCommand,
}

#[derive(Debug, Subcommand)]
enum EventCommand {
    /// Put an event into the city's log; always exits 0
    #[command(
        after_help = "Examples:\n  gc event emit deploy.done --subject api --message 'version 3'\n  gc event emit build.failed --payload '{\"commit\":\"3f9ac1\"}'"
    )]
    Emit(EmitArgs),
}

#[derive(Debug, Args)]
struct EmitArgs {
    /// Its type, in dotted words
    #[arg(value_name = "TYPE")]
    kind: String,
    /// What it is about
    #[arg(long, default_value = "")]
    subject: String,
    /// For people
    #[arg(long, default_value = "")]
    message: String,
    /// For programs: a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Who says so [env: GC_AGENT] [default: human]
    #[arg(long)]
    actor: Option<String>,
}

impl EventArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// Only if stdout cannot be written: scripts of agents must not fail over a note.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let EventCommand::Emit(args) = &self.command;
        match args.emit(context) {
            Ok(seq) if context.out.json => context.out.document(&json!({"seq": seq}))?,
            Ok(seq) => context.out.report(Mark::Done, format!("event {seq}"))?,
            Err(error) => super::complain(&error, "event emit", context.out.json),
        }
        Ok(0)
    }
}

impl EmitArgs {
    fn emit(&self, context: &Context) -> CliResult<u64> {
        let payload = self.payload()?;
        let root = context.existing_city(None, Access::Change)?;
        let agent = std::env::var("GC_AGENT").ok().filter(|a| !a.is_empty());
        let mut draft = EventDraft::new(&self.kind, &self.subject).message(&self.message);
        draft.actor = self
            .actor
            .clone()
            .or(agent)
            .unwrap_or_else(|| "human".to_owned());
        draft.payload = payload;
        let log = EventLog::new(CityDir::new(&root).state_dir());
        Ok(append_one(log, draft)?.seq)
    }

    fn payload(&self) -> CliResult<Map<String, Value>> {
        let Some(text) = &self.payload else {
            return Ok(Map::new());
        };
        match serde_json::from_str(text) {
            Ok(Value::Object(payload)) => Ok(payload),
            Ok(_) => Err(CliError::new(Code::Usage, "--payload is no JSON object")),
            Err(error) => {
                Err(CliError::new(Code::Usage, "--payload is no JSON object").cause(error))
            }
        }
    }
}
