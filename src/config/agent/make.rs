//! The making of one spec.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{
    AgentName, AgentSpec, Blueprint, Fingerprint, InstanceTexts, Launch, PoolSpec, Prompt,
    PromptMode, RestartType, RigRef, SessionName, Stdin, Template,
};

use super::super::compose::Entry;
use super::super::fields::invalid;
use super::super::problem::{Problem, Problems};
use super::super::providers::{self, Program};
use super::super::sources::Sources;
use super::super::tree::Span;
use super::super::{city, overlays, prompts};
use super::{Defaults, Resolved, list, list_over};

/// Everything a spec is made from.
pub(super) struct Make<'m, 'a> {
    pub(super) defaults: &'m Defaults<'a>,
    pub(super) entry: &'m Entry,
    pub(super) sources: &'m mut Sources,
    pub(super) problems: &'m mut Problems,
}

impl Make<'_, '_> {
    /// The spec but for what concerns other agents.
    pub(super) fn spec(
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
            heartbeat: fields
                .table("heartbeat")
                .map(|heartbeat| heartbeat.text("file").unwrap_or_default().into()),
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
                .map(|pack| Cow::Borrowed(pack.dir.as_path()))
        };
        let nearest = self.entry.pack.and_then(pack).into_iter();
        let declared = self.problems.files.dir(&self.entry.header).to_owned();
        let declared = [Cow::Owned(declared), Cow::Borrowed(defaults.root)];
        let others = defaults.composed.scope_of(self.entry).into_iter().rev();
        let others = others.filter(|index| Some(*index) != self.entry.pack);
        // A directory named twice is looked into twice: cheaper than to compare all for each agent.
        let layers = nearest.chain(declared).chain(others.filter_map(pack));
        let request = prompts::Request {
            file,
            fragments: fragments.collect(),
            layers: layers.collect(),
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
                self.problems.push(invalid(span, &at, message));
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
