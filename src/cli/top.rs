//! `gc top`: agents, actors and events as they change.

mod frame;
mod keys;
mod live;
mod model;
mod rows;
mod screen;
mod source;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use crate::config::duration;
use model::Model;
use source::{Scope, Source};

/// Redrawing more often than this helps nobody.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `gc top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc top\n  gc top --all --interval 5s\n  gc top --once --width 80 --height 24"
)]
pub(super) struct TopArgs {
    /// All cities of this machine
    #[arg(long)]
    all: bool,
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,
    /// Print one plain frame; needs no terminal
    #[arg(long)]
    once: bool,
    /// Columns of that frame
    #[arg(long, value_name = "N", default_value = "100", requires = "once")]
    width: usize,
    /// Lines of that frame
    #[arg(long, value_name = "N", default_value = "30", requires = "once")]
    height: usize,
}

impl TopArgs {
    /// Shows what goes on until the user has seen enough.
    ///
    /// # Errors
    /// If nothing runs, or there is no terminal to show it on.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        if !self.once && (context.out.json || !terminal) {
            let error = CliError::new(Code::Usage, "this needs a terminal");
            return Err(error.hint("gc top --once"));
        }
        let scope = self.scope(context)?;
        let mut model = Model {
            all: matches!(scope, Scope::All),
            ..Model::default()
        };
        // The first look comes before the terminal is taken: its failure is told like any other.
        let mut source = Source::new(context, scope);
        model.take(source.look()?);
        if !self.once {
            return live::run(context, model, source, self.interval.max(LEAST_INTERVAL));
        }
        let frame = frame::frame(&model, self.width, self.height);
        let lines: Vec<String> = frame.into_iter().map(|line| line.text).collect();
        match context.out.json {
            true => context.out.document(&json!({ "lines": lines }))?,
            false => context.out.line(lines.join("\n"))?,
        }
        Ok(0)
    }

    /// The city at hand; where there is none, all of them.
    fn scope(&self, context: &Context) -> CliResult<Scope> {
        if self.all {
            return Ok(Scope::All);
        }
        match context.city(None, Access::Read) {
            Ok(root) => Ok(Scope::City(root)),
            Err(error) if error.code == Code::NotFound && context.globals.city.is_none() => {
                Ok(Scope::All)
            }
            Err(error) => Err(error),
        }
    }
}
