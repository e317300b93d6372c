//! A machine with cities in memory, and the few verbs tests are written in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::memory::{Behaviour, MemoryCities, MemoryCity, MemoryClock, MemoryJournal};
use gascity_actors::model::{
    AgentName, AgentSpec, AgentSpecBuilder, AgentState, CityName, CitySpec, CitySpecBuilder,
    CityStatus, CityView, ExitStatus, FailureClass, InstanceView, PoolSpec, StartFailure,
};
use gascity_actors::ports::CityEntry;
use gascity_actors::{
    AgentCommand, CityRef, CommandError, Machine, MachinePorts, MachineRef, MachineSettings,
    SessionRef,
};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const CRASH: ExitStatus = ExitStatus::Code(1);

/// A machine and its registry.
pub(crate) struct Town {
    pub(crate) cities: Arc<MemoryCities>,
    pub(crate) journal: Arc<MemoryJournal>,
    machine: Option<Machine>,
}

pub(crate) fn agent(name: &str) -> AgentSpecBuilder {
    AgentSpec::command(name, ["run", name])
}

pub(crate) fn city(name: &str) -> CitySpecBuilder {
    CitySpec::builder(name).root(format!("/cities/{name}"))
}

pub(crate) fn dies_at_once() -> Behaviour {
    Behaviour {
        exits: Some((Duration::ZERO, CRASH)),
        ..Behaviour::default()
    }
}

/// Takes so long to come up.
pub(crate) fn starts_in(time: Duration) -> Behaviour {
    Behaviour {
        start_after: time,
        ..Behaviour::default()
    }
}

/// Does not leave when asked to.
pub(crate) fn stubborn() -> Behaviour {
    Behaviour {
        ignores_interrupt: true,
        ..Behaviour::default()
    }
}

/// The start fails, through the agent.
pub(crate) fn cannot_start() -> Behaviour {
    let failure = StartFailure::new("work_dir", FailureClass::Agent, "no such directory");
    Behaviour {
        start_fails: Some(failure),
        ..Behaviour::default()
    }
}

/// A pool of up to five, sized by the line `count`.
pub(crate) fn pool() -> PoolSpec {
    PoolSpec {
        max: Some(5),
        check: Some("count".into()),
        ..PoolSpec::default()
    }
}

/// web -> api -> db.
pub(crate) fn chain() -> CitySpecBuilder {
    city("a")
        .agent(agent("web").depends_on("api"))
        .agent(agent("api").depends_on("db"))
        .agent(agent("db"))
}

/// "Saves" a config, and lets it be applied.
pub(crate) async fn save(city: &MemoryCity, spec: CitySpecBuilder) {
    city.desired.set(Ok(spec.build().unwrap()));
    settle().await;
}

pub(crate) fn path_of(name: &str) -> PathBuf {
    PathBuf::from(format!("/cities/{name}"))
}

impl Town {
    pub(crate) async fn new() -> Self {
        let cities = Arc::new(MemoryCities::default());
        let journal = Arc::new(MemoryJournal::new(Arc::new(MemoryClock::new())));
        let mut town = Self {
            cities,
            journal,
            machine: None,
        };
        town.found().await;
        town
    }

    /// A machine with one city, settled.
    pub(crate) async fn with(spec: CitySpecBuilder) -> (Self, MemoryCity) {
        let town = Self::new().await;
        let city = town.add(spec);
        settle().await;
        (town, city)
    }

    /// Starts the machine (again) on the same registry.
    pub(crate) async fn found(&mut self) {
        let ports = MachinePorts {
            cities: self.cities.clone(),
            journal: self.journal.clone(),
            clock: Arc::new(MemoryClock::new()),
        };
        let machine = Machine::spawn(MachineSettings::default(), ports)
            .await
            .unwrap();
        self.machine = Some(machine);
        settle().await;
    }

