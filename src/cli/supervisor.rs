//! `gc supervisor`: the process that hosts the cities.

mod logs;
mod service;
mod upgrade;

use std::time::Duration;

use clap::{Args, Subcommand};
use gascity_actors::age;
use serde_json::{Value, json};

use super::cities::known;
use super::context::{Context, read};
use super::ensure;
use super::error::{CliError, CliResult, Code};
use super::output::Mark;
use super::progress::Progress;
use super::query::Reconciled;
use super::stop::{LOCK_LIMIT, RELOAD_LIMIT, agents_stopped, report_killed, stop_server};
use super::values::{count, millis, seconds};
use crate::control::client::ClientError;
use crate::control::inherited::leave_session;
use crate::control::lock;
use crate::daemon::{self, Begin, OnSigterm};
pub(super) use service::start_installed;

/// Arguments of `gc supervisor`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc supervisor status\n  gc supervisor stop --keep-agents   # the next one adopts them"
)]
pub(super) struct SupervisorArgs {
    #[command(subcommand)]
    command: SupervisorCommand,
}

#[derive(Debug, Subcommand)]
enum SupervisorCommand {
    /// Run the supervisor in this terminal
    #[command(
        after_help = "Examples:\n  gc supervisor run\n  gc supervisor run --on-sigterm detach   # for a service manager"
    )]
    Run(RunArgs),
    /// Start the supervisor in the background
    #[command(after_help = "Examples:\n  gc supervisor start")]
    Start,
    /// Stop all cities, then the supervisor
    #[command(after_help = "Examples:\n  gc supervisor stop\n  gc supervisor stop --keep-agents")]
    Stop(StopArgs),
    /// Tell whether the supervisor runs, and its cities
    #[command(after_help = "Examples:\n  gc supervisor status --json")]
    Status,
    /// Follow the registry now
    #[command(after_help = "Examples:\n  gc supervisor reload")]
    Reload,
    /// Show the supervisor's own log
    Logs(logs::LogsArgs),
    /// Change the program of the running supervisor, agents untouched
    Upgrade(upgrade::UpgradeArgs),
    /// Have the system run the supervisor as a service of yours
    Install(service::InstallArgs),
    /// Take that service out again
    #[command(after_help = "Examples:\n  gc supervisor uninstall")]
    Uninstall,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Leave the parent's session and report readiness to it
    #[arg(long, hide = true)]
    detached: bool,
    /// Go on with what an earlier program of this process held
    #[arg(long, hide = true, conflicts_with = "detached")]
    handoff: bool,
    /// What SIGTERM does to the agents
    #[arg(long, value_name = "stop|detach")]
    on_sigterm: Option<OnSigterm>,
}

#[derive(Debug, Args)]
struct StopArgs {
    /// Kill the agents without asking them to leave first
    #[arg(long, conflicts_with = "keep_agents")]
    force: bool,
    /// Leave the agents running; the next supervisor adopts them
    #[arg(long)]
    keep_agents: bool,
    /// Return while it is still stopping
    #[arg(long)]
    no_wait: bool,
}

impl SupervisorArgs {
    /// Whether the command becomes the supervisor, which has a log of its own.
    #[must_use]
    pub(super) fn is_run(&self) -> bool {
        matches!(self.command, SupervisorCommand::Run(_))
    }

    /// Does what was asked.
    ///
    /// # Errors
    /// If it cannot be done.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            SupervisorCommand::Run(args) => {
                leave_session(None)?;
                let home = context.home()?;
                home.create()?;
                let begin = match (args.detached, args.handoff) {
                    (true, _) => Begin::Detached,
                    (_, true) => Begin::Handoff,
                    _ => Begin::Foreground,
                };
                daemon::supervisor(&home, begin, args.on_sigterm)
            }
            SupervisorCommand::Start => start(context),
            SupervisorCommand::Stop(args) => stop(context, args),
            SupervisorCommand::Status => status(context),
            SupervisorCommand::Reload => reload(context),
            SupervisorCommand::Logs(args) => args.run(context),
            SupervisorCommand::Upgrade(args) => args.run(context),
            SupervisorCommand::Install(args) => args.run(context),
            SupervisorCommand::Uninstall => service::uninstall(context),
        }
    }
}

fn start(context: &Context) -> CliResult<u8> {
    if let Some(client) = context.supervisor()? {
        let pid = client.hello().pid;
        let message = format!("supervisor already running (pid {pid})");
        return Err(CliError::new(Code::Conflict, message).hint("gc supervisor status"));
    }
    let home = context.home()?;
    home.create()?;
    let pid = ensure::start(&home).map_err(|error| ensure::not_started(error, &home))?;
    if context.out.json {
        context
            .out
            .document(&json!({"started": true, "pid": pid}))?;
    }
    let text = format!("Supervisor started (PID {pid})");
    context.out.report(Mark::Done, text)?;
    Ok(0)
}

