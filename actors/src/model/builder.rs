//! Cities and agents built in code, for library users and tests.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::fingerprint::Fingerprint;
use super::launch::{Command, Launch, Stdin};
use super::name::{AgentName, CityName, SessionName};
use super::spec::{
    AgentSpec, CitySpec, Daemon, NudgeTimes, OnDrift, PoolSpec, RestartLimit, RestartType,
    SpecError, Strategy,
};

/// Builds a [`CitySpec`]; see [`CitySpec::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct CitySpecBuilder {
    name: String,
    root: PathBuf,
    daemon: Daemon,
    startup_timeout: Duration,
    setup_timeout: Duration,
    nudge: NudgeTimes,
    suspended: bool,
    max_agents: Option<usize>,
    provider: String,
    provider_settings: BTreeMap<String, String>,
    agents: Vec<AgentSpecBuilder>,
}

/// Builds an [`AgentSpec`]; see [`AgentSpec::command`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is given to a city"]
pub struct AgentSpecBuilder {
    name: String,
    launch: Launch,
    restart: RestartType,
    limit: RestartLimit,
    suspended: bool,
    pool: Option<PoolSpec>,
    depends_on: Vec<String>,
    strategy: Strategy,
    on_drift: OnDrift,
    idle_timeout: Option<Duration>,
    process_names: Vec<String>,
    live: Vec<String>,
    held: Option<String>,
}

impl CitySpecBuilder {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            root: PathBuf::new(),
            daemon: Daemon::default(),
            startup_timeout: Duration::from_secs(60),
            setup_timeout: Duration::from_secs(10),
            nudge: NudgeTimes::default(),
            suspended: false,
            max_agents: None,
            provider: "auto".into(),
            provider_settings: BTreeMap::new(),
            agents: Vec::new(),
        }
    }

    /// The city's root directory. Its sessions carry it as the mark of ownership.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Adds an agent.
    pub fn agent(mut self, agent: AgentSpecBuilder) -> Self {
        self.agents.push(agent);
        self
    }

    /// Changes supervision settings.
    pub fn daemon(mut self, change: impl FnOnce(&mut Daemon)) -> Self {
        change(&mut self.daemon);
        self
    }

    /// How long one start may take.
    pub fn startup_timeout(mut self, limit: Duration) -> Self {
        self.startup_timeout = limit;
        self
    }

    /// How long one setup line may take.
    pub fn setup_timeout(mut self, limit: Duration) -> Self {
        self.setup_timeout = limit;
        self
    }

    /// How long messages for agents may take.
    pub fn nudge(mut self, times: NudgeTimes) -> Self {
        self.nudge = times;
        self
    }

    /// Holds back every agent of the city.
    pub fn suspended(mut self, suspended: bool) -> Self {
        self.suspended = suspended;
        self
    }

    /// Most live sessions at once.
    pub fn max_agents(mut self, max: usize) -> Self {
        self.max_agents = Some(max);
        self
    }

    /// Word for the session provider.
    pub fn provider(mut self, word: impl Into<String>) -> Self {
        self.provider = word.into();
        self
    }

    /// One setting that the session provider is built with.
    pub fn provider_setting(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.provider_settings.insert(key.into(), value.into());
        self
    }

    /// Checks names and dependencies and puts the spec together.
    ///
    /// # Errors
    /// [`SpecError`] if a name breaks its grammar, an agent is defined twice, or a dependency is
    /// missing or goes in a circle.
    pub fn build(self) -> Result<CitySpec, SpecError> {
        let agents = self
            .agents
            .into_iter()
            .map(|agent| agent.build().map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = agents.iter().find(|agent| !seen.insert(agent.name.clone())) {
            return Err(SpecError::DuplicateAgent(twice.name.clone()));
        }
        let mut spec = CitySpec {
            name: CityName::new(&self.name)?,
            root: self.root,
            revision: String::new(),
            daemon: self.daemon,
            startup_timeout: self.startup_timeout,
            setup_timeout: self.setup_timeout,
            nudge: self.nudge,
            suspended: self.suspended,
            max_agents: self.max_agents,
            provider: self.provider,
            provider_settings: self.provider_settings,
            identity: BTreeMap::new(),
            agents,
            document: "".into(),
        };
        crate::policy::check_dependencies(&spec.agents)?;
        // Not a hash of files: any change of the spec must only give another revision.
        spec.revision = super::fingerprint::sha256_hex(format!("{spec:?}").as_bytes());
        Ok(spec)
    }
}

impl AgentSpec {
    /// An agent that runs a program with arguments.
    pub fn command<W: Into<String>>(
        name: impl Into<String>,
        words: impl IntoIterator<Item = W>,
    ) -> AgentSpecBuilder {
        AgentSpecBuilder::new(
            name.into(),
            Command::Words(words.into_iter().map(Into::into).collect()),
        )
    }

    /// An agent that runs a line through `sh -c`.
    pub fn shell(name: impl Into<String>, line: impl Into<String>) -> AgentSpecBuilder {
        AgentSpecBuilder::new(name.into(), Command::Shell(line.into()))
    }
}

impl AgentSpecBuilder {
    fn new(name: String, command: Command) -> Self {
        Self {
            name,
            launch: Launch {
                command,
                ..Launch::default()
            },
            restart: RestartType::default(),
            limit: RestartLimit::default(),
            suspended: false,
            pool: None,
            depends_on: Vec::new(),
            strategy: Strategy::default(),
            on_drift: OnDrift::default(),
            idle_timeout: None,
            process_names: Vec::new(),
            live: Vec::new(),
            held: None,
        }
    }

