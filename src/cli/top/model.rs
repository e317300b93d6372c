//! What `gc top` knows and where the user is in it. No terminal, no socket, no clock.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use gascity_actors::Tree;

use super::rows::{self, Row};
use crate::model::{CityInfo, CityView, Event, InstanceView};

/// Events that are kept for the view of them.
pub(super) const EVENTS: usize = 200;

/// What one look at the supervisor found.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    pub(super) taken_at: DateTime<Utc>,
    /// `supervisor` or `standalone`.
    pub(super) mode: String,
    pub(super) pid: u32,
    pub(super) uptime_sec: u64,
    /// All cities there are.
    pub(super) cities: Vec<CityInfo>,
    /// Those that are looked at and run.
    pub(super) views: Vec<CityView>,
    pub(super) tree: Option<Tree>,
    /// City and event, oldest first.
    pub(super) events: Vec<(String, Event)>,
}

/// The agent an action is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) root: PathBuf,
    pub(super) agent: String,
}

/// What is listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Agents,
    Actors,
    Events,
}

impl View {
    pub(super) const ALL: [Self; 3] = [Self::Agents, Self::Actors, Self::Events];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Actors => "actors",
            Self::Events => "events",
        }
    }

    fn index(self) -> usize {
        Self::ALL.iter().position(|v| *v == self).unwrap_or(0)
    }

    pub(super) fn next(self) -> Self {
        Self::ALL[(self.index() + 1) % Self::ALL.len()]
    }

    pub(super) fn previous(self) -> Self {
        Self::ALL[(self.index() + Self::ALL.len() - 1) % Self::ALL.len()]
    }
}

/// By what agents are ordered; actors stay a tree unless it is by their mailboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    State,
    Up,
    Restarts,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Up => "up",
            Self::Restarts => "restarts",
        }
    }

    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::State,
            Self::State => Self::Up,
            Self::Up => Self::Restarts,
            Self::Restarts => Self::Name,
        }
    }
}

/// What an action does to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Restart,
    Drain,
    Kill,
}

impl Act {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Drain => "drain",
            Self::Kill => "kill",
        }
    }
}

/// What the bottom line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prompt {
    /// What is typed narrows the list at once; with Esc this stands again.
    Filter {
        before: String,
    },
    Nudge {
        target: Target,
        text: String,
    },
    Confirm {
        target: Target,
        act: Act,
    },
}

/// A page over the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) from: usize,
}

impl Page {
    pub(super) fn new(title: impl Into<String>, text: &str) -> Self {
        let plain = |line: &str| line.chars().filter(|c| !c.is_control()).collect();
        Self {
            title: title.into(),
            lines: text.lines().map(plain).collect(),
            from: 0,
        }
    }
}

/// Everything a frame is drawn from.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) look: Look,
    /// All cities are listed, so rows name theirs.
    pub(super) all: bool,
    pub(super) view: View,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) selected: usize,
    pub(super) frozen: bool,
    pub(super) prompt: Option<Prompt>,
    pub(super) page: Option<Page>,
    /// The supervisor is gone, and why.
    pub(super) gone: Option<String>,
    /// What came of the last action.
    pub(super) said: Option<String>,
}

impl Model {
    /// Takes what was found, unless the user wants it to stand still.
    pub(super) fn take(&mut self, look: Look) {
        self.gone = None;
        if !self.frozen {
            self.look = look;
            self.selected = self.selected.min(self.rows().len().saturating_sub(1));
        }
    }

    /// The rows of the view at hand that fit the filter.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = match self.view {
            View::Agents => rows::agents(&self.look, self.sort, self.all),
            View::Actors => rows::actors(&self.look, self.sort),
            View::Events => rows::events(&self.look, self.all),
        };
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| wanted.is_empty() || row.text().to_lowercase().contains(&wanted));
        rows
    }

    /// The agent of the selected row.
    pub(super) fn target(&self) -> Option<Target> {
        self.rows().into_iter().nth(self.selected)?.target
    }

    /// What is known of an agent.
    pub(super) fn instance(&self, target: &Target) -> Option<&InstanceView> {
        let view = (self.look.views.iter()).find(|view| view.path == target.root)?;
        let mut all = view.instances.iter();
        all.find(|instance| instance.qualified_name.as_str() == target.agent)
    }
}
