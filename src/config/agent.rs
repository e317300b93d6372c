//! From the tables of an agent to its spec.

mod check;
mod make;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{
    AgentName, AgentSpec, CityName, Command, OnDrift, PoolSpec, RestartLimit, Strategy, Template,
};

use super::city::SessionSettings;
use super::compose::{Composed, Entry};
use super::fields::Fields;
use super::problem::{Problem, Problems};
use super::providers::{self, Program, Programs};
use super::rigs::{Rig, Rigs};
use super::sources::Sources;
use super::tree::Span;
use super::{command, depends, pool};

/// What holds for agents that do not say otherwise.
pub(super) struct Defaults<'a> {
    pub(super) root: &'a Path,
    pub(super) gc_exe: &'a Path,
    pub(super) city: &'a CityName,
    pub(super) workspace: &'a Fields,
    pub(super) limit: RestartLimit,
    pub(super) strategy: Strategy,
    pub(super) on_drift: OnDrift,
    pub(super) check_timeout: Duration,
    pub(super) session: &'a SessionSettings,
    /// `[session] provider` as the files say it.
    pub(super) session_provider: &'a str,
    /// `[session] stdin` is set, so it counts for the fingerprint.
    pub(super) stdin_set: bool,
    pub(super) session_template: Template,
    pub(super) rigs: &'a Rigs,
    pub(super) programs: &'a Programs,
    pub(super) composed: &'a Composed,
}

/// An agent whose relations to others are not checked yet.
pub(super) struct Draft {
    pub(super) name: AgentName,
    pub(super) name_span: Span,
    pub(super) path: String,
    pub(super) dir: String,
    /// It, its rig or both are.
    pub(super) suspended: bool,
    /// It has `every`.
    pub(super) ephemeral: bool,
    pub(super) pool: Option<Arc<PoolSpec>>,
    /// `depends_on`, as written.
    pub(super) refs: Vec<(String, Span)>,
    /// `heartbeat.triage`, as written.
    pub(super) triage: Option<(String, Span)>,
    /// Missing if it has nothing to run.
    pub(super) spec: Option<AgentSpec>,
}

/// The agents of a city, in order.
#[derive(Default)]
pub(super) struct Agents {
    drafts: Vec<Draft>,
    names: HashMap<AgentName, Span>,
}

/// What is run, and how it enters the fingerprint.
struct Resolved<'a> {
    command: Command,
    /// The command without anything that differs between installations of gc.
    identity: String,
    /// The program of a provider; `None` for a plain command line.
    program: Option<&'a Program>,
}

impl Agents {
    pub(super) fn add(
        &mut self,
        entry: &Entry,
        defaults: &Defaults<'_>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) {
        let fields = &entry.fields;
        let name = self.name(entry, problems);
        check::ignored_provider(entry, problems);
        let pool = fields.table("pool").map(|pool| {
            let path = format!("{}.pool", entry.path);
            Arc::new(pool::read(
                pool, &path, &entry.dir, defaults, sources, problems,
            ))
        });
        check::ephemeral(entry, problems);
        check::heartbeat(entry, problems);
        let resolved = defaults.resolve(entry, problems);
        let program = resolved.as_ref().and_then(|resolved| resolved.program);
        providers::check_flag(fields, &entry.path, program, problems);
        let Some((name, name_span)) = name else {
            return;
        };
        let path = format!("{}.name", entry.path);
        pool::check_names(&name, pool.as_deref(), name_span.clone(), &path, problems);
        let spec = resolved.map(|resolved| {
            let mut make = make::Make {
                defaults,
                entry,
                sources: &mut *sources,
                problems: &mut *problems,
            };
            make.spec(name.clone(), resolved, pool.clone())
        });
        if let Some(spec) = &spec {
            check::session(spec, name_span.clone(), &path, problems);
        }
        let heartbeat = fields.table("heartbeat");
        self.drafts.push(Draft {
            name,
            name_span,
            path: entry.path.clone(),
            dir: entry.dir.clone(),
            suspended: defaults.is_suspended(entry),
            ephemeral: fields.has("every"),
            pool,
            refs: list(fields, "depends_on"),
            triage: heartbeat
                .and_then(|heartbeat| heartbeat.placed_text("triage"))
                .map(|(text, span)| (text.to_owned(), span)),
            spec,
        });
    }

