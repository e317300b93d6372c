//! `gc start --dry-run`: what a start would do. Reads the config, asks who runs, touches nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gascity_actors::policy::{Graph, Want, desired};
use serde_json::{Value, json};

use crate::cli::context::{Context, Seat};
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::query::city_status;
use crate::cli::values::{count, table};
use crate::config;
use crate::model::{AgentName, AgentSpec, CitySpec, Command};

/// What a start would do.
#[derive(Debug, Default)]
struct Plan {
    /// In the order of their waves, then as configured.
    starts: Vec<Start>,
    /// Held back, with the reason.
    left_out: Vec<(AgentName, &'static str)>,
    /// Up already.
    running: Vec<AgentName>,
    /// Pools whose size only their check knows.
    pools: Vec<AgentName>,
}

#[derive(Debug)]
struct Start {
    name: String,
    session: String,
    command: String,
    wave: usize,
}

/// Shows the plan; agents that run already count only if `keep` says so.
///
/// # Errors
/// If the config has errors, or whoever runs the city does not answer.
pub(super) fn run(context: &Context, root: &Path, keep: bool) -> CliResult<u8> {
    let loaded = config::load(root).map_err(|error| {
        CliError::new(Code::Config, "city.toml has errors").cause(error.summary)
    })?;
    let running = match keep {
        true => running(context, root)?,
        false => HashSet::new(),
    };
    let plan = Plan::of(&loaded.spec, &running);
    match context.out.json {
        true => context.out.document(&plan.json(&loaded.spec))?,
        false => context.out.line(plan.text())?,
    }
    Ok(0)
}

fn running(context: &Context, root: &Path) -> CliResult<HashSet<AgentName>> {
    let (Seat::Standalone(mut client) | Seat::Supervisor(mut client)) = context.seat(root)? else {
        return Ok(HashSet::new());
    };
    let view = city_status(&mut client, root)?.and_then(|state| state.view);
    let instances = view.into_iter().flat_map(|view| view.instances);
    let up = instances.filter(|instance| instance.running);
    Ok(up.map(|instance| instance.qualified_name).collect())
}

impl Plan {
    fn of(spec: &CitySpec, running: &HashSet<AgentName>) -> Self {
        let mut plan = Self::default();
        let mut starts = Vec::new();
        for (agent, want) in desired(spec, &HashMap::new(), |name| running.contains(name)) {
            let name = agent.name.clone();
            match want {
                Want::Yes if running.contains(&name) => plan.running.push(name),
                Want::Yes => starts.push(agent),
                Want::Suspended => plan.left_out.push((name, "suspended")),
                Want::Limited => plan.left_out.push((name, "limited")),
                _ => plan.left_out.push((name, "held")),
            }
        }
        // The desired set leaves out pools whose first check is still to come.
        for agent in &spec.agents {
            let checked = agent.pool.as_ref().is_some_and(|pool| pool.check.is_some());
            if checked && !agent.suspended && !spec.suspended && agent.held.is_none() {
                plan.pools.push(agent.name.clone());
            }
        }
        let templates: HashSet<AgentName> = starts.iter().map(|a| a.template.clone()).collect();
        let waves = Graph::new(spec.agents.iter().map(|a| &**a)).waves(&templates);
        let wave = |template: &AgentName| {
            waves
                .iter()
                .position(|wave| wave.contains(template))
                .unwrap_or_default()
                + 1
        };
        plan.starts = starts
            .iter()
            .map(|agent| start(agent, wave(&agent.template)))
            .collect();
        plan.starts.sort_by_key(|start| start.wave);
        plan
    }

    fn text(&self) -> String {
        let mut text = format!("would start {}\n", count(self.starts.len(), "agent"));
        if !self.starts.is_empty() {
            let row = |start: &Start| {
                vec![
                    start.wave.to_string(),
                    start.name.clone(),
                    start.session.clone(),
                    start.command.clone(),
                ]
            };
            let rows: Vec<Vec<String>> = self.starts.iter().map(row).collect();
            for line in table(&["WAVE", "NAME", "SESSION", "COMMAND"], &rows).lines() {
                text.push_str(&format!("  {line}\n"));
            }
        }
        let join = |names: &[AgentName]| {
            names
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        for word in ["suspended", "limited", "held"] {
            let names: Vec<AgentName> = self.named(word);
            if !names.is_empty() {
                text.push_str(&format!("{word}: {}\n", join(&names)));
            }
        }
        if !self.running.is_empty() {
            text.push_str(&format!("running already: {}\n", join(&self.running)));
        }
        if !self.pools.is_empty() {
            let names = join(&self.pools);
            text.push_str(&format!("pools, as many as their checks say: {names}\n"));
        }
        text.push_str("no side effects (--dry-run)");
        text
    }

    fn named(&self, word: &str) -> Vec<AgentName> {
        let hits = self.left_out.iter().filter(|(_, why)| *why == word);
        hits.map(|(name, _)| name.clone()).collect()
    }

    fn json(&self, spec: &CitySpec) -> Value {
        let start = |start: &Start| {
            json!({
                "name": start.name,
                "session": start.session,
                "command": start.command,
                "wave": start.wave,
            })
        };
        json!({
            "city": spec.name,
            "dry_run": true,
            "would_start": self.starts.iter().map(start).collect::<Vec<_>>(),
            "suspended": self.named("suspended"),
            "limited": self.named("limited"),
            "held": self.named("held"),
            "running": self.running,
            "pools": self.pools,
        })
    }
}

fn start(agent: &AgentSpec, wave: usize) -> Start {
    let command = match &agent.launch.command {
        Command::Shell(line) => line.clone(),
        Command::Words(words) => words.join(" "),
    };
    Start {
        name: agent.name.to_string(),
        session: agent.session.to_string(),
        command,
        wave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> CitySpec {
        CitySpec::builder("town")
            .root("/town")
            .agent(AgentSpec::command("web", ["serve", "-p", "80"]).depends_on("db"))
            .agent(AgentSpec::command("db", ["postgres"]))
            .agent(AgentSpec::command("off", ["x"]).suspended(true))
            .build()
            .unwrap()
    }

    #[test]
    fn starts_come_in_waves_and_the_suspended_apart() {
        let expected = "\
would start 2 agents
  WAVE  NAME  SESSION  COMMAND
  1     db    db       postgres
  2     web   web      serve -p 80
suspended: off
no side effects (--dry-run)";
        assert_eq!(Plan::of(&spec(), &HashSet::new()).text(), expected);
    }

    #[test]
    fn what_runs_already_is_not_started_again() {
        let running = HashSet::from([AgentName::new("db").unwrap()]);
        let plan = Plan::of(&spec(), &running);
        let json = plan.json(&spec());
        assert_eq!(json["would_start"][0]["name"], "web");
        assert_eq!(json["would_start"][0]["wave"], 1);
        assert_eq!(json["running"], json!(["db"]));
        assert_eq!(json["suspended"], json!(["off"]));
    }
}
