//! Charged ends on disk: wall times, since nothing else outlives a process.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Ledger;
use crate::model::{AgentName, millis};

#[derive(Serialize, Deserialize)]
struct History {
    version: u32,
    /// Start times of charged runs, oldest first.
    agents: BTreeMap<AgentName, Vec<String>>,
}

const VERSION: u32 = 1;

/// The ledgers as text.
#[must_use]
pub fn render_history<'a>(
    ledgers: impl IntoIterator<Item = (&'a AgentName, &'a Ledger)>,
    now: Instant,
    wall: DateTime<Utc>,
) -> String {
    let time = |start: &Instant| {
        let age = TimeDelta::from_std(now.saturating_duration_since(*start)).unwrap_or_default();
        millis::format(&(wall - age))
    };
    let agents = ledgers
        .into_iter()
        .map(|(agent, ledger)| (agent.clone(), ledger.starts().map(time).collect::<Vec<_>>()))
        .filter(|(_, starts)| !starts.is_empty())
        .collect();
    serde_json::to_string(&History {
        version: VERSION,
        agents,
    })
    .unwrap_or_default()
}

/// The ledgers in a text; times in the future are dropped. Text of another form gives none: lost
/// history costs a few restarts, a city that does not start costs more.
#[must_use]
pub fn parse_history(text: &str, now: Instant, wall: DateTime<Utc>) -> BTreeMap<AgentName, Ledger> {
    let Ok(history) = serde_json::from_str::<History>(text) else {
        return BTreeMap::new();
    };
    if history.version != VERSION {
        return BTreeMap::new();
    }
    let start = |time: &String| {
        let at = DateTime::parse_from_rfc3339(time).ok()?.with_timezone(&Utc);
        let age = (wall - at).to_std().ok()?;
        now.checked_sub(age)
    };
    let ledger = |starts: Vec<String>| Ledger::from_starts(starts.iter().filter_map(start));
    history
        .agents
        .into_iter()
        .map(|(agent, starts)| (agent, ledger(starts)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::RestartLimit;

    #[test]
    fn ledgers_survive_being_written_and_read() {
        let now = Instant::now() + Duration::from_secs(10_000);
        let wall = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let agent = AgentName::new("rig/db").unwrap();
        let limit = RestartLimit {
            max_restarts: 3,
            window: Duration::from_secs(600),
        };
        let mut ledger = Ledger::default();
        ledger.charge(now - Duration::from_secs(30), limit, now);
        ledger.charge(now - Duration::from_secs(10), limit, now);
        let text = render_history([(&agent, &ledger)], now, wall);
        assert_eq!(parse_history(&text, now, wall)[&agent], ledger);
        // A minute later, in another process, they are a minute older.
        let later = parse_history(&text, now, wall + TimeDelta::seconds(60));
        assert_eq!(later[&agent].count(Duration::from_secs(80), now), 1);
    }

    #[test]
    fn future_times_and_foreign_texts_are_dropped() {
        let (now, wall) = (
            Instant::now(),
            DateTime::from_timestamp(1_800_000_000, 0).unwrap(),
        );
        let text = r#"{"version":1,"agents":{"a":["2999-01-01T00:00:00.000Z"]}}"#;
        let ledgers = parse_history(text, now, wall);
        assert_eq!(ledgers[&AgentName::new("a").unwrap()], Ledger::default());
        for text in ["", "{}", "[1]", r#"{"version":2,"agents":{}}"#] {
            assert!(parse_history(text, now, wall).is_empty(), "{text}");
        }
    }
}
