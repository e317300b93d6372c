//! `gc actors tree`: who supervises whom, once or as it changes.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use gascity_actors::{Node, Tree};
use serde_json::json;

use super::controller;
use super::draw::Drawing;
use super::watch::{Terminal, Waited};
use crate::cli::context::Context;
use crate::cli::error::CliResult;
use crate::cli::values::fits;
use crate::config::duration;

/// The shortest time between two looks.
const FASTEST: Duration = Duration::from_millis(100);

/// Arguments of `gc actors tree`.
#[derive(Debug, Args)]
pub(super) struct TreeArgs {
    /// Only paths that fit, e.g. 'bright-lights/*', and what is above them
    pattern: Option<String>,
    /// Only actors of this kind: machine, city, worker, tracker; those of `-a` as well
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only actors in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// No more than this many levels below the root
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Only what needs attention, and what is above it
    #[arg(long)]
    problems: bool,
    /// Also what works behind the actors: event logs, watchers, providers, the control socket
    #[arg(short = 'a', long)]
    internals: bool,
    /// Do not fit lines to the terminal
    #[arg(long)]
    wide: bool,
    /// Go on and on, until `q` or Ctrl-C
    #[arg(long)]
    watch: bool,
    /// How often --watch looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,
}

impl TreeArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        if !self.watch {
            self.show(context, &self.ask(context)?)?;
            return Ok(0);
        }
        let interval = self.interval.max(FASTEST);
        if context.out.json || !std::io::stdout().is_terminal() {
            loop {
                self.show(context, &self.ask(context)?)?;
                std::thread::sleep(interval);
            }
        }
        let mut drawing = self.drawing(context);
        let terminal = Terminal::take();
        loop {
            let text = match self.pruned(&self.ask(context)?) {
                Some(tree) => drawing.draw(&tree, &|node| self.means(node)),
                None => self.nothing().to_owned(),
            };
            terminal.draw(&text)?;
            match terminal.wait(interval)? {
                Waited::Passed => {}
                Waited::Quit => return Ok(0),
                Waited::Interrupt => return Ok(130),
            }
        }
    }

    fn ask(&self, context: &Context) -> CliResult<Tree> {
        // One that is asked for by its kind is wanted, too.
        let params = json!({"internals": self.internals || self.kind.is_some()});
        Ok(controller(context)?.ask("actors.tree", params)?)
    }

    fn show(&self, context: &Context, tree: &Tree) -> CliResult {
        match self.pruned(tree) {
            Some(tree) if context.out.json => context.out.document(&tree),
            Some(tree) => {
                let text = self.drawing(context).draw(&tree, &|node| self.means(node));
                context.out.line(text)
            }
            None if context.out.json => {
                let (index, taken_at) = (tree.index, &json!(tree)["taken_at"]);
                let none = json!({"index": index, "taken_at": taken_at, "root": null});
                context.out.document(&none)
            }
            None => {
                context.out.note(self.nothing());
                Ok(())
            }
        }
    }

    /// `-v` adds dependencies.
    fn drawing(&self, context: &Context) -> Drawing {
        Drawing::new(
            context.out.width.filter(|_| !self.wide),
            context.out.colour,
            context.globals.verbose > 0,
        )
    }

    fn nothing(&self) -> &'static str {
        match self.problems {
            true => "no actors need attention",
            false => "no actors fit",
        }
    }

    /// Whether the node was asked for, and not only stands above one that was.
    fn means(&self, node: &Node) -> bool {
        let fits = |pattern: &String| fits(pattern, &node.path);
        let kind = |kind: &String| node.kind.as_str() == kind;
        self.pattern.as_ref().is_none_or(fits)
            && self.kind.as_ref().is_none_or(kind)
            && self.state.as_ref().is_none_or(|state| node.state == *state)
            && (!self.problems || node.needs_attention())
    }

    fn pruned(&self, tree: &Tree) -> Option<Tree> {
        let mut root = prune(&tree.root, &|node| self.means(node))?;
        if let Some(depth) = self.depth {
            cut(&mut root, depth);
        }
        Some(Tree {
            index: tree.index,
            taken_at: tree.taken_at,
            root,
        })
    }
}

/// The nodes that are meant, with all that is above them.
fn prune(node: &Node, meant: &impl Fn(&Node) -> bool) -> Option<Node> {
    let children: Vec<Node> = node
        .children
        .iter()
        .filter_map(|child| prune(child, meant))
        .collect();
    if children.is_empty() && !meant(node) {
        return None;
    }
    let mut kept = node.clone();
    kept.children = children;
    Some(kept)
}

/// Drops what is more than `depth` levels below the node.
fn cut(node: &mut Node, depth: usize) {
    match depth.checked_sub(1) {
        None => node.children.clear(),
        Some(rest) => node.children.iter_mut().for_each(|child| cut(child, rest)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn node(path: &str, state: &str, children: Vec<Value>) -> Value {
        json!({
            "id": path, "name": path, "path": path, "kind": "worker", "state": state,
            "mailbox_depth": 0, "mailbox_peak": 0, "handled": 0, "children": children
        })
    }

    fn kept(pattern: Option<&str>, problems: bool) -> Vec<String> {
        kept_by(TreeArgs {
            pattern: pattern.map(str::to_owned),
            kind: None,
            state: None,
            depth: None,
            problems,
            internals: false,
            wide: false,
            watch: false,
            interval: Duration::from_secs(1),
        })
    }

    fn kept_by(args: TreeArgs) -> Vec<String> {
        let city = vec![
            node("one/a", "running", vec![]),
            node("one/b", "quarantined", vec![]),
        ];
        let root = vec![node("one", "running", city), node("two", "running", vec![])];
        let tree = json!({
            "taken_at": "2026-03-18T10:00:00Z", "root": node("machine", "running", root)
        });
        let tree: Tree = serde_json::from_value(tree).unwrap();
        let pruned = args.pruned(&tree);
        let paths = pruned.iter().flat_map(|tree| tree.root.walk());
        paths.map(|node| node.path.clone()).collect()
    }

    #[test]
    fn what_is_meant_stays_with_its_ancestors() {
        assert_eq!(kept(Some("one/a"), false), ["machine", "one", "one/a"]);
        assert_eq!(kept(None, true), ["machine", "one", "one/b"]);
        assert_eq!(kept(Some("two"), false), ["machine", "two"]);
        assert!(kept(Some("one/a"), true).is_empty());
        assert_eq!(kept(None, false).len(), 5);
    }

    #[test]
    fn kind_state_and_depth_narrow_it_down() {
        let args = |kind: Option<&str>, state: Option<&str>, depth| TreeArgs {
            pattern: None,
            kind: kind.map(str::to_owned),
            state: state.map(str::to_owned),
            depth,
            problems: false,
            internals: false,
            wide: false,
            watch: false,
            interval: Duration::from_secs(1),
        };
        let quarantined = kept_by(args(None, Some("quarantined"), None));
        assert_eq!(quarantined, ["machine", "one", "one/b"]);
        assert_eq!(
            kept_by(args(None, None, Some(1))),
            ["machine", "one", "two"]
        );
        assert_eq!(kept_by(args(None, None, Some(0))), ["machine"]);
        assert!(kept_by(args(Some("tracker"), None, None)).is_empty());
    }
}
