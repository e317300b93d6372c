//! Programs that agents run: presets, and `[providers]` over them (config.md 2.5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use gascity_actors::model::{Command, Dismiss, PromptMode};

use super::command;
use super::fields::{Fields, Item};
use super::keys::nearest;
use super::problem::{Problem, Problems};
use super::tree::Span;

/// A program that gc knows.
struct Preset {
    name: &'static str,
    command: &'static str,
    args: &'static [&'static str],
    prompt: PromptMode,
    ready_ms: u64,
    prefix: &'static str,
    processes: &'static [&'static str],
    /// What it may ask on its first run in a place, and the keys that answer.
    asks: &'static [(&'static str, &'static [&'static str])],
    env: &'static [(&'static str, &'static str)],
}

const fn preset(
    name: &'static str,
    command: &'static str,
    args: &'static [&'static str],
) -> Preset {
    Preset {
        name,
        command,
        args,
        prompt: PromptMode::Arg,
        ready_ms: 0,
        prefix: "",
        processes: &[],
        asks: &[],
        env: &[],
    }
}

/// The preset that is gc itself.
const DEMO: &str = "demo";

const PRESETS: [Preset; 9] = [
    Preset {
        ready_ms: 10_000,
        prefix: "❯ ",
        processes: &["node", "claude"],
        asks: &[
            ("Do you trust the files in this folder?", &["Enter"]),
            ("Yes, I trust this folder", &["Enter"]),
            ("Bypass Permissions mode", &["Down", "Enter"]),
        ],
        ..preset("claude", "claude", &["--dangerously-skip-permissions"])
    },
    Preset {
        prompt: PromptMode::None,
        ready_ms: 3_000,
        asks: &[("Do you trust the contents of this directory?", &["Enter"])],
        ..preset(
            "codex",
            "codex",
            &["--dangerously-bypass-approvals-and-sandbox"],
        )
    },
    Preset {
        ready_ms: 5_000,
        asks: &[("Do you trust this folder?", &["Enter"])],
        ..preset("gemini", "gemini", &["--approval-mode", "yolo"])
    },
    preset("cursor", "cursor-agent", &["-f"]),
    Preset {
        ready_ms: 5_000,
        prefix: "❯ ",
        asks: &[("Do you trust the files in this folder?", &["Enter"])],
        ..preset("copilot", "copilot", &["--yolo"])
    },
    preset("amp", "amp", &["--dangerously-allow-all", "--no-ide"]),
    Preset {
        ready_ms: 8_000,
        processes: &["opencode", "node", "bun"],
        env: &[("OPENCODE_PERMISSION", r#"{"*":"allow"}"#)],
        ..preset("opencode", "opencode", &[])
    },
    preset("auggie", "auggie", &["--allow-indexing"]),
    preset(DEMO, "gc demo-agent", &[]),
];

/// Whether gc brings a program of that name.
pub(super) fn is_preset(name: &str) -> bool {
    PRESETS.iter().any(|preset| preset.name == name)
}

/// The names of all presets.
pub(super) fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The presets whose programs can be run here, gc's own among them.
#[must_use]
pub fn installed_providers() -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let runs = |program: &str| {
        std::env::split_paths(&path).any(|dir| {
            let file = dir.join(program);
            rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
        })
    };
    let there = PRESETS.iter().filter(|p| p.name == DEMO || runs(p.command));
    there.map(|preset| preset.name).collect()
}

/// A program with all its settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    command: String,
    /// The command is gc itself, wherever it lies.
    own: bool,
    pub(super) args: Vec<String>,
    pub(super) prompt_mode: PromptMode,
    pub(super) prompt_flag: Option<String>,
    pub(super) ready_delay: Option<Duration>,
    pub(super) ready_prompt_prefix: Option<String>,
    pub(super) process_names: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) env_passthrough: Vec<String>,
    pub(super) dismiss: Vec<Dismiss>,
}

impl Program {
    fn empty() -> Self {
        Self {
            prompt_mode: PromptMode::Arg,
            ..Self::default()
        }
    }

    fn of(preset: &Preset) -> Self {
        let own = preset.name == DEMO;
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            command: preset.command.to_owned(),
            own,
            args: texts(preset.args),
            prompt_mode: preset.prompt,
            prompt_flag: None,
            ready_delay: Some(Duration::from_millis(preset.ready_ms)).filter(|d| !d.is_zero()),
            ready_prompt_prefix: Some(preset.prefix.to_owned()).filter(|p| !p.is_empty()),
            process_names: match preset.processes {
                [] if own => Vec::new(),
                [] => vec![preset.command.to_owned()],
                names => texts(names),
            },
            env: preset
                .env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            env_passthrough: Vec::new(),
            dismiss: preset
                .asks
                .iter()
                .map(|(matches, keys)| Dismiss {
                    matches: (*matches).to_owned(),
                    keys: texts(keys),
                })
                .collect(),
        }
    }

    /// Lays `[providers.<name>]` over it.
    fn with(mut self, fields: &Fields) -> Self {
        if let Some(command) = fields.text("command") {
            command.clone_into(&mut self.command);
            self.own = false;
        }
        let list = |key: &str, own: Vec<String>| {
            let mut list = fields.texts(key).unwrap_or(own);
            list.extend(fields.appended(key).iter().map(|(text, _)| text.clone()));
            list
        };
        self.args = list("args", self.args);
        self.process_names = list("process_names", self.process_names);
        self.env_passthrough = list("env_passthrough", self.env_passthrough);
        if let Some(mode) = prompt_mode(fields) {
            self.prompt_mode = mode;
        }
        let text = |key: &str, own: Option<String>| fields.text(key).map(str::to_owned).or(own);
        self.prompt_flag = text("prompt_flag", self.prompt_flag);
        self.ready_prompt_prefix = text("ready_prompt_prefix", self.ready_prompt_prefix);
        if let Some(delay) = fields.count("ready_delay_ms") {
            self.ready_delay = Some(Duration::from_millis(delay));
        }
        self.env.extend(fields.map("env"));
        for name in fields.removed() {
            self.env.remove(name);
        }
        if fields.has("dismiss") {
            let items = fields.tables("dismiss").iter();
            self.dismiss = items
                .map(|item| Dismiss {
                    matches: item.fields.text("match").unwrap_or_default().to_owned(),
                    keys: item.fields.texts("keys").unwrap_or_default(),
                })
                .collect();
        }
        self
    }

    /// What is run, and how it enters the fingerprint: without anything that differs between
    /// installations of gc.
    pub(super) fn command(&self, args: &[String], gc_exe: &Path) -> (Command, String) {
        let identity = command::with_args(&self.command, args);
        if !self.own {
            return (command::from_line(&self.command, args), identity);
        }
        let program = gc_exe.to_string_lossy().into_owned();
        let words = [program, "demo-agent".to_owned()].into_iter();
        (
            Command::Words(words.chain(args.iter().cloned()).collect()),
            identity,
        )
    }
}

