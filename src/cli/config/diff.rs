//! `gc config diff`: the files against what runs.

use clap::Args;

use super::{running, tell, toml};
use crate::cli::context::Context;
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Mark;
use crate::config::{Changed, Diff, Loader};

/// Columns of what stands in front of an explanation.
const WIDTH: usize = 28;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc config diff\n  gc config diff bright-lights --json")]
pub(super) struct DiffArgs {
    /// The city's directory, or its registered name
    city: Option<String>,
}

impl DiffArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(self.city.as_deref(), Access::Read)?;
        let running = running(context, &root)?;
        // As the supervisor would load it: our own environment says nothing about the city.
        let loader = Loader::new(&root).environment(running.environment.clone());
        let resolved = loader.resolve();
        let disk = match &resolved.result {
            Ok(city) => city,
            Err(error) => return Err(CliError::config(&root, &error.summary)),
        };
        let diff = Diff::of(&running, &disk.spec, &resolved.show());
        if context.out.json {
            context.out.document(&diff)?;
            return Ok(0);
        }
        tell(&disk.report);
        if diff.same {
            let text = format!("what is on disk is in force, config {}", short(&diff.disk));
            context.out.report(Mark::Done, text)?;
        } else {
            let (from, to) = (short(&diff.running), short(&diff.disk));
            context.out.line(format!(
                "{}: config {from} runs, {to} is on disk",
                diff.city
            ))?;
        }
        for line in lines(&diff) {
            context.out.line(line)?;
        }
        Ok(0)
    }
}

fn short(revision: &str) -> String {
    revision.chars().take(6).collect()
}

/// One line for each thing that would happen.
fn lines(diff: &Diff) -> Vec<String> {
    let line = |sign: char, what: &str, why: String| format!("  {sign} {what:WIDTH$}  {why}");
    let values = |one: &Changed| format!("{} -> {}", toml(&one.from), toml(&one.to));
    let mut lines = Vec::new();
    for one in &diff.refused {
        let why = format!("{}; refused until gc restart {}", values(one), diff.city);
        lines.push(line('!', &one.key, why));
    }
    for one in &diff.swapped {
        let why = format!("{}; all agents move", values(one));
        lines.push(line('~', &one.key, why));
    }
    let all = |names: &[_], sign, why: &str| -> Vec<String> {
        let names = names.iter();
        names
            .map(|name: &crate::model::AgentName| line(sign, name.as_str(), why.to_owned()))
            .collect()
    };
    lines.extend(all(&diff.added, '+', "is started"));
    lines.extend(all(&diff.removed, '-', "is stopped"));
    for one in &diff.drifted {
        let why = format!("needs a new run: {}", one.keys.join(", "));
        lines.push(line('~', one.agent.as_str(), why));
    }
    lines.extend(all(&diff.live, '~', "runs its session_live again"));
    for one in &diff.changed {
        lines.push(line(' ', &one.key, values(one)));
    }
    lines.extend(all(
        &diff.outdated,
        '~',
        "still runs with an earlier config",
    ));
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}
