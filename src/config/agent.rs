//! From an `[[agent]]` table to the spec of an agent.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gascity_actors::model::{
    AgentName, AgentSpec, Command, Fingerprint, Launch, RestartLimit, RestartType, SessionName,
    Stdin,
};

use super::city::{self, SessionSettings};
use super::command;
use super::fields::Fields;
use super::keys::nearest;
use super::problem::{Problem, Problems};

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
    pub(super) session: &'a SessionSettings,
    /// `[session] stdin` is set, so it counts for the fingerprint.
    pub(super) stdin_set: bool,
}

/// One `[[agent]]` as read.
pub(super) struct Entry {
    pub(super) fields: Fields,
    pub(super) path: String,
    pub(super) header: Range<usize>,
    /// It has a `name`, be it valid or not.
    pub(super) named: bool,
    /// It has a `start_command` or a `provider`, be it valid or not.
    pub(super) commanded: bool,
}

/// The agents of a file, in its order.
#[derive(Default)]
pub(super) struct Agents {
    specs: Vec<Arc<AgentSpec>>,
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
    pub(super) fn add(&mut self, entry: &Entry, defaults: &Defaults<'_>, problems: &mut Problems) {
        let name = self.name(entry, problems);
        defaults.check_provider(&entry.fields, &entry.path, problems);
        warn_of_ignored_provider(entry, problems);
        let resolved = defaults.resolve(&entry.fields);
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
        if let (Some(name), Some(resolved)) = (name, resolved) {
            self.specs
                .push(Arc::new(defaults.spec(name, resolved, &entry.fields)));
        }
    }

    pub(super) fn into_specs(self) -> Vec<Arc<AgentSpec>> {
        self.specs
    }

    fn name(&mut self, entry: &Entry, problems: &mut Problems) -> Option<AgentName> {
        let path = format!("{}.name", entry.path);
        if !entry.named {
            problems.push(
                Problem::error(
                    "missing-key",
                    entry.header.clone(),
                    path,
                    "the agent has no `name`",
                )
                .label("no `name`"),
            );
            return None;
        }
        let name = AgentName::new(entry.fields.text("name")?).ok()?;
        let span = entry.fields.span("name")?;
        if let Some(first) = self.names.get(&name) {
            problems.push(
                Problem::error(
                    "duplicate-name",
                    span,
                    path,
                    format!("agent `{name}` is defined twice"),
                )
                .label("second agent of this name")
                .related(first.clone(), "first agent of this name"),
            );
            return None;
        }
        self.names.insert(name.clone(), span);
        Some(name)
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

    fn spec(&self, name: AgentName, resolved: Resolved, fields: &Fields) -> AgentSpec {
        let stdin = city::stdin(fields);
        let launch = Launch {
            command: resolved.command,
            env: fields.env("env"),
            work_dir: work_dir(self.root, fields.text("work_dir")),
            stdin: stdin.unwrap_or(self.session.stdin),
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
            strategy: gascity_actors::model::Strategy::default(),
            on_drift: gascity_actors::model::OnDrift::default(),
            idle_timeout: None,
            process_names: Vec::new(),
            live: Vec::new(),
            held: None,
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
            suspended: fields.flag("suspended").unwrap_or(false),
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

/// The absolute working directory, without `.` and doubled slashes. `..` stays: behind a
/// symbolic link it cannot be folded.
fn work_dir(root: &Path, configured: Option<&str>) -> PathBuf {
    root.join(configured.unwrap_or_default())
        .components()
        .collect()
}
