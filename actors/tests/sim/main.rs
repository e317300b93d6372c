//! Random histories over the whole tree, under paused time.
//!
//! A seed gives a world, a list of steps and what must hold after each. A failing seed names itself
//! and replays with one command.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_types)] // the rate of histories is told in real time

mod book;
mod checks;
mod observer;
mod rng;
mod steps;
mod world;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gascity_actors::model::InstanceView;
use tokio::time::Instant;

use crate::rng::Rng;
use crate::steps::Step;
use crate::world::World;

/// Histories of a normal test run.
const HISTORIES: u64 = 200;
/// Steps of one history, at most.
const STEPS: usize = 60;

/// What one history went through.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    steps: usize,
    starts: usize,
    trace: Vec<String>,
}

/// Runs the history of a seed. Each has its own runtime, and so its own clock.
fn history(seed: u64, aloud: bool) -> Result<Told, String> {
    quiet_drills();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(live(seed, aloud))
}

async fn live(seed: u64, aloud: bool) -> Result<Told, String> {
    let mut rng = Rng::new(seed);
    let mut world = World::random(&mut rng);
    if aloud {
        println!(
            "seed {seed}: {:#?}",
            world.cities.iter().map(|c| &c.plan).collect::<Vec<_>>()
        );
    }
    world.found().await;
    steps::settle().await;
    let mut told = Told::default();
    let count = 10 + rng.below(STEPS - 10);
    for number in 0..=count {
        let step = steps::draw(&mut rng, &world);
        let outcome = if number < count {
            say(aloud, number, &step);
            take(&mut world, &mut rng, &step).await
        } else {
            checks::converge(&mut world).await
        };
        if aloud {
            news(&world, &mut told);
            states(&world).await;
        }
        outcome.map_err(|what| {
            let step = if number < count {
                format!("{step:?}")
            } else {
                "quiet".to_owned()
            };
            format!(
                "seed {seed}, step {number} ({step}): {what}\n  \
                 GC_SIM_SEED={seed} cargo test -p gascity-actors --test sim replay -- --nocapture"
            )
        })?;
        told.steps += 1;
    }
    told.starts = world.cities.iter().map(|c| c.observer.book().starts).sum();
    told.trace.clear();
    for city in &world.cities {
        told.trace.extend(city.ports.journal.trace());
    }
    Ok(told)
}

async fn take(world: &mut World, rng: &mut Rng, step: &Step) -> Result<(), String> {
    steps::perform(world, rng, step).await?;
    checks::after_step(world).await
}

fn say(aloud: bool, number: usize, step: &Step) {
    if aloud {
        println!("{number:3} {step:?}");
    }
}

/// Prints the events since the last step.
fn news(world: &World, told: &mut Told) {
    for city in &world.cities {
        let key = format!("{}:", city.plan.name);
        let seen = told
            .trace
            .iter()
            .filter(|line| line.starts_with(&key))
            .count();
        for event in city.ports.journal.events().iter().skip(seen) {
            let payload = serde_json::to_string(&event.payload).unwrap_or_default();
            let time = event.ts.format("%H:%M:%S%.3f");
            println!(
                "      {time} {key} {} {} {payload}",
                event.kind, event.subject
            );
            told.trace.push(format!("{key}{}", event.seq));
        }
    }
}

/// Prints who is in which state.
async fn states(world: &World) {
    for at in 0..world.cities.len() {
        let Some(city) = world.city(at) else {
            return;
        };
        if let Ok(view) = city.view().await {
            let state = |i: &InstanceView| format!("{} {}", i.qualified_name, i.state.as_str());
            let states: Vec<String> = view.instances.iter().map(state).collect();
            println!("      {}: {}", view.name, states.join(", "));
        }
    }
}

/// Panics on purpose are no news.
fn quiet_drills() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let drill = |text: &str| text.starts_with("fault drill");
            let payload = info.payload();
            let plain = payload.downcast_ref::<&str>().copied();
            let text = plain.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            if !text.is_some_and(drill) {
                usual(info);
            }
        }));
    });
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Seeds `GC_SIM_FIRST` on, `GC_SIM_SEEDS` of them, on two threads.
#[test]
fn histories_hold_all_invariants() {
    let first = number("GC_SIM_FIRST").unwrap_or(1);
    let count = number("GC_SIM_SEEDS").unwrap_or(HISTORIES);
    let (next, began) = (AtomicU64::new(first), Instant::now());
    let (steps, starts) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count {
                return failures;
            }
            match history(seed, false) {
                Ok(told) => {
                    steps.fetch_add(told.steps as u64, Relaxed);
                    starts.fetch_add(told.starts as u64, Relaxed);
                }
                Err(failure) => {
                    println!("{failure}");
                    failures.push(failure);
                }
            }
            let done = seed - first + 1;
            if done.is_multiple_of(500) {
                let rate = done as f64 / began.elapsed().as_secs_f64();
                println!("{done} of {count} histories, {rate:.0}/s");
            }
        }
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    println!(
        "seeds {first} to {}: {} steps, {} starts, {} failures, {:.1?}",
        first + count - 1,
        steps.load(Relaxed),
        starts.load(Relaxed),
        failures.len(),
        began.elapsed()
    );
    assert!(
        failures.is_empty(),
        "{} failures, the first:\n{}",
        failures.len(),
        failures[0]
    );
}

/// `GC_SIM_SEED` alone, told step by step.
#[test]
fn replay() {
    if let Some(seed) = number("GC_SIM_SEED")
        && let Err(failure) = history(seed, true)
    {
        panic!("{failure}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 1..=5 {
        assert_eq!(history(seed, false), history(seed, false), "seed {seed}");
    }
}
