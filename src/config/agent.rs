//! From the tables of an agent to its spec.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{
    AgentName, AgentSpec, Blueprint, CityName, Command, Fingerprint, InstanceTexts, Launch,
    OnDrift, PoolSpec, Prompt, PromptMode, RestartLimit, RestartType, RigRef, SessionName, Stdin,
    Strategy, Template,
};

use super::city::{self, SessionSettings};
use super::compose::{Composed, Entry};
use super::fields::{self, Fields};
use super::problem::{Problem, Problems};
use super::prompts;
use super::providers::{self, Program, Programs};
use super::rigs::{Rig, Rigs};
use super::sources::Sources;
use super::tree::Span;
use super::{command, depends, overlays, pool};

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
        warn_of_ignored_provider(entry, problems);
        let pool = fields.table("pool").map(|pool| {
            let path = format!("{}.pool", entry.path);
            Arc::new(pool::read(
                pool, &path, &entry.dir, defaults, sources, problems,
            ))
        });
        check_ephemeral(entry, problems);
        check_heartbeat(entry, problems);
        let resolved = defaults.resolve(entry, problems);
        let program = resolved.as_ref().and_then(|resolved| resolved.program);
        providers::check_flag(fields, &entry.path, program, problems);
        let Some((name, name_span)) = name else {
            return;
        };
        let path = format!("{}.name", entry.path);
        pool::check_names(&name, pool.as_deref(), name_span.clone(), &path, problems);
        let spec = resolved.map(|resolved| {
            let mut make = Make {
                defaults,
                entry,
                sources: &mut *sources,
                problems: &mut *problems,
            };
            make.spec(name.clone(), resolved, pool.clone())
        });
        if let Some(spec) = &spec {
            check_session(spec, name_span.clone(), &path, problems);
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
        check_sessions(&self.drafts, problems);
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

/// The making of one spec.
struct Make<'m, 'a> {
    defaults: &'m Defaults<'a>,
    entry: &'m Entry,
    sources: &'m mut Sources,
    problems: &'m mut Problems,
}

impl Make<'_, '_> {
    /// The spec but for what concerns other agents.
    fn spec(
        &mut self,
        name: AgentName,
        resolved: Resolved<'_>,
        pool: Option<Arc<PoolSpec>>,
    ) -> AgentSpec {
        let (defaults, entry) = (self.defaults, self.entry);
        let (fields, empty) = (&entry.fields, Program::default());
        let program = resolved.program.unwrap_or(&empty);
        let mut parts = BTreeMap::from([("command".to_owned(), resolved.identity)]);
        let mut env = program.env.clone();
        env.extend(fields.map("env"));
        fields.removed().for_each(|name| {
            env.remove(name);
        });
        let (prompt, prompt_source) = self.prompt(&name, resolved.program, &env);
        self.prompt_parts(&prompt, prompt_source, &mut parts);
        let stdin = city::stdin(fields);
        let stdin_word = fields.text("stdin").or(match defaults.session.stdin {
            Stdin::Null => Some("null"),
            Stdin::Fifo => Some("fifo"),
        });
        if stdin.is_some() || defaults.stdin_set {
            parts.extend(stdin_word.map(|word| ("stdin".to_owned(), word.to_owned())));
        }
        let session = fields.text("session").map(str::to_owned);
        let provider = session.as_deref().unwrap_or(defaults.session_provider);
        parts.insert("session.provider".into(), provider.to_owned());
        for (key, value) in fields.map("fingerprint_extra") {
            parts.insert(format!("fp.{key}"), value);
        }
        let overlays = self.overlays(&mut parts);
        let script = self.script(&mut parts);
        let launch = Launch {
            command: resolved.command,
            env,
            stdin: stdin.unwrap_or(defaults.session.stdin),
            session: session.filter(|word| word != &defaults.session.provider),
            rig: defaults.rig(entry).map(|(name, rig)| RigRef {
                name: name.to_owned(),
                root: rig.root.clone(),
            }),
            nudge: fields.text("nudge").unwrap_or_default().to_owned(),
            session_setup_script: script,
            overlays,
            env_passthrough: program.env_passthrough.clone(),
            ready_delay: fields
                .count("ready_delay_ms")
                .map(Duration::from_millis)
                .or(program.ready_delay),
            ready_prompt_prefix: fields
                .text("ready_prompt_prefix")
                .map(str::to_owned)
                .or_else(|| program.ready_prompt_prefix.clone()),
            dismiss: program.dismiss.clone(),
            prompt: Prompt {
                text: None,
                ..prompt.clone()
            },
            ..Launch::default()
        };
        let texts = self.texts(&name, prompt.text, parts);
        let mut spec = AgentSpec {
            template: name.clone(),
            pool,
            pool_slot: None,
            depends_on: Vec::new(),
            strategy: city::strategy(fields).unwrap_or(defaults.strategy),
            on_drift: city::on_drift(fields).unwrap_or(defaults.on_drift),
            idle_timeout: fields
                .duration("idle_timeout")
                .filter(|limit| !limit.is_zero()),
            process_names: list_over(fields, "process_names", &program.process_names),
            live: Vec::new(),
            held: self.held(),
            session: SessionName::of(&name),
            name,
            launch: Arc::new(launch),
            fingerprint: Fingerprint::default(),
            restart: match fields.text("restart") {
                Some("transient") => RestartType::Transient,
                Some("temporary") => RestartType::Temporary,
                _ => RestartType::Permanent,
            },
            limit: city::restart_limit(fields, defaults.limit),
            suspended: defaults.is_suspended(entry),
            blueprint: None,
        };
        let differ = spec.pool.is_some() && texts.differ();
        let mut blueprint = Blueprint {
            city: defaults.city.to_string(),
            session: defaults.session_template.clone(),
            texts: Some(texts),
        };
        spec.blueprint = Some(Arc::new(blueprint.clone()));
        spec.stamp();
        if !differ {
            blueprint.texts = None;
            spec.blueprint = Some(Arc::new(blueprint));
        }
        spec
    }

    fn held(&self) -> Option<String> {
        if self.entry.fields.has("every") {
            return Some("runs at intervals (`every`) are not part of this version of gc".into());
        }
        let (_, rig) = self.defaults.rig(self.entry)?;
        rig.held.clone()
    }

    /// All texts with variables, those of the instance left open.
    fn texts(
        &self,
        name: &AgentName,
        prompt: Option<Template>,
        parts: BTreeMap<String, String>,
    ) -> InstanceTexts {
        let (fields, defaults) = (&self.entry.fields, self.defaults);
        let fill = |text: &str, span: &Span| {
            let template = Template::parse(text, |_| true).unwrap_or_default();
            self.fill(name, &template, span)
        };
        let lines = |key: &str| -> Vec<Template> {
            let list = list(fields, key);
            list.iter().map(|(line, span)| fill(line, span)).collect()
        };
        let work_dir = match fields.placed_text("work_dir") {
            Some((text, span)) => fill(text, &span),
            None => Template::plain(defaults.home(self.entry).to_string_lossy()),
        };
        let mut live = lines("session_live");
        for index in defaults.composed.scope_of(self.entry) {
            let pack = defaults.composed.packs.get(index);
            let global = pack.and_then(|pack| pack.fields.table("global"));
            let global = global.map(|global| global.placed("session_live"));
            live.extend(
                global
                    .unwrap_or_default()
                    .iter()
                    .map(|(line, span)| fill(line, span)),
            );
        }
        InstanceTexts {
            root: defaults.root.to_owned(),
            work_dir,
            pre_start: lines("pre_start"),
            session_setup: lines("session_setup"),
            live,
            prompt: prompt.map(|prompt| self.fill(name, &prompt, &self.entry.header)),
            parts,
        }
    }

    /// Fills in what all instances share.
    fn fill(&self, name: &AgentName, template: &Template, span: &Span) -> Template {
        let defaults = self.defaults;
        let rig = defaults.rig(self.entry);
        template.fill(|variable| {
            Some(match variable {
                "Rig" => rig.map_or("", |(name, _)| name).into(),
                "RigRoot" => rig
                    .map(|(_, rig)| rig.root.to_string_lossy())
                    .unwrap_or_default(),
                "CityRoot" => defaults.root.to_string_lossy(),
                "CityName" => defaults.city.as_str().into(),
                "ConfigDir" => self.problems.files.dir(span).to_string_lossy(),
                "TemplateName" => name.as_str().to_owned().into(),
                "IssuePrefix" => rig
                    .map_or(defaults.rigs.city_prefix(), |(_, rig)| &rig.prefix)
                    .into(),
                _ => return None,
            })
        })
    }

    /// The prompt and what stands for its text in the fingerprint.
    fn prompt(
        &mut self,
        name: &AgentName,
        program: Option<&Program>,
        env: &BTreeMap<String, String>,
    ) -> (Prompt, Option<String>) {
        let (fields, defaults) = (&self.entry.fields, self.defaults);
        let file = fields
            .placed_text("prompt_template")
            .map(|(text, span)| (self.problems.files.resolve(text, &span), span));
        let workspace = list(defaults.workspace, "global_fragments").into_iter();
        let own = list(fields, "inject_fragments").into_iter();
        let fragments =
            workspace
                .map(|(name, span)| (name, span, "workspace.global_fragments".to_owned()))
                .chain(own.map(|(name, span)| {
                    (name, span, format!("{}.inject_fragments", self.entry.path))
                }));
        let pack = |index: usize| {
            defaults
                .composed
                .packs
                .get(index)
                .map(|pack| pack.dir.clone())
        };
        let nearest = self.entry.pack.and_then(pack).into_iter();
        let declared = [
            self.problems.files.dir(&self.entry.header).to_owned(),
            defaults.root.to_owned(),
        ];
        let others = defaults.composed.scope_of(self.entry).into_iter().rev();
        let mut shared: Vec<PathBuf> = Vec::new();
        for dir in nearest.chain(declared).chain(others.filter_map(pack)) {
            let dir = dir.join("prompts/shared");
            if !shared.contains(&dir) {
                shared.push(dir);
            }
        }
        let request = prompts::Request {
            file,
            fragments: fragments.collect(),
            shared,
            env: env.keys().map(String::as_str).collect(),
            path: &self.entry.path,
        };
        let configured = request.file.is_some() || !request.fragments.is_empty();
        let made = prompts::make(&request, self.sources, self.problems);
        let mode = providers::prompt_mode(fields).unwrap_or(match program {
            Some(program) => program.prompt_mode,
            None if configured => PromptMode::Arg,
            None => PromptMode::None,
        });
        if let Some(span) = fields
            .span("prompt_template")
            .filter(|_| mode == PromptMode::None)
        {
            let message = format!("the prompt of `{name}` does not reach it: its mode is `none`");
            let at = format!("{}.prompt_template", self.entry.path);
            self.problems.push(
                Problem::error("prompt-undelivered", span, at, message)
                    .warning()
                    .label("not delivered")
                    .help("set `prompt_mode`".to_owned()),
            );
        }
        let flag = fields
            .text("prompt_flag")
            .map(str::to_owned)
            .or_else(|| program.and_then(|program| program.prompt_flag.clone()));
        let (text, source) = match made {
            Some(made) => (Some(made.text), Some(made.source)),
            None => (None, None),
        };
        let prompt = Prompt {
            mode,
            flag: flag
                .filter(|_| mode == PromptMode::Flag)
                .unwrap_or_default(),
            text,
        };
        (prompt, source)
    }

    fn prompt_parts(
        &self,
        prompt: &Prompt,
        source: Option<String>,
        parts: &mut BTreeMap<String, String>,
    ) {
        let mode = match prompt.mode {
            PromptMode::Arg => "arg",
            PromptMode::Flag => "flag",
            PromptMode::File => "file",
            PromptMode::None => "none",
        };
        parts.insert("prompt.mode".into(), mode.into());
        parts.insert("prompt.flag".into(), prompt.flag.clone());
        parts.extend(source.map(|source| ("prompt.source".to_owned(), source)));
    }

    fn overlays(&mut self, parts: &mut BTreeMap<String, String>) -> Vec<PathBuf> {
        let (fields, workspace) = (&self.entry.fields, self.defaults.workspace);
        let (hooks, path) = match fields.has("install_agent_hooks") {
            true => (
                list(fields, "install_agent_hooks"),
                self.entry.path.as_str(),
            ),
            false => {
                let mut hooks = list(workspace, "install_agent_hooks");
                hooks.extend(fields.appended("install_agent_hooks").to_vec());
                (hooks, "workspace")
            }
        };
        let hooks: Vec<(String, Span, String)> = hooks
            .into_iter()
            .map(|(name, span)| (name, span, format!("{path}.install_agent_hooks")))
            .collect();
        let found = overlays::of(
            self.entry,
            self.defaults.composed,
            &hooks,
            self.sources,
            self.problems,
        );
        for (i, overlay) in found.iter().enumerate() {
            parts.insert(format!("overlay.{i:04}"), overlay.hash.clone());
        }
        found.into_iter().map(|overlay| overlay.dir).collect()
    }

    fn script(&mut self, parts: &mut BTreeMap<String, String>) -> Option<PathBuf> {
        let (text, span) = self.entry.fields.placed_text("session_setup_script")?;
        let path = self.problems.files.resolve(text, &span);
        let at = format!("{}.session_setup_script", self.entry.path);
        match self.sources.bytes(&path) {
            Ok(bytes) if bytes.executable => {
                parts.insert("session_setup_script".into(), bytes.entry());
                return Some(path);
            }
            Ok(_) => {
                let message = format!("{} is not executable", path.display());
                self.problems.push(fields::invalid(span, &at, message));
            }
            Err(error) => {
                let message = format!("{} {}", path.display(), error.why);
                self.problems
                    .push(Problem::error(error.code, span, at, message).label("no such file"));
            }
        }
        None
    }
}

fn warn_of_ignored_provider(entry: &Entry, problems: &mut Problems) {
    let (command, provider) = (
        entry.fields.field("start_command"),
        entry.fields.field("provider"),
    );
    let (Some(command), Some(provider)) = (command, provider) else {
        return;
    };
    // A patch may well put a command over the provider of a pack.
    if command.layer == provider.layer {
        let message = "`provider` has no effect beside `start_command`";
        let at = format!("{}.provider", entry.path);
        problems.push(
            Problem::error("ignored-key", provider.span.clone(), at, message)
                .warning()
                .label("ignored")
                .related(command.span.clone(), "this is run"),
        );
    }
}

fn check_ephemeral(entry: &Entry, problems: &mut Problems) {
    let fields = &entry.fields;
    if fields.has("every") && fields.has("pool") {
        let keys = ["every", "pool"].map(|key| (key, fields.span(key)));
        let message = "an agent with `every` cannot be a pool";
        problems.push(Problem::conflict(&entry.path, keys, message));
    }
    if fields.flag("skip_when_idle") == Some(true) && !fields.has("every") {
        let keys = ["skip_when_idle", "every"].map(|key| (key, fields.span(key)));
        let message = "`skip_when_idle` needs `every`";
        problems.push(Problem::conflict(&entry.path, keys, message));
    }
}

fn check_heartbeat(entry: &Entry, problems: &mut Problems) {
    let Some(heartbeat) = entry.fields.table("heartbeat") else {
        return;
    };
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let stale = heartbeat.duration("stale_after").unwrap_or(minutes(5));
    let very = heartbeat
        .duration("very_stale_after")
        .unwrap_or(minutes(15));
    if stale >= very {
        let keys = ["stale_after", "very_stale_after"].map(|key| (key, heartbeat.span(key)));
        let message =
            format!("`stale_after` ({stale:?}) is not less than `very_stale_after` ({very:?})");
        let path = format!("{}.heartbeat", entry.path);
        problems.push(Problem::conflict(&path, keys, message));
    }
}

/// The names of its sessions must be names.
fn check_session(spec: &AgentSpec, span: Span, path: &str, problems: &mut Problems) {
    let instances: Vec<AgentSpec> = match &spec.pool {
        None => vec![spec.clone()],
        Some(pool) => {
            let listed = 1..=u32::try_from(pool.names.len()).unwrap_or(u32::MAX);
            let last = pool.max.unwrap_or(u32::MAX);
            listed
                .chain([last])
                .map(|slot| spec.instance(slot))
                .collect()
        }
    };
    let bad = instances.iter().find_map(|one| {
        let error = SessionName::new(one.session.as_str()).err()?;
        Some(format!(
            "the session of `{}` has no valid name: {error}",
            one.name
        ))
    });
    if let Some(message) = bad {
        problems
            .push(fields::invalid(span, path, message).help("see `session_template`".to_owned()));
    }
}

/// Sessions must have names of their own, whatever the template makes of those of agents.
fn check_sessions(drafts: &[Draft], problems: &mut Problems) {
    /// Instances that are looked at; more of one pool differ as these do.
    const MOST: u32 = 16;
    let mut taken: HashMap<SessionName, (AgentName, &Draft)> = HashMap::new();
    for draft in drafts {
        let Some(spec) = &draft.spec else {
            continue;
        };
        let sessions: Vec<(SessionName, AgentName)> = match &spec.pool {
            None => vec![(spec.session.clone(), spec.name.clone())],
            Some(pool) => (1..=pool.max.unwrap_or(MOST).min(MOST))
                .map(|slot| spec.instance(slot))
                .map(|instance| (instance.session, instance.name))
                .collect(),
        };
        for (session, name) in sessions {
            // Of equal names everything was said already.
            let first = taken.insert(session.clone(), (name.clone(), draft));
            let Some((_, first)) = first.filter(|(other, _)| *other != name) else {
                continue;
            };
            let message = format!("two agents would have the session `{session}`");
            let problem = Problem::error(
                "duplicate-name",
                draft.name_span.clone(),
                format!("{}.name", draft.path),
                message,
            )
            .label("second session of this name")
            .help("see `session_template`".to_owned());
            let apart = !std::ptr::eq(first, draft);
            problems.push(match apart {
                true => problem.related(first.name_span.clone(), "first session of this name"),
                false => problem,
            });
            break;
        }
    }
}
