//! Introspection: the actor tree as data and as text (cli.md 5.5).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::mailbox::Gauge;
use crate::model::millis;

/// A message that takes longer is told.
const BUSY_MS: u64 = 1000;

/// A snapshot of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tree {
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
        }
    }
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
    pub last_error: Option<String>,
    /// Facts of its kind.
    #[serde(default)]
    pub detail: Map<String, Value>,
    /// Its children: fixed kinds first, then workers by name.
    pub children: Vec<Node>,
}

/// Handlers never wait; one that takes this many milliseconds is in trouble.
const UNRESPONSIVE_AFTER: u64 = 200;

impl Node {
    pub(crate) fn new(kind: Kind, name: &str, path: &str, state: &str) -> Self {
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

    pub(crate) fn since(mut self, at: DateTime<Utc>, age: Duration) -> Self {
        self.started_at = Some(at);
        self.uptime_ms = Some(as_millis(age));
        self
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
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

    /// `after: a, b`
    fn after(&self) -> Option<String> {
        let needs = self.detail.get("after")?.as_array()?;
        let needs: Vec<&str> = needs.iter().filter_map(Value::as_str).collect();
        Some(format!("after: {}", needs.join(", ")))
    }

    /// Charged ends and their limit: `1/5`.
    #[must_use]
    pub fn restarts(&self) -> String {
        match (self.restarts_in_window, self.max_restarts) {
            (Some(count), Some(0)) => format!("{count}/∞"),
            (Some(count), Some(max)) => format!("{count}/{max}"),
            (Some(count), None) => count.to_string(),
            (None, _) => "-".into(),
        }
    }

    /// Expiry or retry time, last error or reason, what keeps it busy, facts of its kind; with
    /// `deep` also what it depends on.
    #[must_use]
    pub fn note(&self, deep: bool) -> String {
        let clock = |at: DateTime<Utc>| at.format("%H:%M:%SZ").to_string();
        let pid = self.detail.get("pid").map(|pid| format!("pid {pid}"));
        let parts = [
            self.quarantined_until
                .map(|until| format!("until {}", clock(until))),
            self.retry_at.map(|at| format!("retry at {}", clock(at))),
            self.last_error
                .as_ref()
                .or(self.reason.as_ref().filter(|_| self.state != "running"))
                .and_then(|error| error.lines().next())
                .map(|line| clip(line, 60)),
            self.handling
                .as_ref()
                .filter(|handling| handling.for_ms >= BUSY_MS)
                .map(|handling| {
                    let busy = age(Duration::from_millis(handling.for_ms));
                    format!("busy {busy} with {}", handling.message)
                }),
            pid,
            self.after().filter(|_| deep),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl Tree {
    /// The cells of [`Tree`]'s text, a row for each node in the order of [`Node::walk`].
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        Row::add(&mut rows, &self.root, "", "", false);
        let cells = |row: Row| {
            let Row {
                actor,
                kind,
                state,
                mbox,
                up,
                restarts,
                note,
            } = row;
            vec![actor, kind, state, mbox, up, restarts, note]
        };
        rows.into_iter().map(cells).collect()
    }
}

impl fmt::Display for Tree {
    /// One line per actor, as `gc actors tree` shows it; the alternate form (`{:#}`) also names
    /// what each depends on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![Row::header()];
        Row::add(&mut rows, &self.root, "", "", f.alternate());
        let width = |cell: fn(&Row) -> &String| {
            rows.iter()
                .map(|row| cell(row).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (actor, kind, state) = (width(|r| &r.actor), width(|r| &r.kind), width(|r| &r.state));
        let (mbox, up, restarts) = (width(|r| &r.mbox), width(|r| &r.up), width(|r| &r.restarts));
        for row in &rows {
            let line = format!(
                "{:actor$}  {:kind$}  {:state$}  {:>mbox$}  {:up$}  {:restarts$}  {}",
                row.actor, row.kind, row.state, row.mbox, row.up, row.restarts, row.note
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let nodes = self.root.walk().count();
        let attention = self
            .root
            .walk()
            .filter(|node| node.needs_attention())
            .count();
        let s = if nodes == 1 { "" } else { "s" };
        match attention {
            0 => write!(f, "{nodes} actor{s}"),
            1 => write!(f, "{nodes} actor{s}, 1 needs attention"),
            n => write!(f, "{nodes} actor{s}, {n} need attention"),
        }
    }
}

struct Row {
    actor: String,
    kind: String,
    state: String,
    mbox: String,
    up: String,
    restarts: String,
    note: String,
}

impl Row {
    fn header() -> Self {
        let [actor, kind, state, mbox, up, restarts, note] =
            ["ACTOR", "KIND", "STATE", "MBOX", "UP", "RESTARTS", "NOTE"].map(String::from);
        Self {
            actor,
            kind,
            state,
            mbox,
            up,
            restarts,
            note,
        }
    }

    fn add(rows: &mut Vec<Self>, node: &Node, own: &str, below: &str, deep: bool) {
        rows.push(Self {
            actor: format!("{own}{}", node.name),
            kind: node.kind.as_str().into(),
            state: node.state.clone(),
            mbox: node.mailbox_depth.to_string(),
            up: node
                .uptime_ms
                .map_or_else(|| "-".into(), |ms| age(Duration::from_millis(ms))),
            restarts: node.restarts(),
            note: node.note(deep),
        });
        for (i, child) in node.children.iter().enumerate() {
            let last = i + 1 == node.children.len();
            let (branch, trunk) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            Self::add(
                rows,
                child,
                &format!("{below}{branch}"),
                &format!("{below}{trunk}"),
                deep,
            );
        }
    }
}

/// An age for people: `12s`, `40m`, `1h12m`, `2d4h`.
#[must_use]
pub fn age(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m", s / 60),
        3600..86_400 => format!("{}h{}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}

fn clip(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns - 1).chain(['…']).collect()
}

pub(crate) fn as_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_drawn_with_a_row_per_actor() {
        let mut root = Node::new(Kind::Machine, "machine", "machine", "running");
        let mut city = Node::new(Kind::City, "demo", "demo", "running");
        let mut worker = Node::new(Kind::Worker, "rig/w", "demo/rig/w", "quarantined");
        worker.restarts_in_window = Some(5);
        worker.max_restarts = Some(5);
        worker.last_error = Some("exit 1: no such model".into());
        assert_eq!(worker.id, "demo/worker:rig/w");
        city.children = vec![
            Node::new(Kind::Tracker, "tracker", "demo/tracker", "running"),
            worker,
        ];
        root.children = vec![city];
        let tree = Tree {
            taken_at: DateTime::UNIX_EPOCH,
            root,
        };
        let expected = "\
ACTOR          KIND     STATE        MBOX  UP  RESTARTS  NOTE
machine        machine  running         0  -   -
└─ demo        city     running         0  -   -
   ├─ tracker  tracker  running         0  -   -
   └─ rig/w    worker   quarantined     0  -   5/5       exit 1: no such model
4 actors, 1 needs attention";
        assert_eq!(tree.to_string(), expected);
    }

    #[test]
    fn notes_tell_reasons_busy_times_and_on_request_dependencies() {
        let mut node = Node::new(Kind::Worker, "w", "demo/w", "blocked");
        node.reason = Some("waits for db".into());
        node.handling = Some(Handling {
            message: "Tick".into(),
            for_ms: 6500,
        });
        let node = node.with("after", vec!["db", "queue"]);
        assert_eq!(node.note(false), "waits for db; busy 6s with Tick");
        assert!(node.note(true).ends_with("; after: db, queue"));
    }

    #[test]
    fn ages_are_short() {
        let table = [
            (12, "12s"),
            (2400, "40m"),
            (4320, "1h12m"),
            (187_200, "2d4h"),
        ];
        for (seconds, text) in table {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
