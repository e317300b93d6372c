//! What a command costs, against the least a Rust program costs: one that says hello.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::median;

const RUNS: usize = 60;
const AGENTS: usize = 1000;
const CITIES: usize = 20;

pub(crate) fn measure() {
    println!("commands: wall time, median of {RUNS} runs, all in turn");
    let dir = tempfile::tempdir().unwrap();
    let place = Place {
        home: dir.path().join("home"),
        dir: dir.path().to_owned(),
    };
    let hello = hello(dir.path());
    let few = place.city("few", &agents(2));
    let many = place.city("many", &agents(AGENTS));
    for city in [&few, &many] {
        place.run(city, &["start", "-q"]);
    }
    let lines: [(&str, &Path, &[&str]); 5] = [
        ("gc --help", &few, &["--help"]),
        ("gc version", &few, &["version"]),
        ("gc status, 2 agents", &few, &["status"]),
        ("gc status, 1,000 agents", &many, &["status"]),
        (
            "gc status --json, 1,000 agents",
            &many,
            &["status", "--json"],
        ),
    ];
    let mut floor = Vec::new();
    let mut samples = vec![Vec::new(); lines.len()];
    for _ in 0..RUNS {
        floor.push(time(Command::new(&hello).stdout(Stdio::null())));
        for ((_, city, args), samples) in lines.iter().zip(&mut samples) {
            samples.push(time(&mut place.command(city, args)));
        }
    }
    let floor = median(&mut floor);
    println!("  {:<32} {:>7.2} ms", "hello", floor / 1e3);
    for ((name, ..), samples) in lines.iter().zip(&mut samples) {
        let took = median(samples);
        println!(
            "  {name:<32} {:>7.2} ms, ratio {:.2}",
            took / 1e3,
            took / floor
        );
    }
    place.run(&few, &["supervisor", "stop", "-q"]);
    ready(&place);
}

/// From the start of the supervisor until it is ready, and until all its cities run.
fn ready(place: &Place) {
    for cities in [0, CITIES] {
        let roots: Vec<PathBuf> = (0..cities)
            .map(|n| place.city(&format!("c{n}"), &agents(1)))
            .collect();
        let entry = |root: &PathBuf| format!("[[cities]]\npath = {:?}\n", root.to_str().unwrap());
        let registry: String = roots.iter().map(entry).collect();
        fs::write(place.home.join("cities.toml"), registry).unwrap();
        let (mut starts, mut alls) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let began = Instant::now();
            place.run(&place.dir, &["supervisor", "start", "-q"]);
            starts.push(nanos(began.elapsed()));
            while !place.all_running(cities) {
                std::thread::sleep(Duration::from_millis(1));
            }
            alls.push(nanos(began.elapsed()));
            place.run(&place.dir, &["supervisor", "stop", "-q"]);
        }
        println!(
            "  supervisor start, {cities} cities: ready after {:.1} ms, all running after {:.1} ms",
            median(&mut starts) / 1e3,
            median(&mut alls) / 1e3
        );
    }
}

struct Place {
    dir: PathBuf,
    home: PathBuf,
}

impl Place {
    fn city(&self, name: &str, toml: &str) -> PathBuf {
        let root = self.dir.join(name);
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("city.toml"), toml).unwrap();
        root.canonicalize().unwrap()
    }

    fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gc"));
        command
            .args(args)
            .current_dir(dir)
            .env("GC_HOME", &self.home)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn run(&self, dir: &Path, args: &[&str]) {
        assert!(
            self.command(dir, args).status().unwrap().success(),
            "{args:?}"
        );
    }

    fn all_running(&self, cities: usize) -> bool {
        let mut command = self.command(&self.dir, &["cities", "--json"]);
        let said = command.stdout(Stdio::piped()).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        let items = said["items"].as_array().cloned().unwrap_or_default();
        items.len() == cities && items.iter().all(|city| city["status"] == "running")
    }
}

/// Sessions in memory: only the commands are to cost something.
fn agents(count: usize) -> String {
    let mut toml =
        "[daemon]\npatrol_interval = \"1h\"\n[session]\nprovider = \"fake\"\n".to_owned();
    for n in 0..count {
        toml.push_str(&format!(
            "[[agent]]\nname = \"a{n}\"\nstart_command = \"x\"\n"
        ));
    }
    toml
}

/// The smallest program there is, compiled here and now.
fn hello(dir: &Path) -> PathBuf {
    let source = dir.join("hello.rs");
    fs::write(&source, "fn main() { println!(\"hello\"); }").unwrap();
    let program = dir.join("hello");
    let compiled = Command::new("rustc")
        .args(["-O", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(compiled.unwrap().success());
    program
}

fn time(command: &mut Command) -> u64 {
    let began = Instant::now();
    let status = command.status().unwrap();
    let took = nanos(began.elapsed());
    assert!(status.success());
    took
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
