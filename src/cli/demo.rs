//! `gc demo`: the whole story in one command, in a temporary place, with nothing left behind.

mod story;

use std::time::Duration;

use clap::Args;

use self::story::Story;
use super::error::{CliError, CliResult, Code};
use super::output::Output;

/// Watch gc at work: start a city, kill an agent, quarantine a crash loop, edit the config live
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gc demo                  # the whole story, at reading speed
  gc demo --seconds 60     # slower
  gc demo --json | jq .    # as fast as possible, the figures as one document

Runs in a temporary directory and leaves nothing behind.")]
pub(crate) struct DemoArgs {
    /// How long the show lasts on a terminal; without one it runs as fast as it can
    #[arg(long, default_value_t = 20, value_name = "N")]
    seconds: u64,
    /// Keep the demo's directory and say where it is
    #[arg(long)]
    keep: bool,
    /// Where the agents run
    #[arg(long, default_value = "subprocess", value_parser = ["subprocess"])]
    provider: String,
}

/// Pauses in which a person reads.
const PAUSES: u32 = 5;

pub(crate) fn run(args: &DemoArgs, out: &Output) -> CliResult {
    let place = tempfile::Builder::new().prefix("gc-demo-").tempdir()?;
    let pause = if out.live() {
        Duration::from_secs(args.seconds) / PAUSES
    } else {
        Duration::ZERO
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::new(Code::Internal, format!("no runtime: {error}")))?;
    let story = Story::new(place.path(), *out, pause);
    let seen = runtime.block_on(story.tell());
    if args.keep {
        out.note(format!("kept {}", place.keep().display()));
    }
    if story.is_unheard() {
        return Ok(());
    }
    let seen = seen?;
    if out.json {
        return out.document(&seen);
    }
    out.line("")?;
    out.line(seen.to_string())?;
    out.line("next: gc init my-city && cd my-city && gc start")
}
