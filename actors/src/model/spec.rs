//! Child specifications: what a city is meant to run, as plain data.
//!
//! Loaded from `city.toml` by the root crate, or built in code with [`CitySpec::builder`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::builder::CitySpecBuilder;
use super::fingerprint::Fingerprint;
use super::launch::Launch;
use super::name::{AgentName, CityName, NameError, SessionName};
use super::template::Template;

/// Everything a city is meant to run. Immutable; a reload swaps the whole `Arc`.
#[derive(Debug, Clone, PartialEq)]
pub struct CitySpec {
    /// The city's name.
    pub name: CityName,
    /// Canonical root, the mark of ownership on every session (`GC_CITY`).
    pub root: PathBuf,
    /// Content hash of all sources. Equal revisions mean equal specs.
    pub revision: String,
    /// Supervision settings (`[daemon]`).
    pub daemon: Daemon,
    /// How long one start may take (`[session] startup_timeout`).
    pub startup_timeout: Duration,
    /// How long one setup line may take (`[session] setup_timeout`).
    pub setup_timeout: Duration,
    /// How long messages for agents may take (`[session] nudge_*`).
    pub nudge: NudgeTimes,
    /// `[workspace] suspended`: no agent runs.
    pub suspended: bool,
    /// Most live sessions at once (`[workspace] max_agents`); `None` is no limit.
    pub max_agents: Option<usize>,
    /// Word for the session provider (`[session] provider`). A change swaps it.
    pub provider: String,
    /// What that provider is built with, by key (`session.socket`). A change swaps it too.
    pub provider_settings: BTreeMap<String, String>,
    /// What else a running city cannot change, by key. A config that differs in it is refused.
    pub identity: BTreeMap<String, String>,
    /// The agents, in config order: fixed ones and templates of pools.
    pub agents: Vec<Arc<AgentSpec>>,
    /// The whole config as JSON, secrets masked, for whoever asks what is in force. Opaque to the
    /// tree; empty for a city built in code.
    pub document: Arc<str>,
}

/// How long messages for agents may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NudgeTimes {
    /// How long a program may be busy before the message is given up.
    pub ready_timeout: Duration,
    /// Time between two looks at it.
    pub retry_interval: Duration,
    /// How long others may be talking to it.
    pub lock_timeout: Duration,
}

impl Default for NudgeTimes {
    fn default() -> Self {
        Self {
            ready_timeout: Duration::from_secs(10),
            retry_interval: Duration::from_millis(500),
            lock_timeout: Duration::from_secs(30),
        }
    }
}

/// Supervision settings of a city (`[daemon]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Time between patrol ticks.
    pub patrol_interval: Duration,
    /// Delay before the second restart in a row; doubles from there.
    pub restart_delay: Duration,
    /// Upper bound of that delay.
    pub restart_delay_max: Duration,
    /// Grace between interrupt and force of every planned stop; zero forces at once.
    pub shutdown_timeout: Duration,
    /// Starts in flight at once.
    pub start_parallelism: usize,
    /// Forced stops in flight at once.
    pub stop_parallelism: usize,
    /// Lines of last output kept with a crash; zero keeps none.
    pub crash_capture_lines: u32,
    /// How long a pool check, `on_boot` or `on_death` may take.
    pub check_timeout: Duration,
    /// How many of those run at once.
    pub check_parallelism: usize,
    /// How long a drain because of drift may take.
    pub drift_drain_timeout: Duration,
    /// Quiet time after which `on_drift = "idle"` restarts.
    pub drift_idle_after: Duration,
    /// Charged ends and quarantines outlive the city's supervisor.
    pub persist_crash_history: bool,
}

impl Default for Daemon {
    fn default() -> Self {
        Self {
            patrol_interval: Duration::from_secs(30),
            restart_delay: Duration::from_secs(1),
            restart_delay_max: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
            start_parallelism: 8,
            stop_parallelism: 8,
            crash_capture_lines: 50,
            check_timeout: Duration::from_secs(30),
            check_parallelism: 8,
            drift_drain_timeout: Duration::from_secs(120),
            drift_idle_after: Duration::from_secs(120),
            persist_crash_history: false,
        }
    }
}

/// When an agent that ended is started again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartType {
    /// Always.
    #[default]
    Permanent,
    /// After a crash or a failed start, not after a clean exit.
    Transient,
    /// Never.
    Temporary,
}

/// How many charged ends are tolerated before quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartLimit {
    /// Charged ends that put the agent in quarantine; zero never does.
    pub max_restarts: u32,
    /// The sliding window they are counted in.
    pub window: Duration,
}

impl Default for RestartLimit {
    fn default() -> Self {
        Self {
            max_restarts: 5,
            window: Duration::from_secs(3600),
        }
    }
}

/// Who is restarted along with an agent that died.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Nobody.
    #[default]
    OneForOne,
    /// Its transitive dependents.
    RestForOne,
    /// Everybody connected with it by dependencies.
    OneForAll,
}

