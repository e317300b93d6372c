//! `gc agent list`.

use std::time::Duration;

use chrono::Utc;
use clap::Args;
use gascity_actors::age;
use serde_json::json;

use super::roster::Roster;
use crate::cli::context::Context;
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::listing::ListFlags;
use crate::cli::status::text::{row, span};
use crate::cli::values::{did_you_mean, fits};
use crate::model::{AgentState, InstanceView};

/// Every state an agent can be in.
const STATES: [AgentState; 13] = [
    AgentState::Starting,
    AgentState::Running,
    AgentState::Draining,
    AgentState::Stopping,
    AgentState::Stopped,
    AgentState::Backoff,
    AgentState::Quarantined,
    AgentState::Suspended,
    AgentState::Blocked,
    AgentState::Done,
    AgentState::Limited,
    AgentState::Held,
    AgentState::Frozen,
];

/// Arguments of `gc agent list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent list\n  gc agent list --state quarantined,backoff\n  gc agent list --pool worker --wide"
)]
pub(super) struct ListArgs {
    /// Only agents in these states
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Only instances of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Only agents of this rig
    #[arg(long, value_name = "RIG")]
    rig: Option<String>,
    /// Also show session, process, pool and last activity
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    list: ListFlags,
}

impl ListArgs {
    /// Lists the agents.
    ///
    /// # Errors
    /// If a state is none, or there is no city.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        self.check_states()?;
        let roster = Roster::load(context, Access::Read)?;
        let agents: Vec<&InstanceView> = roster
            .agents
            .iter()
            .filter(|agent| self.wants(agent))
            .collect();
        let (total, source) = (agents.len(), roster.source.word());
        let (header, rows) = self.rows(&agents);
        let (rows, agents) = self.list.arrange(header, rows, agents)?;
        if context.out.json {
            let document = json!({"items": agents, "total": total, "source": source});
            context.out.document(&document)?;
        } else if agents.is_empty() {
            context.out.note("no agents");
        } else {
            let text = self.list.draw(&context.out, header, &rows, self.wide);
            context.out.line(text)?;
        }
        Ok(0)
    }

    fn check_states(&self) -> CliResult {
        let known = STATES.map(AgentState::as_str);
        let Some(odd) = self
            .state
            .iter()
            .find(|word| !known.contains(&word.as_str()))
        else {
            return Ok(());
        };
        let mut error = CliError::new(Code::Usage, format!("no agent state is called {odd:?}"));
        error.hint = did_you_mean(odd, &known);
        Err(error)
    }

    fn wants(&self, agent: &InstanceView) -> bool {
        let state = agent.state.as_str();
        let template = agent.pool.as_ref().map(|pool| pool.template.as_str());
        let of_pool = |pool: &String| {
            let is = |name: &str| fits(pool, name) || name.rsplit('/').next() == Some(pool);
            template.is_some_and(is)
        };
        let of_rig = |rig: &String| {
            let name = agent.qualified_name.as_str();
            name.split_once('/').is_some_and(|(first, _)| first == rig)
        };
        (self.state.is_empty() || self.state.iter().any(|word| word == state))
            && self.pool.as_ref().is_none_or(of_pool)
            && self.rig.as_ref().is_none_or(of_rig)
    }

    fn rows(&self, agents: &[&InstanceView]) -> (&'static [&'static str], Vec<Vec<String>>) {
        let now = Utc::now();
        let mut rows: Vec<Vec<String>> = agents.iter().map(|agent| row(agent, now)).collect();
        if !self.wide {
            return (&["NAME", "STATE", "UP", "RESTARTS", "NOTE"], rows);
        }
        for (row, agent) in rows.iter_mut().zip(agents) {
            let note = row.pop().unwrap_or_default();
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let quiet = agent
                .last_activity
                .map(|at| format!("{} ago", span(now - at)));
            row.extend([
                agent.session.to_string(),
                or_dash(agent.pid.map(|pid| pid.to_string())),
                or_dash(agent.pool.as_ref().map(|pool| pool.template.to_string())),
                or_dash(quiet),
                age(Duration::from_millis(agent.restart_window_ms)),
                note,
            ]);
        }
        let header = &[
            "NAME", "STATE", "UP", "RESTARTS", "SESSION", "PID", "POOL", "ACTIVE", "WINDOW", "NOTE",
        ];
        (header, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Just {
        #[command(flatten)]
        args: ListArgs,
    }

    fn args(line: &str) -> ListArgs {
        let words = std::iter::once("list").chain(line.split_whitespace());
        Just::try_parse_from(words).unwrap().args
    }

    fn agent(name: &str, state: &str, pool: Option<&str>) -> InstanceView {
        let mut agent = json!({
            "name": name, "qualified_name": name, "state": state, "running": false,
            "suspended": false, "session": name.replace('/', "--"), "generation": 1,
            "restarts_in_window": 1, "max_restarts": 5, "restart_window_ms": 3_600_000
        });
        if let Some(pool) = pool {
            agent["pool"] = json!({"template": pool, "min": 0});
        }
        serde_json::from_value(agent).unwrap()
    }

    #[test]
    fn filters_choose_by_state_pool_and_rig() {
        let all = [
            agent("a", "running", None),
            agent("hello/w-1", "quarantined", Some("hello/w")),
            agent("hello/w-2", "running", Some("hello/w")),
        ];
        let names = |line: &str| {
            let args = args(line);
            let kept = all.iter().filter(|agent| args.wants(agent));
            kept.map(|agent| agent.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["a", "hello/w-1", "hello/w-2"]);
        assert_eq!(names("--state running"), ["a", "hello/w-2"]);
        assert_eq!(
            names("--state running,quarantined --pool w"),
            ["hello/w-1", "hello/w-2"]
        );
        assert_eq!(names("--rig hello --state quarantined"), ["hello/w-1"]);
    }

    #[test]
    fn a_state_that_is_none_is_a_mistake() {
        let error = args("--state runing").check_states().unwrap_err();
        assert_eq!(error.code, Code::Usage);
        assert_eq!(error.hint.as_deref(), Some("did you mean `running`?"));
    }

    #[test]
    fn wide_rows_name_session_and_pool() {
        let agent = agent("hello/w-1", "done", Some("hello/w"));
        let (header, rows) = args("--wide").rows(&[&agent]);
        assert_eq!(header.len(), rows[0].len());
        let row = rows[0].join(" ");
        for word in ["hello/w-1", "done", "1/5", "hello--w-1", "hello/w", "1h0m"] {
            assert!(row.contains(word), "{word} in {row}");
        }
    }
}
