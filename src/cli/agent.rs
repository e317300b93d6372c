//! `gc agent`: one agent, or several.
//!
//! Every command works out who is meant from a [`Roster`](roster::Roster), which comes from
//! whoever runs the city or else from files and live sessions.

mod act;
mod add;
mod hold;
mod inside;
mod list;
mod logs;
mod offline;
mod roster;
mod show;
mod talk;

use std::time::Duration;

use clap::{Args, Subcommand};

use super::context::Context;
use super::error::CliResult;
pub(super) use act::restart_rig;
pub(super) use hold::{CityHoldArgs, refused, take_up};
pub(super) use inside::{Own, acknowledge};
pub(super) use roster::{left, live_sessions, of_rig};

/// Arguments of `gc agent`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc agent list\n  gc agent show worker-1        # why is it not running?\n  gc agent restart 'hello/*' -y\n  gc agent logs worker-1 -f"
)]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// List the agents and how they are
    List(list::ListArgs),
    /// Show all about one agent, first why it does not run
    Show(show::ShowArgs),
    /// Add an agent to the config
    Add(add::AddArgs),
    /// Stop agents and start them afresh
    Restart(act::RestartArgs),
    /// Forgive a crash loop and start the agent now
    Unquarantine(act::UnquarantineArgs),
    /// End a run at once; what follows is up to the restart type
    Kill(act::KillArgs),
    /// Ask agents to finish their work and leave
    Drain(act::DrainArgs),
    /// Take that wish back
    Undrain(act::UndrainArgs),
    /// Exit 0 if the agent is asked to finish, else 1
    DrainCheck(inside::DrainCheckArgs),
    /// Say that the agent has finished
    DrainAck(inside::DrainAckArgs),
    /// From inside a session: ask for a fresh one
    RequestRestart(inside::RequestRestartArgs),
    /// Hold agents back, in the config
    Suspend(hold::SuspendArgs),
    /// Let them run again
    Resume(hold::ResumeArgs),
    /// Show the screen of an agent
    Peek(logs::PeekArgs),
    /// Show what an agent printed
    Logs(logs::LogsArgs),
    /// Tell an agent something, as if typed
    Nudge(talk::NudgeArgs),
    /// Put this terminal onto an agent's session
    Attach(talk::AttachArgs),
}

impl AgentArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// As the command says.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            AgentCommand::List(args) => args.run(context),
            AgentCommand::Show(args) => args.run(context),
            AgentCommand::Add(args) => args.run(context),
            AgentCommand::Restart(args) => args.run(context),
            AgentCommand::Unquarantine(args) => args.run(context),
            AgentCommand::Kill(args) => args.run(context),
            AgentCommand::Drain(args) => args.run(context),
            AgentCommand::Undrain(args) => args.run(context),
            AgentCommand::DrainCheck(args) => args.run(context),
            AgentCommand::DrainAck(args) => args.run(context),
            AgentCommand::RequestRestart(args) => args.run(context),
            AgentCommand::Suspend(args) => args.run(context),
            AgentCommand::Resume(args) => args.run(context),
            AgentCommand::Peek(args) => args.run(context),
            AgentCommand::Logs(args) => args.run(context),
            AgentCommand::Nudge(args) => args.run(context),
            AgentCommand::Attach(args) => args.run(context),
        }
    }
}

/// Arguments of `gc runtime`, an older name of some commands.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct RuntimeArgs {
    #[command(subcommand)]
    command: RuntimeCommand,
}

#[derive(Debug, Subcommand)]
enum RuntimeCommand {
    Drain(act::DrainArgs),
    Undrain(act::UndrainArgs),
    DrainCheck(inside::DrainCheckArgs),
    DrainAck(inside::DrainAckArgs),
    RequestRestart(inside::RequestRestartArgs),
}

impl RuntimeArgs {
    /// Does the same as `gc agent` would.
    ///
    /// # Errors
    /// As the command says.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            RuntimeCommand::Drain(args) => args.run(context),
            RuntimeCommand::Undrain(args) => args.run(context),
            RuntimeCommand::DrainCheck(args) => args.run(context),
            RuntimeCommand::DrainAck(args) => args.run(context),
            RuntimeCommand::RequestRestart(args) => args.run(context),
        }
    }
}

/// Arguments of `gc session`, an older name of some commands.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct SessionArgs {
    #[command(subcommand)]
    command: SessionCommand,
}

#[derive(Debug, Subcommand)]
enum SessionCommand {
    List(list::ListArgs),
    Peek(logs::PeekArgs),
    Logs(logs::LogsArgs),
    Nudge(talk::NudgeArgs),
    Attach(talk::AttachArgs),
    Kill(act::KillArgs),
    Wake(act::UnquarantineArgs),
}

impl SessionArgs {
    /// Does the same as `gc agent` would.
    ///
    /// # Errors
    /// As the command says.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            SessionCommand::List(args) => args.run(context),
            SessionCommand::Peek(args) => args.run(context),
            SessionCommand::Logs(args) => args.run(context),
            SessionCommand::Nudge(args) => args.run(context),
            SessionCommand::Attach(args) => args.run(context),
            SessionCommand::Kill(args) => args.run(context),
            SessionCommand::Wake(args) => args.run(context),
        }
    }
}

/// Something done to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Restart,
    Kill,
    Unquarantine,
    Drain { timeout: Option<Duration> },
    Undrain,
    DrainAck,
    RequestRestart,
}

impl Deed {
    /// The word on the control socket.
    fn word(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Kill => "kill",
            Self::Unquarantine => "unquarantine",
            Self::Drain { .. } => "drain",
            Self::Undrain => "undrain",
            Self::DrainAck => "drain_ack",
            Self::RequestRestart => "request_restart",
        }
    }

    /// Takes work away from somebody.
    fn is_destructive(self) -> bool {
        matches!(self, Self::Restart | Self::Kill | Self::Drain { .. })
    }
}