/// What a changed config does to a running agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDrift {
    /// Stop and start.
    #[default]
    Restart,
    /// Drain first.
    Drain,
    /// Stop and start once it is quiet.
    Idle,
    /// Only say so.
    Report,
}

/// A template with 0 to `max` instances, sized by a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// Least instances.
    pub min: u32,
    /// Most instances; `None` is no limit, 0 disables the pool.
    pub max: Option<u32>,
    /// Shell line that prints how many are wanted; without one it is `min`.
    pub check: Option<String>,
    /// Where `check`, `on_boot` and `on_death` run.
    pub dir: PathBuf,
    /// How long the check may take.
    pub check_timeout: Duration,
    /// How long an instance that is not wanted any more may drain; `None` never forces.
    pub drain_timeout: Option<Duration>,
    /// Shell line run once per city start, unless a live instance was adopted.
    pub on_boot: Option<String>,
    /// Shell line run after every end of an instance.
    pub on_death: Option<String>,
    /// Names of the first instances; later ones are numbered.
    pub names: Vec<AgentName>,
}

impl Default for PoolSpec {
    fn default() -> Self {
        Self {
            min: 0,
            max: Some(1),
            check: None,
            dir: PathBuf::new(),
            check_timeout: Duration::from_secs(30),
            drain_timeout: Some(Duration::from_secs(300)),
            on_boot: None,
            on_death: None,
            names: Vec::new(),
        }
    }
}

/// One agent: the child specification of a slot, or, with a pool, the template of several.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSpec {
    /// Qualified name, of the instance or of the template.
    pub name: AgentName,
    /// The `[[agent]]` it comes from; equal to `name` for a fixed agent.
    pub template: AgentName,
    /// Set on the template of a pool, and on each of its instances.
    pub pool: Option<Arc<PoolSpec>>,
    /// Position in its pool, from 1; set on instances of a pool only.
    pub pool_slot: Option<u32>,
    /// Templates that must be up before it starts.
    pub depends_on: Vec<AgentName>,
    /// Who is restarted along with it.
    pub strategy: Strategy,
    /// What a changed config does to it.
    pub on_drift: OnDrift,
    /// Stopped and started afresh after this long without activity.
    pub idle_timeout: Option<Duration>,
    /// It counts as alive only while one of these programs runs in its session; empty: always.
    pub process_names: Vec<String>,
    /// Shell lines run after each start, and again alone when only they change.
    pub live: Vec<String>,
    /// Cannot run for a reason outside gc, e.g. a missing rig directory: neither started nor
    /// stopped.
    pub held: Option<String>,
    /// The provider's name for its session.
    pub session: SessionName,
    /// What is run, and how.
    pub launch: Arc<Launch>,
    /// Hash of everything whose change needs a new run (config.md 6).
    pub fingerprint: Fingerprint,
    /// When it is started again.
    pub restart: RestartType,
    /// When it is quarantined.
    pub limit: RestartLimit,
    /// Held back by the user.
    pub suspended: bool,
    /// How its session is named, and what differs between instances; by default, the name.
    pub blueprint: Option<Arc<Blueprint>>,
}

/// What is made anew for each instance of a template.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Blueprint {
    /// Name of the city.
    pub city: String,
    /// Names sessions; variables `Agent`, `City`, `Dir` and `Name`.
    pub session: Template,
    /// Texts with variables of the instance; `None` if all instances are alike.
    pub texts: Option<InstanceTexts>,
}

/// Texts of a launch whose variables are filled in for each instance: `Session`, `Agent`,
/// `AgentBase` and, but for `work_dir`, `WorkDir`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstanceTexts {
    /// Where a relative `work_dir` starts.
    pub root: PathBuf,
    /// Working directory.
    pub work_dir: Template,
    /// As [`Launch::pre_start`].
    pub pre_start: Vec<Template>,
    /// As [`Launch::session_setup`].
    pub session_setup: Vec<Template>,
    /// As [`AgentSpec::live`].
    pub live: Vec<Template>,
    /// As [`Prompt::text`](super::Prompt::text).
    pub prompt: Option<Template>,
    /// Parts of the fingerprint that the launch does not tell.
    pub parts: BTreeMap<String, String>,
}

impl InstanceTexts {
    /// Whether instances differ.
    #[must_use]
    pub fn differ(&self) -> bool {
        let lists = [&self.pre_start, &self.session_setup, &self.live];
        lists
            .into_iter()
            .flatten()
            .chain([&self.work_dir])
            .chain(&self.prompt)
            .flat_map(Template::variables)
            .any(|name| ["Session", "Agent", "AgentBase"].contains(&name))
    }
}

/// A spec that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A name breaks its grammar.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two agents of one name.
    #[error("agent {0} is defined twice")]
    DuplicateAgent(AgentName),
    /// A dependency on an agent that does not exist.
    #[error("agent {0} depends on {1}, which does not exist")]
    UnknownDependency(AgentName, AgentName),
    /// Agents that wait for each other.
    #[error("dependency cycle: {0}")]
    DependencyCycle(String),
}

