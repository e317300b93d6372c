//! From an `[[agent]]` table to the spec of an agent.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{
    AgentName, AgentSpec, Command, Fingerprint, Launch, OnDrift, PoolSpec, RestartLimit,
    RestartType, SessionName, Stdin, Strategy,
};

use super::city::{self, SessionSettings};
use super::fields::{self, Fields, Item};
use super::keys::{AGENT, nearest};
use super::problem::{Problem, Problems};
use super::rigs::Rigs;
use super::source::Sources;
use super::{command, depends, pool};

/// Built-in presets of `provider`.
const PRESETS: &[&str] = &["demo"];

/// Presets of the format that this version does not bring.
const PLANNED_PRESETS: &[&str] = &[
    "claude", "codex", "gemini", "cursor", "copilot", "amp", "opencode", "auggie",
];

/// What holds for agents that do not say otherwise.
pub(super) struct Defaults<'a> {
    pub(super) root: &'a Path,
    pub(super) gc_exe: &'a Path,
    pub(super) provider: Option<&'a str>,
    pub(super) start_command: Option<&'a str>,
    /// The workspace names a preset or a command, be it valid or not.
    pub(super) commanded: bool,
    pub(super) limit: RestartLimit,
    pub(super) strategy: Strategy,
    pub(super) on_drift: OnDrift,
    pub(super) check_timeout: Duration,
    pub(super) session: &'a SessionSettings,
    /// `[session] stdin` is set, so it counts for the fingerprint.
    pub(super) stdin_set: bool,
    pub(super) rigs: &'a Rigs,
}

/// One `[[agent]]` as read.
pub(super) struct Entry {
    fields: Fields,
    path: String,
    header: Range<usize>,
    /// It has a `name`, be it valid or not.
    named: bool,
    /// It has a `start_command` or a `provider`, be it valid or not.
    commanded: bool,
    /// It has a `dir` that is not valid.
    misplaced: bool,
}

impl Entry {
    pub(super) fn read(item: &Item<'_, '_>, problems: &mut Problems) -> Self {
        let fields = fields::read(&AGENT, item.table, &item.path, problems);
        let has = |key| item.table.get(key).is_some();
        Self {
            named: has("name"),
            commanded: has("start_command") || has("provider"),
            misplaced: has("dir") && fields.text("dir").is_none(),
            path: item.path.clone(),
            header: item.header.clone(),
            fields,
        }
    }

    fn dir(&self) -> &str {
        self.fields.text("dir").unwrap_or_default()
    }
}

/// An agent whose relations to others are not checked yet.
pub(super) struct Draft {
    pub(super) name: AgentName,
    pub(super) name_span: Range<usize>,
    pub(super) path: String,
    pub(super) dir: String,
    /// It, its rig or both are.
    pub(super) suspended: bool,
    pub(super) pool: Option<Arc<PoolSpec>>,
    /// `depends_on`, as written.
    pub(super) refs: Vec<(String, Range<usize>)>,
    /// Missing if it has nothing to run.
    pub(super) spec: Option<AgentSpec>,
}

/// The agents of a file, in its order.
#[derive(Default)]
pub(super) struct Agents {
    drafts: Vec<Draft>,
    names: HashMap<AgentName, Range<usize>>,
}

/// What is run, and how it enters the fingerprint.
struct Resolved {
    command: Command,
    /// The command without anything that differs between installations of gc.
    identity: String,
    prompt_mode: &'static str,
}

