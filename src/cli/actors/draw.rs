//! The tree as lines for people.

use std::collections::HashMap;

use gascity_actors::{Cells, Node, Tree};
use owo_colors::OwoColorize as _;

use crate::cli::values::clipped;

/// Grows all the time, which is no news.
const UP: usize = 4;

/// Draws trees; what differs from the last one it drew is bold.
#[derive(Debug)]
pub(super) struct Drawing {
    width: Option<usize>,
    colour: bool,
    deep: bool,
    /// The cells of the last tree, by the ids of its nodes.
    last: Option<HashMap<String, Cells>>,
}

impl Drawing {
    pub(super) fn new(width: Option<usize>, colour: bool, deep: bool) -> Self {
        let last = None;
        Self {
            width,
            colour,
            deep,
            last,
        }
    }

    /// A header, a line for each node, and the sum. Nodes that are not meant are there for those
    /// below them, and dimmed.
    pub(super) fn draw(&mut self, tree: &Tree, meant: &impl Fn(&Node) -> bool) -> String {
        let mut table = tree.table(self.deep).into_iter();
        let mut lines: Vec<String> = table
            .by_ref()
            .take(1)
            .map(|row| self.fitting(&row))
            .collect();
        let mut now = HashMap::new();
        for ((node, padded), cells) in tree.root.walk().zip(table).zip(tree.rows(self.deep)) {
            let line = self.fitting(&padded);
            lines.push(match (self.colour, node.mailbox_depth) {
                (false, _) => line,
                (true, 1000..) => self.news(node, &padded, &cells, &line).red().to_string(),
                (true, 100..1000) => self.news(node, &padded, &cells, &line).yellow().to_string(),
                (true, _) if !meant(node) => line.dimmed().to_string(),
                (true, _) => self.news(node, &padded, &cells, &line),
            });
            now.insert(node.id.clone(), cells);
        }
        self.last = Some(now);
        lines.push(tree.sum());
        lines.join("\n")
    }

    fn fitting(&self, row: &Cells) -> String {
        let line = row.join("  ");
        let line = line.trim_end();
        self.width
            .map_or_else(|| line.to_owned(), |width| clipped(line, width))
    }

    /// The line with its changed cells in bold.
    fn news(&self, node: &Node, padded: &Cells, cells: &Cells, line: &str) -> String {
        let Some(last) = &self.last else {
            return line.to_owned();
        };
        let old = last.get(&node.id);
        let mut chars = line.chars();
        let mut drawn = String::new();
        for (column, cell) in padded.iter().enumerate() {
            let new = column != UP && old.is_none_or(|old| old[column] != cells[column]);
            let text: String = chars.by_ref().take(cell.chars().count()).collect();
            match new && !text.trim().is_empty() {
                true => drawn.push_str(&format!("\x1b[1m{text}\x1b[22m")),
                false => drawn.push_str(&text),
            }
            drawn.extend(chars.by_ref().take(2));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(path: &str, kind: &str, state: &str, depth: usize, children: Vec<Value>) -> Value {
        let name = path.rsplit('/').next();
        json!({
            "id": path, "name": name, "path": path, "kind": kind, "state": state,
            "mailbox_depth": depth, "mailbox_peak": 0, "handled": 0, "uptime_ms": depth * 1000,
            "children": children
        })
    }

    fn tree(state: &str, depth: usize) -> Tree {
        let worker = node("town/w", "worker", state, depth, vec![]);
        let city = node("town", "city", "running", 0, vec![worker]);
        let tree = json!({"index": 1, "taken_at": "2026-03-18T10:00:00Z", "root": city});
        serde_json::from_value(tree).unwrap()
    }

    #[test]
    fn what_changed_is_bold_and_what_stands_above_is_dim() {
        let mut drawing = Drawing::new(None, true, false);
        let meant = |node: &Node| node.path == "town/w";
        let first = drawing.draw(&tree("running", 1), &meant);
        assert!(!first.contains("\x1b[1m"), "{first:?}");
        assert!(first.contains("\x1b[2mtown"), "{first:?}");
        let second = drawing.draw(&tree("backoff", 2), &meant);
        assert!(
            second.contains("\x1b[1mbackoff\x1b[22m  \x1b[1m   2\x1b[22m  2s"),
            "{second:?}"
        );
        let third = drawing.draw(&tree("backoff", 2), &meant);
        assert!(!third.contains("\x1b[1m"), "{third:?}");
        let full = drawing.draw(&tree("backoff", 100), &meant);
        assert!(full.contains("\x1b[33m└─ w"), "{full:?}");
    }

    #[test]
    fn without_colour_it_is_the_plain_text_and_fits() {
        let all = |_: &Node| true;
        let drawn = Drawing::new(None, false, false).draw(&tree("running", 1), &all);
        assert_eq!(drawn, tree("running", 1).to_string());
        let narrow = Drawing::new(Some(12), false, false).draw(&tree("running", 1), &all);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 12),
            "{narrow}"
        );
    }
}
