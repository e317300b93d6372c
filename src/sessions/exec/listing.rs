//! Which sessions there are, and what is known of them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{Facts, Listing, Note, SessionError};
use tokio::task::JoinSet;

use super::call::{Answer, Op};
use super::record::Record;
use super::{Inner, backend, lock};

impl Inner {
    pub(super) async fn snapshot(self: Arc<Self>) -> Result<Listing, SessionError> {
        let mut listing = Listing::default();
        let mut listed = self.list().await?;
        if let Some(names) = &listed {
            self.recover(names).await;
        }
        let mut lookups = JoinSet::new();
        for (name, record) in self.records.all().map_err(backend)? {
            let live = listed.as_mut().map(|names| names.remove(name.as_str()));
            lookups.spawn(self.clone().facts(name, record, live));
        }
        while let Some(facts) = lookups.join_next().await {
            listing.owned.push(facts.map_err(backend)??);
        }
        listing.owned.sort_by(|a, b| a.session.cmp(&b.session));
        listing.foreign = listed.into_iter().flatten().collect();
        listing.foreign.sort();
        Ok(listing)
    }

    /// What a listing says of a session; `live` as far as it is known.
    async fn facts(
        self: Arc<Self>,
        name: SessionName,
        record: Record,
        live: Option<bool>,
    ) -> Result<Facts, SessionError> {
        let live = match live {
            Some(live) => live,
            None => self.is_running(&name).await?,
        };
        let mut active = None;
        if live {
            self.saw(&name, &record.token);
            active = self.last_activity(&name).await;
        } else if let Ok(_gate) = self.gate(&name).try_lock() {
            // Else it is just being started or stopped, and somebody knows better.
            self.tell_end(&name, &record.token, ExitStatus::Unknown);
        }
        Ok(Facts {
            session: name,
            agent: record.agent,
            token: record.token,
            live,
            pid: None,
            started_at: record.started_at,
            last_activity: active.map(|at| at.max(record.started_at)),
            attached: false,
            notes: known(record.meta),
        })
    }

    /// Writes anew the records of our own sessions that lost them, going by the script's metadata.
    async fn recover(&self, names: &HashSet<String>) {
        let strange = |name: &&String| !lock(&self.strangers).contains(*name);
        let unknown: Vec<&String> = names.iter().filter(strange).collect();
        for text in unknown {
            let Ok(name) = SessionName::new(text.as_str()) else {
                continue;
            };
            let gate = self.gate(&name);
            let Ok(_gate) = gate.try_lock() else { continue };
            if !matches!(self.records.read(&name), Ok(None)) {
                continue;
            }
            let mut found = BTreeMap::new();
            for key in ["GC_CITY", "GC_SESSION_ID", "GC_AGENT"] {
                match self.ask(Op::GetMeta(&name, key)).await {
                    Ok(Answer::Done(value)) => found.insert(key, value),
                    _ => None,
                };
            }
            let value = |key: &str| found.get(key).cloned().unwrap_or_default();
            let ours = value("GC_CITY") == self.config.city.root.to_string_lossy();
            match (
                RunToken::new(value("GC_SESSION_ID")),
                AgentName::new(value("GC_AGENT")),
            ) {
                (Ok(token), Ok(agent)) if ours => {
                    let _ = self.records.begin(&name, token, agent, BTreeMap::new());
                }
                _ => drop(lock(&self.strangers).insert(text.clone())),
            }
        }
    }

    /// A time the script cannot say, or not so that it can be read, is not known.
    async fn last_activity(&self, name: &SessionName) -> Option<DateTime<Utc>> {
        match self.ask(Op::LastActivity(name)).await {
            Ok(Answer::Done(text)) => {
                let time = DateTime::parse_from_rfc3339(text.trim()).ok()?;
                Some(time.to_utc())
            }
            _ => None,
        }
    }
}

fn known(meta: BTreeMap<String, String>) -> BTreeMap<Note, String> {
    let entries = meta.into_iter();
    let known = entries.filter_map(|(key, value)| Some((Note::from_key(&key)?, value)));
    known.collect()
}
