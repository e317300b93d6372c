//! One table over another: fragments over the city's file, overrides and patches over agents.

use super::super::problem::{Problem, Problems};
use super::{Field, Fields, Old, Value};

/// How a higher table meets a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// Files of equal rank: setting a value twice is worth a word.
    Files,
    /// The higher one is meant to change the lower.
    Change,
}

impl Fields {
    /// Lays the table of a later file over this one: tables merge per key, arrays of tables
    /// are joined, of anything else the later wins.
    pub(in crate::config) fn lay(&mut self, later: Self, path: &str, problems: &mut Problems) {
        self.merge(later, Meeting::Files, path, problems);
    }

    /// Applies an override or a patch: what is in it replaces, `_append` adds, `env` merges.
    pub(in crate::config) fn change(&mut self, by: &Self, problems: &mut Problems) {
        self.merge(by.clone(), Meeting::Change, "", problems);
    }

    fn merge(&mut self, later: Self, meeting: Meeting, path: &str, problems: &mut Problems) {
        self.bad.extend(later.bad);
        for (name, field) in later.map {
            let at = super::join(path, name);
            match self.map.get_mut(name) {
                Some(own) => own.meet(field, meeting, &at, problems),
                None => {
                    self.map.insert(name, field);
                }
            }
        }
        for (list, texts) in later.appended {
            if let Some(Field {
                value: Value::Texts(own),
                ..
            }) = self.map.get_mut(list)
            {
                own.extend(texts);
            } else {
                self.appended.entry(list).or_default().extend(texts);
            }
        }
        if let Some(Field {
            value: Value::Map(own, _),
            ..
        }) = self.map.get_mut("env")
        {
            for (name, _) in &later.removed {
                own.remove(name);
            }
        }
        self.removed.extend(later.removed);
    }

    /// What was appended to a list that nobody set.
    pub(in crate::config) fn appended(&self, list: &str) -> &[(String, super::Span)] {
        self.appended.get(list).map_or(&[], Vec::as_slice)
    }

    /// Variables a change took away, wherever they come from.
    pub(in crate::config) fn removed(&self) -> impl Iterator<Item = &str> {
        self.removed.iter().map(|(name, _)| name.as_str())
    }
}

impl Field {
    fn meet(&mut self, later: Self, meeting: Meeting, path: &str, problems: &mut Problems) {
        let joins = meeting == Meeting::Files && self.key.joins;
        match (&mut self.value, later.value) {
            (Value::Table(own), Value::Table(other)) => own.merge(other, meeting, path, problems),
            (Value::Dict(own), Value::Dict(other)) => {
                for (name, item) in other {
                    let at = super::join(path, &name);
                    match own.get_mut(&name) {
                        Some(first) => first.fields.merge(item.fields, meeting, &at, problems),
                        None => {
                            own.insert(name, item);
                        }
                    }
                }
            }
            (Value::Tables(own), Value::Tables(other)) => own.extend(other),
            (Value::Map(own, _), Value::Map(other, _)) => own.extend(other),
            (Value::Texts(own), Value::Texts(other)) if joins => own.extend(other),
            (_, value) => {
                if meeting == Meeting::Files && !same(&self.value, &value) {
                    problems.push(redefined(self, &later.span, path));
                }
                let old = Old {
                    value: std::mem::replace(&mut self.value, value),
                    span: std::mem::replace(&mut self.span, later.span),
                    layer: std::mem::replace(&mut self.layer, later.layer),
                };
                self.over.insert(0, old);
            }
        }
    }
}

fn redefined(first: &Field, span: &super::Span, path: &str) -> Problem {
    let message = format!("`{path}` is set twice; the later file wins");
    Problem::error("redefined", span.clone(), path, message)
        .warning()
        .label("this one counts")
        .related(first.span.clone(), "set before")
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::Flag(a), Value::Flag(b)) => a == b,
        (Value::Count(a), Value::Count(b)) => a == b,
        (Value::Limit(a), Value::Limit(b)) => a == b,
        (Value::Duration(a, _), Value::Duration(b, _)) => a == b,
        (Value::Texts(a), Value::Texts(b)) => a
            .iter()
            .map(|(text, _)| text)
            .eq(b.iter().map(|(text, _)| text)),
        _ => false,
    }
}