    pub(crate) fn add(&self, spec: CitySpecBuilder) -> MemoryCity {
        let spec = spec.build().unwrap();
        let entry = CityEntry {
            name: spec.name.clone(),
            path: spec.root.clone(),
        };
        let city = MemoryCity::new(spec);
        self.cities.register(entry, city.ports());
        city
    }

    pub(crate) fn door(&self) -> MachineRef {
        self.machine.as_ref().unwrap().door()
    }

    pub(crate) fn city(&self, name: &str) -> CityRef {
        self.door().city(path_of(name))
    }

    pub(crate) async fn view(&self, name: &str) -> CityView {
        self.city(name).view().await.unwrap()
    }

    pub(crate) async fn instance(&self, name: &str, agent: &str) -> InstanceView {
        let view = self.view(name).await;
        view.instances
            .into_iter()
            .find(|i| i.qualified_name.as_str() == agent)
            .unwrap()
    }

    pub(crate) fn status(&self, name: &str) -> CityStatus {
        let name = CityName::new(name).unwrap();
        self.door()
            .view()
            .cities
            .iter()
            .find(|city| city.name == name)
            .unwrap()
            .status
    }

    /// Does something with an agent of a city.
    pub(crate) async fn command(
        &self,
        name: &str,
        agent: &str,
        command: AgentCommand,
    ) -> Result<AgentState, CommandError> {
        let agent = AgentName::new(agent).unwrap();
        self.city(name).command(&agent, command).await.unwrap()
    }

    /// A way to the session of an agent.
    pub(crate) async fn session(&self, name: &str, agent: &str) -> SessionRef {
        let agent = AgentName::new(agent).unwrap();
        self.city(name).session(&agent).await.unwrap().unwrap()
    }

    /// The state of an agent, and why it is in it.
    pub(crate) async fn state(&self, name: &str, agent: &str) -> (AgentState, String) {
        let view = self.instance(name, agent).await;
        (view.state, view.reason.unwrap_or_default())
    }

    /// Every actor vanishes without a word, as when the process is killed.
    pub(crate) async fn kill_all_actors(&mut self) {
        let mut machine = self.machine.take().unwrap();
        machine.door().crash("machine").await;
        assert!(!machine.ended().await, "a crash is not a clean end");
        settle().await;
    }
}

/// Lets everything happen that can happen without time passing.
pub(crate) async fn settle() {
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass; whatever is due meanwhile happens at its own instant.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

/// Lines of a trace that are about agents.
pub(crate) fn agent_trace(city: &MemoryCity) -> Vec<String> {
    city.journal
        .trace()
        .into_iter()
        .filter(|line| line.starts_with("agent."))
        .collect()
}

/// What happened to agents, with its cause or reason: `started db initial`, `stopped api drift`.
pub(crate) fn story(city: &MemoryCity) -> Vec<String> {
    let events = city.journal.events();
    let about_agents = events
        .iter()
        .filter_map(|e| Some((e.kind.strip_prefix("agent.")?.to_owned(), e)));
    about_agents
        .map(|(kind, event)| {
            let why = ["cause", "reason"].map(|key| event.payload.get(key));
            let why = why.into_iter().flatten().next().and_then(|v| v.as_str());
            let line = format!("{kind} {} {}", event.subject, why.unwrap_or_default());
            line.trim_end().to_owned()
        })
        .collect()
}

/// The story from its line `told` on.
pub(crate) fn since(city: &MemoryCity, told: usize) -> Vec<String> {
    story(city).split_off(told)
}

/// Names of live agents.
pub(crate) fn up(city: &MemoryCity) -> Vec<String> {
    let running = city.sessions.running();
    running.into_iter().map(|(name, _)| name).collect()
}

/// Sessions a method was called on, in order.
pub(crate) fn calls_of(city: &MemoryCity, op: &str) -> Vec<String> {
    let calls = city.sessions.calls();
    let of_op = calls.into_iter().filter(|call| call.op == op);
    of_op.map(|call| call.session).collect()
}
