//! The steps of the demo, each checked against what really happened.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::output::Output;
use crate::host::Opener;
use crate::model::Event;
use crate::ports::EventStream;
use crate::{City, RunningCity};

/// Longest time a step may take before the demo says that it did not happen.
const STEP_LIMIT: Duration = Duration::from_secs(15);

const CITY: &str = r#"# The demo's city: two agents that work and one that always fails.
[workspace]
name = "demo"

[session]
provider = "subprocess"

[daemon]
restart_delay = "300ms"
shutdown_timeout = "3s"

[[agent]]
name = "planner"
provider = "demo"

[[agent]]
name = "scout"
provider = "demo"

[[agent]]
name = "flaky"
provider = "demo"
args = ["--crash-after", "200ms", "--say", "no such model"]
max_restarts = 3
"#;

const ADDED: &str = r#"
[[agent]]
name = "auditor"
provider = "demo"
"#;

/// What the demo saw.
#[derive(Debug, Serialize)]
pub(super) struct Seen {
    agents_started: usize,
    killed_pid: u32,
    replacement_pid: u32,
    replaced_after_ms: f64,
    quarantined_after_starts: u64,
    quarantined_until: String,
    edit_applied_after_ms: f64,
    agents_stopped: usize,
    processes_left: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "what you saw:")?;
        writeln!(f, "  {} agents started", self.agents_started)?;
        writeln!(
            f,
            "  pid {} killed with SIGKILL, pid {} in its place after {:.1} ms, no polling involved",
            self.killed_pid, self.replacement_pid, self.replaced_after_ms
        )?;
        writeln!(
            f,
            "  a crash loop quarantined after {} starts, until {}",
            self.quarantined_after_starts, self.quarantined_until
        )?;
        writeln!(
            f,
            "  a config edit applied {:.0} ms after the save, other agents untouched",
            self.edit_applied_after_ms
        )?;
        write!(
            f,
            "  {} agents stopped, {} processes left",
            self.agents_stopped, self.processes_left
        )
    }
}

pub(super) struct Story {
    root: PathBuf,
    out: Output,
    pause: Duration,
    unheard: AtomicBool,
}

impl Story {
    pub(super) fn new(place: &Path, out: Output, pause: Duration) -> Self {
        Self {
            root: place.join("demo"),
            out,
            pause,
            unheard: AtomicBool::new(false),
        }
    }

    /// Whether the audience left before the end: whoever read the pipe had enough.
    pub(super) fn is_unheard(&self) -> bool {
        self.unheard.load(Ordering::Relaxed)
    }

    /// Tells the story; stops the city whatever happens, also on signals and closed pipes.
    pub(super) async fn tell(&self) -> CliResult<Seen> {
        fs::create_dir_all(&self.root)?;
        fs::write(self.root.join("city.toml"), CITY)?;
        self.say(
            "a city is a directory with a city.toml; this one declares planner, scout and flaky",
        )?;
        let home = self.root.join("home");
        let city = City::open_with(&self.root, &Opener::new(Some(home)))
            .await
            .map_err(failed)?
            .running_as("demo", env!("CARGO_PKG_VERSION"));
        let city = city.spawn().await.map_err(failed)?;
        let mut events = city.subscribe();
        let told = tokio::select! {
            told = self.steps(&city, &mut events) => told,
            ended = told_to_end() => Err(ended),
        };
        let pids = pids(&city).await;
        let summary = city.stop().await.map_err(failed)?;
        let mut seen = told?;
        seen.agents_stopped = summary.interrupted;
        seen.processes_left = pids.iter().filter(|pid| is_alive(**pid)).count();
        self.say(&format!(
            "stopped: {} agents, all gone",
            summary.interrupted
        ))?;
        if seen.processes_left > 0 {
            return Err(did_not("every process to be gone"));
        }
        Ok(seen)
    }

