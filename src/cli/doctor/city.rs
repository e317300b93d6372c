//! Checks of the city one is in.

use std::path::Path;

use super::{Finding, Level};
use crate::cli::context::{Context, Seat};
use crate::cli::query::city_status;
use crate::cli::values::count;
use crate::config;
use crate::control::home::CityDir;
use crate::control::lock::{self, Held};
use crate::events::EventLog;
use crate::model::{AgentState, CityView};

pub(super) fn check(context: &Context, root: &Path) -> Vec<Finding> {
    let mut findings = vec![Finding::fine("city", root.display().to_string())];
    findings.push(match config::load(root) {
        Ok(loaded) => match loaded.warnings.first() {
            None => Finding::fine("config", count(loaded.spec.agents.len(), "agent")),
            Some(warning) => {
                let more = loaded.warnings.len() - 1;
                let more = if more > 0 {
                    format!(", and {more} more")
                } else {
                    String::new()
                };
                let message = format!("{}{more}", warning.message);
                Finding::new("config", Level::Warning, message)
            }
        },
        Err(error) => {
            let first = error.summary.lines().next().unwrap_or_default();
            Finding::new("config", Level::Error, first).fix("gc start -n")
        }
    });
    findings.push(events(root));
    findings.extend(controller(context, root));
    findings
}

fn events(root: &Path) -> Finding {
    let log = EventLog::new(CityDir::new(root).state_dir());
    match log.last(1000) {
        Ok(batch) if batch.skipped > 0 => {
            let lines = count(usize::try_from(batch.skipped).unwrap_or(usize::MAX), "line");
            let message = format!("{lines} of the log are no events");
            Finding::new("events", Level::Warning, message)
        }
        Ok(batch) => {
            let last = batch.events.last().map_or(0, |event| event.seq);
            Finding::fine("events", format!("{last} so far"))
        }
        Err(error) => Finding::new("events", Level::Error, error.to_string()),
    }
}

/// Who runs it, and how its agents are.
fn controller(context: &Context, root: &Path) -> Vec<Finding> {
    let held = lock::holder(&CityDir::new(root).lock());
    let view = match context.seat(root) {
        Ok(Seat::Standalone(mut client) | Seat::Supervisor(mut client)) => {
            let state = city_status(&mut client, root).ok().flatten();
            state.and_then(|state| state.view)
        }
        Ok(Seat::Nobody) => None,
        Err(error) => {
            let finding = Finding::new("controller", Level::Error, error.message);
            return vec![finding.fix("gc supervisor logs")];
        }
    };
    match (view, held) {
        (Some(view), _) => {
            let mut findings = vec![Finding::fine("controller", "running")];
            findings.extend(agents(&view));
            findings
        }
        (None, Ok(Held::By(holder))) => {
            let pid = holder.map_or(0, |holder| holder.pid);
            let message = format!("pid {pid} holds the lock of the city and does not answer");
            vec![Finding::new("controller", Level::Error, message).fix("gc supervisor status")]
        }
        (None, _) => {
            let mut findings = vec![Finding::fine("controller", "nobody runs it")];
            findings.extend(leftovers(context));
            findings
        }
    }
}

fn agents(view: &CityView) -> Vec<Finding> {
    let mut findings = Vec::new();
    for agent in &view.instances {
        if agent.state == AgentState::Quarantined {
            let name = &agent.qualified_name;
            let why = agent.reason.as_deref().unwrap_or("crash loop");
            let message = format!("{name} is quarantined: {why}");
            let finding = Finding::new("sessions", Level::Error, message);
            findings.push(finding.fix(format!("gc agent logs {name} --crash")));
        }
    }
    for session in &view.foreign_sessions {
        let message = format!("session {session} is none of ours");
        findings.push(Finding::new("sessions", Level::Warning, message));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(
            "sessions",
            count(view.instances.len(), "agent"),
        ));
    }
    findings
}

/// Agents that run although nobody supervises them.
fn leftovers(context: &Context) -> Option<Finding> {
    let live = crate::cli::agent::live_sessions(context).ok()?;
    Some(match live {
        0 => Finding::fine("sessions", "none"),
        n => {
            let message = format!("{} without a supervisor", count(n, "agent"));
            Finding::new("sessions", Level::Warning, message)
                .fix("gc start adopts them, gc stop ends them")
        }
    })
}
