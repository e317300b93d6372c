//! The lists of `gc top`.

use std::cmp::Reverse;

use gascity_actors::{Kind, Node};

use super::model::{Look, Sort, Target};
use crate::cli::events;
use crate::cli::status::text;
use crate::model::{AgentState, CityView, InstanceView};

/// How a line is meant; words beside it always say the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Title,
    Head,
    Selected,
    Warn,
    Bad,
    Dim,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) tone: Tone,
    pub(super) target: Option<Target>,
}

impl Row {
    pub(super) fn text(&self) -> String {
        self.cells.join(" ")
    }
}

/// Agents of all cities that are looked at.
pub(super) fn agents(look: &Look, sort: Sort, all: bool) -> Vec<Row> {
    let mut found: Vec<(&CityView, &InstanceView)> = look
        .views
        .iter()
        .flat_map(|view| view.instances.iter().map(move |instance| (view, instance)))
        .collect();
    found.sort_by_key(|(view, agent)| (&view.name, &agent.qualified_name));
    match sort {
        Sort::Name => {}
        Sort::State => found.sort_by_key(|(_, agent)| (!is_bad(agent.state), agent.state.as_str())),
        Sort::Up => found.sort_by_key(|(_, agent)| Reverse(agent.uptime_ms)),
        Sort::Restarts => found.sort_by_key(|(_, agent)| Reverse(agent.restarts_in_window)),
    }
    let row = |(view, agent): (&CityView, &InstanceView)| {
        let mut cells = text::row(agent, look.taken_at);
        if all {
            cells.insert(0, view.name.to_string());
        }
        Row {
            cells,
            tone: tone(agent.state),
            target: Some(Target {
                root: view.path.clone(),
                agent: agent.qualified_name.to_string(),
            }),
        }
    };
    found.into_iter().map(row).collect()
}

fn is_bad(state: AgentState) -> bool {
    matches!(state, AgentState::Quarantined | AgentState::Backoff)
}

fn tone(state: AgentState) -> Tone {
    match state {
        AgentState::Quarantined => Tone::Bad,
        AgentState::Running => Tone::Plain,
        AgentState::Suspended | AgentState::Stopped | AgentState::Done => Tone::Dim,
        _ => Tone::Warn,
    }
}

/// The tree, or by mailboxes the fullest first.
pub(super) fn actors(look: &Look, sort: Sort) -> Vec<Row> {
    let Some(tree) = &look.tree else {
        return Vec::new();
    };
    let lines = tree.rows(false).into_iter().map(Vec::from);
    let mut found: Vec<(&Node, Vec<String>)> = tree.root.walk().zip(lines).collect();
    if sort != Sort::Name {
        found.sort_by_key(|(node, _)| Reverse(node.mailbox_depth));
    }
    let row = |(node, cells): (&Node, Vec<String>)| Row {
        cells,
        tone: match node.needs_attention() {
            true if node.mailbox_depth >= 1000 || node.state == "unresponsive" => Tone::Bad,
            true => Tone::Warn,
            false => Tone::Plain,
        },
        target: target(look, node),
    };
    found.into_iter().map(row).collect()
}

/// The agent a node stands for, if it does.
fn target(look: &Look, node: &Node) -> Option<Target> {
    let city = node.path.strip_suffix(&node.name)?.strip_suffix('/')?;
    let info = look.cities.iter().find(|info| info.name.as_str() == city)?;
    (node.kind == Kind::Worker).then(|| Target {
        root: info.path.clone(),
        agent: node.name.clone(),
    })
}

/// Newest first.
pub(super) fn events(look: &Look, all: bool) -> Vec<Row> {
    let row = |(city, event): &(String, crate::model::Event)| {
        let mut cells = vec![events::row(event)];
        if all {
            cells.insert(0, city.clone());
        }
        let bad = ["crashed", "failed", "quarantined", "stalled"];
        let is_bad = bad.iter().any(|word| event.kind.ends_with(word));
        Row {
            cells,
            tone: if is_bad { Tone::Warn } else { Tone::Plain },
            target: None,
        }
    };
    look.events.iter().rev().map(row).collect()
}
