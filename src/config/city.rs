//! From a parsed file to the spec of a city.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{AgentSpec, CityName, CitySpec, Daemon, RestartLimit, Stdin};
use toml::de::{DeTable, DeValue};

use super::agent::{Agents, Defaults};
use super::fields::{self, Fields};
use super::keys::{AGENT, DAEMON, SESSION, Section, TOP, WORKSPACE};
use super::problem::{Problem, Problems};
use crate::sessions::DEFAULT_PASSTHROUGH;

/// Settings of the session provider, which the supervision tree does not need (`[session]`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSettings {
    /// Configured provider; `auto` if none is.
    pub provider: String,
    /// Standard input of agents that do not say themselves.
    pub stdin: Stdin,
    /// Size at which an output log is rotated.
    pub log_bytes: u64,
    /// Rotated output logs that are kept.
    pub log_keep: u32,
    /// Names of variables agents inherit; `*` stands for any characters.
    pub env_passthrough: Vec<String>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            provider: "auto".into(),
            stdin: Stdin::default(),
            log_bytes: 8 << 20,
            log_keep: 3,
            env_passthrough: DEFAULT_PASSTHROUGH.map(str::to_owned).to_vec(),
        }
    }
}

/// What a file says about a city, once it has no errors.
pub(super) struct Built {
    pub(super) spec: CitySpec,
    pub(super) session: SessionSettings,
}

/// Where a city stands and what it is started with.
pub(super) struct Surroundings<'a> {
    pub(super) root: &'a Path,
    pub(super) gc_exe: &'a Path,
    pub(super) revision: String,
}

/// Builds the city, or at least finds all problems.
pub(super) fn build(
    table: &DeTable<'_>,
    around: Surroundings<'_>,
    problems: &mut Problems,
) -> Option<Built> {
    report_unknown_tables(table, problems);
    let workspace = section("workspace", &WORKSPACE, table, problems);
    let daemon = section("daemon", &DAEMON, table, problems);
    let session = section("session", &SESSION, table, problems);

    let name = city_name(&workspace, table, around.root, problems);
    check_delays(&daemon, problems);
    let settings = session_settings(&session);
    let defaults = Defaults {
        root: around.root,
        gc_exe: around.gc_exe,
        provider: workspace.text("provider"),
        start_command: workspace.text("start_command"),
        commanded: has_key(table, "workspace", "provider")
            || has_key(table, "workspace", "start_command"),
        limit: restart_limit(&daemon, RestartLimit::default()),
        session: &settings,
        stdin_set: session.text("stdin").is_some(),
    };
    defaults.check_provider(&workspace, "workspace", problems);
    let agents = agents(table, &defaults, problems);
    Some(Built {
        spec: CitySpec {
            max_agents: None,
            provider: settings.provider.clone(),
            name: name?,
            root: around.root.to_owned(),
            revision: around.revision,
            daemon: daemon_settings(&daemon),
            startup_timeout: session
                .duration("startup_timeout")
                .unwrap_or(Duration::from_secs(60)),
            suspended: workspace.flag("suspended").unwrap_or(false),
            agents,
        },
        session: settings,
    })
    .filter(|_| !problems.has_errors())
}

fn report_unknown_tables(table: &DeTable<'_>, problems: &mut Problems) {
    for (key, _) in table {
        // `x` is the user's own space.
        if !["workspace", "daemon", "session", "agent", "x"].contains(&key.get_ref().as_ref()) {
            problems.push(fields::unknown(
                &TOP,
                key.get_ref(),
                key.span(),
                &fields::join("", key.get_ref()),
            ));
        }
    }
}

fn section(name: &str, section: &Section, table: &DeTable<'_>, problems: &mut Problems) -> Fields {
    table
        .get(name)
        .and_then(|value| fields::as_table(value.get_ref(), value.span(), name, problems))
        .map(|table| fields::read(section, table, name, problems))
        .unwrap_or_default()
}

fn has_key(table: &DeTable<'_>, section: &str, key: &str) -> bool {
    table
        .get(section)
        .and_then(|value| value.get_ref().get(key))
        .is_some()
}

/// The configured name, or that of the directory.
fn city_name(
    workspace: &Fields,
    table: &DeTable<'_>,
    root: &Path,
    problems: &mut Problems,
) -> Option<CityName> {
    let workspace_table = table.get("workspace");
    if has_key(table, "workspace", "name") {
        return CityName::new(workspace.text("name")?).ok(); // a bad one is reported already
    }
    let directory = root.file_name().unwrap_or_default().to_string_lossy();
    CityName::new(&directory)
        .map_err(|error| {
            let span = workspace_table.map_or(0..0, toml::Spanned::span);
            let message = format!("the name of the directory cannot be the city's: {error}");
            problems.push(
                Problem::error("missing-key", span, "workspace.name", message)
                    .label("no `name`")
                    .help("set `name` in [workspace]".to_owned()),
            );
        })
        .ok()
}

