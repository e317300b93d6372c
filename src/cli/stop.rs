//! `gc stop`, `gc unregister`: taking a city down.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::city_name::city_name;
use super::context::{Context, Seat, read};
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::interrupt;
use super::output::Mark;
use super::progress::Progress;
use super::query::{Phase, Want, city_status, wait};
use super::start::names;
use super::values::{count, millis, seconds};
use crate::config;
use crate::control::client::Client;
use crate::control::home::CityDir;
use crate::control::lock;
use crate::control::registry::Change;
use crate::host::Opener;
use crate::model::{CityStatus, StopSummary};

/// Longer than any sensible `shutdown_timeout`; the supervisor ends a stop by itself.
const STOP_LIMIT: Duration = Duration::from_secs(3600);

/// The longest reconcile that is waited for.
pub(super) const RELOAD_LIMIT: Duration = Duration::from_secs(300);

/// How long a process may take from its last word to the end.
pub(super) const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Arguments of `gc stop`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc stop\n  gc stop bright-lights\n  gc stop --force")]
pub(super) struct StopArgs {
    /// The city's directory, or its registered name
    path: Option<String>,
    /// Kill the agents without asking them to leave first
    #[arg(long)]
    force: bool,
    /// Return while the agents are still stopping
    #[arg(long)]
    no_wait: bool,
}

impl StopArgs {
    /// Stops the city and its agents.
    ///
    /// # Errors
    /// If it cannot be stopped. A city that does not run is no error.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.city(self.path.as_deref(), Access::Change)?;
        let city = label(context, &root);
        if self.no_wait {
            begin_stop(context, &root, self.force)?;
            if context.out.json {
                let document = json!({"city": city, "stopping": true});
                context.out.document(&document)?;
            }
            context
                .out
                .report(Mark::Done, format!("{city} is stopping"))?;
            return Ok(0);
        }
        match stop(context, &root, self.force)? {
            Some(stopped) if !context.out.json => stopped.report(context)?,
            Some(stopped) => context.out.document(&stopped.json())?,
            None if context.out.json => context.out.document(
                &json!({"city": city, "interrupted": 0, "killed": [], "elapsed_ms": 0}),
            )?,
            None => {
                let text = format!("{city} is not registered; nothing to stop");
                context.out.report(Mark::Done, text)?;
            }
        }
        Ok(0)
    }
}

/// Arguments of `gc unregister`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc unregister\n  gc unregister ~/deleted-city")]
pub(super) struct UnregisterArgs {
    /// The city's directory, or its registered name
    path: Option<String>,
}

impl UnregisterArgs {
    /// Takes the city out of the registry and waits until it is stopped.
    ///
    /// # Errors
    /// If the registry cannot be written or the city does not stop.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.city(self.path.as_deref(), Access::Change)?;
        let name = label(context, &root);
        let stopped = stop(context, &root, false)?;
        let agents = stopped.as_ref().map_or(0, Stopped::agents);
        if context.out.json {
            let document = json!({"name": name, "path": root, "stopped": agents});
            context.out.document(&document)?;
        } else if stopped.is_some() {
            let text = format!("unregistered, {} stopped", count(agents, "agent"));
            context.out.report(Mark::Done, text)?;
        } else {
            let text = format!("{name} is not registered");
            context.out.report(Mark::Done, text)?;
        }
        Ok(0)
    }
}

/// A city that was stopped.
#[derive(Debug)]
pub(super) struct Stopped {
    city: String,
    summary: StopSummary,
    took: Duration,
}

impl Stopped {
    fn agents(&self) -> usize {
        agents_stopped(&self.summary)
    }

    fn json(&self) -> Value {
        let StopSummary {
            interrupted,
            killed,
        } = &self.summary;
        let took = millis(self.took);
        json!({"city": self.city, "interrupted": interrupted, "killed": killed, "elapsed_ms": took})
    }

    /// Says how it went; the JSON form is the caller's affair.
    pub(super) fn report(&self, context: &Context) -> CliResult {
        report_killed(context, &self.summary)?;
        let text = match self.agents() {
            0 => format!("{} stopped ({})", self.city, seconds(self.took)),
            n => format!(
                "{} stopped: {} ({})",
                self.city,
                count(n, "agent"),
                seconds(self.took)
            ),
        };
        context.out.report(Mark::Done, text)
    }
}

/// How many agents were stopped. Killed ones may have been asked to leave before.
pub(super) fn agents_stopped(summary: &StopSummary) -> usize {
    summary.interrupted.max(summary.killed.len())
}

/// Names the agents that did not leave when asked.
pub(super) fn report_killed(context: &Context, summary: &StopSummary) -> CliResult {
    if summary.killed.is_empty() {
        return Ok(());
    }
    let killed: Vec<&str> = summary.killed.iter().map(|name| name.as_str()).collect();
    let text = format!("force-killed {}", killed.join(", "));
    context.out.report(Mark::Warn, text)
}

