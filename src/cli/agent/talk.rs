//! `gc agent nudge` and `gc agent attach`: talking to an agent.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::offline::Offline;
use super::roster::{Roster, Source};
use crate::cli::context::{Context, read};
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::model::InstanceView;

/// Beyond the supervisor's own limit, which waits for others who talk to the same agent.
const NUDGE_LIMIT: Duration = Duration::from_secs(70);

/// Arguments of `gc agent nudge`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent nudge worker-1 please look at the failing test\n  gc agent nudge worker-1 --stdin < message.txt"
)]
pub(super) struct NudgeArgs {
    /// The agent
    agent: String,
    /// What to tell it
    #[arg(value_name = "TEXT", required_unless_present = "stdin")]
    text: Vec<String>,
    /// Read the text from standard input
    #[arg(long, conflicts_with = "text")]
    stdin: bool,
}

/// Arguments of `gc agent attach`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent attach worker-1\n  gc agent attach worker-1 --read-only"
)]
pub(super) struct AttachArgs {
    /// The agent
    agent: String,
    /// Only watch
    #[arg(long)]
    read_only: bool,
}

impl NudgeArgs {
    /// Types the text into the session.
    ///
    /// # Errors
    /// [`Code::Unsupported`] where nothing can be typed.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        #[derive(Deserialize)]
        struct Answer {
            confirmed: bool,
        }
        let text = self.text()?;
        let mut roster = Roster::load(context, Access::Change)?;
        let agent = roster.find(&self.agent)?.clone();
        let name = &agent.qualified_name;
        let confirmed = match &mut roster.source {
            Source::Live(client) => {
                let params = json!({"path": roster.root, "agent": name, "text": text});
                let answer = client.call_within("agent.nudge", params, Some(NUDGE_LIMIT));
                let answer = answer.map_err(|error| helped(error.into(), &agent))?;
                read::<Answer>(answer)?.confirmed
            }
            Source::Files => {
                let offline = Offline::open(context, &roster.root)?;
                let done =
                    offline.reach(&agent, |session| async move { session.nudge(text).await });
                done.map_err(|error| helped(error, &agent))?
            }
        };
        if context.out.json {
            let document = json!({"agent": name, "status": "delivered", "confirmed": confirmed});
            context.out.document(&document)?;
        } else if confirmed {
            context.out.line("delivered")?;
        } else {
            context.out.line("delivered, but no reaction was seen")?;
        }
        Ok(0)
    }

    fn text(&self) -> CliResult<String> {
        let mut text = self.text.join(" ");
        if self.stdin {
            io::stdin().read_to_string(&mut text)?;
        }
        let text = text.trim_end_matches(['\r', '\n']).to_owned();
        if text.is_empty() {
            let error = CliError::new(Code::Usage, "there is nothing to tell");
            return Err(error.hint(format!("gc agent nudge {} TEXT", self.agent)));
        }
        Ok(text)
    }
}

/// What to run for a terminal on a session.
#[derive(Debug, Deserialize)]
struct Plan {
    argv: Vec<String>,
    unset: Vec<String>,
}

impl AttachArgs {
    /// Becomes the terminal of the session; returns only if that fails.
    ///
    /// # Errors
    /// [`Code::Unsupported`] where sessions have no terminal, [`Code::Usage`] without one here.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let mut roster = Roster::load(context, Access::Change)?;
        let agent = roster.find(&self.agent)?.clone();
        let plan = self.plan(context, &mut roster, &agent);
        let plan = plan.map_err(|error| helped(error, &agent))?;
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            let error = CliError::new(Code::Usage, "this needs a terminal");
            return Err(error.hint(format!("gc agent peek {}", agent.qualified_name)));
        }
        let Some((program, arguments)) = plan.argv.split_first() else {
            return Err(CliError::new(Code::Failed, "there is nothing to run"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        for name in &plan.unset {
            command.env_remove(name);
        }
        let error = command.exec();
        Err(CliError::new(Code::Failed, format!("{program}: {error}")))
    }

    fn plan(
        &self,
        context: &Context,
        roster: &mut Roster,
        agent: &InstanceView,
    ) -> CliResult<Plan> {
        let read_only = self.read_only;
        match &mut roster.source {
            Source::Live(client) => {
                let name = &agent.qualified_name;
                let params: Value =
                    json!({"path": roster.root, "agent": name, "read_only": read_only});
                read(client.call("agent.attach", params)?)
            }
            Source::Files => {
                let offline = Offline::open(context, &roster.root)?;
                let plan =
                    offline.reach(
                        agent,
                        |session| async move { session.attach(read_only).await },
                    )?;
                let (argv, unset) = (plan.argv, plan.unset);
                Ok(Plan { argv, unset })
            }
        }
    }
}

/// Says what works instead.
fn helped(error: CliError, agent: &InstanceView) -> CliError {
    let name = &agent.qualified_name;
    match error.code {
        Code::Unsupported => error.hint(format!("gc agent logs {name} -f")),
        Code::Conflict => error.hint(format!("gc agent show {name}")),
        _ => error,
    }
}
