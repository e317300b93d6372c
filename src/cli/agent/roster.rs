//! Which agents there are: from whoever runs the city, else from its files and live sessions.

use std::path::{Path, PathBuf};

use super::offline::{self, Offline};
use crate::cli::context::{Context, Seat};
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::query::{CityState, city_status};
use crate::cli::values::{did_you_mean, fits};
use crate::config;
use crate::control::client::Client;
use crate::model::InstanceView;

/// The agents of one city.
#[derive(Debug)]
pub(super) struct Roster {
    /// Root of the city.
    pub(super) root: PathBuf,
    /// Sorted by name.
    pub(super) agents: Vec<InstanceView>,
    /// Word for what runs their sessions.
    pub(super) provider: String,
    /// Where all that was learnt.
    pub(super) source: Source,
}

/// Who told about the agents.
#[derive(Debug)]
pub(super) enum Source {
    /// The supervisor that runs the city.
    Live(Client),
    /// Config and sessions: nobody runs the city.
    Files,
}

impl Source {
    /// The word in JSON.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Live(_) => "live",
            Self::Files => "files",
        }
    }
}

/// How many agents of this city run.
///
/// # Errors
/// As [`Roster::load`].
pub(crate) fn live_sessions(context: &Context) -> CliResult<usize> {
    let roster = Roster::load(context, Access::Read)?;
    Ok(roster.agents.iter().filter(|agent| agent.running).count())
}

/// The agents of a rig, and where that was learnt.
///
/// # Errors
/// As [`Roster::load`].
pub(in crate::cli) fn of_rig(
    context: &Context,
    rig: &str,
) -> CliResult<(Vec<InstanceView>, &'static str)> {
    let mut roster = Roster::load(context, Access::Read)?;
    let of = |agent: &InstanceView| {
        let name = agent.qualified_name.as_str().rsplit_once('/');
        name.is_some_and(|(own, _)| own == rig)
    };
    roster.agents.retain(of);
    Ok((roster.agents, roster.source.word()))
}

/// The agents of a city that nobody runs: those configured, and whatever still lives.
///
/// # Errors
/// If the config has errors and nothing lives, or sessions cannot be listed.
pub(in crate::cli) fn left(context: &Context, root: &Path) -> CliResult<Vec<InstanceView>> {
    Ok(Roster::from_files(context, root.to_owned())?.agents)
}

impl Roster {
    /// Asks about the city the command is in.
    ///
    /// # Errors
    /// If there is no city, or whoever runs it cannot be talked to.
    pub(super) fn load(context: &Context, access: Access) -> CliResult<Self> {
        let root = context.existing_city(None, access)?;
        Self::of(context, root)
    }

    fn of(context: &Context, root: PathBuf) -> CliResult<Self> {
        let mut roster = match live(context, &root)? {
            Some((client, view)) => Self {
                root,
                agents: view.instances,
                provider: view.provider,
                source: Source::Live(client),
            },
            None => Self::from_files(context, root)?,
        };
        roster
            .agents
            .sort_by(|a, b| a.qualified_name.cmp(&b.qualified_name));
        Ok(roster)
    }

    fn from_files(context: &Context, root: PathBuf) -> CliResult<Self> {
        let loaded = config::load(&root);
        let offline = Offline::open(context, &root)?;
        let sessions = offline.listing()?;
        let spec = match &loaded {
            Ok(loaded) => Some(&*loaded.spec),
            Err(error) if sessions.is_empty() => {
                let cause = &error.summary;
                return Err(CliError::new(Code::Config, "city.toml has errors").cause(cause));
            }
            // What still runs must be reachable, whatever became of the file.
            Err(_) => {
                let note = "city.toml has errors; only live sessions are shown";
                context.out.note(note);
                None
            }
        };
        Ok(Self {
            agents: offline::instances(spec, &sessions),
            root,
            provider: offline.provider().to_owned(),
            source: Source::Files,
        })
    }

    /// The agent a name stands for.
    ///
    /// # Errors
    /// [`Code::NotFound`] or [`Code::Ambiguous`].
    pub(super) fn find(&self, name: &str) -> CliResult<&InstanceView> {
        let names: Vec<&str> = self.names().collect();
        let found = resolve(name, &names, rig().as_deref())?;
        let agent = self
            .agents
            .iter()
            .find(|a| a.qualified_name.as_str() == found);
        agent.ok_or_else(|| unknown(name, &names))
    }

    /// The agents that names and patterns stand for, each once, with what fits nobody.
    pub(super) fn select(&self, asked: &[String], all: bool) -> Vec<Chosen<InstanceView>> {
        let names: Vec<&str> = self.names().collect();
        let agent = |name: Chosen<String>| {
            let name = name?;
            let mut agents = self.agents.iter();
            let agent = agents.find(|agent| agent.qualified_name.as_str() == name);
            agent.cloned().ok_or_else(|| {
                let error = unknown(&name, &names);
                Unknown { asked: name, error }
            })
        };
        choose(asked, all, &names).into_iter().map(agent).collect()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.agents
            .iter()
            .map(|agent| agent.qualified_name.as_str())
    }
}

/// The supervisor of the city and what it says, if one runs it.
fn live(context: &Context, root: &Path) -> CliResult<Option<(Client, crate::model::CityView)>> {
    let (Seat::Standalone(mut client) | Seat::Supervisor(mut client)) = context.seat(root)? else {
        return Ok(None);
    };
    match city_status(&mut client, root)? {
        Some(CityState {
            view: Some(view), ..
        }) => Ok(Some((client, view))),
        _ => Ok(None),
    }
}

