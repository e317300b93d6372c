//! Start of a hundred and of a thousand agents.

use std::path::Path;
use std::time::{Duration, Instant};

use gascity::City;
use gascity::model::{AgentSpec, CitySpec, CitySpecBuilder};

use crate::floor;

const ROUNDS: usize = 3;

pub(crate) fn measure() {
    for agents in [100, 1000] {
        measure_with(agents);
    }
}

fn measure_with(agents: usize) {
    println!("start: {agents} agents (sleep), all started, {ROUNDS} rounds");
    let words = ["/bin/sleep".to_owned(), "600".to_owned()];
    // Kept to the end: a file system may be slow to make files where many were just removed.
    let dirs: Vec<_> = (0..ROUNDS).map(|_| tempfile::tempdir().unwrap()).collect();
    for (round, dir) in (1..).zip(&dirs) {
        let (bare, city) = (
            floor_time(agents, &words),
            city_time(dir.path(), agents, &words),
        );
        println!(
            "  round {round}: floor {:.0} ms, city {:.0} ms, ratio {:.2}",
            bare.as_secs_f64() * 1e3,
            city.as_secs_f64() * 1e3,
            city.as_secs_f64() / bare.as_secs_f64()
        );
    }
}

fn floor_time(agents: usize, words: &[String]) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let log = floor::log(dir.path());
    let began = Instant::now();
    let children: Vec<_> = (0..agents).map(|_| floor::spawn(words, &log)).collect();
    let took = began.elapsed();
    for mut child in children {
        child.kill().unwrap();
        floor::wait(&mut child);
    }
    took
}

fn city_time(dir: &Path, agents: usize, words: &[String]) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let spec = spec(dir, agents, words);
        let city = City::from_spec(spec.build().unwrap());
        let began = Instant::now();
        let city = city.spawn().await.unwrap();
        let took = began.elapsed();
        let running = city
            .status()
            .await
            .unwrap()
            .instances
            .iter()
            .filter(|i| i.running)
            .count();
        assert_eq!(running, agents);
        let stopping = Instant::now();
        city.stop().await.unwrap();
        println!(
            "  (stopped in {:.0} ms)",
            stopping.elapsed().as_secs_f64() * 1e3
        );
        took
    })
}

/// A city of agents that do nothing.
pub(crate) fn spec(dir: &Path, agents: usize, words: &[String]) -> CitySpecBuilder {
    let spec = CitySpec::builder("bench")
        .root(dir.canonicalize().unwrap())
        .provider("subprocess")
        .daemon(|d| {
            d.patrol_interval = Duration::from_secs(3600);
            d.shutdown_timeout = Duration::ZERO;
        });
    (0..agents).fold(spec, |spec, i| {
        spec.agent(AgentSpec::command(format!("agent-{i}"), words.to_vec()).work_dir(dir))
    })
}
