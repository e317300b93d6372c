//! What holds after any history, and in any graph: small, seeded and fast.

use std::collections::BTreeMap;
use std::time::Duration;

use gascity_actors::StopMode;
use gascity_actors::memory::MemoryCity;
use gascity_actors::model::AgentState::{Quarantined, Running, Suspended};
use gascity_actors::model::CitySpecBuilder;
use gascity_actors::ports::Note;
use tokio::time::Instant;

use crate::util::{CRASH, MINUTE, Town, agent, calls_of, city, pass, pool, save, starts_in, up};

/// A small deterministic source of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // Numerical Recipes' constants; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Up to six agents that need earlier ones at random, and a pool.
fn random_city(dice: &mut Dice) -> CitySpecBuilder {
    let mut spec = city("a").daemon(|d| d.start_parallelism = 2);
    for i in 0..6 {
        if dice.roll(5) == 0 {
            continue;
        }
        let mut one = agent(&format!("n{i}")).env("A", dice.roll(2).to_string());
        one = one
            .suspended(dice.roll(8) == 0)
            .max_restarts(3, 10 * MINUTE);
        spec = spec.agent(one);
    }
    spec.agent(agent("w").pool(pool()))
}

async fn random_history(seed: u64) -> (Town, MemoryCity) {
    let mut dice = Dice(seed);
    let town = Town::new().await;
    let city = town.add(random_city(&mut dice));
    for _ in 0..40 {
        let who = format!("n{}", dice.roll(6));
        match dice.roll(8) {
            0 => save(&city, random_city(&mut dice)).await,
            1 | 2 => drop(city.sessions.exit(&who, CRASH)),
            3 => city.shell.prints("count", &dice.roll(5).to_string()),
            4 => city.sessions.exit_unnoticed(&who, CRASH),
            5 => drop(town.door().crash(&format!("a/{who}")).await),
            6 => city.sessions.note(&who, Note::RestartRequested, Some("1")),
            _ => city
                .sessions
                .script(&who, starts_in(Duration::from_secs(dice.roll(20)))),
        }
        pass(Duration::from_millis(dice.roll(40_000))).await;
    }
    (town, city)
}

/// Invariant I3: whatever happened, two ticks and the longest delay later everything is as wanted.
#[tokio::test(start_paused = true)]
async fn after_any_history_running_is_what_is_desired() {
    for seed in 0..12 {
        let (town, city) = random_history(seed).await;
        // Pool members on their way out have their drain timeout.
        pass(6 * MINUTE + MINUTE + MINUTE / 2).await;
        let view = town.view("a").await;
        for one in &view.instances {
            let settled = matches!(one.state, Running | Suspended | Quarantined);
            assert!(settled, "seed {seed}: {} is {:?}", one.name, one.state);
        }
        let mut running: Vec<String> = view
            .instances
            .iter()
            .filter(|one| one.running)
            .map(|one| one.qualified_name.to_string())
            .collect();
        running.sort();
        assert_eq!(up(&city), running, "seed {seed}");
    }
}

/// Invariant I29: each run has one terminal event if it was announced and is over, else none.
#[tokio::test(start_paused = true)]
async fn each_run_has_exactly_one_terminal_event() {
    for seed in 2000..2012 {
        let (town, city) = random_history(seed).await;
        town.door().stop(StopMode::Graceful).await.unwrap();
        let mut begun = BTreeMap::new();
        let mut ended = BTreeMap::new();
        for event in city.journal.events() {
            let Some(token) = event.payload.get("session_id").cloned() else {
                continue;
            };
            let count = match event.kind.as_str() {
                "agent.started" => &mut begun,
                "agent.stopped" | "agent.crashed" | "agent.suspended" | "agent.idle_killed" => {
                    &mut ended
                }
                _ => continue,
            };
            *count.entry(token.to_string()).or_insert(0) += 1;
        }
        assert_eq!(begun, ended, "seed {seed}");
        assert!(begun.values().all(|count| *count == 1), "seed {seed}");
    }
}

/// Invariant I28: in random graphs nobody starts before what it needs is up, stops go the other
/// way, and no more than allowed are in flight.
#[tokio::test(start_paused = true)]
async fn in_random_graphs_starts_and_stops_follow_dependencies() {
    for seed in 0..15 {
        let mut dice = Dice(seed);
        let town = Town::new().await;
        let mut spec = city("a").daemon(|d| d.start_parallelism = 3);
        let (mut needs, mut takes) = (Vec::new(), BTreeMap::new());
        for i in 0..9_u64 {
            let mut one = agent(&format!("n{i}"));
            for on in (0..i).filter(|_| dice.roll(4) == 0) {
                one = one.depends_on(format!("n{on}"));
                needs.push((format!("n{i}"), format!("n{on}")));
            }
            spec = spec.agent(one);
        }
        let city = town.add(spec);
        for i in 0..9 {
            let (name, time) = (format!("n{i}"), Duration::from_secs(1 + dice.roll(4)));
            let mut slow = starts_in(time);
            slow.ignores_interrupt = true;
            city.sessions.script(&name, slow);
            takes.insert(name, time);
        }
        pass(5 * MINUTE).await;
        assert_eq!(up(&city).len(), 9, "seed {seed}");
        let calls = city.sessions.calls();
        let starts: BTreeMap<_, _> = calls
            .iter()
            .filter(|call| call.op == "start")
            .map(|call| (call.session.clone(), call.at))
            .collect();
        for (one, on) in &needs {
            let up_at = starts[on] + takes[on];
            assert!(up_at <= starts[one], "seed {seed}: {one} needs {on}");
        }
        for at in starts.values() {
            let under_way = |(name, began): &(&String, &Instant)| {
                **began <= *at && *at < **began + takes[*name]
            };
            let in_flight = starts.iter().filter(under_way).count();
            assert!(in_flight <= 3, "seed {seed}: {in_flight}");
        }
        town.door().stop(StopMode::Graceful).await.unwrap();
        let stops = calls_of(&city, "stop");
        let stopped = |name: &str| stops.iter().position(|n| n == name);
        for (one, on) in &needs {
            assert!(stopped(one) < stopped(on), "seed {seed}: {one} needs {on}");
        }
    }
}
