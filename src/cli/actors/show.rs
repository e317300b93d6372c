//! `gc actors show`: one actor, and what it handled of late.

use std::time::Duration;

use clap::Args;
use gascity_actors::{Past, Shown, age};
use serde_json::json;

use super::controller;
use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::values::{did_you_mean, table};
use gascity_actors::Tree;

/// Arguments of `gc actors show`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc actors show machine\n  gc actors show bright-lights\n  gc actors show bright-lights/hello/worker-1 --json"
)]
pub(super) struct ShowArgs {
    /// The actor's path: `machine`, a city, or a city and the name below it
    #[arg(value_name = "ACTOR")]
    actor: String,
}

impl ShowArgs {
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let mut client = controller(context)?;
        let shown = client.ask::<Shown>("actors.show", json!({"path": self.actor}));
        let shown = match shown.map_err(CliError::from) {
            Ok(shown) => shown,
            Err(mut error) if error.code == Code::NotFound => {
                let tree: Tree = client.ask("actors.tree", json!({}))?;
                let paths: Vec<&str> = tree.root.walk().map(|node| node.path.as_str()).collect();
                error.hint = did_you_mean(&self.actor, &paths);
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        match context.out.json {
            true => context.out.document(&shown)?,
            false => context.out.line(page(&shown))?,
        }
        Ok(0)
    }
}

fn page(shown: &Shown) -> String {
    let node = &shown.node;
    let mut page = format!("{}  {}  {}\n", node.path, node.kind.as_str(), node.state);
    let mut line = |label: &str, text: String| {
        if !text.is_empty() {
            page.push_str(&format!("  {label:<8}  {text}\n"));
        }
    };
    let (depth, peak, handled) = (node.mailbox_depth, node.mailbox_peak, node.handled);
    line(
        "Mailbox",
        format!("{depth} queued, at most {peak}; {handled} handled"),
    );
    let on = node.handling.as_ref();
    let busy = on.map(|on| format!("{} for {}", on.message, millis(on.for_ms * 1000)));
    line("On", busy.unwrap_or_default());
    let up = node.uptime_ms.map(|ms| age(Duration::from_millis(ms)));
    line("Up", up.unwrap_or_default());
    if node.restarts_in_window.is_some() {
        line("Restarts", node.restarts());
    }
    line("Note", node.note(true));
    if shown.messages.is_empty() {
        line("Messages", "none yet".to_owned());
        return page.trim_end().to_owned();
    }
    line("Messages", format!("the last {}", shown.messages.len()));
    let row = |past: &Past| {
        vec![
            format!("{} ago", age(Duration::from_millis(past.ago_ms))),
            past.message.clone(),
            millis(past.wait_us),
            millis(past.took_us),
        ]
    };
    let rows: Vec<Vec<String>> = shown.messages.iter().map(row).collect();
    for row in table(&["WHEN", "MESSAGE", "WAITED", "TOOK"], &rows).lines() {
        page.push_str(&format!("    {row}\n"));
    }
    page.trim_end().to_owned()
}

/// `0.04ms`, `12.3ms`, `1.5s`
fn millis(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    match us {
        0..10_000 => format!("{ms:.2}ms"),
        10_000..1_000_000 => format!("{ms:.1}ms"),
        _ => format!("{:.1}s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_shown_with_its_last_messages() {
        let shown: Shown = serde_json::from_value(json!({
            "id": "town/worker:a", "name": "a", "path": "town/a", "kind": "worker",
            "state": "running", "mailbox_depth": 0, "mailbox_peak": 2, "handled": 3,
            "uptime_ms": 4_320_000, "restarts_in_window": 1, "max_restarts": 5,
            "detail": {"pid": 4121}, "children": [],
            "messages": [
                {"message": "Started", "ago_ms": 4_320_000, "wait_us": 40, "took_us": 12_345},
                {"message": "Exited", "ago_ms": 12_000, "wait_us": 1_500_000, "took_us": 9}
            ]
        }))
        .unwrap();
        let expected = "\
town/a  worker  running
  Mailbox   0 queued, at most 2; 3 handled
  Up        1h12m
  Restarts  1/5
  Note      pid 4121
  Messages  the last 2
    WHEN       MESSAGE  WAITED  TOOK
    1h12m ago  Started  0.04ms  12.3ms
    12s ago    Exited   1.5s    0.01ms";
        assert_eq!(page(&shown), expected);
    }
}
