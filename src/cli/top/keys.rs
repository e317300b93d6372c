//! What the keys of `gc top` do.

use super::frame;
use super::model::{Act, Model, Page, Prompt, Sort, Target, View};
use crate::model::InstanceView;

/// How far PgUp and PgDn go.
const LEAP: usize = 10;

/// A key, whatever the terminal sends for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Char(char),
}

/// What the user wants of others than the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Peek(Target),
    Attach(Target),
    Nudge(Target, String),
    Do(Target, Act),
}

/// Takes a key; answers what must be done about it elsewhere.
pub(super) fn press(model: &mut Model, key: Key) -> Option<Wish> {
    model.said = None;
    if let Some(prompt) = model.prompt.take() {
        return answer(model, prompt, key);
    }
    if model.page.is_some() {
        turn(model, key);
        return None;
    }
    match key {
        Key::Char('q') => return Some(Wish::Quit),
        Key::Char('?') => model.page = Some(frame::help()),
        Key::Char(' ') => model.frozen = !model.frozen,
        Key::Tab => show(model, model.view.next()),
        Key::BackTab => show(model, model.view.previous()),
        Key::Char(digit @ '1'..='3') => {
            let view = View::ALL[usize::from(digit as u8 - b'1')];
            show(model, view);
        }
        Key::Char('/') => {
            let before = model.filter.clone();
            model.prompt = Some(Prompt::Filter { before });
        }
        Key::Esc => model.filter.clear(),
        Key::Char('s') if model.view == View::Actors => {
            model.sort = match model.sort {
                Sort::Name => Sort::State,
                _ => Sort::Name,
            }
        }
        Key::Char('s') => model.sort = model.sort.next(),
        Key::Enter => {
            let target = model.target()?;
            let detail = model.instance(&target).map(detail);
            model.page = detail.map(|text| Page::new(target.agent, &text));
        }
        Key::Char(key) if "panrdx".contains(key) => return on_agent(model, key),
        _ => {
            let most = model.rows().len().saturating_sub(1);
            model.selected = moved(model.selected, key, LEAP).min(most);
        }
    }
    None
}

/// Keys about the selected agent. What changes something is asked for once more.
fn on_agent(model: &mut Model, key: char) -> Option<Wish> {
    let Some(target) = model.target() else {
        model.said = Some("no agent is selected".to_owned());
        return None;
    };
    let confirm = |target, act| Some(Prompt::Confirm { target, act });
    match key {
        'p' => return Some(Wish::Peek(target)),
        'a' => return Some(Wish::Attach(target)),
        'n' => {
            let text = String::new();
            model.prompt = Some(Prompt::Nudge { target, text });
        }
        'r' => model.prompt = confirm(target, Act::Restart),
        'd' => model.prompt = confirm(target, Act::Drain),
        _ => model.prompt = confirm(target, Act::Kill),
    }
    None
}

fn show(model: &mut Model, view: View) {
    model.view = view;
    model.selected = 0;
}

/// A key while the bottom line asks for something.
fn answer(model: &mut Model, prompt: Prompt, key: Key) -> Option<Wish> {
    match (prompt, key) {
        (Prompt::Filter { before }, Key::Esc) => model.filter = before,
        (Prompt::Filter { .. }, Key::Enter) => {}
        (prompt @ Prompt::Filter { .. }, key) => {
            edit(&mut model.filter, key);
            model.selected = 0;
            model.prompt = Some(prompt);
        }
        (Prompt::Nudge { target, text }, Key::Enter) if !text.trim().is_empty() => {
            return Some(Wish::Nudge(target, text));
        }
        (Prompt::Nudge { .. }, Key::Enter | Key::Esc) => {}
        (Prompt::Nudge { target, mut text }, key) => {
            edit(&mut text, key);
            model.prompt = Some(Prompt::Nudge { target, text });
        }
        (Prompt::Confirm { target, act }, Key::Char('y' | 'Y')) => {
            return Some(Wish::Do(target, act));
        }
        (Prompt::Confirm { .. }, _) => model.said = Some("nothing was done".to_owned()),
    }
    None
}

fn edit(text: &mut String, key: Key) {
    match key {
        Key::Char(c) => text.push(c),
        Key::Backspace => drop(text.pop()),
        _ => {}
    }
}

/// A key while a page is open.
fn turn(model: &mut Model, key: Key) {
    match (&mut model.page, key) {
        (page, Key::Esc | Key::Enter | Key::Char('q' | '?')) => *page = None,
        (Some(page), key) => {
            let most = page.lines.len().saturating_sub(1);
            page.from = moved(page.from, key, LEAP).min(most);
        }
        (None, _) => {}
    }
}

fn moved(at: usize, key: Key, leap: usize) -> usize {
    match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => at + 1,
        Key::PageUp => at.saturating_sub(leap),
        Key::PageDown => at + leap,
        Key::Home => 0,
        Key::End => usize::MAX,
        _ => at,
    }
}

/// Everything known of an agent, a line each.
fn detail(instance: &InstanceView) -> String {
    let fields = serde_json::to_value(instance).unwrap_or_default();
    let fields = fields.as_object().cloned().unwrap_or_default();
    let line = |(key, value): (String, serde_json::Value)| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        format!("{key:<20} {}", text.replace('\n', " "))
    };
    fields.into_iter().map(line).collect::<Vec<_>>().join("\n")
}
