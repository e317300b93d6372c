//! Commands that do something to agents: restart, kill, unquarantine, drain, undrain.

mod outcome;
mod settle;

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Deed;
use super::hold::record_state;
use super::offline::Offline;
use super::roster::{Roster, Source, of_rig};
use crate::cli::context::{Context, read};
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult};
use crate::cli::values::{count, millis};
use crate::config::duration;
use crate::model::{AgentState, InstanceView};
pub(super) use outcome::{Outcome, finish};

/// Whom a command is about.
#[derive(Debug, Clone, Args)]
pub(super) struct Names {
    /// Agents: names, or quoted patterns such as 'hello/*'
    #[arg(value_name = "AGENT", required_unless_present = "all")]
    pub(super) names: Vec<String>,
    /// All agents of the city
    #[arg(long, conflicts_with = "names")]
    pub(super) all: bool,
}

/// Arguments of `gc agent restart`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent restart worker-1\n  gc agent restart 'hello/*' -y\n  gc agent restart --all -y --no-wait"
)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    names: Names,
    /// Do not wait until they are up again
    #[arg(long)]
    no_wait: bool,
}

/// Arguments of `gc agent unquarantine`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent unquarantine worker-2\n  gc agent unquarantine --all"
)]
pub(super) struct UnquarantineArgs {
    #[command(flatten)]
    names: Names,
}

/// Arguments of `gc agent kill`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent kill worker-1\n  gc agent kill 'hello/*' -y --reason \"stuck in a loop\""
)]
pub(super) struct KillArgs {
    #[command(flatten)]
    names: Names,
    /// Why; kept in the event log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Arguments of `gc agent drain`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent drain worker-1\n  gc agent drain 'hello/*' --timeout 10m -y"
)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    names: Names,
    /// Stop those who are not done by then
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

/// Arguments of `gc agent undrain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc agent undrain worker-1\n  gc agent undrain --all")]
pub(super) struct UndrainArgs {
    #[command(flatten)]
    names: Names,
}

impl RestartArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let wait = !self.no_wait;
        let said = |_: &InstanceView, _| "restarted".to_owned();
        act(context, &self.names, Deed::Restart, wait, said)
    }
}

/// Restarts the agents of a rig that run.
///
/// # Errors
/// As `gc agent restart`.
pub(in crate::cli) fn restart_rig(context: &Context, rig: &str, wait: bool) -> CliResult<u8> {
    let (agents, _) = of_rig(context, rig)?;
    let runs = |agent: &&InstanceView| agent.running;
    let names: Vec<String> = agents
        .iter()
        .filter(runs)
        .map(|agent| agent.qualified_name.to_string())
        .collect();
    if names.is_empty() && !context.out.json {
        context.out.note("none of its agents run");
        return Ok(0);
    }
    let names = Names { names, all: false };
    let no_wait = !wait;
    RestartArgs { names, no_wait }.run(context)
}

impl UnquarantineArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        act(
            context,
            &self.names,
            Deed::Unquarantine,
            false,
            |agent, state| match (agent.state, state) {
                (AgentState::Quarantined, state) => format!("forgiven, {}", state.as_str()),
                (_, state) => format!("was not quarantined, {}", state.as_str()),
            },
        )
    }
}

impl KillArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(None, Access::Change)?;
        let said = |agent: &InstanceView, _| {
            if let Some(reason) = &self.reason {
                record_state(&root, &agent.qualified_name, "killed", Some(reason));
            }
            "killed".to_owned()
        };
        act(context, &self.names, Deed::Kill, false, said)
    }
}

impl DrainArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let timeout = self.timeout;
        act(
            context,
            &self.names,
            Deed::Drain { timeout },
            false,
            |agent, _| match agent.state {
                AgentState::Draining => "was draining already".to_owned(),
                _ => "draining".to_owned(),
            },
        )
    }
}

impl UndrainArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        act(
            context,
            &self.names,
            Deed::Undrain,
            false,
            |agent, _| match agent.state {
                AgentState::Draining => "no longer draining".to_owned(),
                _ => "was not draining".to_owned(),
            },
        )
    }
}

/// Does it to everybody who is meant, whatever becomes of the others.
fn act(
    context: &Context,
    names: &Names,
    deed: Deed,
    wait: bool,
    said: impl Fn(&InstanceView, AgentState) -> String,
) -> CliResult<u8> {
    let mut roster = Roster::load(context, Access::Change)?;
    let chosen = roster.select(&names.names, names.all);
    let targets = chosen.iter().filter(|agent| agent.is_ok()).count();
    if deed.is_destructive() && targets > 1 {
        let what = format!("{} {}", deed.word(), count(targets, "agent"));
        context.confirm(&what)?;
    }
    let mut outcomes = Vec::new();
    for agent in chosen {
        outcomes.push(match agent {
            Ok(agent) => {
                let done = perform(context, &mut roster, &agent, deed, None);
                let done = done.map(|state| (state, said(&agent, state)));
                Outcome::of(&agent.qualified_name, agent.state, done)
            }
            Err(unknown) => Outcome::nobody(unknown),
        });
    }
    if wait && let Source::Live(client) = &mut roster.source {
        settle::wait(client, &roster.root, &roster.agents, &mut outcomes)?;
    }
    finish(context, &roster.source, deed.word(), outcomes)
}

/// Does it to one agent; `run` makes sure that only this run of it is meant.
pub(super) fn perform(
    context: &Context,
    roster: &mut Roster,
    agent: &InstanceView,
    deed: Deed,
    run: Option<&str>,
) -> CliResult<AgentState> {
    #[derive(serde::Deserialize)]
    struct Answer {
        state: AgentState,
    }
    let name = &agent.qualified_name;
    let client = match &mut roster.source {
        Source::Live(client) => client,
        Source::Files => {
            let offline = Offline::open(context, &roster.root)?;
            return offline.perform(&roster.root, agent, deed);
        }
    };
    let mut params = json!({"path": roster.root, "agent": name, "command": deed.word()});
    if let Deed::Drain {
        timeout: Some(limit),
    } = deed
    {
        params["timeout_ms"] = json!(millis(limit));
    }
    if let Some(run) = run {
        params["session_id"] = json!(run);
    }
    match client.call("agent.command", params) {
        Ok(answer) => Ok(read::<Answer>(answer)?.state),
        Err(error) => {
            let mut error = CliError::from(error);
            if deed == Deed::Restart && error.message.ends_with("is quarantined") {
                error = error.hint(format!("gc agent unquarantine {name}"));
            } else if error.message.ends_with("is not running") {
                error = error.hint(format!("gc agent show {name}"));
            } else if error.message.ends_with("is suspended") {
                error = error.hint(format!("gc agent resume {name}"));
            }
            Err(error)
        }
    }
}
