//! Ten thousand Workers: how long they take to come up, and what each weighs beside a bare actor.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gascity::memory::{MemoryClock, MemorySessions};
use gascity::model::{AgentSpec, CitySpec, RunToken};
use gascity::ports::{Sessions, StartSpec};
use gascity::{City, RunningCity};
use ractor::{Actor, ActorProcessingErr, ActorRef};

const WORKERS: usize = 10_000;

pub(crate) fn measure() {
    println!("workers: {WORKERS} agents on sessions in memory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // Everything stays alive to the end: freed memory would be used again and not be seen.
    runtime.block_on(async {
        let (bare, actor) = weigh("bare ractor actors", async {
            let mut bare = Vec::with_capacity(WORKERS);
            for _ in 0..WORKERS {
                bare.push(Actor::spawn(None, Bare, ()).await.unwrap());
            }
            bare
        })
        .await;
        let (_sessions, session) = weigh("sessions in memory", sessions()).await;
        let (waiting, slot) = weigh("city, all suspended: slots", city(true)).await;
        let (running, all) = weigh("city: slots, sessions, events, Workers", city(false)).await;
        let worker = all.saturating_sub(slot).saturating_sub(session);
        println!("  a Worker and its event: {worker} bytes, a bare actor: {actor}");
        waiting.stop().await.unwrap();
        running.stop().await.unwrap();
        for (actor, handle) in bare {
            actor.stop(None);
            handle.await.unwrap();
        }
    });
}

/// What came of it, and how many bytes each of the [`WORKERS`] has added.
async fn weigh<T>(what: &str, work: impl Future<Output = T>) -> (T, u64) {
    let (before, began) = (resident(), Instant::now());
    let made = work.await;
    let took = began.elapsed().as_secs_f64() * 1e3;
    let each = resident().saturating_sub(before) / WORKERS as u64;
    println!("  {what}: {took:.0} ms, {each} bytes each");
    (made, each)
}

fn specs(suspended: bool) -> CitySpec {
    let mut spec = CitySpec::builder("bench").daemon(|d| {
        d.patrol_interval = Duration::from_secs(3600);
        d.start_parallelism = 64;
    });
    for number in 0..WORKERS {
        let agent = AgentSpec::command(format!("agent-{number}"), ["run"]);
        spec = spec.agent(agent.suspended(suspended));
    }
    spec.build().unwrap()
}

async fn city(suspended: bool) -> RunningCity {
    let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
    let city = City::from_spec(specs(suspended)).sessions(sessions);
    city.spawn().await.unwrap()
}

/// The sessions alone, with nobody to supervise them.
async fn sessions() -> MemorySessions {
    let sessions = MemorySessions::new(Arc::new(MemoryClock::new()));
    for agent in specs(false).agents {
        let token = RunToken::new(agent.name.as_str()).unwrap();
        let start = StartSpec {
            session: agent.session.clone(),
            agent: agent.name.clone(),
            template: agent.template.clone(),
            generation: 1,
            launch: agent.launch.clone(),
            setup_timeout: Duration::from_secs(10),
            process_names: Vec::new(),
            live: Vec::new(),
            notes: BTreeMap::new(),
        };
        sessions.start(token, Arc::new(start)).await.unwrap();
    }
    sessions
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

struct Bare;

impl Actor for Bare {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}
