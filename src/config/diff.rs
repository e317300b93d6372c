//! What would change if the config on disk came into force.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, CityName, CitySpec, millis};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::running::{Running, RunningAgent, fixed_keys, full_name, session_keys};

/// The config on disk against the one in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diff {
    /// The city.
    pub city: CityName,
    /// Revision in force.
    pub running: String,
    /// When it was loaded.
    #[serde(with = "millis")]
    pub loaded_at: DateTime<Utc>,
    /// Revision on disk.
    pub disk: String,
    /// They are one and the same.
    pub same: bool,
    /// Agents only on disk.
    pub added: Vec<AgentName>,
    /// Agents only in force.
    pub removed: Vec<AgentName>,
    /// Agents that need a new run.
    pub drifted: Vec<Drifted>,
    /// Agents whose `session_live` runs again.
    pub live: Vec<AgentName>,
    /// Keys that need a restart of the city; with them nothing on disk comes into force.
    pub refused: Vec<Changed>,
    /// Keys that move all agents to another session provider.
    pub swapped: Vec<Changed>,
    /// Every other key that differs.
    pub changed: Vec<Changed>,
    /// Instances that still run as a config before the one in force had them.
    pub outdated: Vec<AgentName>,
}

/// An agent that needs a new run, and because of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drifted {
    /// The agent.
    pub agent: AgentName,
    /// Parts of its fingerprint that differ.
    pub keys: Vec<String>,
}

/// A key and its two values; null where it is not set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    /// The key; those of an agent begin with its name.
    pub key: String,
    /// In force.
    pub from: Json,
    /// On disk.
    pub to: Json,
}

impl Diff {
    /// Compares what is in force with a loaded city and with what `gc config show` shows of it.
    #[must_use]
    pub fn of(running: &Running, disk: &CitySpec, shown: &Json) -> Self {
        let before: BTreeMap<&AgentName, &RunningAgent> =
            running.agents.iter().map(|a| (&a.name, a)).collect();
        let after: BTreeSet<&AgentName> = disk.agents.iter().map(|agent| &agent.name).collect();
        let (mut added, mut drifted, mut live) = (Vec::new(), Vec::new(), Vec::new());
        for agent in &disk.agents {
            let name = agent.name.clone();
            match before.get(&agent.name) {
                None => added.push(name),
                Some(old) if old.fingerprint != agent.fingerprint => drifted.push(Drifted {
                    keys: old.fingerprint.differing_keys(&agent.fingerprint),
                    agent: name,
                }),
                Some(old) if old.live_hash != agent.live_hash() => live.push(name),
                Some(_) => {}
            }
        }
        let gone = running.agents.iter().map(|agent| &agent.name);
        let refused = maps(&running.fixed, &fixed_keys(disk));
        let swapped = maps(&running.session, &session_keys(disk));
        let told: BTreeSet<&str> = refused
            .iter()
            .chain(&swapped)
            .map(|changed| changed.key.as_str())
            .collect();
        let (from, to) = (flat(&running.config), flat(shown));
        let apart = |key: &str| added.iter().any(|name| belongs(key, name.as_str()));
        let lost = |key: &str| {
            let mut gone = running.agents.iter().map(|agent| agent.name.as_str());
            gone.any(|name| !after.iter().any(|a| a.as_str() == name) && belongs(key, name))
        };
        let mut changed = maps(&from, &to);
        changed
            .retain(|one| !told.contains(one.key.as_str()) && !apart(&one.key) && !lost(&one.key));
        Self {
            city: running.city.clone(),
            running: running.revision.clone(),
            loaded_at: running.loaded_at,
            disk: disk.revision.clone(),
            same: running.revision == disk.revision,
            removed: gone.filter(|name| !after.contains(name)).cloned().collect(),
            added,
            drifted,
            live,
            refused,
            swapped,
            changed,
            outdated: running.outdated.clone(),
        }
    }
}

fn belongs(key: &str, agent: &str) -> bool {
    key.strip_prefix(agent)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Keys whose values differ.
fn maps<V: Clone + PartialEq + Into<Json>>(
    from: &BTreeMap<String, V>,
    to: &BTreeMap<String, V>,
) -> Vec<Changed> {
    let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let value = |map: &BTreeMap<String, V>, key: &str| map.get(key).cloned().map(Into::into);
    keys.into_iter()
        .filter(|key| from.get(*key) != to.get(*key))
        .map(|key| Changed {
            key: key.clone(),
            from: value(from, key).unwrap_or(Json::Null),
            to: value(to, key).unwrap_or(Json::Null),
        })
        .collect()
}

/// Every key of a shown config by its path; agents and rigs by their names.
fn flat(config: &Json) -> BTreeMap<String, Json> {
    let mut found = BTreeMap::new();
    for (section, value) in config.as_object().into_iter().flatten() {
        match value.as_array().filter(|_| section == "agent") {
            Some(agents) => {
                for table in agents {
                    walk(full_name(table), table, &mut found);
                }
            }
            None => walk(section.clone(), value, &mut found),
        }
    }
    found
}

fn walk(path: String, value: &Json, found: &mut BTreeMap<String, Json>) {
    let named = |items: &[Json]| -> Option<Map<String, Json>> {
        let name = |item: &Json| Some((item["name"].as_str()?.to_owned(), item.clone()));
        items.iter().map(name).collect()
    };
    let inside = match value {
        Json::Object(table) => Some(table.clone()),
        Json::Array(items) if !items.is_empty() => named(items),
        _ => None,
    };
    match inside {
        Some(table) => {
            for (key, value) in &table {
                walk(format!("{path}.{key}"), value, found);
            }
        }
        None => drop(found.insert(path, value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_of_agents_and_rigs_go_by_their_names() {
        let config = json!({
            "daemon": {"max_restarts": 5},
            "rigs": [{"name": "r", "path": "/r"}],
            "agent": [{"name": "w", "dir": "r", "pool": {"max": 2}, "args": []}],
        });
        let keys: Vec<String> = flat(&config).into_keys().collect();
        let expected = [
            "daemon.max_restarts",
            "r/w.args",
            "r/w.dir",
            "r/w.name",
            "r/w.pool.max",
            "rigs.r.name",
            "rigs.r.path",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_key_that_comes_or_goes_has_no_value_on_one_side() {
        let map = |text: &str| flat(&serde_json::from_str(text).unwrap());
        let found = maps(
            &map(r#"{"a":{"x":1,"y":2}}"#),
            &map(r#"{"a":{"y":3,"z":4}}"#),
        );
        let found: Vec<Json> = found.iter().map(|one| json!(one)).collect();
        let expected = [
            json!({"key": "a.x", "from": 1, "to": null}),
            json!({"key": "a.y", "from": 2, "to": 3}),
            json!({"key": "a.z", "from": null, "to": 4}),
        ];
        assert_eq!(found, expected);
    }
}
