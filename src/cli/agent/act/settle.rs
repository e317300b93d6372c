//! Waiting until restarted agents are up, or clearly are not.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Outcome;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::interrupt;
use crate::cli::query::city_status;
use crate::cli::status::text::note;
use crate::control::client::Client;
use crate::control::home::CityDir;
use crate::events::EventLog;
use crate::model::{AgentState, InstanceView};

/// Longer than any stop and start should take.
const LIMIT: Duration = Duration::from_secs(180);
/// Looks at least this often: not every change of state is an event.
const PACE: Duration = Duration::from_millis(200);

/// Follows those who were restarted until each is up or cannot be; `before` is how they were.
///
/// # Errors
/// If the supervisor leaves or does not answer.
pub(super) fn wait(
    client: &mut Client,
    root: &Path,
    before: &[InstanceView],
    outcomes: &mut [Outcome],
) -> CliResult {
    interrupt::watching("no longer watching; the agents go on restarting (gc agent list)");
    let log = EventLog::new(CityDir::new(root).state_dir());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let mut follower = log.follow(log.last_seq()?)?;
    let deadline = Instant::now() + LIMIT;
    let mut open: Vec<usize> = (0..outcomes.len())
        .filter(|at| outcomes[*at].done.is_ok())
        .collect();
    loop {
        let view = city_status(client, root)?.and_then(|state| state.view);
        let now = view.map(|view| view.instances).unwrap_or_default();
        open.retain(|at| {
            let Some((name, _)) = outcomes[*at].agent.clone() else {
                return false;
            };
            let find = |all: &[InstanceView]| {
                all.iter()
                    .find(|agent| agent.qualified_name == name)
                    .cloned()
            };
            let runs = find(before).map_or(0, |agent| agent.generation);
            let verdict = match find(&now) {
                Some(agent) => settled(&agent, runs),
                None => Some(Err(CliError::new(Code::Failed, format!("{name} is gone")))),
            };
            let late = Instant::now() >= deadline;
            match verdict {
                Some(verdict) => outcomes[*at].done = verdict,
                None if late => {
                    let message = format!("{name} is not up after {}s", LIMIT.as_secs());
                    outcomes[*at].done = Err(CliError::new(Code::Timeout, message));
                }
                None => return true,
            }
            false
        });
        if open.is_empty() {
            return Ok(());
        }
        let woken = async { tokio::time::timeout(PACE, follower.next()).await };
        if let Ok(events) = runtime.block_on(woken) {
            events?;
        }
    }
}

/// What became of a restart, once it is clear. `runs` is the number of the run before it.
fn settled(agent: &InstanceView, runs: u64) -> Option<CliResult<(AgentState, String)>> {
    let name = &agent.qualified_name;
    match agent.state {
        AgentState::Running if agent.running && agent.generation > runs => {
            let pid = agent.pid.map(|pid| format!(", pid {pid}"));
            let text = format!("restarted{}", pid.unwrap_or_default());
            Some(Ok((agent.state, text)))
        }
        AgentState::Starting
        | AgentState::Running
        | AgentState::Draining
        | AgentState::Stopping
        | AgentState::Stopped => None,
        state => {
            let why = note(agent, chrono::Utc::now());
            let message = format!("{name} is {}: {why}", state.as_str());
            let error = CliError::new(Code::Failed, message);
            Some(Err(error.hint(format!("gc agent show {name}"))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agent(state: &str, generation: u64) -> InstanceView {
        serde_json::from_value(json!({
            "name": "w", "qualified_name": "w", "state": state, "running": state == "running",
            "suspended": false, "session": "w", "generation": generation, "pid": 7,
            "restarts_in_window": 0, "max_restarts": 5, "restart_window_ms": 1, "reason": "why"
        }))
        .unwrap()
    }

    #[test]
    fn only_a_new_run_or_a_dead_end_settles_a_restart() {
        let check = |state, generation| settled(&agent(state, generation), 1);
        assert_eq!(check("running", 1), None);
        assert_eq!(check("stopping", 1), None);
        assert_eq!(check("starting", 2), None);
        let up = check("running", 2).unwrap().unwrap();
        assert_eq!(up, (AgentState::Running, "restarted, pid 7".to_owned()));
        let blocked = check("blocked", 1).unwrap().unwrap_err();
        assert!(
            blocked.message.starts_with("w is blocked: why"),
            "{blocked:?}"
        );
    }
}
