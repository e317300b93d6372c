//! Random cities: what is configured, and the machine that hosts them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::memory::{Behaviour, MemoryCities, MemoryCity, MemoryClock, MemoryJournal};
use gascity_actors::model::{
    AgentName, AgentSpec, CitySpec, CityView, OnDrift, PoolSpec, RestartType, Strategy,
};
use gascity_actors::ports::CityEntry;
use gascity_actors::{AskError, CityRef, Machine, MachinePorts, MachineRef, MachineSettings};

use crate::observer::Observer;
use crate::rng::Rng;

/// Sessions of somebody else, on names much like ours.
pub(crate) const FOREIGN: [&str; 3] = ["foreign", "a0-x", "p1-99"];
/// The program that agents with `process_names` must hold.
pub(crate) const PROGRAM: &str = "tool";

/// The config of one agent, as an editor sees it.
#[derive(Debug, Clone)]
pub(crate) struct AgentPlan {
    pub(crate) name: String,
    pub(crate) depends_on: Vec<String>,
    pub(crate) strategy: Strategy,
    pub(crate) restart: RestartType,
    pub(crate) max_restarts: u32,
    pub(crate) window: Duration,
    pub(crate) pool: Option<(u32, u32)>,
    pub(crate) drain_timeout: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) on_drift: OnDrift,
    pub(crate) suspended: bool,
    pub(crate) watched: bool,
    pub(crate) edits: u32,
}

/// The config of one city.
#[derive(Debug, Clone)]
pub(crate) struct CityPlan {
    pub(crate) name: String,
    pub(crate) agents: Vec<AgentPlan>,
    pub(crate) suspended: bool,
    pub(crate) max_agents: Option<usize>,
    pub(crate) interval: Duration,
    delay: Duration,
    delay_max: Duration,
    pub(crate) shutdown_timeout: Duration,
    start_parallelism: usize,
    stop_parallelism: usize,
    startup_timeout: Duration,
    persistent: bool,
    capture_lines: u32,
    born: u32,
}

impl AgentPlan {
    fn random(rng: &mut Rng, number: u32, before: &[Self]) -> Self {
        let pool = rng.chance(25).then(|| {
            let min = rng.below(3) as u32;
            (min, min + rng.below(3) as u32)
        });
        let name = format!("{}{number}", if pool.is_some() { 'p' } else { 'a' });
        Self {
            name,
            depends_on: dependencies(rng, before),
            strategy: *rng.pick(&[
                Strategy::OneForOne,
                Strategy::OneForOne,
                Strategy::RestForOne,
                Strategy::OneForAll,
            ]),
            restart: *rng.pick(&[
                RestartType::Permanent,
                RestartType::Permanent,
                RestartType::Permanent,
                RestartType::Transient,
                RestartType::Temporary,
            ]),
            max_restarts: *rng.pick(&[0, 1, 2, 3, 5]),
            window: rng.seconds(&[20, 120, 600]),
            pool,
            drain_timeout: rng.seconds(&[5, 60]),
            idle_timeout: rng.chance(15).then(|| rng.seconds(&[20, 90])),
            on_drift: *rng.pick(&[
                OnDrift::Restart,
                OnDrift::Restart,
                OnDrift::Drain,
                OnDrift::Idle,
                OnDrift::Report,
            ]),
            suspended: rng.chance(8),
            watched: rng.chance(15),
            edits: 0,
        }
    }

    fn spec(&self) -> gascity_actors::model::AgentSpecBuilder {
        let mut agent = AgentSpec::command(&self.name, ["run", &self.name])
            .env("EDITS", self.edits.to_string())
            .strategy(self.strategy)
            .restart(self.restart)
            .max_restarts(self.max_restarts, self.window)
            .on_drift(self.on_drift)
            .suspended(self.suspended);
        for on in &self.depends_on {
            agent = agent.depends_on(on);
        }
        if let Some(limit) = self.idle_timeout {
            agent = agent.idle_timeout(limit);
        }
        if self.watched {
            agent = agent.process_names([PROGRAM]);
        }
        if let Some((min, max)) = self.pool {
            agent = agent.pool(PoolSpec {
                min,
                max: Some(max),
                check: Some(self.check()),
                check_timeout: Duration::from_secs(20),
                drain_timeout: Some(self.drain_timeout),
                ..PoolSpec::default()
            });
        }
        agent
    }