/// Takes the city out of the registry, stops it wherever it runs and waits for the end; `None` if
/// it neither ran nor was registered.
pub(super) fn stop(context: &Context, root: &Path, force: bool) -> CliResult<Option<Stopped>> {
    let mut progress = Progress::new(context.out);
    let city = label(context, root);
    interrupt::watching("no longer watching; the city goes on stopping (gc status)");
    let seat = context.seat(root)?; // first: whoever refuses us keeps the registry as it is
    let registered = unregister(context, root)?;
    let summary = match seat {
        Seat::Standalone(client) => {
            let summary = stop_server(client, mode(force), &mut progress)?;
            lock::wait_free(&CityDir::new(root).lock(), LOCK_LIMIT)?;
            Some(summary)
        }
        Seat::Supervisor(mut client) => {
            follow_registry(&mut client, root, force)?;
            let known = city_status(&mut client, root)?;
            let stopping = known.is_some_and(|state| state.city.status != CityStatus::Stopped);
            if registered || stopping {
                Some(wait_stopped(client, root, &city, &mut progress)?)
            } else {
                None
            }
        }
        Seat::Nobody => {
            let swept = sweep_sessions(context, root)?;
            (registered || swept != StopSummary::default()).then_some(swept)
        }
    };
    let took = progress.elapsed();
    Ok(summary.map(|summary| Stopped {
        city,
        summary,
        took,
    }))
}

/// The same without the wait.
fn begin_stop(context: &Context, root: &Path, force: bool) -> CliResult {
    let seat = context.seat(root)?;
    unregister(context, root)?;
    match seat {
        Seat::Standalone(mut client) => {
            client.call("stop", json!({"mode": mode(force)}))?;
        }
        Seat::Supervisor(mut client) => follow_registry(&mut client, root, force)?,
        Seat::Nobody => {
            sweep_sessions(context, root)?;
        }
    }
    Ok(())
}

/// Ends the sessions that a supervisor left behind when it died.
fn sweep_sessions(context: &Context, root: &Path) -> CliResult<StopSummary> {
    let Ok(root) = root.canonicalize() else {
        return Ok(StopSummary::default()); // a city whose directory is gone has no marks left
    };
    if !CityDir::new(&root).state_dir().exists() {
        return Ok(StopSummary::default());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let opener = Opener::new(Some(context.home()?.dir().to_owned()));
    Ok(runtime.block_on(opener.stop_leftovers(&root))?)
}

fn unregister(context: &Context, root: &Path) -> CliResult<bool> {
    let registry = context.registry()?;
    // Without a file there is nothing to take out, and maybe no directory to write in.
    if !registry.file().exists() {
        return Ok(false);
    }
    Ok(registry.unregister(root)? == Change::Removed)
}

/// The supervisor finds that the city is no longer registered and begins to stop it.
fn follow_registry(client: &mut Client, root: &Path, force: bool) -> CliResult {
    let mut params = json!({"wait": true});
    if force {
        params["force"] = json!([root]);
    }
    client.call_within("reload", params, Some(RELOAD_LIMIT))?;
    Ok(())
}

fn wait_stopped(
    client: Client,
    root: &Path,
    city: &str,
    progress: &mut Progress,
) -> CliResult<StopSummary> {
    let grace = config::load(root).map(|loaded| loaded.spec.daemon.shutdown_timeout);
    let grace = grace.ok();
    let phase = wait(client, root, Want::Stopped, STOP_LIMIT, |phase| {
        if phase.status == CityStatus::Stopping {
            tell(progress, phase, grace);
        }
    })?;
    progress.clear();
    match phase {
        // A supervisor that forgot the city has nothing left of it.
        None => Ok(StopSummary::default()),
        Some(phase) if phase.status == CityStatus::Stopping => Err(CliError::new(
            Code::Timeout,
            format!("{city} is still stopping"),
        )
        .hint("gc stop --force")),
        Some(phase) => Ok(phase.stopped.unwrap_or_default()),
    }
}

/// Who is left, and how long they may stay.
fn tell(progress: &mut Progress, phase: &Phase, grace: Option<Duration>) {
    if phase.starting.is_empty() {
        return progress.now("stopping", "");
    }
    let left = format!("{} left: {}", phase.starting.len(), names(&phase.starting));
    let what = match grace.map(|grace| grace.as_secs()) {
        Some(limit) if phase.waited_sec <= limit => {
            format!("waiting {}s of {limit}s", phase.waited_sec)
        }
        Some(_) => "force-stopping".to_owned(),
        None => "stopping".to_owned(),
    };
    progress.now(&what, &left);
}

/// Stops a whole server, standalone or supervisor, and waits for its last word.
pub(super) fn stop_server(
    client: Client,
    mode: &str,
    progress: &mut Progress,
) -> CliResult<StopSummary> {
    let mut summary = StopSummary::default();
    let params = json!({"mode": mode, "wait": true});
    for item in client.stream("stop", params, Some(STOP_LIMIT))? {
        let item = item?;
        if item.get("stopping").is_some() {
            let cities = item["cities"].as_array().into_iter().flatten();
            let cities: Vec<&str> = cities.filter_map(Value::as_str).collect();
            if !cities.is_empty() {
                progress.now("stopping", &cities.join(", "));
            }
        } else {
            summary = read(item)?;
        }
    }
    progress.clear();
    Ok(summary)
}

fn mode(force: bool) -> &'static str {
    if force { "force" } else { "graceful" }
}

/// What to call the city, also when its directory is gone.
fn label(context: &Context, root: &Path) -> String {
    let registered = context.registered().unwrap_or_default();
    let entry = registered.into_iter().find(|city| city.path == root);
    match (entry, city_name(root)) {
        (Some(entry), _) => entry.name.to_string(),
        (None, Ok(name)) => name.to_string(),
        (None, Err(_)) => root.display().to_string(),
    }
}
