//! From the joined files to the spec of a city.

mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gascity_actors::model::{
    CityName, CitySpec, Daemon, NudgeTimes, OnDrift, RestartLimit, Strategy, Template,
};

use super::RigInfo;
use super::agent::{Agents, Defaults};
use super::compose::Composed;
use super::fields::Fields;
use super::orders;
use super::problem::{Problem, Problems};
use super::providers::Programs;
use super::rigs::Rigs;
use super::sources::Sources;
use super::tree::Span;
use crate::events::Rotation;

pub use session::SessionSettings;
pub(super) use session::stdin;
use session::{check_k8s, provider_settings, settings};

/// What the files say about a city, once they have no errors.
pub(super) struct Built {
    pub(super) spec: CitySpec,
    pub(super) session: SessionSettings,
    pub(super) rigs: Vec<RigInfo>,
    pub(super) prefix: String,
    pub(super) rotation: Rotation,
    pub(super) api_port: Option<u16>,
    pub(super) session_template: Template,
}

/// Where a city stands and what it is started with.
pub(super) struct Surroundings<'a> {
    pub(super) root: &'a Path,
    pub(super) gc_exe: &'a Path,
    /// What `~` stands for.
    pub(super) home: Option<PathBuf>,
    /// Providers that the environment of the process asks for, by section.
    pub(super) providers: &'a BTreeMap<String, String>,
}

/// Builds the city, or at least finds all problems. What it reads beside the files themselves
/// goes to `sources`.
pub(super) fn build(
    composed: &mut Composed,
    around: &Surroundings<'_>,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Built> {
    let none = Fields::default();
    let section = |name: &str| composed.city.table(name).unwrap_or(&none).clone();
    let (workspace, daemon, session) =
        (section("workspace"), section("daemon"), section("session"));
    let (rotation, api_port) = (rotation(&section("events")), section("api").count("port"));

    let name = city_name(
        &workspace,
        composed.city.span("workspace"),
        around.root,
        problems,
    );
    let supervision = daemon_settings(&daemon);
    check_delays(&daemon, &supervision, problems);
    check_wisps(&daemon, problems);
    let configured = session.text("provider").unwrap_or("auto").to_owned();
    let asked = around.providers.get("session").cloned();
    let mut settings = settings(&session, &problems.files);
    settings.provider = asked.unwrap_or_else(|| configured.clone());
    check_k8s(&session, &settings, problems);
    let suspended = workspace.flag("suspended").unwrap_or(false);
    let city = name.clone().or_else(|| CityName::new("city").ok())?;
    let rigs = Rigs::read(&composed.rigs, city.as_str(), around, sources, problems);
    let programs = Programs::new(&composed.providers, problems);
    if let Some((name, span)) = workspace.placed_text("provider") {
        let _ = programs.find(name, span, "workspace.provider", problems);
    }
    let session_template = workspace
        .text("session_template")
        .and_then(|text| Template::parse(text, |_| true).ok())
        .unwrap_or_else(agent_template);
    let defaults = Defaults {
        root: around.root,
        gc_exe: around.gc_exe,
        city: &city,
        workspace: &workspace,
        limit: restart_limit(&daemon, RestartLimit::default()),
        strategy: strategy(&daemon).unwrap_or_default(),
        on_drift: on_drift(&daemon).unwrap_or_default(),
        check_timeout: supervision.check_timeout,
        session: &settings,
        session_provider: &configured,
        stdin_set: session.text("stdin").is_some(),
        session_template: session_template.clone(),
        rigs: &rigs,
        programs: &programs,
        composed,
    };
    let mut agents = Agents::default();
    for entry in &composed.agents {
        agents.add(entry, &defaults, sources, problems);
    }
    let agents = agents.finish(!suspended, problems);
    orders::check(composed, &rigs, sources, problems);
    Some(Built {
        spec: CitySpec {
            max_agents: workspace.count("max_agents").filter(|max| *max > 0),
            provider: settings.provider.clone(),
            provider_settings: provider_settings(&session, &settings, &agents),
            document: "".into(),
            name: name?,
            root: around.root.to_owned(),
            revision: sources.revision(around.root),
            daemon: supervision,
            startup_timeout: session
                .duration("startup_timeout")
                .unwrap_or(Duration::from_secs(60)),
            setup_timeout: settings.setup_timeout,
            nudge: NudgeTimes {
                ready_timeout: settings.nudge_ready_timeout,
                retry_interval: settings.nudge_retry_interval,
                lock_timeout: settings.nudge_lock_timeout,
            },
            suspended,
            identity: identity(&composed.city, around),
            agents,
        },
        session: settings,
        rigs: composed
            .rigs
            .iter()
            .filter_map(|item| rigs.info(item.fields.text("name")?))
            .collect(),
        prefix: rigs.city_prefix().to_owned(),
        rotation,
        api_port,
        session_template,
    })
    .filter(|_| !problems.has_errors())
}

