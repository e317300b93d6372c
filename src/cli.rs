//! The command line: one file per command family.
//!
//! A command is a `clap::Args` struct with `run(&self, &Context) -> CliResult<u8>`; the number is
//! the exit code, for commands that answer a question with it. To add one: a file, a variant of
//! `Command` with its arm in `run`, and its place in the groups of the overview.

mod actors;
mod agent;
mod branch;
mod changes;
mod cities;
mod city_name;
mod completion;
mod config;
mod context;
mod crash;
mod demo;
mod demo_agent;
mod discover;
mod doctor;
mod ensure;
mod error;
mod event;
mod events;
mod globals;
mod help;
mod init;
mod interrupt;
mod listing;
mod logging;
mod man;
mod output;
mod overview;
mod pack;
mod pager;
mod progress;
mod query;
mod rig;
mod start;
mod status;
mod stop;
mod supervisor;
mod top;
mod values;
mod version;

use std::ffi::OsString;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use context::Context;
pub use error::{CliError, CliResult, Code};
use globals::Globals;
pub use output::{Mark, Output};
pub(crate) use values::count;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "gc",
    version,
    about = "Supervises fleets of coding agents",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch gc at work, in a temporary city
    Demo(demo::DemoArgs),
    /// Make a new city
    Init(init::InitArgs),
    /// Start a city and wait until its agents run
    Start(start::StartArgs),
    /// Stop a city and its agents
    Stop(stop::StopArgs),
    /// Stop a city, then start it again
    Restart(start::StartArgs),
    /// Show how a city and its agents are
    Status(status::StatusArgs),
    /// Load a city's config again
    Reload(cities::ReloadArgs),
    /// Hold all agents of a city back
    Suspend(agent::CityHoldArgs),
    /// Let them run again
    Resume(agent::CityHoldArgs),
    /// Look at agents, and restart, drain or stop them
    Agent(agent::AgentArgs),
    #[command(hide = true)]
    Runtime(agent::RuntimeArgs),
    #[command(hide = true)]
    Session(agent::SessionArgs),
    /// Add, list, suspend, resume or remove rigs
    Rig(rig::RigArgs),
    /// Show, explain or check a city's config
    Config(config::ConfigArgs),
    /// Fetch packs that a city includes
    Pack(pack::PackArgs),
    /// Show the supervision tree
    Actors(actors::ActorsArgs),
    /// Watch agents, actors and events as they change
    Top(top::TopArgs),
    /// Show what happened in a city
    Events(events::EventsArgs),
    /// Put an event of your own into a city's log
    Event(event::EventArgs),
    /// Look for what is wrong, and how to mend it
    Doctor(doctor::DoctorArgs),
    /// List the cities of this machine
    Cities(cities::CitiesArgs),
    /// Give a city to the supervisor
    Register(start::RegisterArgs),
    /// Take a city from the supervisor
    Unregister(stop::UnregisterArgs),
    /// Run, start, stop or ask the supervisor
    Supervisor(supervisor::SupervisorArgs),
    /// Print the version
    Version(version::VersionArgs),
    /// Print the script that completes commands in your shell
    Completion(completion::CompletionArgs),
    /// Print or write manual pages
    Man(man::ManArgs),
    #[command(hide = true)]
    DemoAgent(demo_agent::DemoAgentArgs),
    /// Explain a command, the environment or the exit codes
    Help(help::HelpArgs),
}

impl Command {
    /// Commands that become a long-lived process have a log of their own.
    fn has_own_log(&self) -> bool {
        match self {
            Self::Start(args) | Self::Restart(args) => args.is_standalone(),
            Self::Supervisor(args) => args.is_run(),
            _ => false,
        }
    }

    fn run(&self, context: &Context) -> CliResult<u8> {
        match self {
            Self::Demo(args) => demo::run(args, &context.out).map(|()| 0),
            Self::Init(args) => init::run(args, context),
            Self::DemoAgent(args) => demo_agent::run(args, context).map(|()| 0),
            Self::Start(args) => args.run(context),
            Self::Stop(args) => args.run(context),
            Self::Restart(args) => args.run_again(context),
            Self::Status(args) => args.run(context),
            Self::Reload(args) => args.run(context),
            Self::Suspend(args) => args.run(context, true),
            Self::Resume(args) => args.run(context, false),
            Self::Agent(args) => args.run(context),
            Self::Runtime(args) => args.run(context),
            Self::Session(args) => args.run(context),
            Self::Rig(args) => args.run(context),
            Self::Config(args) => args.run(context),
            Self::Pack(args) => args.run(context),
            Self::Actors(args) => args.run(context),
            Self::Top(args) => args.run(context),
            Self::Events(args) => args.run(context),
            Self::Cities(args) => args.run(context),
            Self::Register(args) => args.run(context),
            Self::Unregister(args) => args.run(context),
            Self::Supervisor(args) => args.run(context),
            Self::Event(args) => args.run(context),
            Self::Doctor(args) => args.run(context),
            Self::Version(args) => args.run(context),
            Self::Completion(args) => args.run(context),
            Self::Man(args) => args.run(context, tree()),
            Self::Help(args) => args.run(context, tree()),
        }
    }
}

