//! `gc supervisor upgrade`: another program in the running process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::cli::cities::known;
use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::output::Mark;
use crate::cli::progress::Progress;
use crate::cli::query::{Want, wait};
use crate::cli::values::{millis, seconds};
use crate::control::client::{Client, ClientError};
use crate::model::CityStatus;

/// How long the new program may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Arguments of `gc supervisor upgrade`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc supervisor upgrade               # to the gc you just called\n  gc supervisor upgrade /opt/gc/bin/gc"
)]
pub(super) struct UpgradeArgs {
    /// The program to become; the one that is called, unless given
    exe: Option<PathBuf>,
}

impl UpgradeArgs {
    /// Has the supervisor become another program, and waits until that answers.
    ///
    /// # Errors
    /// If the program is refused or does not answer; the old one goes on in the first case.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let exe = match &self.exe {
            Some(exe) => std::path::absolute(exe)?,
            None => std::env::current_exe()?,
        };
        let client = context.running_supervisor()?;
        let pid = client.hello().pid;
        let running: Vec<_> = known(context)?
            .cities
            .into_iter()
            .filter(|city| city.running)
            .collect();
        let mut progress = Progress::new(context.out);
        progress.now("upgrading", "");
        let mut versions = None;
        for item in client.stream("upgrade", json!({"exe": exe}), Some(ANSWER_LIMIT))? {
            match item {
                Ok(item) if item.get("error").is_some() => {
                    let why = item["error"].as_str().unwrap_or_default();
                    let error = CliError::new(Code::Failed, "the supervisor runs on as before");
                    return Err(error.cause(why).hint("gc supervisor status"));
                }
                Ok(item) => {
                    let word = |key: &str| item[key].as_str().unwrap_or("?").to_owned();
                    versions = Some((word("from"), word("to")));
                }
                // The old program is gone, and its connections with it.
                Err(ClientError::Protocol(_) | ClientError::Io(_)) if versions.is_some() => break,
                Err(error) => return Err(error.into()),
            }
        }
        let (from, to) = versions
            .ok_or_else(|| CliError::new(Code::Failed, "the supervisor was told to stop"))?;
        let now = answering(context)?;
        if now.hello().pid != pid {
            let message = "another supervisor answers; the upgrade did not work";
            return Err(CliError::new(Code::Failed, message).hint("gc supervisor logs"));
        }
        for city in &running {
            progress.now("adopting", city.name.as_str());
            let client = context.running_supervisor()?;
            let phase = wait(client, &city.path, Want::Running, ANSWER_LIMIT, |_| {})?;
            if phase.is_none_or(|phase| phase.status != CityStatus::Running) {
                let message = format!("{} is not running after the upgrade", city.name);
                return Err(CliError::new(Code::Failed, message).hint("gc cities --wide"));
            }
        }
        progress.clear();
        let took = progress.elapsed();
        if context.out.json {
            context.out.document(&json!({
                "pid": pid, "from": from, "to": to, "elapsed_ms": millis(took),
            }))?;
        }
        let change = match from == to {
            true => format!("reloaded as version {to}"),
            false => format!("upgraded from {from} to {to}"),
        };
        let text = format!("supervisor {change}, PID {pid} ({})", seconds(took));
        context.out.report(Mark::Done, text)?;
        Ok(0)
    }
}

/// The new program listens on the same socket: whoever connects waits in its queue.
fn answering(context: &Context) -> CliResult<Client> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        match context.running_supervisor() {
            Ok(client) => return Ok(client),
            Err(error) if error.code == Code::Timeout && Instant::now() < deadline => {}
            Err(error) => return Err(error.hint("gc supervisor logs")),
        }
    }
}
