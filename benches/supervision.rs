//! The supervision core on ports in memory: what a plan, a tick and a question cost.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, HashSet};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gascity::City;
use gascity::memory::{MemoryClock, MemorySessions};
use gascity::model::{AgentSpec, CitySpec, Daemon, StartCause};
use gascity::ports::{Clock, Facts, Listing};
use gascity_actors::policy::{Observed, Phase, Run, Slot, plan};
use gascity_actors::ports::Tokens;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// Slots that are all up, and the listing that says so.
fn healthy(agents: usize) -> (Vec<Slot>, Listing) {
    let tokens = gascity::memory::CountingTokens::default();
    let clock = MemoryClock::new();
    let slots: Vec<Slot> = (0..agents)
        .map(|i| {
            let spec = AgentSpec::command(format!("agent-{i}"), ["run"])
                .build()
                .unwrap();
            let mut slot = Slot::new(Arc::new(spec));
            let mut run = Run::new(tokens.fresh(), Instant::now(), StartCause::Initial);
            run.fingerprint = Some(slot.spec.fingerprint.clone());
            run.announced = true;
            slot.run = Some(run);
            slot.phase = Phase::Running;
            slot
        })
        .collect();
    let facts = |slot: &Slot| Facts {
        session: slot.spec.session.clone(),
        agent: slot.spec.name.clone(),
        token: slot.run.as_ref().unwrap().token.clone(),
        live: true,
        pid: Some(1),
        started_at: clock.wall(),
        last_activity: Some(clock.wall()),
        attached: false,
        notes: BTreeMap::new(),
    };
    let listing = Listing {
        owned: slots.iter().map(facts).collect(),
        ..Listing::default()
    };
    (slots, listing)
}

fn plans(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let _context = runtime.enter();
    let mut group = c.benchmark_group("plan");
    for agents in [100, 1_000, 10_000] {
        let (slots, listing) = healthy(agents);
        let zombies = HashSet::new();
        let as_of = Instant::now() + Duration::from_secs(1);
        group.throughput(Throughput::Elements(agents as u64));
        group.bench_with_input(BenchmarkId::new("healthy", agents), &agents, |b, _| {
            b.iter(|| {
                let observed = Observed {
                    listing: &listing,
                    as_of,
                    zombies: &zombies,
                };
                let actions = plan(black_box(&slots), Some(observed), &Daemon::default(), as_of);
                assert!(actions.is_empty());
            });
        });
    }
    group.finish();
}

/// A city of so many agents in memory, all up.
async fn city(agents: usize) -> (gascity::RunningCity, Arc<MemorySessions>) {
    let sessions = Arc::new(MemorySessions::new(Arc::new(MemoryClock::new())));
    let mut spec = CitySpec::builder("bench").daemon(|d| {
        d.patrol_interval = Duration::from_secs(3600);
        d.start_parallelism = 64;
    });
    for i in 0..agents {
        spec = spec.agent(AgentSpec::command(format!("agent-{i}"), ["run"]));
    }
    let city = City::from_spec(spec.build().unwrap()).sessions(sessions.clone());
    (city.spawn().await.unwrap(), sessions)
}

fn ticks(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = c.benchmark_group("tick");
    for agents in [10, 100, 1_000] {
        let (city, sessions) = runtime.block_on(city(agents));
        group.throughput(Throughput::Elements(agents as u64));
        group.bench_with_input(BenchmarkId::new("healthy", agents), &agents, |b, _| {
            b.iter_custom(|rounds| {
                let began = std::time::Instant::now();
                for _ in 0..rounds {
                    // A tick begins with a listing, and the next one only after it is complete.
                    let before = sessions.count("snapshot", None);
                    runtime.block_on(city.poke()).unwrap();
                    while sessions.count("snapshot", None) == before {
                        std::hint::spin_loop();
                    }
                    sessions.clear_calls();
                }
                began.elapsed()
            });
        });
        runtime.block_on(city.stop()).unwrap();
    }
    group.finish();
}

fn questions(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = c.benchmark_group("status while a tick hangs");
    for agents in [10, 1_000] {
        let (city, sessions) = runtime.block_on(city(agents));
        sessions.delay_listing(Duration::from_secs(3600));
        runtime.block_on(city.poke()).unwrap();
        group.bench_with_input(BenchmarkId::new("agents", agents), &agents, |b, _| {
            b.iter(|| runtime.block_on(city.status()).unwrap());
        });
        sessions.delay_listing(Duration::ZERO);
        runtime.block_on(city.stop()).unwrap();
    }
    group.finish();
}

criterion_group!(benches, plans, ticks, questions);
criterion_main!(benches);
