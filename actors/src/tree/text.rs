//! The actor tree as text.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Kind, Node, Tree};

/// A message that takes longer is told.
const BUSY_MS: u64 = 1000;

impl Node {
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
                .map(|error| &error.message)
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
            self.detail
                .get("provider")
                .filter(|_| self.kind == Kind::Provider)
                .and_then(Value::as_str)
                .map(str::to_owned),
            self.after().filter(|_| deep),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// What stands above the cells of a node.
const HEADER: [&str; COLUMNS] = ["ACTOR", "KIND", "STATE", "MBOX", "UP", "RESTARTS", "NOTE"];
const COLUMNS: usize = 7;
/// The one column of numbers.
const MBOX: usize = 3;

/// The cells of a line.
pub type Cells = [String; COLUMNS];

impl Tree {
    /// The cells of the tree, a row for each node in the order of [`Node::walk`]; `deep` also names
    /// what each depends on.
    #[must_use]
    pub fn rows(&self, deep: bool) -> Vec<Cells> {
        let mut rows = Vec::new();
        add(&mut rows, &self.root, "", "", deep);
        rows
    }

    /// The same below a header, filled up to the width of their columns.
    #[must_use]
    pub fn table(&self, deep: bool) -> Vec<Cells> {
        let mut rows = vec![HEADER.map(String::from)];
        rows.extend(self.rows(deep));
        let width = |column: usize| {
            let widths = rows.iter().map(|row: &Cells| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        for row in &mut rows {
            for (column, (cell, width)) in row.iter_mut().zip(widths).enumerate() {
                *cell = match column {
                    MBOX => format!("{cell:>width$}"),
                    _ => format!("{cell:width$}"),
                };
            }
        }
        rows
    }

    /// How many there are, and how many of them need attention.
    #[must_use]
    pub fn sum(&self) -> String {
        let nodes = self.root.walk().count();
        let attention = self
            .root
            .walk()
            .filter(|node| node.needs_attention())
            .count();
        let s = if nodes == 1 { "" } else { "s" };
        match attention {
            0 => format!("{nodes} actor{s}"),
            1 => format!("{nodes} actor{s}, 1 needs attention"),
            n => format!("{nodes} actor{s}, {n} need attention"),
        }
    }
}

impl fmt::Display for Tree {
    /// One line per actor, as `gc actors tree` shows it; the alternate form (`{:#}`) also names
    /// what each depends on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.table(f.alternate()) {
            writeln!(f, "{}", row.join("  ").trim_end())?;
        }
        f.write_str(&self.sum())
    }
}

fn add(rows: &mut Vec<Cells>, node: &Node, own: &str, below: &str, deep: bool) {
    let up = node.uptime_ms.map(|ms| age(Duration::from_millis(ms)));
    rows.push([
        format!("{own}{}", node.name),
        node.kind.as_str().into(),
        node.state.clone(),
        node.mailbox_depth.to_string(),
        up.unwrap_or_else(|| "-".into()),
        node.restarts(),
        node.note(deep),
    ]);
    for (i, child) in node.children.iter().enumerate() {
        let last = i + 1 == node.children.len();
        let (branch, trunk) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        let (own, below) = (format!("{below}{branch}"), format!("{below}{trunk}"));
        add(rows, child, &own, &below, deep);
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

#[cfg(test)]
mod tests {
    use super::super::{Handling, LastError};
    use super::*;

    #[test]
    fn the_tree_is_drawn_with_a_row_per_actor() {
        let mut root = Node::new(Kind::Machine, "machine", "machine", "running");
        let mut city = Node::new(Kind::City, "demo", "demo", "running");
        let mut worker = Node::new(Kind::Worker, "rig/w", "demo/rig/w", "quarantined");
        worker.restarts_in_window = Some(5);
        worker.max_restarts = Some(5);
        worker.last_error = Some(LastError {
            at: None,
            message: "exit 1: no such model".into(),
        });
        assert_eq!(worker.id, "demo/worker:rig/w");
        city.children = vec![
            Node::new(Kind::Tracker, "tracker", "demo/tracker", "running"),
            worker,
        ];
        root.children = vec![city];
        let tree = Tree {
            index: 1,
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
    fn helpers_are_left_out_while_they_are_well() {
        let mut city = Node::new(Kind::City, "demo", "demo", "running");
        let trouble = LastError {
            at: Some(DateTime::UNIX_EPOCH),
            message: "disk full".into(),
        };
        city.children = vec![
            Node::helper(Kind::EventLog, "event-log", "demo", Some(trouble)),
            Node::helper(Kind::Provider, "provider", "demo", None).with("provider", "tmux"),
            Node::new(Kind::Worker, "provider", "demo/provider", "running"),
        ];
        let tree = Tree {
            index: 1,
            taken_at: DateTime::UNIX_EPOCH,
            root: city,
        };
        let text = tree.to_string();
        assert!(text.contains("provider   running"), "{text}");
        assert!(
            text.ends_with(
                "tmux\n└─ provider   worker     running      0  -   -\n4 actors, 1 needs attention"
            ),
            "{text}"
        );
        let json = serde_json::to_value(&tree).unwrap();
        let error = &json["root"]["children"][0]["last_error"];
        assert_eq!(error["message"], "disk full");
        assert_eq!(error["at"], "1970-01-01T00:00:00.000Z");
        let left = tree.without_helpers();
        let ids: Vec<&str> = left.root.walk().map(|node| node.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "city:demo",
                "demo/event_log:event-log",
                "demo/worker:provider"
            ]
        );
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