    async fn steps(&self, city: &RunningCity, events: &mut EventStream) -> CliResult<Seen> {
        let agents_started = city.status().await.map_err(failed)?.instances.len();
        self.say(&format!("{agents_started} agents are up:"))?;
        self.show(city).await?;

        let killed_pid = self.pid(city, "planner").await?;
        self.say(&format!(
            "kill -9 {killed_pid}   # the planner dies without a word"
        ))?;
        let (replacement_pid, took) = self.replacement(events, killed_pid).await?;
        let replaced_after_ms = took.as_secs_f64() * 1e3;
        self.say(&format!(
            "the planner is back after {replaced_after_ms:.1} ms as pid {replacement_pid}"
        ))?;

        self.say("flaky dies 200 ms after every start; three times are enough")?;
        let quarantined = self.quarantine(city, events).await?;
        self.show(city).await?;

        self.say("save city.toml with one more agent, auditor; nobody runs a command")?;
        let saved = Instant::now();
        fs::write(self.root.join("city.toml"), format!("{CITY}{ADDED}"))?;
        self.wait(events, "agent.started", "auditor").await?;
        let edit_applied_after_ms = saved.elapsed().as_secs_f64() * 1e3;
        let untouched = self.pid(city, "planner").await? == replacement_pid;
        if !untouched {
            return Err(did_not("the edit to leave the planner alone"));
        }
        self.show(city).await?;

        Ok(Seen {
            agents_started,
            killed_pid,
            replacement_pid,
            replaced_after_ms,
            quarantined_after_starts: quarantined.payload["restarts"].as_u64().unwrap_or_default(),
            quarantined_until: quarantined.payload["until"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            edit_applied_after_ms,
            agents_stopped: 0,
            processes_left: 0,
        })
    }

    /// Kills the process and waits for the run that follows.
    async fn replacement(&self, events: &mut EventStream, pid: u32) -> CliResult<(u32, Duration)> {
        let killed = Instant::now();
        kill(pid)?;
        self.wait(events, "agent.crashed", "planner").await?;
        let started = self.wait(events, "agent.started", "planner").await?;
        let took = killed.elapsed();
        let pid = started.payload["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok());
        Ok((
            pid.ok_or_else(|| did_not("the replacement to have a pid"))?,
            took,
        ))
    }

    /// Waits for the quarantine, which may have come before anybody listened.
    async fn quarantine(&self, city: &RunningCity, events: &mut EventStream) -> CliResult<Event> {
        let past = city.events(0, usize::MAX).await.map_err(failed)?;
        let past = past
            .into_iter()
            .find(|event| event.kind == "agent.quarantined");
        match past {
            Some(event) => Ok(event),
            None => self.wait(events, "agent.quarantined", "flaky").await,
        }
    }

    async fn wait(&self, events: &mut EventStream, kind: &str, subject: &str) -> CliResult<Event> {
        let found = async {
            loop {
                match events.recv().await {
                    Ok(event) if event.kind == kind && event.subject == subject => {
                        return Some((*event).clone());
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        };
        let found = tokio::time::timeout(STEP_LIMIT, found).await.ok().flatten();
        found.ok_or_else(|| did_not(&format!("{kind} of {subject}")))
    }

    async fn pid(&self, city: &RunningCity, agent: &str) -> CliResult<u32> {
        let view = city.status().await.map_err(failed)?;
        let instance = view
            .instances
            .iter()
            .find(|i| i.qualified_name.as_str() == agent);
        instance
            .and_then(|i| i.pid)
            .ok_or_else(|| did_not(&format!("{agent} to run")))
    }

    async fn show(&self, city: &RunningCity) -> CliResult {
        self.print(&city.tree().await.map_err(failed)?.to_string())?;
        tokio::time::sleep(self.pause).await;
        Ok(())
    }

    fn say(&self, text: &str) -> CliResult {
        self.print(&format!("→ {text}"))
    }

    fn print(&self, text: &str) -> CliResult {
        if self.out.json || self.out.quiet {
            return Ok(());
        }
        match self.out.try_line(text) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.unheard.store(true, Ordering::Relaxed);
                Err(CliError::new(Code::Interrupted, "nobody reads on"))
            }
            result => Ok(result?),
        }
    }
}

/// Ctrl-C, a polite kill or a closed terminal: the agents must not outlive the show.
async fn told_to_end() -> CliError {
    let (Ok(mut terminate), Ok(mut hangup)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    ) else {
        return CliError::new(Code::Internal, "signals cannot be watched");
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => return CliError::new(Code::Terminated, "terminated"),
        _ = hangup.recv() => {}
    }
    CliError::new(Code::Interrupted, "interrupted")
}

async fn pids(city: &RunningCity) -> Vec<u32> {
    let view = city.status().await;
    view.map(|view| view.instances.iter().filter_map(|i| i.pid).collect())
        .unwrap_or_default()
}

fn kill(pid: u32) -> CliResult {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| did_not("a pid that can be killed"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(std::io::Error::from)?;
    Ok(pidfd_send_signal(pidfd, Signal::KILL).map_err(std::io::Error::from)?)
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

fn failed(error: impl fmt::Display) -> CliError {
    CliError::new(Code::Failed, error.to_string())
}

fn did_not(what: &str) -> CliError {
    CliError::new(
        Code::Failed,
        format!("waited for {what}, and it did not happen"),
    )
    .hint("gc demo --keep, then look at demo/.gc/events.jsonl there")
}
