//! `suspend` and `resume`, of agents and of the city: an edit of `city.toml`.

use std::path::Path;

use clap::Args;
use serde_json::json;

use super::act::{Names, Outcome, finish};
use super::roster::{Source, choose};
use crate::cli::context::{Context, Seat};
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::output::Mark;
use crate::cli::query::city_status;
use crate::cli::stop::RELOAD_LIMIT;
use crate::cli::values::count;
use crate::config;
use crate::config::edit::{EditError, Edited, Target, set_suspended};
use crate::control::client::Client;
use crate::control::home::CityDir;
use crate::host;
use crate::model::{AgentName, AgentState, CityView, EventDraft};

/// Arguments of `gc agent suspend`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent suspend worker\n  gc agent suspend 'hello/*' -y --reason \"model is down\""
)]
pub(super) struct SuspendArgs {
    #[command(flatten)]
    names: Names,
    /// Why; kept in the event log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Arguments of `gc agent resume`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc agent resume worker\n  gc agent resume --all")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    names: Names,
    /// Why; kept in the event log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Arguments of `gc suspend` and `gc resume`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc suspend --reason \"over the weekend\"\n  gc resume\n  gc suspend ~/bright-lights"
)]
pub(in crate::cli) struct CityHoldArgs {
    /// The city's directory, or its registered name
    path: Option<String>,
    /// Why; kept in the event log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl SuspendArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        hold(context, &self.names, self.reason.as_deref(), true)
    }
}

impl ResumeArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        hold(context, &self.names, self.reason.as_deref(), false)
    }
}

impl CityHoldArgs {
    /// Holds the whole city back, or lets it go.
    ///
    /// # Errors
    /// If the file cannot be edited.
    pub(in crate::cli) fn run(&self, context: &Context, suspended: bool) -> CliResult<u8> {
        let root = context.existing_city(self.path.as_deref(), Access::Change)?;
        let edited = set_suspended(&root, &Target::City, suspended).map_err(refused)?;
        let changed = edited == Edited::Changed;
        let mut told = Told::default();
        if changed {
            told = tell(context, &root)?;
            let kind = if suspended {
                "city.suspended"
            } else {
                "city.resumed"
            };
            let name = crate::cli::city_name::city_name(&root)?;
            record(&root, kind, name.as_str(), self.reason.as_deref());
        }
        if context.out.json {
            let mut document = json!({"suspended": suspended, "changed": changed});
            document["source"] = json!(told.source());
            context.out.document(&document)?;
        }
        let word = word(suspended);
        let text = match (changed, &told.client) {
            (false, _) => format!("{} already", not_running(suspended)),
            (true, Some(_)) => word.to_owned(),
            (true, None) => format!("{word}; takes effect at the next gc start"),
        };
        context.out.report(Mark::Done, text)?;
        Ok(0)
    }
}

/// Edits the file for every agent that is meant, then has it loaded once.
fn hold(context: &Context, names: &Names, reason: Option<&str>, suspended: bool) -> CliResult<u8> {
    let root = context.existing_city(None, Access::Change)?;
    let loaded = config::load(&root).map_err(|error| refused(EditError::Invalid(error)))?;
    let known: Vec<&str> = loaded.spec.agents.iter().map(|a| a.name.as_str()).collect();
    let chosen = choose(&names.names, names.all, &known);
    let targets = chosen.iter().filter(|name| name.is_ok()).count();
    if suspended && targets > 1 {
        context.confirm(&format!("suspend {}", count(targets, "agent")))?;
    }
    let mut edits: Vec<(AgentName, CliResult<Edited>)> = Vec::new();
    let mut outcomes = Vec::new();
    for name in chosen {
        match name {
            Ok(name) => {
                let name =
                    AgentName::new(name).map_err(|e| CliError::new(Code::Failed, e.to_string()))?;
                let target = Target::Agent(name.clone());
                let edited = set_suspended(&root, &target, suspended).map_err(refused);
                edits.push((name, edited));
            }
            Err(mut unknown) => {
                unknown.error = member_of_pool(&unknown.asked, &known, suspended, unknown.error);
                outcomes.push(Outcome::nobody(unknown));
            }
        }
    }
    let changed = |edits: &[(AgentName, CliResult<Edited>)]| {
        edits
            .iter()
            .any(|(_, edited)| matches!(edited, Ok(Edited::Changed)))
    };
    let told = match changed(&edits) {
        true => tell(context, &root)?,
        false => Told::default(),
    };
    for (name, edited) in edits {
        if matches!(edited, Ok(Edited::Changed)) {
            note_down(&root, &name, reason, suspended);
        }
        let before = told.state(&name, suspended);
        let done = edited.map(|edited| match edited {
            Edited::Changed => (before, word(suspended).to_owned()),
            Edited::Unchanged => (before, format!("{} already", not_running(suspended))),
        });
        outcomes.push(Outcome::of(&name, before, done));
    }
    let source = match told.client {
        Some(client) => Source::Live(client),
        None => Source::Files,
    };
    let verb = if suspended { "suspend" } else { "resume" };
    finish(context, &source, verb, outcomes)
}

