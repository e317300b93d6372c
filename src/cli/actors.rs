//! `gc actors`: the supervision tree.

mod show;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use gascity_actors::{Node, Tree};
use owo_colors::OwoColorize as _;
use serde_json::{Value, json};

use super::context::{Context, Seat};
use super::discover::Access;
use super::error::CliResult;
use super::output::Mark;
use super::values::{clipped, fits, millis};
use crate::config::duration;
use crate::control::client::{Client, ClientError};

/// Cursor to the upper left corner, and nothing below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Arguments of `gc actors`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  gc actors tree\n  gc actors tree 'bright-lights/hello/*'\n  gc actors tree --problems --watch"
)]
pub(super) struct ActorsArgs {
    #[command(subcommand)]
    command: ActorsCommand,
}

#[derive(Debug, Subcommand)]
enum ActorsCommand {
    /// Draw the tree: machine, cities, agents
    #[command(
        after_help = "Examples:\n  gc actors tree\n  gc actors tree 'bright-lights/hello/*' --watch\n  gc actors tree --kind worker --state quarantined\n  gc actors tree --problems --json"
    )]
    Tree(TreeArgs),
    /// Show one actor and the messages it handled of late
    Show(show::ShowArgs),
    /// Make an actor panic, to see it come back
    #[command(hide = true)]
    Crash(DrillArgs),
    /// Have an actor handle nothing any more, to see who notices
    #[command(hide = true)]
    Hang(DrillArgs),
    /// Give an actor many messages at once, to see it work them off
    #[command(hide = true)]
    Flood(FloodArgs),
}

#[derive(Debug, Args)]
struct TreeArgs {
    /// Only paths that fit, e.g. 'bright-lights/*', and what is above them
    pattern: Option<String>,
    /// Only actors of this kind: machine, city, worker, tracker
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
    /// Do not fit lines to the terminal
    #[arg(long)]
    wide: bool,
    /// Go on and on, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// How often --watch looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,
}

#[derive(Debug, Args)]
struct DrillArgs {
    /// The actor's path, as in the tree's JSON form
    path: String,
}

#[derive(Debug, Args)]
struct FloodArgs {
    /// The actor's path, as in the tree's JSON form
    path: String,
    /// How many messages
    #[arg(long, default_value = "10000")]
    messages: usize,
    /// How long it is busy before it begins with them
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse)]
    held: Duration,
}

impl ActorsArgs {
    /// Does what was asked.
    ///
    /// # Errors
    /// If nothing runs, or it does not answer.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        match &self.command {
            ActorsCommand::Tree(args) => args.run(context),
            ActorsCommand::Show(args) => args.run(context),
            ActorsCommand::Crash(args) => {
                drill(context, "actors.crash", "crashed", &args.path, json!({}))
            }
            ActorsCommand::Hang(args) => {
                drill(context, "actors.hang", "hanging:", &args.path, json!({}))
            }
            ActorsCommand::Flood(args) => {
                let params = json!({"messages": args.messages, "held_ms": millis(args.held)});
                drill(context, "actors.flood", "flooded", &args.path, params)
            }
        }
    }
}

impl TreeArgs {
    fn run(&self, context: &Context) -> CliResult<u8> {
        if !self.watch {
            self.show(context, &self.ask(context)?)?;
            return Ok(0);
        }
        let redraw = !context.out.json && std::io::stdout().is_terminal();
        let mut shown = None;
        loop {
            let tree = self.ask(context)?;
            if !redraw {
                self.show(context, &tree)?;
            } else if shown.as_ref() != Some(&tree) {
                let text = self.text(context, &tree);
                context.out.line(format!("{REDRAW}{text}"))?;
                shown = Some(tree);
            }
            std::thread::sleep(self.interval.max(Duration::from_millis(100)));
        }
    }

    fn ask(&self, context: &Context) -> CliResult<Tree> {
        Ok(controller(context)?.ask("actors.tree", json!({}))?)
    }

    fn show(&self, context: &Context, tree: &Tree) -> CliResult {
        match self.pruned(tree) {
            Some(tree) if context.out.json => context.out.document(&tree),
            Some(tree) => context.out.line(self.drawn(context, &tree)),
            None if context.out.json => context
                .out
                .document(&json!({"taken_at": json!(tree)["taken_at"], "root": null})),
            None => {
                context.out.note(self.nothing());
                Ok(())
            }
        }
    }

    /// `-v` adds dependencies.
    fn drawn(&self, context: &Context, tree: &Tree) -> String {
        let text = match context.globals.verbose {
            0 => tree.to_string(),
            _ => format!("{tree:#}"),
        };
        let width = context.out.width.filter(|_| !self.wide);
        let fitting = |line: &str| width.map_or_else(|| line.to_owned(), |w| clipped(line, w));
        // A header, then a line for each node, then the sum.
        let mut nodes = tree.root.walk();
        let line = |(n, line): (usize, &str)| {
            let node = if n == 0 { None } else { nodes.next() };
            let full = node.map_or(0, |node| node.mailbox_depth);
            match full {
                _ if !context.out.colour => fitting(line),
                1000.. => fitting(line).red().to_string(),
                100..1000 => fitting(line).yellow().to_string(),
                _ => fitting(line),
            }
        };
        let lines: Vec<String> = text.lines().enumerate().map(line).collect();
        lines.join("\n")
    }

    fn text(&self, context: &Context, tree: &Tree) -> String {
        self.pruned(tree).map_or_else(
            || self.nothing().to_owned(),
            |tree| self.drawn(context, &tree),
        )
    }

    fn nothing(&self) -> &'static str {
        match self.problems {
            true => "no actors need attention",
            false => "no actors fit",
        }
    }

    fn pruned(&self, tree: &Tree) -> Option<Tree> {
        let meant = |node: &Node| {
            let fits = |pattern: &String| fits(pattern, &node.path);
            self.pattern.as_ref().is_none_or(fits)
                && self
                    .kind
                    .as_ref()
                    .is_none_or(|kind| node.kind.as_str() == kind)
                && self.state.as_ref().is_none_or(|state| node.state == *state)
                && (!self.problems || node.needs_attention())
        };
        let mut root = prune(&tree.root, &meant)?;
        if let Some(depth) = self.depth {
            cut(&mut root, depth);
        }
        Some(Tree {
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

fn drill(context: &Context, op: &str, done: &str, path: &str, mut params: Value) -> CliResult<u8> {
    params["path"] = json!(path);
    let answer = controller(context)?.call(op, params)?;
    if context.out.json {
        context.out.document(&answer)?;
    }
    (context.out).report(Mark::Done, format!("{done} {path}"))?;
    Ok(0)
}

/// Whoever runs the city one is in; outside of cities the supervisor.
fn controller(context: &Context) -> CliResult<Client> {
    let Ok(root) = context.city(None, Access::Change) else {
        return context.running_supervisor();
    };
    match context.seat(&root)? {
        Seat::Standalone(client) | Seat::Supervisor(client) => Ok(client),
        Seat::Nobody => Err(ClientError::NotRunning.into()),
    }
}

#[cfg(test)]
mod tests {
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
