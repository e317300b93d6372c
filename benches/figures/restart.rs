//! Crash to the replacement's first instruction.

use std::sync::mpsc;
use std::time::Duration;

use gascity::City;
use gascity::model::{AgentSpec, CitySpec};
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{Births, now};
use crate::{floor, median};

const ROUNDS: usize = 5;
const KILLS: usize = 200;

pub(crate) fn measure() {
    println!(
        "restart: SIGKILL to the replacement's first instruction, median of {KILLS}, {ROUNDS} rounds"
    );
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let bare = median(&mut floor_samples());
        let city = median(&mut city_samples());
        println!(
            "  round {round}: floor {bare:.0} us, city {city:.0} us, ratio {:.2}",
            city / bare
        );
        ratios.push((city / bare * 1000.0) as u64);
    }
    println!("  median ratio {:.2}", median(&mut ratios));
}

fn floor_samples() -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let mut births = Births::new(dir.path());
    let words = births.command();
    let (stop, stopped) = mpsc::channel();
    let log = floor::log(dir.path());
    let supervisor = std::thread::spawn(move || {
        loop {
            let mut child = floor::spawn(&words, &log);
            floor::wait(&mut child);
            if stopped.try_recv().is_ok() {
                return;
            }
        }
    });
    let samples = kill_and_time(&mut births);
    let (last, _) = births.next();
    stop.send(()).unwrap();
    kill(last);
    supervisor.join().unwrap();
    samples
}

fn city_samples() -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let births = Births::new(dir.path());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let agent = AgentSpec::command("agent", births.command())
            .work_dir(dir.path())
            .max_restarts(0, Duration::from_secs(3600));
        let spec = CitySpec::builder("bench")
            .root(dir.path().canonicalize().unwrap())
            .provider("subprocess")
            .daemon(|d| {
                d.patrol_interval = Duration::from_secs(3600);
                d.restart_delay = Duration::ZERO;
            })
            .agent(agent);
        let city = City::from_spec(spec.build().unwrap())
            .spawn()
            .await
            .unwrap();
        let timed = tokio::task::spawn_blocking(move || {
            let mut births = births;
            let samples = kill_and_time(&mut births);
            births.next();
            samples
        });
        let samples = timed.await.unwrap();
        city.stop().await.unwrap();
        samples
    })
}

/// Kills each agent as soon as it is alive; the time to the next one's first instruction.
fn kill_and_time(births: &mut Births) -> Vec<u64> {
    let (mut pid, _) = births.next();
    let mut samples = Vec::with_capacity(KILLS);
    for i in 0..KILLS {
        let killed = now();
        kill(pid);
        if i + 1 == KILLS {
            break; // the last one is the caller's
        }
        let (next, born) = births.next();
        samples.push(born - killed);
        pid = next;
    }
    samples
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}
