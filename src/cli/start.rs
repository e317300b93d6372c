//! `gc start`, `gc register`, `gc restart`: bringing a city up.

mod dry_run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::city_name::city_name;
use super::context::Context;
use super::discover::Access;
use super::ensure::{Ensured, ensure};
use super::error::{CliError, CliResult, Code};
use super::interrupt;
use super::output::Mark;
use super::progress::Progress;
use super::query::{CityState, Phase, Want, city_status, wait};
use super::status::text::{agent_counts, note, plain_word};
use super::stop::{self, RELOAD_LIMIT};
use super::values::{count, millis, seconds};
use crate::config::duration;
use crate::control::home::CityDir;
use crate::control::inherited::leave_session;
use crate::control::lock::{self, Held};
use crate::control::registry::Change;
use crate::daemon;
use crate::model::{AgentState, CityName, CityStatus, InstanceView};

/// Arguments of `gc start`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc start\n  gc start ~/bright-lights --timeout 5m\n  gc start --dry-run         # what would run, in which order\n  gc start --standalone      # in this terminal, without a supervisor"
)]
pub(super) struct StartArgs {
    /// The city's directory, or its registered name
    path: Option<String>,
    /// Return as soon as the supervisor knows the city
    #[arg(long)]
    no_wait: bool,
    /// How long to wait for the agents
    #[arg(long, value_name = "TIME", default_value = "180s", value_parser = duration::parse)]
    timeout: Duration,
    /// Run this city alone, in this terminal, until Ctrl-C
    #[arg(long, visible_alias = "foreground", conflicts_with = "no_wait")]
    standalone: bool,
    /// Only say what would be started
    #[arg(short = 'n', long, conflicts_with_all = ["standalone", "no_wait"])]
    dry_run: bool,
}

/// How long agents may take to come up, unless told otherwise.
const WAIT: Duration = Duration::from_secs(180);

impl StartArgs {
    /// The plain start of the city at `path`.
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: Some(path.to_string_lossy().into_owned()),
            no_wait: false,
            timeout: WAIT,
            standalone: false,
            dry_run: false,
        }
    }

    /// Whether the command becomes a controller, which has a log of its own.
    #[must_use]
    pub(super) fn is_standalone(&self) -> bool {
        self.standalone
    }

    /// Starts the city.
    ///
    /// # Errors
    /// If it cannot be started, or an agent of it cannot.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(self.path.as_deref(), Access::Change)?;
        if self.dry_run {
            return dry_run::run(context, &root, true);
        }
        if self.standalone {
            leave_session(Some(&root))?;
            return standalone(context, &root);
        }
        self.supervised(context, root)
    }

    /// Stops the city if it runs, then starts it: a config that needs a restart takes effect, the
    /// supervisor stays.
    ///
    /// # Errors
    /// As for stop and start.
    pub(super) fn run_again(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(self.path.as_deref(), Access::Change)?;
        if self.dry_run {
            return dry_run::run(context, &root, false);
        }
        if self.standalone {
            leave_session(Some(&root))?;
            stop::stop(context, &root, false)?;
            return standalone(context, &root);
        }
        refuse_standalone(context, &root)?;
        city_name(&root)?; // a config that cannot be read must not take a running city down
        if let Some(stopped) = stop::stop(context, &root, false)? {
            stopped.report(context)?;
        }
        self.supervised(context, root)
    }

    fn supervised(&self, context: &Context, root: PathBuf) -> CliResult<u8> {
        let limit = (!self.no_wait).then_some(self.timeout);
        let up = bring_up(context, root, limit)?;
        let instances = up.instances();
        if context.out.json {
            context.out.document(&json!({
                "city": up.name,
                "registered": up.added,
                "supervisor_pid": up.pid,
                "instances": instances,
                "elapsed_ms": millis(up.took),
            }))?;
        } else if up.state.is_none() {
            let text = format!("{} is registered; it starts in the background", up.name);
            context.out.report(Mark::Done, text)?;
        } else if troubled(instances).is_empty() {
            context.out.report(Mark::Done, up.summary())?;
        }
        agents_are_up(&up.name, instances)?;
        Ok(0)
    }
}

/// Arguments of `gc register`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc register\n  gc register ~/bright-lights --no-wait")]
pub(super) struct RegisterArgs {
    /// The city's directory
    path: Option<String>,
    /// Return as soon as the supervisor knows the city
    #[arg(long)]
    no_wait: bool,
}

