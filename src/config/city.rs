//! From a parsed file to the spec of a city.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gascity_actors::model::{CityName, CitySpec, Daemon, OnDrift, RestartLimit, Stdin, Strategy};
use toml::de::DeTable;

use super::agent::{Agents, Defaults, Entry};
use super::fields::{self, Fields};
use super::keys::{AGENT, DAEMON, SESSION, Section, TOP, WORKSPACE};
use super::problem::{Problem, Problems};
use super::rigs::Rigs;
use super::source::Sources;
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
    /// Name of the tmux socket; the city's name if not set.
    pub socket: Option<String>,
    /// Config of the tmux server: `user`, `none` or an absolute path.
    pub tmux_config: String,
    /// Lines of scrollback a tmux session keeps.
    pub history_lines: u32,
    /// How long one setup command may take (`pre_start`, `session_setup`, `session_live`).
    pub setup_timeout: Duration,
    /// How long one call of an exec provider may take.
    pub exec_timeout: Duration,
    /// How long its `start` may take.
    pub exec_start_timeout: Duration,
    /// How long a nudge waits for the program to be ready.
    pub nudge_ready_timeout: Duration,
    /// Time between two looks at it.
    pub nudge_retry_interval: Duration,
    /// How long a nudge waits for another one to finish.
    pub nudge_lock_timeout: Duration,
    /// Time between typed text and Enter (`debounce_ms`).
    pub debounce: Duration,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            provider: "auto".into(),
            stdin: Stdin::default(),
            log_bytes: 8 << 20,
            log_keep: 3,
            env_passthrough: DEFAULT_PASSTHROUGH.map(str::to_owned).to_vec(),
            socket: None,
            tmux_config: "user".into(),
            history_lines: 10_000,
            setup_timeout: Duration::from_secs(10),
            exec_timeout: Duration::from_secs(30),
            exec_start_timeout: Duration::from_secs(120),
            nudge_ready_timeout: Duration::from_secs(10),
            nudge_retry_interval: Duration::from_millis(500),
            nudge_lock_timeout: Duration::from_secs(30),
            debounce: Duration::from_millis(500),
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
    /// What `~` stands for.
    pub(super) home: Option<PathBuf>,
}

/// Builds the city, or at least finds all problems. What it reads beside the file itself goes to
/// `sources`.
pub(super) fn build(
    table: &DeTable<'_>,
    around: &Surroundings<'_>,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Built> {
    report_unknown_tables(table, problems);
    let workspace = section("workspace", &WORKSPACE, table, problems);
    let daemon = section("daemon", &DAEMON, table, problems);
    let session = section("session", &SESSION, table, problems);

    let name = city_name(&workspace, table, around.root, problems);
    let supervision = daemon_settings(&daemon);
    check_delays(&daemon, &supervision, problems);
    let settings = session_settings(&session);
    let suspended = workspace.flag("suspended").unwrap_or(false);
    let rigs = Rigs::read(table, around, sources, problems);
    let defaults = Defaults {
        root: around.root,
        gc_exe: around.gc_exe,
        provider: workspace.text("provider"),
        start_command: workspace.text("start_command"),
        commanded: has_key(table, "workspace", "provider")
            || has_key(table, "workspace", "start_command"),
        limit: restart_limit(&daemon, RestartLimit::default()),
        strategy: strategy(&daemon).unwrap_or_default(),
        on_drift: on_drift(&daemon).unwrap_or_default(),
        check_timeout: supervision.check_timeout,
        session: &settings,
        stdin_set: session.text("stdin").is_some(),
        rigs: &rigs,
    };
    defaults.check_provider(&workspace, "workspace", problems);
    let mut agents = Agents::default();
    for item in fields::tables(table, "agent", &AGENT, problems) {
        agents.add(&Entry::read(&item, problems), &defaults, sources, problems);
    }
    let agents = agents.finish(!suspended, problems);
    Some(Built {
        spec: CitySpec {
            max_agents: workspace.count("max_agents").filter(|max| *max > 0),
            provider: settings.provider.clone(),
            name: name?,
            root: around.root.to_owned(),
            revision: sources.revision(around.root),
            daemon: supervision,
            startup_timeout: session
                .duration("startup_timeout")
                .unwrap_or(Duration::from_secs(60)),
            suspended,
            agents,
        },
        session: settings,
    })
    .filter(|_| !problems.has_errors())
}

fn report_unknown_tables(table: &DeTable<'_>, problems: &mut Problems) {
    for (key, _) in table {
        // `x` is the user's own space.
        if !["workspace", "daemon", "session", "rigs", "agent", "x"]
            .contains(&key.get_ref().as_ref())
        {
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
fn check_delays(fields: &Fields, daemon: &Daemon, problems: &mut Problems) {
    let (delay, max) = (daemon.restart_delay, daemon.restart_delay_max);
    if delay > max {
        let keys = ["restart_delay", "restart_delay_max"].map(|key| (key, fields.span(key)));
        problems.push(Problem::conflict(
            "daemon",
            keys,
            format!("`restart_delay` ({delay:?}) is more than `restart_delay_max` ({max:?})"),
        ));
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
        check_timeout: fields
            .duration("check_timeout")
            .unwrap_or(default.check_timeout),
        drift_drain_timeout: fields
            .duration("drift_drain_timeout")
            .unwrap_or(default.drift_drain_timeout),
        drift_idle_after: fields
            .duration("drift_idle_after")
            .unwrap_or(default.drift_idle_after),
        persist_crash_history: fields
            .flag("persist_crash_history")
            .unwrap_or(default.persist_crash_history),
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
            .map_or(default.provider.clone(), str::to_owned),
        stdin: stdin(fields).unwrap_or(default.stdin),
        log_bytes: fields.count("log_bytes").unwrap_or(default.log_bytes),
        log_keep: fields.count("log_keep").unwrap_or(default.log_keep),
        env_passthrough: fields
            .texts("env_passthrough")
            .map_or(default.env_passthrough.clone(), <[String]>::to_vec),
        ..default
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

pub(super) fn strategy(fields: &Fields) -> Option<Strategy> {
    fields.text("restart_strategy").map(|word| match word {
        "rest_for_one" => Strategy::RestForOne,
        "one_for_all" => Strategy::OneForAll,
        _ => Strategy::OneForOne,
    })
}

pub(super) fn on_drift(fields: &Fields) -> Option<OnDrift> {
    fields.text("on_drift").map(|word| match word {
        "drain" => OnDrift::Drain,
        "idle" => OnDrift::Idle,
        "report" => OnDrift::Report,
        _ => OnDrift::Restart,
    })
}
