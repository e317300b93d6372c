//! `gc config`: what a city's files say, and why.

mod diff;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::context::{Context, read};
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::output::Mark;
use super::query::running_city;
use super::values::{count, did_you_mean};
use crate::config::keys::{FILES, FileKind};
use crate::config::{Explained, Loader, Resolved, Running, schema, to_toml};

/// Arguments of `gc config`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc config validate\n  gc config show --agent worker\n  gc config explain daemon.max_restarts\n  gc config diff\n  gc config schema --format markdown"
)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the config as all files together say it
    Show(ShowArgs),
    /// Say where the value of a key comes from
    Explain(ExplainArgs),
    /// Check the config and say what is wrong with it
    Validate(ValidateArgs),
    /// Say what would change if the files came into force in the running city
    Diff(diff::DiffArgs),
    /// Print the schema or the reference page of a file
    Schema(SchemaArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc config show\n  gc config show --agent backend/worker --format json\n  gc config show --running\n  gc config show -f experiment.toml"
)]
struct ShowArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Toml)]
    format: Format,
    /// Only this agent
    #[arg(long)]
    agent: Option<String>,
    /// What is in force in the running city, whatever its files say by now
    #[arg(long, conflicts_with = "files")]
    running: bool,
    #[command(flatten)]
    more: More,
}

/// Files that are not the city's own.
#[derive(Debug, Args)]
struct More {
    /// Another file to lay over the city's; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Toml,
    Json,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc config explain daemon.patrol_interval\n  gc config explain backend/worker\n  gc config explain worker.env.HOME --json"
)]
struct ExplainArgs {
    /// A key such as `daemon.max_restarts` or `worker.nudge`, or the name of an agent
    path: String,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc config validate\n  gc config validate --strict --json\n  gc config validate ~/bright-lights"
)]
struct ValidateArgs {
    /// The city's directory, or its registered name
    city: Option<String>,
    /// Warnings are failures too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc config schema\n  gc config schema --file pack --format markdown"
)]
struct SchemaArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t = SchemaFormat::JsonSchema)]
    format: SchemaFormat,
    /// Of which file
    #[arg(long, value_name = "KIND", default_value = "city", value_parser = ["city", "pack", "order", "supervisor"])]
    file: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaFormat {
    JsonSchema,
    Markdown,
}

impl ConfigArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// As the command says.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            ConfigCommand::Show(args) => args.run(context),
            ConfigCommand::Explain(args) => args.run(context),
            ConfigCommand::Validate(args) => args.run(context),
            ConfigCommand::Diff(args) => args.run(context),
            ConfigCommand::Schema(args) => args.run(context),
        }
    }
}

impl More {
    fn resolve(&self, context: &Context, city: Option<&str>) -> CliResult<Resolved> {
        let root = context.existing_city(city, Access::Read)?;
        let mut loader = Loader::new(root);
        for file in &self.files {
            let path = std::path::absolute(file)?;
            loader = loader.file(path);
        }
        Ok(loader.resolve())
    }
}

/// Prints diagnostics where they belong, beside the answer.
fn tell(text: &str) {
    if !text.is_empty() {
        let _ = writeln!(std::io::stderr().lock(), "{text}"); // nobody to tell
    }
}

impl ShowArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        if self.running {
            return self.show_running(context);
        }
        let resolved = self.more.resolve(context, None)?;
        let failed = match &resolved.result {
            Ok(city) => {
                tell(&city.report);
                false
            }
            Err(error) => {
                tell(&error.summary);
                true
            }
        };
        let shown = match &self.agent {
            Some(name) => resolved
                .show_agent(name)
                .ok_or_else(|| unknown_agent(name, &resolved.agents()))?,
            None => resolved.show(),
        };
        self.print(context, &shown)?;
        Ok(u8::from(failed))
    }

    fn show_running(&self, context: &Context) -> CliResult<u8> {
        let running = running(context, &context.city(None, Access::Read)?)?;
        let names = || -> Vec<String> {
            let names = running.agents.iter().map(|agent| agent.name.to_string());
            names.collect()
        };
        match &self.agent {
            Some(name) => {
                let shown = running.show_agent(name);
                self.print(
                    context,
                    &shown.ok_or_else(|| unknown_agent(name, &names()))?,
                )?;
            }
            None => self.print(context, &running.config)?,
        }
        Ok(0)
    }

    fn print(&self, context: &Context, shown: &Value) -> CliResult {
        if context.out.json || self.format == Format::Json {
            context.out.document(shown)
        } else {
            context.out.line(to_toml(shown).trim_end())
        }
    }
}

