//! What agents say for themselves: `drain-check`, `drain-ack`, `request-restart`.

use std::path::Path;

use clap::Args;
use serde_json::json;

use super::Deed;
use super::act::perform;
use super::roster::Roster;
use crate::cli::context::Context;
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::output::Mark;
use crate::model::{AgentState, SessionName};
use crate::ports::Note;
use crate::sessions;

/// Arguments of `gc agent drain-check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent drain-check && finish      # inside a session\n  gc agent drain-check worker-1"
)]
pub(super) struct DrainCheckArgs {
    /// The agent [default: the one whose session this is]
    agent: Option<String>,
}

/// Arguments of `gc agent drain-ack`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc agent drain-ack\n  gc agent drain-ack worker-1")]
pub(super) struct DrainAckArgs {
    /// The agent [default: the one whose session this is]
    agent: Option<String>,
}

/// Arguments of `gc agent request-restart`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent request-restart\n  gc agent request-restart --no-block"
)]
pub(super) struct RequestRestartArgs {
    /// Return at once, and be stopped a moment later
    #[arg(long)]
    no_block: bool,
}

/// The session this process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Own {
    /// `GC_AGENT`.
    pub(in crate::cli) agent: String,
    /// `GC_SESSION_NAME`.
    session: Option<SessionName>,
    /// `GC_SESSION_ID`.
    token: Option<String>,
}

impl Own {
    /// What the environment says; `None` outside of sessions.
    pub(in crate::cli) fn from_process() -> Option<Self> {
        Self::from_vars(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_vars(var: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self {
            agent: var("GC_AGENT")?,
            session: var("GC_SESSION_NAME").and_then(|name| SessionName::new(name).ok()),
            token: var("GC_SESSION_ID"),
        })
    }

    /// Whether this session is asked to finish, as its metadata says; `None` if it has none that
    /// can be read here. Costs one file, so that it may be asked often.
    pub(in crate::cli) fn is_draining(&self, root: &Path) -> Option<bool> {
        let notes = sessions::metadata(root, self.session.as_ref()?).ok()??;
        Some(notes.contains_key(&Note::Drain))
    }
}

/// The agent that is meant, and its session if that is this one.
fn meant(asked: Option<&str>) -> CliResult<(String, Option<Own>)> {
    let own = Own::from_process();
    match (asked, own) {
        (None, Some(own)) => Ok((own.agent.clone(), Some(own))),
        (Some(name), own) => Ok((name.to_owned(), own.filter(|own| own.agent == name))),
        (None, None) => {
            let message = "which agent? this is not inside a session";
            Err(CliError::new(Code::Usage, message).hint("name the agent"))
        }
    }
}

impl DrainCheckArgs {
    /// Answers with the exit code.
    ///
    /// # Errors
    /// If there is no such agent.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let (name, own) = meant(self.agent.as_deref())?;
        let root = context.existing_city(None, Access::Read)?;
        let noted = own.and_then(|own| own.is_draining(&root));
        let draining = match noted {
            Some(draining) => draining,
            None => {
                let roster = Roster::load(context, Access::Read)?;
                roster.find(&name)?.state == AgentState::Draining
            }
        };
        if context.out.json {
            let document = json!({"name": name, "draining": draining});
            context.out.document(&document)?;
        }
        Ok(u8::from(!draining))
    }
}

impl DrainAckArgs {
    /// Says that the work is finished.
    ///
    /// # Errors
    /// If the agent does not run.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let (name, own) = meant(self.agent.as_deref())?;
        tell(context, &name, own.as_ref(), Deed::DrainAck)?;
        context
            .out
            .report(Mark::Done, format!("{name}: finished"))?;
        Ok(0)
    }
}

impl RequestRestartArgs {
    /// Asks for a fresh session and waits for the end of this one.
    ///
    /// # Errors
    /// Outside of sessions.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let Some(own) = Own::from_process() else {
            let error = CliError::new(Code::Failed, "this is not inside a session");
            return Err(error.hint("gc agent restart <agent>"));
        };
        tell(context, &own.agent, Some(&own), Deed::RequestRestart)?;
        let text = format!("{}: asked for a fresh session", own.agent);
        context.out.report(Mark::Done, text)?;
        if self.no_block {
            return Ok(0);
        }
        loop {
            std::thread::park(); // until the stop that was asked for
        }
    }
}

/// Says for the agent of this very session that it has finished.
///
/// # Errors
/// If nobody hears it.
pub(in crate::cli) fn acknowledge(context: &Context, own: &Own) -> CliResult {
    let quiet = Context {
        out: crate::cli::Output {
            json: false,
            quiet: true,
            ..context.out
        },
        globals: context.globals.clone(),
    };
    tell(&quiet, &own.agent, Some(own), Deed::DrainAck)
}

fn tell(context: &Context, name: &str, own: Option<&Own>, deed: Deed) -> CliResult {
    let mut roster = Roster::load(context, Access::Change)?;
    let agent = roster.find(name)?.clone();
    let token = own.and_then(|own| own.token.as_deref());
    let state = perform(context, &mut roster, &agent, deed, token)?;
    if context.out.json {
        let name = &agent.qualified_name;
        let document = json!({"name": name, "ok": true, "state": state});
        context.out.document(&document)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_its_environment() {
        let vars = |set: &'static [(&str, &str)]| {
            Own::from_vars(|name| {
                let hit = set.iter().find(|(key, _)| *key == name);
                hit.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(vars(&[("GC_SESSION_NAME", "w")]), None);
        let own = vars(&[("GC_AGENT", "r/w"), ("GC_SESSION_NAME", "r--w")]).unwrap();
        assert_eq!(own.agent, "r/w");
        assert_eq!(own.session.as_ref().map(SessionName::as_str), Some("r--w"));
        assert_eq!(own.is_draining(Path::new("/nowhere")), None);
    }
}
