//! The config in force in a running city, as its supervisor tells it.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use gascity_actors::model::{
    AgentName, AgentSpec, CityName, CitySpec, CityView, Fingerprint, SessionName, millis,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// What a supervisor answers when asked what is in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Running {
    /// The city's name.
    pub city: CityName,
    /// Revision in force.
    pub revision: String,
    /// When it was loaded.
    #[serde(with = "millis")]
    pub loaded_at: DateTime<Utc>,
    /// The whole config; secrets are masked.
    pub config: Json,
    /// What is made of each agent, in order.
    pub agents: Vec<RunningAgent>,
    /// Instances that still run as an earlier config had them.
    pub outdated: Vec<AgentName>,
    /// What needs a restart of the city to change, by key.
    pub fixed: BTreeMap<String, String>,
    /// What needs another session provider, by key.
    pub session: BTreeMap<String, String>,
    /// Providers that the environment of the supervisor asks for, by section.
    pub environment: BTreeMap<String, String>,
}

/// One agent or template in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunningAgent {
    /// Its name.
    pub name: AgentName,
    /// Name of its session.
    pub session: SessionName,
    /// The command as one would type it.
    pub command: String,
    /// Where it runs.
    pub work_dir: String,
    /// What a change of means a new run.
    pub fingerprint: Fingerprint,
    /// Hash of its `session_live`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub live_hash: String,
}

impl Running {
    /// What is in force in a city of this process.
    #[must_use]
    pub fn of(spec: &CitySpec, view: &CityView) -> Self {
        let outdated = view
            .instances
            .iter()
            .filter(|instance| instance.drifted_from.is_some());
        Self {
            city: spec.name.clone(),
            revision: spec.revision.clone(),
            loaded_at: view.config.loaded_at,
            config: serde_json::from_str(&spec.document).unwrap_or_else(|_| json!({})),
            agents: spec.agents.iter().map(|a| RunningAgent::of(a)).collect(),
            outdated: outdated.map(|i| i.qualified_name.clone()).collect(),
            fixed: fixed_keys(spec),
            session: session_keys(spec),
            environment: super::environment_providers(),
        }
    }

    /// One agent: its table, and what is made of it.
    #[must_use]
    pub fn show_agent(&self, name: &str) -> Option<Json> {
        let agent = self.agents.iter().find(|a| a.name.as_str() == name)?;
        let mut shown = table_of(&self.config, name).unwrap_or_else(|| json!({}));
        shown["resolved"] = agent.resolved();
        Some(shown)
    }
}

impl RunningAgent {
    pub(super) fn of(spec: &AgentSpec) -> Self {
        Self {
            name: spec.name.clone(),
            session: spec.session.clone(),
            command: spec.launch.command.to_string(),
            work_dir: spec.launch.work_dir.to_string_lossy().into_owned(),
            fingerprint: spec.fingerprint.clone(),
            live_hash: spec.live_hash(),
        }
    }

    pub(super) fn resolved(&self) -> Json {
        json!({
            "session": self.session,
            "command": self.command,
            "work_dir": self.work_dir,
            "fingerprint": self.fingerprint.hash,
            "fingerprint_parts": self.fingerprint.fields.keys().collect::<Vec<_>>(),
        })
    }
}

/// The table of one agent in a config that is shown.
pub(super) fn table_of(config: &Json, name: &str) -> Option<Json> {
    let mut agents = config["agent"].as_array().into_iter().flatten();
    let table = agents.find(|table| full_name(table) == name);
    table.cloned()
}

/// The full name of an agent by its table.
pub(super) fn full_name(table: &Json) -> String {
    let word = |key: &str| table[key].as_str().unwrap_or_default();
    match word("dir") {
        "" => word("name").to_owned(),
        dir => format!("{dir}/{}", word("name")),
    }
}

/// What a running city cannot change.
pub(super) fn fixed_keys(spec: &CitySpec) -> BTreeMap<String, String> {
    let name = ("workspace.name".to_owned(), spec.name.to_string());
    spec.identity.clone().into_iter().chain([name]).collect()
}

/// What needs another session provider.
pub(super) fn session_keys(spec: &CitySpec) -> BTreeMap<String, String> {
    let word = ("session.provider".to_owned(), spec.provider.clone());
    let settings = spec.provider_settings.clone();
    settings.into_iter().chain([word]).collect()
}
