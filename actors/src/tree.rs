//! Introspection: the actor tree as data and as text (cli.md 5.5).

mod text;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::mailbox::Gauge;
use crate::model::{Strategy, millis};

pub use text::{Cells, age};

/// A snapshot of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// Rises from one snapshot of a supervisor to its next.
    #[serde(default)]
    pub index: u64,
    /// When it was taken.
    #[serde(with = "millis")]
    pub taken_at: DateTime<Utc>,
    /// The root actor.
    pub root: Node,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The MachineSupervisor.
    Machine,
    /// A CitySupervisor.
    City,
    /// A slot, with or without a live Worker.
    Worker,
    /// A Tracker.
    Tracker,
    /// Behind a port: the writer of an event log.
    EventLog,
    /// Behind a port: what looks for edits of the config.
    ConfigWatcher,
    /// Behind a port: what runs the sessions.
    Provider,
    /// Behind a port: the control socket.
    Control,
}

impl Kind {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::City => "city",
            Self::Worker => "worker",
            Self::Tracker => "tracker",
            Self::EventLog => "event_log",
            Self::ConfigWatcher => "config_watcher",
            Self::Provider => "provider",
            Self::Control => "control",
        }
    }

    /// No actor itself, but work done for actors behind a port.
    #[must_use]
    pub fn is_helper(self) -> bool {
        matches!(
            self,
            Self::EventLog | Self::ConfigWatcher | Self::Provider | Self::Control
        )
    }
}

/// Something that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// When; of some errors nobody knows.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub at: Option<DateTime<Utc>>,
    /// What, for a person.
    pub message: String,
}

/// The message an actor is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handling {
    /// Its kind.
    pub message: String,
    /// For how long.
    pub for_ms: u64,
}

/// A message that an actor handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its kind.
    pub message: String,
    /// How long ago it was done with.
    pub ago_ms: u64,
    /// How long it had been queued.
    pub wait_us: u64,
    /// How long it took.
    pub took_us: u64,
}

/// One actor for itself: what `gc actors show` shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The node, without its children.
    #[serde(flatten)]
    pub node: Node,
    /// What it handled of late, oldest first.
    pub messages: Vec<Past>,
}

/// One actor, or a slot or city that is down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Stable across restarts, since it names the slot: `city/worker:rig/w-1`.
    pub id: String,
    /// Its name among its siblings.
    pub name: String,
    /// From the root, without it.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// State word.
    pub state: String,
    /// Queued messages.
    pub mailbox_depth: usize,
    /// Most messages ever queued.
    pub mailbox_peak: usize,
    /// Messages handled.
    pub handled: u64,
    /// The message it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handling: Option<Handling>,
    /// When it, or its current run, began.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub started_at: Option<DateTime<Utc>>,
    /// For how long it has been going.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// Charged ends in the window (worker), crashes (city).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts_in_window: Option<u32>,
    /// Charged ends that mean quarantine; zero never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_restarts: Option<u32>,
    /// The window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_window_ms: Option<u64>,
    /// Who is restarted along with it (worker).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// End of the quarantine.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub quarantined_until: Option<DateTime<Utc>>,
    /// When the next automatic restart is due.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "millis::option"
    )]
    pub retry_at: Option<DateTime<Utc>>,
    /// Why it is in its state, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Facts of its kind.
    #[serde(default)]
    pub detail: Map<String, Value>,
    /// Its children: fixed kinds first, then workers by name.
    pub children: Vec<Node>,
}

/// Handlers never wait; one that takes this many milliseconds is in trouble.
const UNRESPONSIVE_AFTER: u64 = 200;

impl Node {
    /// A node of which nothing else is known.
    #[must_use]
    pub fn new(kind: Kind, name: &str, path: &str, state: &str) -> Self {
        let parent = path.strip_suffix(name).unwrap_or_default();
        Self {
            id: format!("{parent}{}:{name}", kind.as_str()),
            name: name.to_owned(),
            path: path.to_owned(),
            kind,
            state: state.to_owned(),
            mailbox_depth: 0,
            mailbox_peak: 0,
            handled: 0,
            handling: None,
            started_at: None,
            uptime_ms: None,
            restarts_in_window: None,
            max_restarts: None,
            restart_window_ms: None,
            strategy: None,
            quarantined_until: None,
            retry_at: None,
            reason: None,
            last_error: None,
            detail: Map::new(),
            children: Vec::new(),
        }
    }

    /// Fills in what the actor's gauge says. One that is on a message for too long to be well shows
    /// so, with all else as it was last known.
    pub(crate) fn gauged(mut self, gauge: &Arc<Gauge>, now: Instant) -> Self {
        let reading = gauge.read();
        self.mailbox_depth = reading.depth;
        self.mailbox_peak = reading.peak;
        self.handled = reading.handled;
        self.handling = reading.handling.map(|(message, since)| Handling {
            message: message.to_owned(),
            for_ms: as_millis(now.saturating_duration_since(since)),
        });
        if self
            .handling
            .as_ref()
            .is_some_and(|h| h.for_ms >= UNRESPONSIVE_AFTER)
        {
            self.state = "unresponsive".into();
        }
        self
    }

    /// Work behind a port of the actor at `parent`, and what is wrong with it.
    pub(crate) fn helper(kind: Kind, name: &str, parent: &str, trouble: Option<LastError>) -> Self {
        let path = match parent {
            "" => name.to_owned(),
            parent => format!("{parent}/{name}"),
        };
        let state = match trouble {
            Some(_) => "degraded",
            None => "running",
        };
        let mut node = Self::new(kind, name, &path, state);
        node.last_error = trouble;
        node
    }

    /// When it began, and how long ago that is.
    #[must_use]
    pub fn since(mut self, at: DateTime<Utc>, age: Duration) -> Self {
        self.started_at = Some(at);
        self.uptime_ms = Some(as_millis(age));
        self
    }

    /// The node with one more fact of its kind.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(key.to_owned(), value.into());
        self
    }

    /// Whether somebody should have a look.
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        !matches!(self.state.as_str(), "running" | "suspended" | "stopped")
            || self.mailbox_depth >= 100
            || self
                .handling
                .as_ref()
                .is_some_and(|handling| handling.for_ms > 5000)
    }

    /// This node and all below it.
    pub fn walk(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(Self::walk)))
    }
}

impl Tree {
    /// The tree without helpers that are well: people want to see actors.
    #[must_use]
    pub fn without_helpers(mut self) -> Self {
        self.root.drop_helpers();
        self
    }
}

impl Node {
    fn drop_helpers(&mut self) {
        self.children
            .retain(|child| !child.kind.is_helper() || child.needs_attention());
        self.children.iter_mut().for_each(Self::drop_helpers);
    }
}

pub(crate) fn as_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