/// The rig bare names are looked up in first.
fn rig() -> Option<String> {
    std::env::var("GC_RIG").ok().filter(|rig| !rig.is_empty())
}

/// A name or pattern that fits nobody, or nobody for sure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    /// As typed.
    pub(super) asked: String,
    /// What is wrong with it.
    pub(super) error: CliError,
}

/// What a name or pattern stands for.
pub(super) type Chosen<T> = Result<T, Unknown>;

/// What names and patterns stand for among `known`, each once, with what fits nothing.
pub(super) fn choose(asked: &[String], all: bool, known: &[&str]) -> Vec<Chosen<String>> {
    if all {
        return known.iter().map(|name| Ok((*name).to_owned())).collect();
    }
    let mut chosen = Vec::new();
    for text in asked {
        let unknown = |error| Unknown {
            asked: text.clone(),
            error,
        };
        let found: Vec<Chosen<String>> = match one(text, known) {
            Ok(names) => names.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(unknown(error))],
        };
        for name in found {
            if !chosen.contains(&name) {
                chosen.push(name);
            }
        }
    }
    chosen
}

/// The names one word stands for, at least one.
fn one(text: &str, known: &[&str]) -> CliResult<Vec<String>> {
    if !text.contains(['*', '?']) {
        let name = resolve(text, known, rig().as_deref())?;
        return Ok(vec![name.to_owned()]);
    }
    let hits = known.iter().filter(|name| fits(text, name));
    let hits: Vec<String> = hits.map(|name| (*name).to_owned()).collect();
    match hits.is_empty() {
        true => Err(unknown(text, known)),
        false => Ok(hits),
    }
}

/// The full name a user means: as it is, in the rig at hand, or the only one that ends in it.
pub(super) fn resolve<'a>(name: &str, known: &[&'a str], rig: Option<&str>) -> CliResult<&'a str> {
    let exact = |full: &str| known.iter().find(|known| **known == full).copied();
    if let Some(found) = exact(name) {
        return Ok(found);
    }
    if let Some(found) = rig.and_then(|rig| exact(&format!("{rig}/{name}"))) {
        return Ok(found);
    }
    let last = |full: &&&str| full.rsplit('/').next() == Some(name);
    let hits: Vec<&str> = known.iter().filter(last).copied().collect();
    match hits.as_slice() {
        [only] => Ok(only),
        [] => Err(unknown(name, known)),
        several => {
            let message = format!("{name:?} fits several agents");
            let error = CliError::new(Code::Ambiguous, message).cause(several.join("\n"));
            Err(error.hint("name one in full"))
        }
    }
}

fn unknown(name: &str, known: &[&str]) -> CliError {
    let mut error = CliError::new(Code::NotFound, format!("no agent {name:?}"));
    // Slips happen in the last part, whatever rig it is in.
    let last: Vec<&str> = known
        .iter()
        .map(|full| full.rsplit('/').next().unwrap_or(full))
        .collect();
    error.hint = match name.contains('/') {
        true => did_you_mean(name, known),
        false => did_you_mean(name, &last).filter(|hint| hint.starts_with("did")),
    };
    error.hint = error.hint.or_else(|| did_you_mean(name, known));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["planner", "hello/worker-1", "hello/worker-2", "a/w", "b/w"];

    #[test]
    fn bare_names_are_found_where_they_are_unique() {
        let find = |name, rig| resolve(name, &KNOWN, rig).map_err(|error| error.code);
        assert_eq!(find("planner", None), Ok("planner"));
        assert_eq!(find("worker-1", None), Ok("hello/worker-1"));
        assert_eq!(find("hello/worker-1", None), Ok("hello/worker-1"));
        assert_eq!(find("w", None), Err(Code::Ambiguous));
        assert_eq!(find("w", Some("b")), Ok("b/w"));
        assert_eq!(find("planner", Some("b")), Ok("planner"));
        assert_eq!(find("nobody", None), Err(Code::NotFound));
    }

    #[test]
    fn mistakes_name_what_could_be_meant() {
        let hint = |name| resolve(name, &KNOWN, None).unwrap_err().hint.unwrap();
        assert_eq!(hint("worker-3"), "did you mean `worker-1`?");
        assert_eq!(hint("palnner"), "did you mean `planner`?");
        assert!(hint("zzz").starts_with("there is: planner"));
        let several = resolve("w", &KNOWN, None).unwrap_err();
        assert_eq!(several.causes, ["a/w", "b/w"]);
    }

    #[test]
    fn patterns_choose_each_agent_once() {
        let choose = |asked: &[&str], all| {
            let asked: Vec<String> = asked.iter().map(|s| (*s).to_owned()).collect();
            choose(&asked, all, &KNOWN)
                .into_iter()
                .map(|name| name.unwrap_or_else(|unknown| format!("no {}", unknown.asked)))
                .collect::<Vec<_>>()
        };
        let workers = ["hello/worker-1", "hello/worker-2"];
        assert_eq!(choose(&["hello/*", "worker-1"], false), workers);
        assert_eq!(choose(&["x*", "planner"], false), ["no x*", "planner"]);
        assert_eq!(choose(&[], true), KNOWN);
    }
}
