//! A machine with cities in memory, and the few verbs tests are written in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::memory::{Behaviour, MemoryCities, MemoryCity, MemoryClock, MemoryJournal};
use gascity_actors::model::{
    AgentSpec, AgentSpecBuilder, CityName, CitySpec, CitySpecBuilder, CityStatus, CityView,
    ExitStatus, InstanceView,
};
use gascity_actors::ports::CityEntry;
use gascity_actors::{CityRef, Machine, MachinePorts, MachineRef, MachineSettings};

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