/// The mode that a table of an agent or a provider sets.
pub(super) fn prompt_mode(fields: &Fields) -> Option<PromptMode> {
    fields.text("prompt_mode").map(|word| match word {
        "flag" => PromptMode::Flag,
        "file" => PromptMode::File,
        "none" => PromptMode::None,
        _ => PromptMode::Arg,
    })
}

/// All programs of a city.
#[derive(Debug)]
pub(super) struct Programs {
    programs: BTreeMap<String, Option<Program>>,
}

impl Programs {
    /// Resolves presets and `[providers]`, and reports what does not resolve.
    pub(super) fn new(configured: &BTreeMap<String, Item>, problems: &mut Problems) -> Self {
        let mut programs: BTreeMap<String, Option<Program>> = PRESETS
            .iter()
            .map(|preset| (preset.name.to_owned(), Some(Program::of(preset))))
            .collect();
        for (name, item) in configured {
            let program = derive(name, configured, &mut BTreeSet::new(), problems);
            if program
                .as_ref()
                .is_some_and(|program| program.command.is_empty())
            {
                let message = format!("the provider `{name}` has no `command`");
                let at = format!("{}.command", item.path);
                problems.push(
                    Problem::error("missing-key", item.header.clone(), at, message)
                        .label("no `command`")
                        .help("set `command`, or `base` to another provider".to_owned()),
                );
            }
            check_flag(&item.fields, &item.path, program.as_ref(), problems);
            programs.insert(name.clone(), program);
        }
        Self { programs }
    }

    /// The program of that name; one that does not exist is reported.
    pub(super) fn find(
        &self,
        name: &str,
        span: Span,
        path: &str,
        problems: &mut Problems,
    ) -> Option<&Program> {
        match self.programs.get(name) {
            Some(program) => program.as_ref(),
            None => {
                let names = self.programs.keys().map(String::as_str);
                problems.push(unknown(name, span, path, names));
                None
            }
        }
    }

    /// The program of that name, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<&Program> {
        self.programs.get(name)?.as_ref()
    }
}

fn unknown<'a>(
    name: &str,
    span: Span,
    path: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Problem {
    let help = match nearest(name, names.clone()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("providers: {}", names.collect::<Vec<_>>().join(", ")),
    };
    Problem::error(
        "unknown-ref",
        span,
        path,
        format!("there is no provider {name:?}"),
    )
    .label("unknown provider")
    .help(help)
}

fn derive(
    name: &str,
    configured: &BTreeMap<String, Item>,
    seen: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> Option<Program> {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    let Some(item) = configured.get(name) else {
        return preset.map(Program::of);
    };
    let start = match item.fields.placed_text("base") {
        _ if item.fields.flag("_replace") == Some(true) => Some(Program::empty()),
        Some((base, span)) => {
            let at = format!("{}.base", item.path);
            // A preset may be changed under its own name.
            let own = base == name && preset.is_some();
            if own {
                preset.map(Program::of)
            } else if !seen.insert(name.to_owned()) || base == name {
                let message = format!("the provider `{name}` is derived from itself");
                problems.push(super::fields::invalid(span, &at, message));
                return None;
            } else if !configured.contains_key(base) && !is_preset(base) {
                let presets = preset_names().map(str::to_owned);
                let names: Vec<String> = configured.keys().cloned().chain(presets).collect();
                let names = names.iter().map(String::as_str);
                problems.push(unknown(base, span, &at, names));
                return None;
            } else {
                derive(base, configured, seen, problems)
            }
        }
        None => Some(preset.map_or_else(Program::empty, Program::of)),
    };
    start.map(|program| program.with(&item.fields))
}

/// A mode that needs an option must have one.
pub(super) fn check_flag(
    fields: &Fields,
    path: &str,
    program: Option<&Program>,
    problems: &mut Problems,
) {
    let flag =
        fields.has("prompt_flag") || program.is_some_and(|program| program.prompt_flag.is_some());
    if prompt_mode(fields) == Some(PromptMode::Flag) && !flag {
        let keys = ["prompt_mode", "prompt_flag"].map(|key| (key, fields.span(key)));
        let message = "`prompt_mode = \"flag\"` needs a `prompt_flag`";
        problems.push(Problem::conflict(path, keys, message));
    }
}
