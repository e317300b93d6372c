//! A city opened again over agents that run already.

use std::time::{Duration, Instant};

use gascity::City;
use gascity::model::CitySpec;

use crate::start;

const AGENTS: usize = 1000;
const ROUNDS: usize = 5;

pub(crate) fn measure() {
    println!(
        "adoption: {AGENTS} running agents taken over by the next supervisor, {ROUNDS} rounds"
    );
    let words = ["/bin/sleep".to_owned(), "600".to_owned()];
    let dir = tempfile::tempdir().unwrap();
    let spec = start::spec(dir.path(), AGENTS, &words).build().unwrap();
    let began = Instant::now();
    in_runtime(City::from_spec(spec.clone()), false);
    println!(
        "  (started in {:.0} ms)",
        began.elapsed().as_secs_f64() * 1e3
    );
    for round in 1..=ROUNDS {
        let took = adopt(&spec, round == ROUNDS);
        println!("  round {round}: {:.0} ms", took.as_secs_f64() * 1e3);
    }
}

fn adopt(spec: &CitySpec, last: bool) -> Duration {
    in_runtime(City::from_spec(spec.clone()), last)
}

/// Brings a city up in a runtime of its own, which ends with it; how long that took. The agents
/// stay, unless they are to be stopped.
fn in_runtime(city: gascity::CityBuilder, stop: bool) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let city = city.spawn().await.unwrap();
        let took = began.elapsed();
        let instances = city.status().await.unwrap().instances;
        assert_eq!(instances.iter().filter(|i| i.running).count(), AGENTS);
        if stop {
            city.stop().await.unwrap();
        } else {
            city.detach().await.unwrap();
        }
        took
    })
}