    /// Sets one environment variable; `${NAME}` is taken from the supervisor's own.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.launch.env.insert(name.into(), value.into());
        self
    }

    /// Working directory; the city's root if not set.
    pub fn work_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.launch.work_dir = dir.into();
        self
    }

    /// Changes how it is launched: prompt, setup, readiness and the like.
    pub fn launch(mut self, change: impl FnOnce(&mut Launch)) -> Self {
        change(&mut self.launch);
        self
    }

    /// What standard input is connected to.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.launch.stdin = stdin;
        self
    }

    /// When the agent is started again after it ended.
    pub fn restart(mut self, restart: RestartType) -> Self {
        self.restart = restart;
        self
    }

    /// Charged ends within `window` that put the agent in quarantine; zero never does.
    pub fn max_restarts(mut self, max_restarts: u32, window: Duration) -> Self {
        self.limit = RestartLimit {
            max_restarts,
            window,
        };
        self
    }

    /// Holds the agent back.
    pub fn suspended(mut self, suspended: bool) -> Self {
        self.suspended = suspended;
        self
    }

    /// Makes it a pool.
    pub fn pool(mut self, pool: PoolSpec) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Another agent that must be up before this one starts.
    pub fn depends_on(mut self, agent: impl Into<String>) -> Self {
        self.depends_on.push(agent.into());
        self
    }

    /// Who is restarted along with it.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// What a changed config does to it.
    pub fn on_drift(mut self, on_drift: OnDrift) -> Self {
        self.on_drift = on_drift;
        self
    }

    /// Stopped and started afresh after this long without activity.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = Some(limit);
        self
    }

    /// Programs of which one must run for the agent to count as alive.
    pub fn process_names<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.process_names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Shell lines run after each start, and again alone when only they change.
    pub fn live<N: Into<String>>(mut self, lines: impl IntoIterator<Item = N>) -> Self {
        self.live = lines.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps it as it is, running or not, for a reason outside gc.
    pub fn held(mut self, why: impl Into<String>) -> Self {
        self.held = Some(why.into());
        self
    }

    /// Checks the name and puts the spec together.
    ///
    /// # Errors
    /// [`SpecError`] if the name breaks its grammar.
    pub fn build(self) -> Result<AgentSpec, SpecError> {
        let name = AgentName::new(&self.name)?;
        let depends_on = self
            .depends_on
            .iter()
            .map(AgentName::new)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(AgentSpec {
            template: name.clone(),
            pool: self.pool.map(Arc::new),
            pool_slot: None,
            depends_on,
            strategy: self.strategy,
            on_drift: self.on_drift,
            idle_timeout: self.idle_timeout,
            process_names: self.process_names,
            live: self.live,
            held: self.held,
            session: SessionName::of(&name),
            fingerprint: Fingerprint::of(&self.launch.fingerprint_parts()),
            name,
            launch: Arc::new(self.launch),
            restart: self.restart,
            limit: self.limit,
            suspended: self.suspended,
            blueprint: None,
        })
    }
}

impl Launch {
    /// The parts of the launch that enter the fingerprint (config.md 6).
    #[must_use]
    pub fn fingerprint_parts(&self) -> BTreeMap<String, String> {
        let mut parts: BTreeMap<String, String> = self
            .env
            .iter()
            .map(|(name, value)| (format!("env.{name}"), value.clone()))
            .collect();
        parts.insert("command".into(), self.command.to_string());
        parts.insert(
            "work_dir".into(),
            self.work_dir.to_string_lossy().into_owned(),
        );
        parts.insert("nudge".into(), self.nudge.clone());
        for (key, lines) in [
            ("pre_start", &self.pre_start),
            ("session_setup", &self.session_setup),
        ] {
            let numbered = lines.iter().enumerate();
            parts.extend(numbered.map(|(i, line)| (format!("{key}.{i:04}"), line.clone())));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_defined_twice_is_refused() {
        let city = CitySpec::builder("demo")
            .agent(AgentSpec::command("a", ["true"]))
            .agent(AgentSpec::shell("a", "false"));
        let error = city.build().expect_err("two agents of one name");
        assert_eq!(error.to_string(), "agent a is defined twice");
    }

    #[test]
    fn only_what_is_run_changes_the_fingerprint() {
        let base = AgentSpec::command("a", ["sleep", "60"]);
        let plain = base.clone().build().expect("valid");
        let limited = base
            .clone()
            .max_restarts(1, Duration::from_secs(1))
            .build()
            .expect("valid");
        let other = base.env("A", "1").build().expect("valid");
        assert_eq!(plain.fingerprint, limited.fingerprint);
        assert_eq!(
            plain.fingerprint.differing_keys(&other.fingerprint),
            ["env.A"]
        );
    }

    #[test]
    fn any_change_of_a_spec_changes_its_revision() {
        let spec = |max| {
            CitySpec::builder("demo")
                .agent(AgentSpec::command("a", ["true"]).max_restarts(max, Duration::from_secs(9)))
                .build()
                .expect("valid")
        };
        assert_eq!(spec(1).revision, spec(1).revision);
        assert_ne!(spec(1).revision, spec(2).revision);
    }
}
