//! Where `gc top` learns what it shows, and whom it asks to act.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Utc;
use serde::Deserialize;
use serde_json::json;

use super::model::{Act, EVENTS, Look, Target};
use crate::cli::context::{Context, Seat};
use crate::cli::error::{CliError, CliResult};
use crate::cli::query::city_status;
use crate::control::client::{Client, ClientError};
use crate::control::home::CityDir;
use crate::events::EventLog;
use crate::model::{CityInfo, CityStatus, Event};

/// Beyond the supervisor's own limit for a nudge.
const NUDGE_LIMIT: Duration = Duration::from_secs(70);

/// Which cities are looked at.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    All,
    City(PathBuf),
}

/// A connection to whoever runs the cities, made anew when it breaks.
#[derive(Debug)]
pub(super) struct Source {
    context: Context,
    scope: Scope,
    client: Option<Client>,
    /// The newest events of each city.
    events: BTreeMap<PathBuf, Vec<Event>>,
}

impl Source {
    pub(super) fn new(context: &Context, scope: Scope) -> Self {
        Self {
            context: context.clone(),
            scope,
            client: None,
            events: BTreeMap::new(),
        }
    }

    /// Looks once.
    ///
    /// # Errors
    /// If nobody answers; the next look connects again.
    pub(super) fn look(&mut self) -> CliResult<Look> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => connect(&self.context, &self.scope)?,
        };
        let look = self.ask(&mut client)?;
        self.client = Some(client);
        Ok(look)
    }

    fn ask(&mut self, client: &mut Client) -> CliResult<Look> {
        #[derive(Deserialize)]
        struct Status {
            uptime_sec: u64,
            cities: Vec<CityInfo>,
        }
        let mut status: Status = client.ask("status", json!({}))?;
        status
            .cities
            .retain(|city| city.status != CityStatus::Stopped); // no longer registered
        let mut look = Look {
            taken_at: Utc::now(),
            mode: client.hello().mode.clone(),
            pid: client.hello().pid,
            uptime_sec: status.uptime_sec,
            tree: Some(client.ask("actors.tree", json!({}))?),
            ..Look::default()
        };
        for city in &status.cities {
            if !self.looks_at(&city.path) {
                continue;
            }
            let state = city_status(client, &city.path)?;
            look.views.extend(state.and_then(|state| state.view));
            let news = self.news(&city.path)?;
            let named = news
                .iter()
                .map(|event| (city.name.to_string(), event.clone()));
            look.events.extend(named);
        }
        look.events.sort_by_key(|(_, event)| event.ts);
        look.cities = status.cities;
        Ok(look)
    }

    fn looks_at(&self, city: &Path) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::City(root) => root == city,
        }
    }

    /// The newest events of a city; what was read before is not read again.
    fn news(&mut self, root: &Path) -> CliResult<&[Event]> {
        let log = EventLog::new(CityDir::new(root).state_dir());
        let known = self.events.entry(root.to_owned()).or_default();
        match known.last().map(|event| event.seq) {
            None => *known = log.last(EVENTS)?.events,
            Some(seq) => {
                known.extend(log.read_after(seq, usize::MAX)?.events);
                known.drain(..known.len().saturating_sub(EVENTS));
            }
        }
        Ok(known)
    }
}

fn connect(context: &Context, scope: &Scope) -> CliResult<Client> {
    let Scope::City(root) = scope else {
        return context.running_supervisor();
    };
    match context.seat(root)? {
        Seat::Standalone(client) | Seat::Supervisor(client) => Ok(client),
        Seat::Nobody => Err(ClientError::NotRunning.into()),
    }
}

/// Talks to one agent, on a connection of its own: the looks go on meanwhile.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    pub(super) context: Context,
    pub(super) target: Target,
}

impl Agent {
    /// What stands on its screen.
    ///
    /// # Errors
    /// If it has none, or nobody answers.
    pub(super) fn peek(&self) -> CliResult<String> {
        #[derive(Deserialize)]
        struct Answer {
            text: String,
        }
        let params = json!({"path": self.target.root, "agent": self.target.agent, "lines": 100});
        let answer: Answer = self.client()?.ask("agent.peek", params)?;
        Ok(answer.text)
    }

    /// Types a line to it; says what came of it.
    pub(super) fn nudge(&self, text: &str) -> String {
        let agent = &self.target.agent;
        let params = json!({"path": self.target.root, "agent": agent, "text": text});
        let done = self.client().and_then(|mut client| {
            Ok(client.call_within("agent.nudge", params, Some(NUDGE_LIMIT))?)
        });
        match done {
            Ok(answer) if answer["confirmed"] == json!(true) => format!("{agent}: delivered"),
            Ok(_) => format!("{agent}: delivered, but no reaction was seen"),
            Err(error) => failed(agent, &error),
        }
    }

    /// Does it; says what came of it.
    pub(super) fn act(&self, act: Act) -> String {
        let (agent, word) = (&self.target.agent, act.word());
        let params = json!({"path": self.target.root, "agent": agent, "command": word});
        let done = self
            .client()
            .and_then(|mut client| Ok(client.call("agent.command", params)?));
        match done {
            Ok(answer) => {
                let state = answer["state"].as_str().unwrap_or_default();
                format!("{word} {agent}: {state}")
            }
            Err(error) => failed(agent, &error),
        }
    }

    fn client(&self) -> CliResult<Client> {
        connect(&self.context, &Scope::City(self.target.root.clone()))
    }
}

fn failed(agent: &str, error: &CliError) -> String {
    format!("! {agent}: {}", error.message)
}