    /// The line that sizes its pool.
    pub(crate) fn check(&self) -> String {
        format!("count {}", self.name)
    }
}

/// Up to two of the agents before it, so that there is no circle.
pub(crate) fn dependencies(rng: &mut Rng, before: &[AgentPlan]) -> Vec<String> {
    let mut on = Vec::new();
    for _ in 0..2 {
        if !before.is_empty() && rng.chance(40) {
            on.push(rng.pick(before).name.clone());
        }
    }
    on.sort();
    on.dedup();
    on
}

impl CityPlan {
    pub(crate) fn random(rng: &mut Rng, name: &str) -> Self {
        let mut plan = Self {
            name: name.to_owned(),
            agents: Vec::new(),
            suspended: false,
            max_agents: rng.chance(10).then(|| 2 + rng.below(4)),
            interval: rng.seconds(&[2, 5, 10, 30]),
            delay: rng.millis(&[50, 200, 1000]),
            delay_max: rng.seconds(&[1, 5, 30]),
            shutdown_timeout: rng.millis(&[0, 500, 5000]),
            start_parallelism: *rng.pick(&[1, 2, 8]),
            stop_parallelism: *rng.pick(&[1, 8]),
            startup_timeout: rng.seconds(&[5, 30]),
            persistent: rng.chance(40),
            capture_lines: *rng.pick(&[0, 50]),
            born: 0,
        };
        for _ in 0..2 + rng.below(7) {
            plan.add(rng);
        }
        plan
    }

    pub(crate) fn add(&mut self, rng: &mut Rng) {
        let agent = AgentPlan::random(rng, self.born, &self.agents);
        self.born += 1;
        self.agents.push(agent);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let gone = self.agents.remove(index).name;
        for agent in &mut self.agents {
            agent.depends_on.retain(|on| *on != gone);
        }
    }

    pub(crate) fn spec(&self) -> CitySpec {
        let mut city = CitySpec::builder(&self.name)
            .root(path_of(&self.name))
            .suspended(self.suspended)
            .startup_timeout(self.startup_timeout)
            .daemon(|daemon| {
                daemon.patrol_interval = self.interval;
                daemon.restart_delay = self.delay;
                daemon.restart_delay_max = self.delay_max;
                daemon.shutdown_timeout = self.shutdown_timeout;
                daemon.start_parallelism = self.start_parallelism;
                daemon.stop_parallelism = self.stop_parallelism;
                daemon.drift_drain_timeout = Duration::from_secs(20);
                daemon.drift_idle_after = Duration::from_secs(20);
                daemon.persist_crash_history = self.persistent;
                daemon.crash_capture_lines = self.capture_lines;
            });
        if let Some(max) = self.max_agents {
            city = city.max_agents(max);
        }
        for agent in &self.agents {
            city = city.agent(agent.spec());
        }
        city.build().expect("a valid city")
    }

    /// Names that instances of the agent at `index` can have.
    pub(crate) fn instances(&self, index: usize) -> Vec<AgentName> {
        let spec = self.agents[index].spec().build().expect("a valid agent");
        let most = self.agents[index].pool.map_or(1, |(_, max)| max);
        (1..=most).map(|slot| spec.instance(slot).name).collect()
    }
}

pub(crate) fn path_of(name: &str) -> PathBuf {
    PathBuf::from(format!("/cities/{name}"))
}

/// One city with everything that steers and watches it.
#[derive(Debug)]
pub(crate) struct SimCity {
    pub(crate) plan: CityPlan,
    pub(crate) ports: MemoryCity,
    pub(crate) observer: Observer,
    /// Events up to here were looked at.
    pub(crate) seen: usize,
    /// The config on disk cannot be read.
    pub(crate) broken: bool,
    /// Faults of the provider that are in force.
    pub(crate) faults: BTreeSet<&'static str>,
    /// Stops have failed or been slow.
    pub(crate) stops_failed: bool,
}

impl SimCity {
    fn new(plan: CityPlan) -> Self {
        let spec = plan.spec();
        let ports = MemoryCity::new(spec.clone());
        for name in FOREIGN {
            ports.sessions.add_foreign(name);
        }
        let observer = Observer::new(ports.clone());
        let city = Self {
            plan,
            ports,
            observer,
            seen: 0,
            broken: false,
            faults: BTreeSet::new(),
            stops_failed: false,
        };
        city.note_spec(spec);
        city.observer.book().orderly = true;
        city.behave_all();
        city
    }

