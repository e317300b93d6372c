//! The supervisor at rest: memory with 0, 100 and 1,000 agents, CPU and wake-ups at 1,000.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::{cpu_ticks, pss, wakeups};

const GC: &str = env!("CARGO_BIN_EXE_gc");
const IDLE: Duration = Duration::from_secs(30);

pub(crate) fn measure() {
    println!("resident: PSS of the supervisor with agents running");
    for agents in [0, 100, 1000] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write_city(&root, agents);
        let mut supervisor = run(&root, agents);
        let pid = supervisor.id();
        println!("  {agents:>4} agents: {} KiB", pss(pid));
        if agents == 1000 {
            let (cpu, wakes) = (cpu_ticks(pid), wakeups(pid));
            std::thread::sleep(IDLE);
            println!(
                "  idle for {IDLE:?} with {agents} agents, patrol_interval 1h: {} ms CPU, {} wake-ups",
                (cpu_ticks(pid) - cpu) * 10,
                wakeups(pid) - wakes
            );
        }
        stop(&root, &mut supervisor);
    }
}

fn write_city(root: &Path, agents: usize) {
    let mut toml = "[workspace]\nname = \"bench\"\n[daemon]\npatrol_interval = \"1h\"\nshutdown_timeout = \"0s\"\n[session]\nprovider = \"subprocess\"\n".to_owned();
    for i in 0..agents {
        writeln!(
            toml,
            "[[agent]]\nname = \"agent-{i}\"\nstart_command = \"sleep 600\""
        )
        .unwrap();
    }
    fs::write(root.join("city.toml"), toml).unwrap();
}

/// A standalone supervisor with all its agents up.
fn run(root: &Path, agents: usize) -> Child {
    let mut supervisor = gc(root, &["start", "--standalone"]).spawn().unwrap();
    for _ in 0..6000 {
        let status = gc(root, &["status", "--json"])
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let running = status["instances"].as_array().map_or(0, |instances| {
            instances
                .iter()
                .filter(|instance| instance["running"] == true)
                .count()
        });
        if status["controller"]["running"] == true && running == agents {
            return supervisor;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    panic!("the city did not come up");
}

fn stop(root: &Path, supervisor: &mut Child) {
    gc(root, &["stop"]).status().unwrap();
    supervisor.wait().unwrap();
}

fn gc(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(GC);
    command
        .args(args)
        .current_dir(root)
        .env("GC_HOME", root.join("home"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