fn stop(context: &Context, args: &StopArgs) -> CliResult<u8> {
    let Some(mut client) = context.supervisor()? else {
        let error = CliError::from(ClientError::NotRunning);
        return Err(error.hint("there is nothing to stop; gc start would start it"));
    };
    let mode = match (args.force, args.keep_agents) {
        (true, _) => "force",
        (_, true) => "detach",
        _ => "graceful",
    };
    if args.no_wait {
        let answer = client.call("stop", json!({"mode": mode}))?;
        if context.out.json {
            context.out.document(&answer)?;
        }
        context.out.report(Mark::Done, "supervisor is stopping")?;
        return Ok(0);
    }
    let home = context.home()?;
    let mut progress = Progress::new(context.out);
    let summary = stop_server(client, mode, &mut progress)?;
    for path in [home.runtime_lock(), home.home_lock()] {
        if !lock::wait_free(&path, LOCK_LIMIT)? {
            let message = "all is stopped, but the supervisor's process does not end";
            let hint = format!("see {}", home.log().display());
            return Err(CliError::new(Code::Timeout, message).hint(hint));
        }
    }
    service::stop_installed(&home);
    let took = progress.elapsed();
    if context.out.json {
        context.out.document(&json!({
            "stopped": true,
            "interrupted": summary.interrupted,
            "killed": summary.killed,
            "elapsed_ms": millis(took),
        }))?;
    }
    report_killed(context, &summary)?;
    let agents = match (args.keep_agents, agents_stopped(&summary)) {
        (true, _) => ", agents left running".to_owned(),
        (false, 0) => String::new(),
        (false, n) => {
            let (asked, forced) = (summary.interrupted, summary.killed.len());
            format!(
                ", {}: {asked} interrupted, {forced} forced",
                count(n, "agent")
            )
        }
    };
    let text = format!("supervisor stopped{agents} ({})", seconds(took));
    context.out.report(Mark::Done, text)?;
    Ok(0)
}

fn status(context: &Context) -> CliResult<u8> {
    let out = context.out;
    let Some(mut client) = context.supervisor()? else {
        if out.json {
            out.document(&json!({"running": false}))?;
        } else {
            out.line("Supervisor is not running")?;
        }
        return Ok(1);
    };
    let mut status = client.call("status", json!({}))?;
    if out.json {
        status["running"] = json!(true);
        out.document(&status)?;
        return Ok(0);
    }
    out.line(page(&status))?;
    let known = known(context)?;
    if !known.cities.is_empty() {
        out.line("")?;
        out.line(known.table())?;
    }
    Ok(0)
}

fn page(status: &Value) -> String {
    let pid = &status["pid"];
    let up = Duration::from_secs(status["uptime_sec"].as_u64().unwrap_or_default());
    let version = status["version"].as_str().unwrap_or("?");
    let api = match (
        status["api"]["listening"].as_bool(),
        status["api"]["addr"].as_str(),
    ) {
        (Some(true), Some(addr)) => addr,
        _ => "off",
    };
    let mut page = format!("Supervisor is running (PID {pid})\n  Up        {}", age(up));
    page.push_str(&format!("\n  Version   {version}\n  API       {api}"));
    if let Some(error) = status["registry"]["error"].as_str() {
        page.push_str(&format!("\n  Registry  {error}"));
    }
    page
}

fn reload(context: &Context) -> CliResult<u8> {
    let mut client = context.running_supervisor()?;
    let answer = match client.call_within("reload", json!({"wait": true}), Some(RELOAD_LIMIT)) {
        Err(ClientError::NoAnswer) => {
            let message = "the reconcile is not over yet";
            return Err(CliError::new(Code::Timeout, message).hint("gc supervisor status"));
        }
        other => other?,
    };
    let reconciled: Reconciled = read(answer.clone())?;
    if let Some(first) = reconciled.failed.first() {
        let failed = count(reconciled.failed.len(), "city");
        let mut error = CliError::new(Code::Failed, format!("{failed} failed"));
        for city in &reconciled.failed {
            error = error.cause(format!("{}: {}", city.path, city.error));
        }
        return Err(error.hint(format!("gc status {}", first.path)));
    }
    if context.out.json {
        context.out.document(&answer)?;
        return Ok(0);
    }
    let cities = count(known(context)?.cities.len(), "city");
    (context.out).report(Mark::Done, format!("{cities} reconciled"))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_who_runs_and_since_when() {
        let status = json!({
            "pid": 7, "uptime_sec": 4320, "version": "0.1.0",
            "api": {"listening": false}, "registry": {"ok": false, "error": "line 3"}
        });
        let expected = "\
Supervisor is running (PID 7)
  Up        1h12m
  Version   0.1.0
  API       off
  Registry  line 3";
        assert_eq!(page(&status), expected);
    }
}