    fn note_spec(&self, spec: CitySpec) {
        let spec = Arc::new(spec);
        let revision = spec.revision.clone();
        self.observer.book().specs.insert(revision, spec);
    }

    /// "Saves" the plan.
    pub(crate) fn save(&mut self) {
        let spec = self.plan.spec();
        self.note_spec(spec.clone());
        self.broken = false;
        self.ports.desired.set(Ok(spec));
    }

    /// Every agent does what it should from its next start on.
    fn behave_all(&self) {
        for index in 0..self.plan.agents.len() {
            self.behave(index);
        }
    }

    pub(crate) fn behave(&self, index: usize) {
        for name in self.plan.instances(index) {
            self.ports.sessions.script(name.as_str(), healthy());
        }
    }

    /// Notes that a fault begins or ends.
    pub(crate) fn fault(&mut self, which: &'static str, on: bool) {
        if on {
            self.stops_failed |= matches!(which, "stops" | "lag");
            self.observer.book().orderly = !self.stops_failed;
            self.faults.insert(which);
        } else {
            self.faults.remove(which);
        }
    }

    pub(crate) fn heal(&mut self) {
        self.faults.clear();
        self.ports.sessions.fail_listing(None);
        self.ports.sessions.delay_listing(Duration::ZERO);
        self.ports.sessions.fail_stops(None);
        self.observer.set_lag(Duration::ZERO);
        self.behave_all();
        for agent in &self.plan.agents {
            if let Some((min, _)) = agent.pool {
                self.ports.shell.prints(&agent.check(), &min.to_string());
            }
        }
        for (agent, _) in self.ports.sessions.running() {
            self.ports.sessions.set_attached(&agent, false);
        }
    }
}

/// What an agent does that does what it should.
pub(crate) fn healthy() -> Behaviour {
    Behaviour {
        processes: vec![PROGRAM.to_owned()],
        output: "working".to_owned(),
        ..Behaviour::default()
    }
}

/// The machine and its cities.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cities: Vec<SimCity>,
    journal: Arc<MemoryJournal>,
    pub(crate) machine: Option<Machine>,
}

impl World {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let names = if rng.chance(30) {
            &["a", "b"][..]
        } else {
            &["a"]
        };
        let mut cities = Vec::new();
        for name in names {
            let city = SimCity::new(CityPlan::random(rng, name));
            for agent in city.plan.agents.iter() {
                if let Some((min, max)) = agent.pool {
                    let count = min + rng.below((max - min + 1) as usize) as u32;
                    city.ports.shell.prints(&agent.check(), &count.to_string());
                }
            }
            cities.push(city);
        }
        Self {
            cities,
            journal: Arc::new(MemoryJournal::new(Arc::new(MemoryClock::new()))),
            machine: None,
        }
    }

    /// Starts the machine, again or for the first time.
    pub(crate) async fn found(&mut self) {
        let registry = MemoryCities::default();
        for city in &self.cities {
            let spec = city.plan.spec();
            let entry = CityEntry {
                name: spec.name,
                path: spec.root,
            };
            registry.register(entry, city.observer.successor().ports());
        }
        let ports = MachinePorts {
            cities: Arc::new(registry),
            journal: self.journal.clone(),
            clock: Arc::new(MemoryClock::new()),
        };
        let settings = MachineSettings {
            city_restart_delay_max: Duration::from_secs(20),
            ..MachineSettings::default()
        };
        let machine = Machine::spawn(settings, ports).await;
        self.machine = Some(machine.expect("a machine"));
    }

    pub(crate) fn door(&self) -> Option<MachineRef> {
        self.machine.as_ref().map(Machine::door)
    }

    /// What a city says of itself; `None` while there is no machine.
    pub(crate) async fn view(&self, index: usize) -> Option<Result<CityView, AskError>> {
        Some(self.city(index)?.view().await)
    }

    pub(crate) fn city(&self, index: usize) -> Option<CityRef> {
        let name = &self.cities[index].plan.name;
        self.door().map(|door| door.city(path_of(name)))
    }
}