/// The longest delay cannot be shorter than the first.
fn check_delays(daemon: &Fields, problems: &mut Problems) {
    let settings = daemon_settings(daemon);
    let (delay, max) = (settings.restart_delay, settings.restart_delay_max);
    let spans = [
        ("restart_delay", daemon.span("restart_delay")),
        ("restart_delay_max", daemon.span("restart_delay_max")),
    ];
    let mut set: Vec<_> = spans
        .into_iter()
        .filter_map(|(key, span)| span.map(|span| (key, span)))
        .collect();
    set.sort_by_key(|(_, span)| span.start);
    if let (true, Some((key, span))) = (delay > max, set.pop()) {
        let message =
            format!("`restart_delay` ({delay:?}) is more than `restart_delay_max` ({max:?})");
        let problem =
            Problem::error("conflict", span, format!("daemon.{key}"), message).label("in conflict");
        problems.push(match set.pop() {
            Some((_, first)) => problem.related(first, "with this"),
            None => problem,
        });
    }
}

fn daemon_settings(fields: &Fields) -> Daemon {
    let default = Daemon::default();
    Daemon {
        patrol_interval: fields
            .duration("patrol_interval")
            .unwrap_or(default.patrol_interval),
        restart_delay: fields
            .duration("restart_delay")
            .unwrap_or(default.restart_delay),
        restart_delay_max: fields
            .duration("restart_delay_max")
            .unwrap_or(default.restart_delay_max),
        shutdown_timeout: fields
            .duration("shutdown_timeout")
            .unwrap_or(default.shutdown_timeout),
        start_parallelism: fields
            .count("start_parallelism")
            .unwrap_or(default.start_parallelism),
        stop_parallelism: fields
            .count("stop_parallelism")
            .unwrap_or(default.stop_parallelism),
        crash_capture_lines: fields
            .count("crash_capture_lines")
            .unwrap_or(default.crash_capture_lines),
        ..default
    }
}

/// `max_restarts` and `restart_window` over what holds without them.
pub(super) fn restart_limit(fields: &Fields, otherwise: RestartLimit) -> RestartLimit {
    RestartLimit {
        max_restarts: fields
            .count("max_restarts")
            .unwrap_or(otherwise.max_restarts),
        window: fields
            .duration("restart_window")
            .unwrap_or(otherwise.window),
    }
}

fn session_settings(fields: &Fields) -> SessionSettings {
    let default = SessionSettings::default();
    SessionSettings {
        provider: fields
            .text("provider")
            .map_or(default.provider, str::to_owned),
        stdin: stdin(fields).unwrap_or(default.stdin),
        log_bytes: fields.count("log_bytes").unwrap_or(default.log_bytes),
        log_keep: fields.count("log_keep").unwrap_or(default.log_keep),
        env_passthrough: fields
            .texts("env_passthrough")
            .map_or(default.env_passthrough, <[String]>::to_vec),
    }
}

pub(super) fn stdin(fields: &Fields) -> Option<Stdin> {
    fields.text("stdin").map(|word| {
        if word == "null" {
            Stdin::Null
        } else {
            Stdin::Fifo
        }
    })
}

fn agents(
    table: &DeTable<'_>,
    defaults: &Defaults<'_>,
    problems: &mut Problems,
) -> Vec<Arc<AgentSpec>> {
    let Some(value) = table.get("agent") else {
        return Vec::new();
    };
    let DeValue::Array(array) = value.get_ref() else {
        let help = "an agent is written as `[[agent]]`".to_owned();
        problems.push(
            fields::wrong_type("array of tables", value.get_ref(), value.span(), "agent")
                .help(help),
        );
        return Vec::new();
    };
    let mut agents = Agents::default();
    for (i, item) in array.iter().enumerate() {
        let path = format!("agent[{i}]");
        if let Some(table) = fields::as_table(item.get_ref(), item.span(), &path, problems) {
            let fields = fields::read(&AGENT, table, &path, problems);
            let named = table.get("name").is_some();
            let commanded = table.get("start_command").is_some() || table.get("provider").is_some();
            agents.add(
                &super::agent::Entry {
                    fields,
                    path,
                    header: item.span(),
                    named,
                    commanded,
                },
                defaults,
                problems,
            );
        }
    }
    agents.into_specs()
}