fn rotation(events: &Fields) -> Rotation {
    let usual = Rotation::default();
    Rotation {
        bytes: events.count("rotate_bytes").unwrap_or(usual.bytes),
        keep: events.count("rotate_keep").unwrap_or(usual.keep),
    }
}

/// Sessions are named after their agents.
fn agent_template() -> Template {
    Template::parse("{{.Agent}}", |_| true).unwrap_or_default()
}

/// What a running city cannot change, beside its name.
fn identity(city: &Fields, around: &Surroundings<'_>) -> BTreeMap<String, String> {
    let value = |section: &str, key: &str| city.table(section).and_then(|table| table.text(key));
    let asked = |section: &str| around.providers.get(section).map(String::as_str);
    let beads = asked("beads").or(value("beads", "provider"));
    let events = asked("events").or(value("events", "provider"));
    BTreeMap::from([
        (
            "beads.provider".into(),
            beads.unwrap_or("sqlite").to_owned(),
        ),
        (
            "beads.path".into(),
            value("beads", "path").unwrap_or_default().to_owned(),
        ),
        (
            "events.provider".into(),
            events.unwrap_or("file").to_owned(),
        ),
    ])
}

/// The configured name, or that of the directory.
fn city_name(
    workspace: &Fields,
    span: Option<Span>,
    root: &Path,
    problems: &mut Problems,
) -> Option<CityName> {
    if workspace.has("name") {
        return CityName::new(workspace.text("name")?).ok(); // a bad one is reported already
    }
    let directory = root.file_name().unwrap_or_default().to_string_lossy();
    CityName::new(&directory)
        .map_err(|error| {
            let message = format!("the name of the directory cannot be the city's: {error}");
            problems.push(
                Problem::error(
                    "missing-key",
                    span.unwrap_or(0..0),
                    "workspace.name",
                    message,
                )
                .label("no `name`")
                .help("set `name` in [workspace]".to_owned()),
            );
        })
        .ok()
}

/// One of the two keys alone does nothing.
fn check_wisps(daemon: &Fields, problems: &mut Problems) {
    let keys = ["wisp_gc_interval", "wisp_ttl"];
    let on = |key: &str| daemon.duration(key).is_some_and(|value| !value.is_zero());
    let [interval, ttl] = keys.map(on);
    if interval != ttl {
        let (set, other) = if interval {
            (keys[0], keys[1])
        } else {
            (keys[1], keys[0])
        };
        let span = daemon.span(set).unwrap_or(0..0);
        let message = format!("`{set}` does nothing without `{other}`");
        problems.push(
            Problem::error("half-configured", span, format!("daemon.{set}"), message)
                .warning()
                .label(format!("needs `{other}`")),
        );
    }
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
        check_parallelism: fields
            .count("check_parallelism")
            .unwrap_or(default.check_parallelism),
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