impl CitySpec {
    /// Starts a spec for a city built in code.
    pub fn builder(name: impl Into<String>) -> CitySpecBuilder {
        CitySpecBuilder::new(name.into())
    }

    /// The spec of one agent or template.
    #[must_use]
    pub fn agent(&self, name: &AgentName) -> Option<&Arc<AgentSpec>> {
        self.agents.iter().find(|agent| agent.name == *name)
    }
}

impl AgentSpec {
    /// The instance at position `slot` of a pool: named by the pool, else by number. A pool of at
    /// most one has the template's own name.
    #[must_use]
    pub fn instance(&self, slot: u32) -> Self {
        let Some(pool) = &self.pool else {
            return self.clone();
        };
        let listed = pool.names.get(slot.saturating_sub(1) as usize);
        let name = match listed {
            Some(name) => name.clone(),
            None if pool.max == Some(1) => self.name.clone(),
            None => self.name.numbered(slot),
        };
        let mut spec = Self {
            name,
            pool_slot: Some(slot),
            ..self.clone()
        };
        spec.stamp();
        spec
    }

    /// Fills in what its blueprint says for its own name.
    pub fn stamp(&mut self) {
        let Some(blueprint) = self.blueprint.clone() else {
            self.session = SessionName::of(&self.name);
            return;
        };
        self.session = SessionName::made(&blueprint.session, &blueprint.city, &self.name);
        let Some(texts) = &blueprint.texts else {
            return;
        };
        let base = self.name.as_str().rsplit('/').next().unwrap_or_default();
        let early = |name: &str| match name {
            "Agent" => Some(self.name.as_str().into()),
            "AgentBase" => Some(base.into()),
            _ => None,
        };
        // Without `.` and doubled slashes; `..` stays, since behind a link it cannot be folded.
        let work_dir: PathBuf = texts
            .root
            .join(texts.work_dir.render(early))
            .components()
            .collect();
        let shown = work_dir.to_string_lossy();
        let value = |name: &str| match name {
            "Session" => Some(self.session.as_str().into()),
            "WorkDir" => Some(shown.as_ref().into()),
            name => early(name),
        };
        let lines = |lines: &[Template]| lines.iter().map(|line| line.render(value)).collect();
        let mut launch = (*self.launch).clone();
        launch.pre_start = lines(&texts.pre_start);
        launch.session_setup = lines(&texts.session_setup);
        launch.prompt.text = texts.prompt.as_ref().map(|prompt| prompt.fill(value));
        let live = lines(&texts.live);
        launch.work_dir = work_dir.clone();
        let mut parts = launch.fingerprint_parts();
        parts.extend(texts.parts.clone());
        self.live = live;
        self.fingerprint = Fingerprint::of(&parts);
        self.launch = Arc::new(launch);
    }

    /// A template: its instances are agents, it is none itself.
    #[must_use]
    pub fn is_template(&self) -> bool {
        self.pool.is_some() && self.pool_slot.is_none()
    }

    /// Hash of the lines of `live`; empty if there are none.
    #[must_use]
    pub fn live_hash(&self) -> String {
        if self.live.is_empty() {
            return String::new();
        }
        let keys: Vec<String> = (0..self.live.len())
            .map(|i| format!("session_live.{i:04}"))
            .collect();
        let entries = keys
            .iter()
            .map(String::as_str)
            .zip(self.live.iter().map(String::as_str));
        format!(
            "v1:{}",
            super::fingerprint::canonical_hash("gc-live-v1", entries)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_live_lines_matches_the_published_vector() {
        let mut agent = AgentSpec::command("a", ["x"]).build().unwrap();
        assert_eq!(agent.live_hash(), "");
        agent.live = vec!["true".into()];
        assert_eq!(
            agent.live_hash(),
            "v1:787d91a77917a22b668498831fd7a7ec2277a30d803f963ba503cf1d3f0f184b"
        );
    }

    #[test]
    fn instances_of_a_pool_are_named_by_list_number_or_template() {
        let named = |max, names: &[&str]| -> Vec<String> {
            let names = names
                .iter()
                .map(|name| AgentName::new(name).unwrap())
                .collect();
            let pool = PoolSpec {
                max,
                names,
                ..PoolSpec::default()
            };
            let template = AgentSpec::command("rig/w", ["x"])
                .pool(pool)
                .build()
                .unwrap();
            (1..=3)
                .map(|slot| template.instance(slot).name.to_string())
                .collect()
        };
        assert_eq!(named(Some(3), &[]), ["rig/w-1", "rig/w-2", "rig/w-3"]);
        assert_eq!(named(None, &["rig/ann"]), ["rig/ann", "rig/w-2", "rig/w-3"]);
        assert_eq!(named(Some(1), &[])[0], "rig/w");
    }
}