impl RegisterArgs {
    /// Registers the city and waits until it runs.
    ///
    /// # Errors
    /// If it does not come up; an entry this command made is taken back then.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.existing_city(self.path.as_deref(), Access::Change)?;
        let limit = (!self.no_wait).then_some(Duration::from_secs(180));
        let up = bring_up(context, root, limit)?;
        if context.out.json {
            let mut document = match &up.state {
                Some(state) => serde_json::to_value(&state.city).unwrap_or_default(),
                None => {
                    json!({"name": up.name, "path": up.root, "running": false, "status": "pending"})
                }
            };
            document["already"] = json!(!up.added);
            context.out.document(&document)?;
        } else {
            let already = if up.added { "" } else { "already " };
            let text = format!("{already}registered {}", up.name);
            context.out.report(Mark::Done, text)?;
        }
        Ok(0)
    }
}

/// A city that came up, or was only handed over.
struct Up {
    name: CityName,
    root: PathBuf,
    added: bool,
    already: bool,
    pid: u32,
    state: Option<CityState>,
    took: Duration,
}

impl Up {
    fn instances(&self) -> &[InstanceView] {
        let view = self.state.as_ref().and_then(|state| state.view.as_ref());
        view.map_or(&[], |view| &view.instances)
    }

    fn summary(&self) -> String {
        let already = if self.already { "already " } else { "" };
        let instances = self.instances();
        let running = |instance: &&InstanceView| instance.state == AgentState::Running;
        let agents = match instances.iter().filter(running).count() {
            0 if instances.is_empty() => "no agents".to_owned(),
            n if n == instances.len() => format!("{} running", count(n, "agent")),
            _ => agent_counts(instances),
        };
        let (name, took) = (&self.name, seconds(self.took));
        format!("{name} is {already}up: {agents} ({took})")
    }
}

/// Registers the city, makes sure of the supervisor, and waits for `limit` until it runs.
fn bring_up(context: &Context, root: PathBuf, limit: Option<Duration>) -> CliResult<Up> {
    refuse_standalone(context, &root)?;
    let name = city_name(&root)?;
    let mut progress = Progress::new(context.out);
    interrupt::watching("no longer watching; the city goes on starting (gc status)");
    context.supervisor()?; // one that refuses us must not find a changed registry
    context.home()?.create()?;
    let registry = context.registry()?;
    let change = registry.register(&root, &name)?;
    let added = change == Change::Added;
    let take_back = |error: CliError| {
        if added {
            // The failure is what matters; a leftover entry shows in `gc cities`.
            let _ = registry.unregister(&root);
        }
        error
    };
    let Ensured {
        mut client,
        started,
    } = ensure(context).map_err(take_back)?;
    let pid = client.hello().pid;
    if started {
        progress.step(Mark::Done, "supervisor", &format!("pid {pid}"));
    }
    client.call_within("reload", json!({"wait": true}), Some(RELOAD_LIMIT))?;
    let mut up = Up {
        name,
        root,
        added,
        already: false,
        pid,
        state: None,
        took: Duration::ZERO,
    };
    if let Some(limit) = limit {
        let mut first = true;
        let phase = wait(client, &up.root, Want::Running, limit, |phase| {
            let up_at_once = std::mem::take(&mut first) && phase.status == CityStatus::Running;
            up.already = up_at_once && !started && change == Change::None;
            tell(&mut progress, phase);
        })?;
        progress.clear();
        if let Err(error) = is_up(&up.name, phase.as_ref(), limit) {
            if added && error.code != Code::Timeout {
                let _ = registry.unregister(&up.root); // as in `take_back`
                if let Some(mut client) = context.supervisor()? {
                    client.call_within("reload", json!({"wait": true}), Some(RELOAD_LIMIT))?;
                }
            }
            return Err(error);
        }
        up.state = city_status(&mut context.running_supervisor()?, &up.root)?;
    }
    up.took = progress.elapsed();
    Ok(up)
}

fn tell(progress: &mut Progress, phase: &Phase) {
    match (phase.status, phase.agents) {
        (CityStatus::Running, _) => {}
        (_, Some(agents)) => {
            let what = format!("agents {}/{}", agents.running, agents.total);
            progress.now(&what, &names(&phase.starting));
        }
        (status, None) => progress.now(&plain_word(status.as_str()), &names(&phase.starting)),
    }
}

/// Some names, and how many more there are.
pub(super) fn names(all: &[String]) -> String {
    match all {
        [a, b, c, d, ..] if all.len() > 4 => {
            format!("{a}, {b}, {c}, {d} and {} more", all.len() - 4)
        }
        _ => all.join(", "),
    }
}

