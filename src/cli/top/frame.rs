//! A frame of `gc top`: a pure function of what is known and the size of the screen.

use std::time::Duration;

use gascity_actors::age;

use super::model::{Model, Prompt, View};
use super::rows::{Row, Tone};
use crate::cli::values::{clipped, table};

/// Less than this shows nothing useful.
const LEAST: (usize, usize) = (20, 6);

const HELP: &str = "\
Tab, 1-3     agents, actors, events
up, down, j, k, PgUp, PgDn, Home, End
Enter        details of the agent
/            filter; Esc clears it
s            sort
p            peek at its screen
a            attach to its session
n            nudge: type a line to it
r, d, x      restart, drain, kill
space        freeze, and go on
q            quit";

const KEYS: &str = "Enter detail  / filter  s sort  p peek  a attach  n nudge  r restart  d drain  x kill  ? help  q quit";

/// One line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl Line {
    fn new(tone: Tone, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { text, tone }
    }
}

/// The whole screen: at most `height` lines of at most `width` columns.
pub(super) fn frame(model: &Model, width: usize, height: usize) -> Vec<Line> {
    if width < LEAST.0 || height < LEAST.1 {
        return vec![Line::new(Tone::Plain, clipped("too small", width))];
    }
    let mut lines = vec![
        Line::new(Tone::Title, header(model)),
        Line::new(Tone::Plain, tabs(model)),
        Line::new(Tone::Bad, banner(model)),
    ];
    let room = height - lines.len() - 1;
    lines.extend(body(model, room));
    lines.truncate(height - 1);
    lines.resize(height - 1, Line::new(Tone::Plain, ""));
    lines.push(Line::new(Tone::Dim, foot(model)));
    for line in &mut lines {
        line.text = clipped(line.text.trim_end(), width);
    }
    lines
}

fn header(model: &Model) -> String {
    let look = &model.look;
    if look.pid == 0 {
        return "gc top".to_owned();
    }
    let up = |running: usize, total: usize, what: &str| format!("{running}/{total} {what}");
    let running = look.cities.iter().filter(|city| city.running).count();
    let agents = || look.views.iter().flat_map(|view| &view.instances);
    let alive = agents().filter(|agent| agent.running).count();
    let tick = look.views.iter().filter_map(|view| view.last_tick_ms).max();
    let minute = look.taken_at - chrono::TimeDelta::minutes(1);
    let recent = look.events.iter().filter(|(_, event)| event.ts > minute);
    let mut parts = vec![
        format!("{} pid {}", look.mode, look.pid),
        format!("up {}", age(Duration::from_secs(look.uptime_sec))),
        up(running, look.cities.len(), "cities"),
        up(alive, agents().count(), "agents up"),
    ];
    parts.extend(tick.map(|ms| format!("tick {ms}ms")));
    parts.push(format!("{:.1} events/s", recent.count() as f64 / 60.0));
    parts.join("  ")
}

fn tabs(model: &Model) -> String {
    let tab = |(n, view): (usize, &View)| match *view == model.view {
        true => format!("[{} {}]", n + 1, view.name()),
        false => format!(" {} {} ", n + 1, view.name()),
    };
    let mut text: String = View::ALL.iter().enumerate().map(tab).collect();
    match model.view {
        View::Agents => text.push_str(&format!("  sort: {}", model.sort.name())),
        View::Actors if model.sort.name() != "name" => text.push_str("  sort: mailbox"),
        _ => {}
    }
    if !model.filter.is_empty() {
        text.push_str(&format!("  filter: {}", model.filter));
    }
    if model.frozen {
        text.push_str("  frozen");
    }
    text
}

fn banner(model: &Model) -> String {
    match &model.gone {
        Some(why) => format!("! {why}; trying again"),
        None => String::new(),
    }
}

fn body(model: &Model, room: usize) -> Vec<Line> {
    if let Some(page) = &model.page {
        let mut lines = vec![Line::new(Tone::Head, page.title.clone())];
        let shown = page.lines.iter().skip(page.from);
        lines.extend(shown.map(|line| Line::new(Tone::Plain, line.clone())));
        lines.truncate(room);
        return lines;
    }
    let rows = model.rows();
    if rows.is_empty() {
        let what = match model.filter.is_empty() {
            true => format!("no {}", model.view.name()),
            false => format!("no {} fit", model.view.name()),
        };
        return vec![Line::new(Tone::Dim, what)];
    }
    // As many rows as fit, the selected one among them.
    let fit = room.saturating_sub(1).max(1);
    let from = (model.selected + 1).saturating_sub(fit);
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells.clone()).collect();
    let text = table(&columns(model), &cells);
    let mut text = text.lines();
    let head = Line::new(Tone::Head, text.next().unwrap_or_default());
    let line = |(n, (text, row)): (usize, (&str, &Row))| {
        let tone = match n == model.selected {
            true => Tone::Selected,
            false => row.tone,
        };
        let mark = if n == model.selected { ">" } else { " " };
        Line::new(tone, format!("{mark}{text}"))
    };
    let lines = text.zip(&rows).enumerate().skip(from).take(fit).map(line);
    let head = Line::new(Tone::Head, format!(" {}", head.text));
    std::iter::once(head).chain(lines).collect()
}

fn columns(model: &Model) -> Vec<&'static str> {
    let own: &[&str] = match model.view {
        View::Agents => &["NAME", "STATE", "UP", "RESTARTS", "NOTE"],
        View::Actors => &["ACTOR", "KIND", "STATE", "MBOX", "UP", "RESTARTS", "NOTE"],
        View::Events => &["EVENT"],
    };
    let city = (model.all && model.view != View::Actors).then_some("CITY");
    city.into_iter().chain(own.iter().copied()).collect()
}

fn foot(model: &Model) -> String {
    match (&model.prompt, &model.said) {
        (Some(Prompt::Filter { .. }), _) => format!("/{}_", model.filter),
        (Some(Prompt::Nudge { target, text }), _) => format!("nudge {}: {text}_", target.agent),
        (Some(Prompt::Confirm { target, act }), _) => {
            format!("{} {}? [y/N]", act.word(), target.agent)
        }
        (None, Some(said)) => said.clone(),
        (None, None) if model.page.is_some() => "Esc back".to_owned(),
        (None, None) => KEYS.to_owned(),
    }
}

/// The page of the key `?`.
pub(super) fn help() -> super::model::Page {
    super::model::Page::new("Keys", HELP)
}
