//! Events: what happened, in the form of the event log (api.md 7).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in its log, from 1, strictly increasing.
    pub seq: u64,
    /// Dotted type, e.g. `agent.started`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was recorded.
    #[serde(with = "millis")]
    pub ts: DateTime<Utc>,
    /// Who caused it: `gc`, `human`, an agent, …
    pub actor: String,
    /// What it is about, usually a qualified agent name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub payload: Map<String, Value>,
}

/// An event before the log gave it a number and a time.
#[derive(Debug, Clone, PartialEq)]
pub struct EventDraft {
    /// Dotted type.
    pub kind: String,
    /// Who caused it.
    pub actor: String,
    /// What it is about.
    pub subject: String,
    /// For people.
    pub message: String,
    /// For programs.
    pub payload: Map<String, Value>,
}

impl EventDraft {
    /// An event caused by gc itself.
    #[must_use]
    pub fn new(kind: &str, subject: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            actor: "gc".to_owned(),
            subject: subject.to_owned(),
            message: String::new(),
            payload: Map::new(),
        }
    }

    /// Sets the text for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Adds a payload entry.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.payload.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a payload entry if there is a value.
    #[must_use]
    pub fn maybe(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// The event as recorded.
    #[must_use]
    pub fn record(self, seq: u64, ts: DateTime<Utc>) -> Event {
        Event {
            seq,
            kind: self.kind,
            ts,
            actor: self.actor,
            subject: self.subject,
            message: self.message,
            payload: self.payload,
        }
    }
}

/// RFC 3339 in UTC with milliseconds, the one time format of gc.
pub mod millis {
    use chrono::{DateTime, SecondsFormat, Utc};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Formats a time.
    #[must_use]
    pub fn format(at: &DateTime<Utc>) -> String {
        at.to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(at: &DateTime<Utc>, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format(at))
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// If the text is no RFC 3339 time.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<DateTime<Utc>, D::Error> {
        let text = String::deserialize(d)?;
        DateTime::parse_from_rfc3339(&text)
            .map(|at| at.with_timezone(&Utc))
            .map_err(serde::de::Error::custom)
    }

    /// The same for optional times.
    pub mod option {
        use super::{DateTime, Deserialize, Deserializer, Serializer, Utc};

        /// For `#[serde(with)]`.
        ///
        /// # Errors
        /// Those of the serializer.
        pub fn serialize<S: Serializer>(
            at: &Option<DateTime<Utc>>,
            s: S,
        ) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => super::serialize(at, s),
                None => s.serialize_none(),
            }
        }

        /// For `#[serde(with)]`.
        ///
        /// # Errors
        /// If the text is no RFC 3339 time.
        pub fn deserialize<'de, D: Deserializer<'de>>(
            d: D,
        ) -> Result<Option<DateTime<Utc>>, D::Error> {
            Option::<String>::deserialize(d)?
                .map(|text| {
                    DateTime::parse_from_rfc3339(&text)
                        .map(|at| at.with_timezone(&Utc))
                        .map_err(serde::de::Error::custom)
                })
                .transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_documented_form() {
        let at = DateTime::parse_from_rfc3339("2026-03-18T10:00:00.123Z")
            .expect("time")
            .into();
        let event = EventDraft::new("agent.started", "rig/worker")
            .with("pid", 7)
            .record(7, at);
        let line = serde_json::to_string(&event).expect("text");
        assert_eq!(
            line,
            r#"{"seq":7,"type":"agent.started","ts":"2026-03-18T10:00:00.123Z","actor":"gc","subject":"rig/worker","payload":{"pid":7}}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&line).expect("event"), event);
    }
}
