//! Events as people and programs read them.

use serde_json::{Value, json};

use super::sources::{Sources, Told};
use crate::cli::context::Context;
use crate::cli::error::CliResult;
use crate::model::Event;

pub(super) struct Printer<'a> {
    pub(super) context: &'a Context,
    pub(super) sources: Sources,
    /// How far each log was told.
    pub(super) places: Vec<u64>,
}

impl Printer<'_> {
    pub(super) fn print(&mut self, told: &Told) -> CliResult {
        self.pass(told);
        let out = self.context.out;
        if !out.json {
            return out.line(self.row(told));
        }
        let (index, event) = told;
        let mut line = json!(event);
        let city = &self.sources.all[*index].name;
        if !city.is_empty() {
            line["city"] = json!(city);
        }
        if self.sources.several {
            line["cursor"] = json!(self.sources.cursor(&self.places));
        }
        out.document(&line)
    }

    pub(super) fn pass(&mut self, (index, event): &Told) {
        self.places[*index] = event.seq;
    }

    pub(super) fn row(&self, (index, event): &Told) -> String {
        match self.sources.several {
            true => format!("{:<14}  {}", self.sources.all[*index].name, row(event)),
            false => row(event),
        }
    }
}

/// An event as people read it.
pub(in crate::cli) fn row(event: &Event) -> String {
    let time = event.ts.format("%H:%M:%SZ");
    let (kind, subject) = (&event.kind, &event.subject);
    let text = match event.message.as_str() {
        "" => event.payload.get("reason").and_then(Value::as_str),
        message => Some(message),
    };
    let text = one_line(text.unwrap_or_default());
    let row = format!("{time} {kind:<18}  {subject:<14}  {text}");
    row.trim_end().to_owned()
}

/// What happened and, of an agent's last words, the very last: an event is one line, and nothing in
/// it steers the terminal.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let line = match lines.next_back() {
        Some(last) => format!("{first}: {last}"),
        None => first.to_owned(),
    };
    line.chars().filter(|c| !c.is_control()).collect()
}