/// A member of a pool cannot be held back alone: the file knows the pool only.
fn member_of_pool(asked: &str, known: &[&str], suspended: bool, error: CliError) -> CliError {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let numbered = |pool: &&&str| {
        let rest = |asked: &str, pool: &str| {
            let number = asked.strip_prefix(pool)?.strip_prefix('-')?;
            number.parse::<u32>().ok()
        };
        rest(asked, pool)
            .or_else(|| rest(asked, &last(pool)))
            .is_some()
    };
    let Some(pool) = known.iter().find(numbered) else {
        return error;
    };
    let verb = if suspended { "suspend" } else { "resume" };
    let word = word(suspended);
    let message = format!("{asked} is one of the pool {pool}, which is {word} as a whole");
    CliError::new(Code::NotFound, message).hint(format!("gc agent {verb} {pool}"))
}

/// Whoever runs the city, after it was told of the edit.
#[derive(Debug, Default)]
struct Told {
    client: Option<Client>,
    view: Option<CityView>,
}

impl Told {
    fn source(&self) -> &'static str {
        match self.client {
            Some(_) => "live",
            None => "files",
        }
    }

    fn state(&self, name: &AgentName, suspended: bool) -> AgentState {
        let instances = self.view.iter().flat_map(|view| &view.instances);
        let mut hits = instances.filter(|instance| instance.qualified_name == *name);
        match (hits.next(), suspended) {
            (Some(instance), _) => instance.state,
            (None, true) => AgentState::Suspended,
            (None, false) => AgentState::Stopped,
        }
    }
}

/// Has an edited file loaded now; `false` if nobody runs the city.
///
/// # Errors
/// If whoever runs it does not answer, or does not take the file up.
pub(in crate::cli) fn take_up(context: &Context, root: &Path) -> CliResult<bool> {
    Ok(tell(context, root)?.client.is_some())
}

/// Has the file loaded now, if somebody runs the city.
fn tell(context: &Context, root: &Path) -> CliResult<Told> {
    let (Seat::Standalone(mut client) | Seat::Supervisor(mut client)) = context.seat(root)? else {
        return Ok(Told::default());
    };
    let runs = city_status(&mut client, root)?.is_some_and(|state| state.city.running);
    if !runs {
        return Ok(Told::default());
    }
    let answer = client.call_within("city.reload", json!({"path": root}), Some(RELOAD_LIMIT))?;
    if let Some(error) = answer["error"].as_str() {
        let message = "the file is edited, but the city did not take it up";
        return Err(CliError::new(Code::Config, message).cause(error));
    }
    let view = city_status(&mut client, root)?.and_then(|state| state.view);
    let client = Some(client);
    Ok(Told { client, view })
}

/// What the city's own events do not tell: that it was a person, and why.
fn note_down(root: &Path, name: &AgentName, reason: Option<&str>, suspended: bool) {
    match (suspended, reason) {
        (false, _) => record(root, "agent.resumed", name.as_str(), reason),
        // That it is suspended is told by whoever stops it.
        (true, None) => {}
        (true, Some(_)) => record_state(root, name, "suspended", reason),
    }
}

/// Best effort: an event that cannot be written does not undo the edit.
fn record(root: &Path, kind: &str, subject: &str, reason: Option<&str>) {
    append(root, EventDraft::new(kind, subject).maybe("reason", reason));
}

/// What a person did to an agent, and why.
pub(super) fn record_state(root: &Path, agent: &AgentName, state: &str, reason: Option<&str>) {
    let draft = EventDraft::new("agent.state", agent.as_str());
    append(root, draft.maybe("reason", reason).with("state", state));
}

fn append(root: &Path, mut draft: EventDraft) {
    draft.actor = "human".to_owned();
    match host::open_journal(&CityDir::new(root).state_dir()) {
        // Written by the time it is dropped.
        Ok(journal) => journal.append(draft),
        Err(error) => tracing::warn!(error = %error.message, "event not written"),
    }
}

fn word(suspended: bool) -> &'static str {
    if suspended { "suspended" } else { "resumed" }
}

fn not_running(suspended: bool) -> &'static str {
    if suspended {
        "suspended"
    } else {
        "not suspended"
    }
}

/// An edit that was not made.
pub(in crate::cli) fn refused(error: EditError) -> CliError {
    let code = match &error {
        EditError::Invalid(_) | EditError::Refused(_) => Code::Config,
        EditError::UnknownAgent { .. } | EditError::UnknownRig { .. } => Code::NotFound,
        EditError::Raced | EditError::InUse { .. } => Code::Conflict,
        _ => Code::Failed,
    };
    let text = error.to_string();
    let mut lines = text.lines();
    let first = CliError::new(code, lines.next().unwrap_or_default());
    first.cause(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_pool_points_to_its_pool() {
        let plain = || CliError::new(Code::NotFound, "no agent");
        let known = ["hello/worker", "db"];
        let hint = |asked| member_of_pool(asked, &known, true, plain()).hint;
        assert_eq!(
            hint("hello/worker-2").as_deref(),
            Some("gc agent suspend hello/worker")
        );
        assert_eq!(
            hint("worker-2").as_deref(),
            Some("gc agent suspend hello/worker")
        );
        assert_eq!(hint("worker-x"), None);
        let message = member_of_pool("worker-2", &known, false, plain()).message;
        assert!(message.ends_with("is resumed as a whole"), "{message}");
    }
}