/// What is in force in the city at `root`.
fn running(context: &Context, root: &Path) -> CliResult<Running> {
    let mut client = running_city(context, root)?;
    read(client.call("city.config", json!({"path": root}))?)
}

fn unknown_agent(name: &str, names: &[String]) -> CliError {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let error = CliError::new(Code::NotFound, format!("there is no agent {name}"));
    match did_you_mean(name, &names) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

impl ExplainArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        let resolved = self.more.resolve(context, None)?;
        if let Err(error) = &resolved.result {
            tell(&error.summary);
        }
        let found = resolved.explain(&self.path).map_err(|meant| {
            let message = format!("there is no key or agent {}", self.path);
            let error = CliError::new(Code::NotFound, message);
            match meant {
                Some(meant) => error.hint(format!("gc config explain {meant}")),
                None => error.hint("gc config schema --format markdown"),
            }
        })?;
        if context.out.json {
            context.out.document(&json!({"items": found}))?;
        } else {
            for one in &found {
                context.out.line(text(one))?;
            }
        }
        Ok(u8::from(resolved.result.is_err()))
    }
}

fn text(one: &Explained) -> String {
    let place = match &one.place {
        Some(place) => format!("{place} ({})", one.layer),
        None => one.layer.clone(),
    };
    let mut text = format!(
        "{} = {}\n  from {place}; change: {}",
        one.path,
        toml(&one.value),
        one.class
    );
    for old in &one.overridden {
        text.push_str(&format!(
            "\n  over {} at {} ({})",
            toml(&old.value),
            old.place,
            old.layer
        ));
    }
    text
}

fn toml(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    }
}

impl ValidateArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        let resolved = self.more.resolve(context, self.city.as_deref())?;
        let (diagnostics, report) = match &resolved.result {
            Ok(city) => (&city.warnings, &city.report),
            Err(error) => (&error.diagnostics, &error.summary),
        };
        let of = |severity: &str| {
            diagnostics
                .iter()
                .filter(|d| d.severity == severity)
                .count()
        };
        let (errors, warnings) = (of("error"), of("warning"));
        let failed = errors > 0 || (self.strict && warnings > 0);
        if context.out.json {
            let document = json!({"valid": !failed, "diagnostics": diagnostics});
            context.out.document(&document)?;
            return Ok(u8::from(failed));
        }
        tell(report);
        let counts = match (errors, warnings) {
            (0, 0) => "no problems".to_owned(),
            (0, warnings) => count(warnings, "warning"),
            (errors, 0) => count(errors, "error"),
            (errors, warnings) => {
                format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
            }
        };
        let mark = if failed { Mark::Failed } else { Mark::Done };
        let agents = resolved
            .result
            .as_ref()
            .map_or(0, |city| city.spec.agents.len());
        let text = match resolved.result.is_ok() {
            true => format!("{counts}, {}", count(agents, "agent")),
            false => counts,
        };
        context.out.report(mark, text)?;
        Ok(u8::from(failed))
    }
}

impl SchemaArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        let file: &FileKind = FILES
            .iter()
            .find(|file| file.word == self.file)
            .ok_or_else(|| CliError::new(Code::Usage, format!("no kind of file {}", self.file)))?;
        match self.format {
            SchemaFormat::JsonSchema => {
                let schema = schema::json_schema(file);
                let text = serde_json::to_string_pretty(&schema)
                    .map_err(|error| CliError::new(Code::Internal, error.to_string()))?;
                context.out.line(text)?;
            }
            SchemaFormat::Markdown => context.out.line(schema::markdown(file).trim_end())?,
        }
        Ok(0)
    }
}
