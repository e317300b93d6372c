//! Agents of a supervisor that was killed, taken over by the next one.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use gascity::City;

use crate::start;

const AGENTS: usize = 1000;
const ROUNDS: usize = 5;

/// First argument that makes this program a supervisor of the city in the directory that follows.
pub(crate) const MODE: &str = "--supervisor";

pub(crate) fn measure() {
    println!(
        "adoption: {AGENTS} agents of a supervisor killed by SIGKILL, until the next one has all, \
         {ROUNDS} rounds"
    );
    let dir = tempfile::tempdir().unwrap();
    let (mut supervisor, took) = next(dir.path());
    println!("  (started in {took} ms)");
    for round in 1..=ROUNDS {
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        let (successor, took) = next(dir.path());
        println!("  round {round}: {took} ms");
        supervisor = successor;
    }
    drop(supervisor.stdin.take());
    supervisor.wait().unwrap();
}

/// A supervisor that has all its agents, and how long that took it.
fn next(dir: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(MODE)
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut took = String::new();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    told.read_line(&mut took).unwrap();
    (child, took.trim_end().to_owned())
}

/// Brings the city up, tells how many milliseconds that took, and stops it at the end of its input.
pub(crate) fn supervise(dir: &str) {
    let words = ["/bin/sleep".to_owned(), "600".to_owned()];
    let spec = start::spec(Path::new(dir), AGENTS, &words).build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let city = City::from_spec(spec).spawn().await.unwrap();
        let took = began.elapsed();
        let instances = city.status().await.unwrap().instances;
        assert_eq!(instances.iter().filter(|i| i.running).count(), AGENTS);
        println!("{:.0}", took.as_secs_f64() * 1e3);
        let input = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(input).await.unwrap().unwrap();
        city.stop().await.unwrap();
    });
}