/// Whether the city runs after the wait.
fn is_up(name: &CityName, phase: Option<&Phase>, limit: Duration) -> CliResult {
    let Some(phase) = phase else {
        let message = format!("the supervisor does not know {name}");
        return Err(CliError::new(Code::Failed, message).hint("gc supervisor status"));
    };
    match phase.status {
        CityStatus::Running => Ok(()),
        CityStatus::InitFailed | CityStatus::Crashed | CityStatus::Stopped => {
            let word = plain_word(phase.status.as_str());
            let cause = phase.error.as_deref().unwrap_or_default();
            // Labelled diagnostics are the form of config errors, and of nothing else.
            let code = match cause.starts_with("error[") {
                true => Code::Config,
                false => Code::Failed,
            };
            let error = CliError::new(code, format!("{name} did not start: {word}"));
            Err(error.cause(cause).hint("mend the cause, then gc start"))
        }
        status => {
            let missing = match phase.starting.as_slice() {
                [] => plain_word(status.as_str()),
                starting => format!("still starting {}", names(starting)),
            };
            let message = format!("{name} is not up after {}: {missing}", seconds(limit));
            Err(CliError::new(Code::Timeout, message).hint("it goes on starting: gc status"))
        }
    }
}

fn troubled(instances: &[InstanceView]) -> Vec<&InstanceView> {
    let bad = |i: &&InstanceView| matches!(i.state, AgentState::Quarantined | AgentState::Backoff);
    instances.iter().filter(bad).collect()
}

fn agents_are_up(name: &CityName, instances: &[InstanceView]) -> CliResult {
    let troubled = troubled(instances);
    let Some(first) = troubled.first() else {
        return Ok(());
    };
    let (bad, all) = (troubled.len(), count(instances.len(), "agent"));
    let now = chrono::Utc::now();
    let mut error = CliError::new(
        Code::Failed,
        format!("{name} is up, but {bad} of {all} did not start"),
    );
    for agent in &troubled {
        let (who, state) = (&agent.qualified_name, agent.state.as_str());
        error = error.cause(format!("{who}: {state} {}", note(agent, now)));
    }
    Err(error.hint(format!("gc agent show {}", first.qualified_name)))
}

/// A city has one controller.
fn refuse_standalone(context: &Context, root: &Path) -> CliResult {
    let Some(client) = context.standalone(root)? else {
        return Ok(());
    };
    let pid = client.hello().pid;
    let message = format!("controller already running (pid {pid}), standalone");
    Err(CliError::new(Code::Conflict, message).hint("gc stop"))
}

fn standalone(context: &Context, root: &Path) -> CliResult<u8> {
    let lock = CityDir::new(root).lock();
    if let Ok(Held::By(holder)) = lock::holder(&lock) {
        let pid = holder.map(|holder| format!(" (pid {})", holder.pid));
        let message = format!("controller already running{}", pid.unwrap_or_default());
        return Err(CliError::new(Code::Conflict, message).hint("gc stop"));
    }
    let registered = context.registered()?.iter().any(|city| city.path == root);
    if registered && let Some(client) = context.supervisor()? {
        let pid = client.hello().pid;
        let message = format!("the city is registered with the running supervisor (pid {pid})");
        return Err(CliError::new(Code::Conflict, message).hint("gc unregister"));
    }
    daemon::standalone(root, &context.home()?, context.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(status: CityStatus, starting: &[&str]) -> Phase {
        Phase {
            status,
            error: Some("no such provider".into()),
            phases_completed: Vec::new(),
            next_retry_at: None,
            starting: starting.iter().map(|name| (*name).to_owned()).collect(),
            agents: None,
            stopped: None,
            waited_sec: 0,
        }
    }

    #[test]
    fn the_last_phase_decides_about_the_start() {
        let name = CityName::new("demo").unwrap();
        let limit = Duration::from_secs(180);
        let check = |phase: Option<Phase>| is_up(&name, phase.as_ref(), limit);
        assert_eq!(check(Some(phase(CityStatus::Running, &[]))), Ok(()));
        let failed = check(Some(phase(CityStatus::InitFailed, &[]))).unwrap_err();
        assert_eq!(failed.code, Code::Failed);
        assert_eq!(failed.causes, ["no such provider"]);
        let mut invalid = phase(CityStatus::InitFailed, &[]);
        invalid.error = Some("error[unknown-key]: `x` is not a key".into());
        assert_eq!(check(Some(invalid)).unwrap_err().code, Code::Config);
        let late = check(Some(phase(CityStatus::StartingAgents, &["a", "b"]))).unwrap_err();
        assert_eq!(late.code, Code::Timeout);
        assert_eq!(
            late.message,
            "demo is not up after 180.0s: still starting a, b"
        );
        assert!(check(None).is_err());
    }

    #[test]
    fn many_names_are_cut() {
        let all: Vec<String> = ('a'..='g').map(String::from).collect();
        assert_eq!(names(&all), "a, b, c, d and 3 more");
        assert_eq!(names(&all[..4]), "a, b, c, d");
    }
}
