//! `gc agent nudge` and `gc agent attach`: talking to an agent.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::{Args, ValueEnum};
use gascity_actors::{Nudged, When};
use serde::Deserialize;
use serde_json::{Value, json};

use super::offline::Offline;
use super::roster::{Roster, Source};
use crate::cli::context::{Context, read};
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::model::InstanceView;

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
    /// When the text is typed
    #[arg(long, value_enum, default_value = "wait-idle", value_name = "WHEN")]
    delivery: Delivery,
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

/// When a message reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Delivery {
    /// Once it waits for input
    WaitIdle,
    /// Now, whatever it does
    Immediate,
    /// Later, when it asks (not in this version)
    Queue,
}

impl NudgeArgs {
    /// Types the text into the session.
    ///
    /// # Errors
    /// [`Code::Unsupported`] where nothing can be typed, [`Code::Conflict`] if the agent is busy.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        #[derive(Deserialize)]
        struct Answer {
            status: String,
            confirmed: bool,
        }
        let (when, word) = self.when()?;
        let text = self.text()?;
        let mut roster = Roster::load(context, Access::Change)?;
        let agent = roster.find(&self.agent)?.clone();
        let name = &agent.qualified_name;
        let nudged = match &mut roster.source {
            Source::Live(client) => {
                let params =
                    json!({"path": roster.root, "agent": name, "text": text, "delivery": word});
                // The supervisor has limits of its own, as long as the config says.
                let answer = client.call_within("agent.nudge", params, None);
                let answer = answer.map_err(|error| helped(error.into(), &agent))?;
                let Answer { status, confirmed } = read(answer)?;
                match status.as_str() {
                    "not_ready" => Nudged::NotReady,
                    _ => Nudged::Delivered { confirmed },
                }
            }
            Source::Files => {
                let offline = Offline::open(context, &roster.root)?;
                let done =
                    offline.reach(
                        &agent,
                        |session| async move { session.nudge(text, when).await },
                    );
                done.map_err(|error| helped(error, &agent))?
            }
        };
        let Nudged::Delivered { confirmed } = nudged else {
            let message = format!("{name} is busy, nothing was typed: its prompt did not show");
            let hint = format!("gc agent nudge {name} --delivery immediate TEXT");
            return Err(CliError::new(Code::Conflict, message).hint(hint));
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

    fn when(&self) -> CliResult<(When, &'static str)> {
        match self.delivery {
            Delivery::WaitIdle => Ok((When::Idle, "wait-idle")),
            Delivery::Immediate => Ok((When::Now, "immediate")),
            Delivery::Queue => {
                let message = "messages cannot be kept for later: that needs the work store, \
                               which this version does not have";
                let hint = format!("gc agent nudge {} --delivery wait-idle TEXT", self.agent);
                Err(CliError::new(Code::Unsupported, message).hint(hint))
            }
        }
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