    /// Checks what the agents mean for each other; `running` if the city is not suspended.
    pub(super) fn finish(mut self, running: bool, problems: &mut Problems) -> Vec<Arc<AgentSpec>> {
        pool::check_instances(&self.drafts, problems);
        depends::resolve(&mut self.drafts, running, problems);
        check::sessions(&self.drafts, problems);
        self.drafts
            .into_iter()
            .filter_map(|draft| draft.spec.map(Arc::new))
            .collect()
    }

    /// The full name and where it is written, unless it is taken.
    fn name(&mut self, entry: &Entry, problems: &mut Problems) -> Option<(AgentName, Span)> {
        let span = entry.fields.span("name")?;
        let name = AgentName::new(entry.full_name()?).ok()?;
        if let Some(first) = self.names.get(&name) {
            problems.push(
                Problem::error(
                    "duplicate-name",
                    span,
                    format!("{}.name", entry.path),
                    format!("agent `{name}` is defined twice"),
                )
                .label("second agent of this name")
                .related(first.clone(), "first agent of this name"),
            );
            return None;
        }
        self.names.insert(name.clone(), span.clone());
        Some((name, span))
    }
}

/// The texts of a list, with what patches append to one that nobody set.
fn list(fields: &Fields, key: &str) -> Vec<(String, Span)> {
    [fields.placed(key), fields.appended(key)].concat()
}

fn texts(fields: &Fields, key: &str) -> Vec<String> {
    list(fields, key)
        .into_iter()
        .map(|(text, _)| text)
        .collect()
}

/// A list that has a default of its own: replaced, or appended to.
fn list_over(fields: &Fields, key: &str, otherwise: &[String]) -> Vec<String> {
    let mut list = fields.texts(key).unwrap_or_else(|| otherwise.to_vec());
    list.extend(fields.appended(key).iter().map(|(text, _)| text.clone()));
    list
}

impl<'a> Defaults<'a> {
    /// Agent before workspace; for the agent, its command before its provider.
    fn resolve(&self, entry: &Entry, problems: &mut Problems) -> Option<Resolved<'a>> {
        let fields = &entry.fields;
        let line = |line: &str| {
            let args = texts(fields, "args");
            Resolved {
                command: command::from_line(line, &args),
                identity: command::with_args(line, &args),
                program: None,
            }
        };
        let run = |program: &'a Program| {
            let args = list_over(fields, "args", &program.args);
            let (command, identity) = program.command(&args, self.gc_exe);
            Resolved {
                command,
                identity,
                program: Some(program),
            }
        };
        if fields.has("start_command") {
            return fields.text("start_command").map(line);
        }
        if fields.has("provider") {
            let (name, span) = fields.placed_text("provider")?;
            let path = format!("{}.provider", entry.path);
            return self.programs.find(name, span, &path, problems).map(run);
        }
        if self.workspace.has("provider") {
            // One that does not exist is reported once, at the workspace.
            return self.programs.get(self.workspace.text("provider")?).map(run);
        }
        if self.workspace.has("start_command") {
            return self.workspace.text("start_command").map(line);
        }
        let names: Vec<&str> = providers::preset_names().collect();
        problems.push(
            Problem::error(
                "missing-key",
                entry.header.clone(),
                &entry.path,
                "the agent has neither `start_command` nor `provider`",
            )
            .label("nothing to run")
            .help(format!(
                "set `start_command`, or `provider` to one of: {}",
                names.join(", ")
            )),
        );
        None
    }

    fn rig(&self, entry: &Entry) -> Option<(&str, &'a Rig)> {
        self.rigs.find(&entry.dir)
    }

    fn is_suspended(&self, entry: &Entry) -> bool {
        entry.fields.flag("suspended").unwrap_or(false)
            || self.rig(entry).is_some_and(|(_, rig)| rig.suspended)
    }

    /// Where an agent runs that does not say itself: in its rig, else in its directory of the
    /// city.
    fn home(&self, entry: &Entry) -> PathBuf {
        match self.rig(entry) {
            Some((_, rig)) => rig.root.clone(),
            None => self.root.join(&entry.dir),
        }
    }
}
