//! Read-outs: what supervisors answer when asked how things are. Serialised as they are shown.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::event::millis;
use super::name::{AgentName, CityName, RunToken, SessionName};
use crate::ports::Diagnostic;

/// The state word of an instance (cli.md 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentState {
    /// A run is being started.
    Starting,
    /// A run is up.
    Running,
    /// A run was asked to finish.
    Draining,
    /// A planned stop is under way.
    Stopping,
    /// Not running; the next plan decides.
    Stopped,
    /// Waiting before the next automatic restart.
    Backoff,
    /// Crash loop: not restarted before its expiry.
    Quarantined,
    /// Held back by the user.
    Suspended,
    /// Waits for a dependency.
    Blocked,
    /// Ended, and its restart type asks for no successor.
    Done,
    /// Left out by a limit on the number of agents.
    Limited,
    /// Cannot run for a reason outside gc.
    Held,
    /// Not yet known whether it is wanted.
    Frozen,
}

impl AgentState {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Backoff => "backoff",
            Self::Quarantined => "quarantined",
            Self::Suspended => "suspended",
            Self::Blocked => "blocked",
            Self::Done => "done",
            Self::Limited => "limited",
            Self::Held => "held",
            Self::Frozen => "frozen",
        }
    }
}

/// The pool an instance belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// The template.
    pub template: AgentName,
    /// Least instances.
    pub min: u32,
    /// Most instances; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Instances wanted by the last good check; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// One slot, with or without a live run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceView {
    /// Last part of the name.
    pub name: String,
    /// Full name, unique in the city.
    pub qualified_name: AgentName,
    /// State word.
    pub state: AgentState,
    /// Why it is in that state, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A process is alive.
    pub running: bool,
    /// Held back by the user.
    pub suspended: bool,
    /// Its session provider, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Its pool, if it is an instance of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolView>,
    /// Templates it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<AgentName>,
    /// Last activity, if it is known.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub last_activity: Option<DateTime<Utc>>,
    /// Fingerprint of the config in force, and of the run if it differs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_hash: String,
    /// Fingerprint the run was started with, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted_from: Option<String>,
    /// Name of its session.
    pub session: SessionName,
    /// The current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<RunToken>,
    /// Count of runs.
    pub generation: u64,
    /// Process id of the current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Age of the current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// What went wrong with the current run without keeping it from running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Charged ends in the window.
    pub restarts_in_window: u32,
    /// Charged ends that mean quarantine; zero never does.
    pub max_restarts: u32,
    /// The window.
    pub restart_window_ms: u64,
    /// End of the quarantine.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub quarantined_until: Option<DateTime<Utc>>,
    /// When the next automatic restart is due.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub retry_at: Option<DateTime<Utc>>,
    /// How the last unplanned end came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Where a city's config stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigState {
    /// What is on disk is in force.
    Ok,
    /// What is on disk has errors; the version before is in force.
    Stale,
    /// What is on disk needs a restart of the city; the version before is in force.
    Refused,
}

/// The config in force, and what is wrong with the one on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigView {
    /// Revision in force.
    pub revision: String,
    /// When it was loaded.
    #[serde(with = "millis")]
    pub loaded_at: DateTime<Utc>,
    /// Where it stands.
    pub state: ConfigState,
    /// Problems of the version on disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostic>,
}

/// How agents of a city are run (watchdog.md 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CityMode {
    /// As configured.
    #[default]
    Normal,
    /// The city wants tmux, which cannot be used: as plain processes, with nothing to look at or
    /// to type on.
    Degraded,
}

/// A running city as it sees itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CityView {
    /// Its name.
    pub name: CityName,
    /// Its root.
    pub path: PathBuf,
    /// Name of the session provider.
    pub provider: String,
    /// Why this one, for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider_why: String,
    /// Whether agents have the terminals they were meant to have.
    #[serde(default)]
    pub mode: CityMode,
    /// Why they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_reason: Option<String>,
    /// No agent may run.
    pub suspended: bool,
    /// Seconds since this city actor started.
    pub uptime_sec: u64,
    /// When the last tick completed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub last_tick_at: Option<DateTime<Utc>>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_tick_ms: Option<u64>,
    /// Patrol periods dropped because a tick took too long.
    pub ticks_missed: u64,
    /// Config in force.
    pub config: ConfigView,
    /// Slots in config order, then what is on its way out.
    pub instances: Vec<InstanceView>,
    /// Sessions on the same backend that are not ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_sessions: Vec<String>,
    /// What is not as it should be, for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
}

/// Where a registered city stands (supervisor.md 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CityStatus {
    /// Waiting for a start slot.
    Pending,
    /// Lock, config and ports.
    LoadingConfig,
    /// Taking over what runs already.
    AdoptingSessions,
    /// First plan under way.
    StartingAgents,
    /// Loop active.
    Running,
    /// Graceful stop under way.
    Stopping,
    /// Stopped for good.
    Stopped,
    /// The start failed; retried.
    InitFailed,
    /// Its loop stopped ticking and was killed; retried.
    Stalled,
    /// The city actor died; retried.
    Crashed,
}

impl CityStatus {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::LoadingConfig => "loading_config",
            Self::AdoptingSessions => "adopting_sessions",
            Self::StartingAgents => "starting_agents",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::InitFailed => "init_failed",
            Self::Stalled => "stalled",
            Self::Crashed => "crashed",
        }
    }
}

/// One city as the machine sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CityInfo {
    /// Its name.
    pub name: CityName,
    /// Its root.
    pub path: PathBuf,
    /// Its loop is active.
    pub running: bool,
    /// Status word.
    pub status: CityStatus,
    /// Why it is not running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Start phases passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases_completed: Vec<String>,
    /// Crashes since it last ran for ten minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<u32>,
    /// When it is tried again.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub next_retry_at: Option<DateTime<Utc>>,
    /// What its stop did, once it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StopSummary>,
    /// The name its config asks for, which a restart will give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_name: Option<CityName>,
}

/// The machine as it sees itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineView {
    /// When it started.
    #[serde(with = "millis")]
    pub started_at: DateTime<Utc>,
    /// All cities were attempted at least once.
    pub ready: bool,
    /// The registry was read at least once.
    pub registry_read: bool,
    /// Why the registry cannot be read, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_error: Option<String>,
    /// Its cities, sorted by name.
    pub cities: Vec<CityInfo>,
}

/// What a graceful stop did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopSummary {
    /// Agents that were asked to leave.
    pub interrupted: usize,
    /// Agents that had to be killed.
    pub killed: Vec<AgentName>,
}
