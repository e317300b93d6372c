//! Start of a thousand agents.

use std::time::{Duration, Instant};

use gascity::City;
use gascity::model::{AgentSpec, CitySpec};

use crate::floor;

const AGENTS: usize = 1000;
const ROUNDS: usize = 3;

pub(crate) fn measure() {
    println!("start: {AGENTS} agents (sleep), all started, {ROUNDS} rounds");
    let words = ["/bin/sleep".to_owned(), "600".to_owned()];
    for round in 1..=ROUNDS {
        let (bare, city) = (floor_time(&words), city_time(&words));
        println!(
            "  round {round}: floor {:.0} ms, city {:.0} ms, ratio {:.2}",
            bare.as_secs_f64() * 1e3,
            city.as_secs_f64() * 1e3,
            city.as_secs_f64() / bare.as_secs_f64()
        );
    }
}

fn floor_time(words: &[String]) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let log = floor::log(dir.path());
    let began = Instant::now();
    let children: Vec<_> = (0..AGENTS).map(|_| floor::spawn(words, &log)).collect();
    let took = began.elapsed();
    for mut child in children {
        child.kill().unwrap();
        floor::wait(&mut child);
    }
    took
}

fn city_time(words: &[String]) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut spec = CitySpec::builder("bench")
            .root(dir.path().canonicalize().unwrap())
            .provider("subprocess")
            .daemon(|d| {
                d.patrol_interval = Duration::from_secs(3600);
                d.shutdown_timeout = Duration::ZERO;
            });
        for i in 0..AGENTS {
            let agent =
                AgentSpec::command(format!("agent-{i}"), words.to_vec()).work_dir(dir.path());
            spec = spec.agent(agent);
        }
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
        assert_eq!(running, AGENTS);
        let stopping = Instant::now();
        city.stop().await.unwrap();
        println!(
            "  (stopped in {:.0} ms)",
            stopping.elapsed().as_secs_f64() * 1e3
        );
        took
    })
}