impl Agents {
    pub(super) fn add(
        &mut self,
        entry: &Entry,
        defaults: &Defaults<'_>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) {
        let (fields, dir) = (&entry.fields, entry.dir());
        let name = self.name(entry, problems);
        defaults.check_provider(fields, &entry.path, problems);
        warn_of_ignored_provider(entry, problems);
        let pool = fields.table("pool").map(|pool| {
            let path = format!("{}.pool", entry.path);
            Arc::new(pool::read(pool, &path, dir, defaults, sources, problems))
        });
        let resolved = defaults.resolve(fields);
        if resolved.is_none() && !entry.commanded && !defaults.commanded {
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
                    PRESETS.join(", ")
                )),
            );
        }
        let Some((name, name_span)) = name else {
            return;
        };
        let path = format!("{}.name", entry.path);
        pool::check_names(&name, pool.as_deref(), name_span.clone(), &path, problems);
        let mut spec = resolved.map(|resolved| defaults.spec(name.clone(), resolved, entry));
        if let Some(spec) = &mut spec {
            spec.pool.clone_from(&pool);
        }
        self.drafts.push(Draft {
            name,
            name_span,
            path: entry.path.clone(),
            dir: dir.to_owned(),
            suspended: defaults.is_suspended(entry),
            pool,
            refs: fields
                .placed("depends_on")
                .map(|(text, span)| (text.to_owned(), span))
                .collect(),
            spec,
        });
    }

    /// Checks what the agents mean for each other; `running` if the city is not suspended.
    pub(super) fn finish(mut self, running: bool, problems: &mut Problems) -> Vec<Arc<AgentSpec>> {
        pool::check_instances(&self.drafts, problems);
        depends::resolve(&mut self.drafts, running, problems);
        self.drafts
            .into_iter()
            .filter_map(|draft| draft.spec.map(Arc::new))
            .collect()
    }

    /// The full name and where it is written, unless it is taken.
    fn name(
        &mut self,
        entry: &Entry,
        problems: &mut Problems,
    ) -> Option<(AgentName, Range<usize>)> {
        if !entry.named {
            let header = entry.header.clone();
            problems.push(fields::missing(header, &entry.path, "agent", "name"));
        }
        let (name, span) = (entry.fields.text("name")?, entry.fields.span("name")?);
        if entry.misplaced {
            return None; // its full name is not known
        }
        let name = AgentName::new(pool::qualified(entry.dir(), name)).ok()?;
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

impl Defaults<'_> {
    /// Reports a preset that does not exist.
    pub(super) fn check_provider(&self, fields: &Fields, path: &str, problems: &mut Problems) {
        let (Some(preset), Some(span)) = (fields.text("provider"), fields.span("provider")) else {
            return;
        };
        if PRESETS.contains(&preset) {
            return;
        }
        let help = if PLANNED_PRESETS.contains(&preset) {
            format!("`{preset}` is not supported by this version of gc; use `start_command`")
        } else if let Some(meant) = nearest(preset, PRESETS.iter().copied()) {
            format!("did you mean \"{meant}\"?")
        } else {
            format!("presets: {}", PRESETS.join(", "))
        };
        problems.push(
            Problem::error(
                "unknown-ref",
                span,
                format!("{path}.provider"),
                format!("there is no provider {preset:?}"),
            )
            .label("unknown provider")
            .help(help),
        );
    }

    /// Agent before workspace; for the agent, its command before its preset.
    fn resolve(&self, fields: &Fields) -> Option<Resolved> {
        let args = fields.texts("args").unwrap_or_default();
        let line = |line: &str| Resolved {
            command: command::from_line(line, args),
            identity: command::with_args(line, args),
            prompt_mode: "none",
        };
        let own = fields.text("start_command").map(line);
        own.or_else(|| {
            fields
                .text("provider")
                .or(self.provider)
                .map(|_| self.demo(args))
        })
        .or_else(|| self.start_command.map(line))
    }

    /// The preset `demo`: the agent inside gc itself.
    fn demo(&self, args: &[String]) -> Resolved {
        let words = |program: String| {
            Command::Words(
                [program, "demo-agent".to_owned()]
                    .into_iter()
                    .chain(args.iter().cloned())
                    .collect(),
            )
        };
        Resolved {
            command: words(self.gc_exe.to_string_lossy().into_owned()),
            identity: words("gc".to_owned()).to_string(),
            prompt_mode: "arg",
        }
    }

    fn is_suspended(&self, entry: &Entry) -> bool {
        entry.fields.flag("suspended").unwrap_or(false)
            || self.rigs.get(entry.dir()).is_some_and(|rig| rig.suspended)
    }

    /// Where an agent runs that does not say itself: in its rig, else in its directory of the
    /// city.
    fn home(&self, dir: &str) -> PathBuf {
        match self.rigs.get(dir) {
            Some(rig) => rig.root.clone(),
            None => self.root.join(dir),
        }
    }

    /// The spec but for what concerns other agents.
    fn spec(&self, name: AgentName, resolved: Resolved, entry: &Entry) -> AgentSpec {
        let (fields, dir) = (&entry.fields, entry.dir());
        let stdin = city::stdin(fields);
        let launch = Launch {
            command: resolved.command,
            env: fields.env("env"),
            work_dir: fields
                .text("work_dir")
                .map_or_else(|| self.home(dir), |path| self.root.join(path))
                // Without `.` and doubled slashes; `..` stays, since behind a link it cannot be
                // folded.
                .components()
                .collect(),
            stdin: stdin.unwrap_or(self.session.stdin),
            ..Launch::default()
        };
        let mut parts = launch.fingerprint_parts();
        parts.insert("command".into(), resolved.identity);
        parts.insert("prompt.mode".into(), resolved.prompt_mode.into());
        parts.insert("session.provider".into(), self.session.provider.clone());
        if stdin.is_some() || self.stdin_set {
            let word = if launch.stdin == Stdin::Null {
                "null"
            } else {
                "fifo"
            };
            parts.insert("stdin".into(), word.into());
        }
        AgentSpec {
            template: name.clone(),
            pool: None,
            pool_slot: None,
            depends_on: Vec::new(),
            strategy: city::strategy(fields).unwrap_or(self.strategy),
            on_drift: city::on_drift(fields).unwrap_or(self.on_drift),
            idle_timeout: fields
                .duration("idle_timeout")
                .filter(|limit| !limit.is_zero()),
            process_names: fields.texts("process_names").unwrap_or_default().to_vec(),
            live: fields.texts("session_live").unwrap_or_default().to_vec(),
            held: self.rigs.get(dir).and_then(|rig| rig.held.clone()),
            session: SessionName::of(&name),
            name,
            launch: Arc::new(launch),
            fingerprint: Fingerprint::of(&parts),
            restart: match fields.text("restart") {
                Some("transient") => RestartType::Transient,
                Some("temporary") => RestartType::Temporary,
                _ => RestartType::Permanent,
            },
            limit: city::restart_limit(fields, self.limit),
            suspended: self.is_suspended(entry),
        }
    }
}

fn warn_of_ignored_provider(entry: &Entry, problems: &mut Problems) {
    let fields = &entry.fields;
    if let (Some(command), Some(provider)) = (fields.span("start_command"), fields.span("provider"))
    {
        let message = "`provider` has no effect beside `start_command`";
        problems.push(
            Problem::error(
                "ignored-key",
                provider,
                format!("{}.provider", entry.path),
                message,
            )
            .warning()
            .label("ignored")
            .related(command, "this is run"),
        );
    }
}
