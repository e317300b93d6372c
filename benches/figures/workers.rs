//! Ten thousand Workers: how long they take to come up, and what each weighs beside a bare actor.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gascity::City;
use gascity::memory::{MemoryClock, MemorySessions};
use gascity::model::{AgentSpec, CitySpec};
use ractor::{Actor, ActorProcessingErr, ActorRef};

const WORKERS: usize = 10_000;

pub(crate) fn measure() {
    println!("workers: {WORKERS} agents on sessions in memory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let before = resident();
        let began = Instant::now();
        let mut bare = Vec::with_capacity(WORKERS);
        for _ in 0..WORKERS {
            bare.push(Actor::spawn(None, Bare, ()).await.unwrap());
        }
        let took = began.elapsed();
        let each = (resident() - before) / WORKERS as u64;
        println!(
            "  bare ractor actors: {:.0} ms, {each} bytes each",
            took.as_secs_f64() * 1e3
        );

        let specs: Vec<_> = (0..WORKERS)
            .map(|i| AgentSpec::command(format!("agent-{i}"), ["run"]))
            .collect();
        let mut spec = CitySpec::builder("bench").daemon(|d| {
            d.patrol_interval = Duration::from_secs(3600);
            d.start_parallelism = 64;
        });
        for agent in specs {
            spec = spec.agent(agent);
        }
        let spec = spec.build().unwrap();
        let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
        let before = resident();
        let began = Instant::now();
        let city = City::from_spec(spec)
            .sessions(sessions.clone())
            .spawn()
            .await
            .unwrap();
        let took = began.elapsed();
        let each = (resident() - before) / WORKERS as u64;
        println!(
            "  city: {:.0} ms, {each} bytes each, with slot, event, session in memory and Worker",
            took.as_secs_f64() * 1e3
        );
        city.stop().await.unwrap();
        for (actor, handle) in bare {
            actor.stop(None);
            handle.await.unwrap();
        }
    });
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
