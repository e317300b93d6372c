//! `gc demo-agent`: a stand-in for a coding agent, run like any agent program.
//!
//! It prints progress, echoes what it is told on standard input, and leaves when interrupted or,
//! between two steps, when asked to finish. Its
//! flags make it fail in all the ways a supervisor has to cope with. Many run at once, so it
//! sleeps until something happens: one thread with a timer, and one that waits for input.

mod drain;
mod life;
mod script;

use std::path::PathBuf;
use std::time::Duration;

use self::drain::Drain;
use self::life::{Fate, Life, Work};
use super::agent::Own;
use super::context::Context;
use super::{CliError, CliResult, Code};
use crate::config::duration;

/// Act as a coding agent that works, and fails on request
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DemoAgentArgs {
    /// Time one step of work takes
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    work_time: Duration,
    /// Wait before doing anything
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration::parse)]
    start_delay: Duration,
    /// Crash after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    crash_after: Option<Duration>,
    /// Exit code of the crash [default: 1]; without --crash-after exit with it at once
    #[arg(long, value_name = "N")]
    exit_code: Option<u8>,
    /// Last words before a crash
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    /// Stay alive but fall silent after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    hang_after: Option<Duration>,
    /// Do not leave when interrupted
    #[arg(long)]
    ignore_interrupt: bool,
    /// Print this many lines per second in place of work
    #[arg(long, value_name = "RATE", conflicts_with = "script",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    spam: Option<u32>,
    /// Follow a script, one action per line: sleep D, print TEXT, run CMD, exit N, hang
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

/// Lives as told and ends the process: its exit code is the agent's, not one of gc's own.
///
/// # Errors
/// A script that cannot be read or makes no sense, or a system without signals or threads.
pub(in crate::cli) fn run(args: &DemoAgentArgs, context: &Context) -> CliResult {
    let mut life = life(args)?;
    life.drain = Own::from_process().map(|own| Drain::new(own, context));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io() // signals arrive through it
        .enable_time()
        .build()?;
    let code = runtime.block_on(life::live(&life, &|line| context.out.line(line)))?;
    // Not by returning: the reader of standard input, or a command of a script, may go on.
    std::process::exit(code.into())
}

fn life(args: &DemoAgentArgs) -> CliResult<Life> {
    let work = match (&args.script, args.spam) {
        (Some(path), _) => Work::Script(read_script(path)?),
        (None, Some(rate)) => Work::Spam(rate),
        (None, None) => Work::Steps(args.work_time),
    };
    let crash_after = args.crash_after.or(args.exit_code.map(|_| Duration::ZERO));
    Ok(Life {
        name: std::env::var("GC_AGENT").ok(),
        start_delay: args.start_delay,
        work,
        crash: crash_after.map(|after| Fate {
            after,
            say: args.say.clone(),
            code: args.exit_code.unwrap_or(1),
        }),
        hang_after: args.hang_after,
        ignore_interrupt: args.ignore_interrupt,
        drain: None,
    })
}

fn read_script(path: &std::path::Path) -> CliResult<Vec<script::Action>> {
    let failed = |code, why: String| {
        CliError::new(code, format!("cannot follow script {}", path.display())).cause(why)
    };
    let text =
        std::fs::read_to_string(path).map_err(|error| failed(Code::Failed, error.to_string()))?;
    script::parse(&text).map_err(|why| failed(Code::Usage, why))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: DemoAgentArgs,
    }

    fn parse(line: &str) -> Result<DemoAgentArgs, clap::Error> {
        let words = ["demo-agent"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn an_exit_code_alone_means_at_once() {
        for (line, expected) in [
            ("", None),
            ("--exit-code 3", Some((0, 3))),
            ("--crash-after 2s", Some((2, 1))),
            ("--crash-after 2s --exit-code 0", Some((2, 0))),
        ] {
            let crash = life(&parse(line).unwrap()).unwrap().crash;
            let found = crash.map(|crash| (crash.after.as_secs(), crash.code));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn the_kind_of_work_follows_from_the_flags() {
        let work = |line| life(&parse(line).unwrap()).unwrap().work;
        assert_eq!(work(""), Work::Steps(Duration::from_secs(2)));
        assert_eq!(
            work("--work-time 5ms"),
            Work::Steps(Duration::from_millis(5))
        );
        assert_eq!(work("--spam 7"), Work::Spam(7));
        for bad in ["--spam 0", "--spam 1 --script x", "--work-time 2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_script_is_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        let read = || life(&parse(&format!("--script {}", path.display())).unwrap());
        assert_eq!(read().unwrap_err().code, Code::Failed);
        std::fs::write(&path, "exit 3\n").unwrap();
        assert_eq!(
            read().unwrap().work,
            Work::Script(vec![script::Action::Exit(3)])
        );
        std::fs::write(&path, "dance\n").unwrap();
        assert_eq!(read().unwrap_err().code, Code::Usage);
    }
}