/// The whole command line, as parsed and as shown; the reference page is made from it.
#[must_use]
pub fn tree() -> clap::Command {
    overview::dress(Cli::command())
}

/// Runs the command this process was called with.
#[must_use]
pub fn run() -> ExitCode {
    completion::answer_shell();
    crash::report_panics();
    let args: Vec<OsString> = std::env::args_os().collect();
    match catch_unwind(AssertUnwindSafe(|| run_args(&args))) {
        Ok(exit) => ExitCode::from(exit),
        Err(_) => {
            let error = CliError::new(Code::Internal, "internal error, see above");
            let error = error.hint(match crash::report() {
                Some(file) => format!("please report it, with {}", file.display()),
                None => "please report it, with what you did".to_owned(),
            });
            complain(&error, "", asks_for_json(&args));
            ExitCode::from(error.code.exit())
        }
    }
}

fn run_args(args: &[OsString]) -> u8 {
    let matches = match branch::matches(args).map_or_else(|| whole(args), Ok) {
        Ok(matches) => matches,
        Err(error) => return usage(&error, asks_for_json(args)),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, asks_for_json(args)),
    };
    let Some(asked) = cli.command else {
        let _ = tree().print_help(); // a closed pipe has had enough
        return 0;
    };
    let json = cli.globals.json;
    let context = Context::new(cli.globals);
    let prepared = match asked.has_own_log() {
        true => Ok(()),
        false => logging::start(context.globals.verbose, context.out.colour_err),
    };
    prepared
        .and_then(|()| asked.run(&context))
        .unwrap_or_else(|error| {
            complain(&error, &name(&matches), json);
            error.code.exit()
        })
}

/// What the arguments mean to the whole command line.
fn whole(args: &[OsString]) -> Result<ArgMatches, clap::Error> {
    tree().try_get_matches_from(args)
}

/// The command as typed: `supervisor stop`.
fn name(matches: &ArgMatches) -> String {
    let mut words = Vec::new();
    let mut level = matches;
    while let Some((word, below)) = level.subcommand() {
        words.push(word);
        level = below;
    }
    words.join(" ")
}

fn complain(error: &CliError, command: &str, json: bool) {
    let text = match json {
        true => format!("{}\n", error.json()),
        false => error.text(command),
    };
    let _ = std::io::stderr().lock().write_all(text.as_bytes()); // nobody to tell
}

/// Help and version are answers; all else is a mistake.
fn usage(error: &clap::Error, json: bool) -> u8 {
    let exit = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !json => Code::Usage.exit(),
        _ => {
            let failure = usage_error(error);
            complain(&failure, "", json);
            return failure.code.exit();
        }
    };
    let _ = error.print(); // a closed pipe has had enough
    exit
}

/// clap's message in the form of all others.
fn usage_error(error: &clap::Error) -> CliError {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return CliError::new(Code::Usage, "a subcommand is missing").hint("the same with --help");
    }
    let rendered = error.render().to_string();
    let mut lines = rendered.lines().map(str::trim);
    let what: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let what = what.join(" ");
    let mut failure = CliError::new(Code::Usage, what.trim_start_matches("error: "));
    let usage = lines.clone().find_map(|line| line.strip_prefix("Usage: "));
    let usage = usage.unwrap_or("gc");
    failure.causes.push(format!("usage: {usage}"));
    // Of clap's tips those that name something alike; how to pass odd values helps nobody.
    let tip = lines.find_map(|line| line.strip_prefix("tip: "));
    let tip = tip.filter(|tip| tip.contains("similar"));
    let help = || {
        format!(
            "{} --help",
            usage.split(['[', '<']).next().unwrap_or_default().trim()
        )
    };
    failure.hint = nearest_command(error)
        .or_else(|| tip.map(str::to_owned))
        .or_else(|| Some(help()));
    failure
}

/// The one command that was probably meant, where clap lists all that look alike.
fn nearest_command(error: &clap::Error) -> Option<String> {
    let typed = match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) => word,
        _ => return None,
    };
    let alike: Vec<&str> = match error.get(ContextKind::SuggestedSubcommand)? {
        ContextValue::String(word) => vec![word],
        ContextValue::Strings(words) => words.iter().map(String::as_str).collect(),
        _ => return None,
    };
    values::did_you_mean(typed, &alike)
}

/// Asked before the arguments are understood, so that mistakes in them are told in JSON as well.
fn asks_for_json(args: &[OsString]) -> bool {
    let before_rest = args.iter().take_while(|arg| *arg != "--");
    before_rest.into_iter().any(|arg| arg == "--json")
}

#[cfg(test)]
mod tests;
