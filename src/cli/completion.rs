//! `gc completion`: shells that know the commands, and the cities and agents there are.
//!
//! The shell asks gc itself for each completion, so new commands need no new script.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::json;

use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::globals::Globals;
use super::query::city_status;
use crate::config;
use crate::control::client::{Client, Patience};

/// The variable by which the shell's script asks.
const ASKS: &str = "COMPLETE";
const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "elvish", "powershell"];

/// Somebody waits with a finger on the key.
const PATIENCE: Patience = Patience {
    connect: Duration::from_millis(50),
    answer: Duration::from_millis(100),
};

/// Arguments of `gc completion`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc completion bash > ~/.local/share/bash-completion/completions/gc\n  gc completion zsh > ~/.zfunc/_gc\n  gc completion fish > ~/.config/fish/completions/gc.fish"
)]
pub(super) struct CompletionArgs {
    /// The shell: bash, zsh, fish, elvish, powershell
    #[arg(value_parser = PossibleValuesParser::new(SHELLS), hide_possible_values = true)]
    shell: String,
}

impl CompletionArgs {
    /// Prints the script.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let shells = Shells::builtins();
        let unknown = || CliError::new(Code::Internal, format!("no script for {}", self.shell));
        let shell = shells.completer(&self.shell).ok_or_else(unknown)?;
        let mut script = Vec::new();
        shell.write_registration(ASKS, "gc", "gc", "gc", &mut script)?;
        let script = String::from_utf8_lossy(&script);
        match context.out.json {
            true => context
                .out
                .document(&json!({"shell": self.shell, "script": script}))?,
            false => context.out.line(script.trim_end())?,
        }
        Ok(0)
    }
}

/// Answers a shell that asks for completions; returns if none does.
pub(super) fn answer_shell() {
    if std::env::var_os(ASKS).is_some() {
        CompleteEnv::with_factory(|| live(super::tree()))
            .var(ASKS)
            .complete();
    }
}

/// The tree with names that are there now: cities and agents.
fn live(command: Command) -> Command {
    let about_agents = ["agent", "runtime", "session"].contains(&command.get_name());
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "city" | "path" => arg.add(ArgValueCandidates::new(cities)),
        _ => arg,
    });
    command.mut_subcommands(|sub| match about_agents {
        true => with_agents(sub),
        false => live(sub),
    })
}

fn with_agents(command: Command) -> Command {
    command.mut_args(|arg| match arg.get_id().as_str() {
        "agent" | "names" | "name" => arg.add(ArgValueCandidates::new(agents)),
        _ => arg,
    })
}

fn candidates(names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    names.map(CompletionCandidate::new).collect()
}

fn cities() -> Vec<CompletionCandidate> {
    let cities = Context::new(Globals::default()).registered();
    let cities = cities.unwrap_or_default(); // silence is better than noise on the line
    candidates(cities.into_iter().map(|city| city.name.to_string()))
}

fn agents() -> Vec<CompletionCandidate> {
    candidates(agent_names().unwrap_or_default().into_iter())
}

/// Those that whoever runs the city knows, else those of its config.
fn agent_names() -> Option<Vec<String>> {
    let context = Context::new(Globals {
        quiet: true,
        ..Globals::default()
    });
    let root = context.city(None, Access::Read).ok()?;
    let sockets = context.controller_sockets(&root).ok()?;
    let live = Client::connect(&sockets, PATIENCE)
        .ok()
        .and_then(|mut client| city_status(&mut client, &root).ok().flatten())
        .and_then(|state| state.view);
    if let Some(view) = live {
        let names = view.instances.iter().map(|i| i.qualified_name.to_string());
        return Some(names.collect());
    }
    let loaded = config::load(&root).ok()?;
    let names = loaded
        .spec
        .agents
        .iter()
        .map(|agent| agent.name.to_string());
    Some(names.collect())
}
