//! Reads a table by its section: every key known, every value of its kind.

mod check;
mod grammar;
mod merge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use super::files::Layer;
use super::keys::{FILES, FileKind, Key, Section, nearest};
use super::problem::{Problem, Problems};
use super::tree::{Span, Table, Val};

/// A checked value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Flag(bool),
    Count(u64),
    /// `None` is no limit.
    Limit(Option<u32>),
    Duration(Duration, String),
    /// Each with its place.
    Texts(Vec<(String, Span)>),
    /// Each with its place and layer; `true` if the values are secret.
    Map(BTreeMap<String, Variable>, bool),
    Table(Fields),
    Tables(Vec<Item>),
    Dict(BTreeMap<String, Item>),
}

/// A variable of a map.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) text: String,
    pub(super) span: Span,
    pub(super) layer: Layer,
}

/// A value of a key and where it comes from.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) key: &'static Key,
    pub(super) value: Value,
    pub(super) span: Span,
    pub(super) layer: Layer,
    /// What it replaced, the latest first.
    pub(super) over: Vec<Old>,
}

/// A value that another one replaced.
#[derive(Debug, Clone)]
pub(super) struct Old {
    pub(super) value: Value,
    pub(super) span: Span,
    pub(super) layer: Layer,
}

/// One table of an array of tables, or one with a name.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) fields: Fields,
    /// Its path within its file, e.g. `agent[2]`.
    pub(super) path: String,
    pub(super) header: Span,
}

/// The checked values of one table, by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    map: BTreeMap<&'static str, Field>,
    /// Keys that are there with a value that is not valid.
    bad: BTreeSet<&'static str>,
    /// `<list>_append`, by the name of the list.
    appended: BTreeMap<&'static str, Vec<(String, Span)>>,
    /// `env_remove`.
    removed: Vec<(String, Span)>,
}

impl Fields {
    pub(super) fn field(&self, key: &str) -> Option<&Field> {
        self.map.get(key)
    }

    /// All values, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Field)> {
        self.map.iter().map(|(name, field)| (*name, field))
    }

    /// The key is there, be its value valid or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key) || self.bad.contains(key)
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.map.get(key).map(|field| &field.value)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A text and where it stands.
    pub(super) fn placed_text(&self, key: &str) -> Option<(&str, Span)> {
        Some((self.text(key)?, self.span(key)?))
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn count<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        match self.value(key)? {
            Value::Count(count) => T::try_from(*count).ok(),
            _ => None,
        }
    }

    pub(super) fn duration(&self, key: &str) -> Option<Duration> {
        match self.value(key)? {
            Value::Duration(duration, _) => Some(*duration),
            _ => None,
        }
    }

    pub(super) fn texts(&self, key: &str) -> Option<Vec<String>> {
        match self.value(key)? {
            Value::Texts(texts) => Some(texts.iter().map(|(text, _)| text.clone()).collect()),
            _ => None,
        }
    }

    /// The texts of a list, each with its place.
    pub(super) fn placed(&self, key: &str) -> &[(String, Span)] {
        match self.value(key) {
            Some(Value::Texts(texts)) => texts,
            _ => &[],
        }
    }

    /// A number, or `Some(None)` for no limit.
    pub(super) fn limit(&self, key: &str) -> Option<Option<u32>> {
        match self.value(key)? {
            Value::Limit(limit) => Some(*limit),
            _ => None,
        }
    }

    pub(super) fn table(&self, key: &str) -> Option<&Fields> {
        match self.value(key)? {
            Value::Table(fields) => Some(fields),
            _ => None,
        }
    }

    pub(super) fn tables(&self, key: &str) -> &[Item] {
        match self.value(key) {
            Some(Value::Tables(items)) => items,
            _ => &[],
        }
    }

    pub(super) fn dict(&self, key: &str) -> Option<&BTreeMap<String, Item>> {
        match self.value(key)? {
            Value::Dict(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn map(&self, key: &str) -> BTreeMap<String, String> {
        match self.value(key) {
            Some(Value::Map(map, _)) => map
                .iter()
                .map(|(name, variable)| (name.clone(), variable.text.clone()))
                .collect(),
            _ => BTreeMap::new(),
        }
    }

    /// Where the value of `key` stands, if it was set and valid.
    pub(super) fn span(&self, key: &str) -> Option<Span> {
        self.map.get(key).map(|field| field.span.clone())
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: &str) {
        self.map.remove(key);
    }

    /// Says which layer all values belong to.
    pub(super) fn raise(&mut self, layer: Layer) {
        for field in self.map.values_mut() {
            field.layer = layer;
            match &mut field.value {
                Value::Table(fields) => fields.raise(layer),
                Value::Map(map, _) => map.values_mut().for_each(|value| value.layer = layer),
                _ => {}
            }
        }
    }

    /// Sets a value over what was there.
    pub(super) fn set(&mut self, key: &'static Key, value: Value, span: Span, layer: Layer) {
        let old = self.map.remove(key.name);
        let over = old.into_iter().flat_map(|old| {
            let newest = Old {
                value: old.value,
                span: old.span,
                layer: old.layer,
            };
            std::iter::once(newest).chain(old.over)
        });
        let over = over.collect();
        let field = Field {
            key,
            value,
            span,
            layer,
            over,
        };
        self.map.insert(key.name, field);
    }
}

/// A table to read, and where it stands.
pub(super) struct Written<'t> {
    pub(super) table: &'t Table,
    pub(super) header: Span,
    pub(super) path: &'t str,
    pub(super) layer: Layer,
}

/// Reads a table by its section.
pub(super) fn read(section: &Section, from: &Written<'_>, problems: &mut Problems) -> Fields {
    let mut fields = Fields::default();
    for pair in &from.table.0 {
        let at = join(from.path, &pair.key);
        if let Some(known) = section.key(&pair.key) {
            if known.later {
                problems.push(later(&pair.key, pair.key_span.clone(), &at));
            }
            match check::check(known, &pair.node, &at, from.layer, problems) {
                Some(value) => fields.set(known, value, pair.node.span.clone(), from.layer),
                None => {
                    fields.bad.insert(known.name);
                }
            }
        } else if let Some(list) = section.appended(&pair.key) {
            if let Some(texts) = check::texts(list.kind, &pair.node, &at, problems) {
                fields.appended.insert(list.name, texts);
            }
        } else if section.edits && pair.key == "env_remove" && section.key("env").is_some() {
            let names = check::texts(super::keys::Kind::Words, &pair.node, &at, problems);
            fields.removed = names.unwrap_or_default();
        } else {
            problems.push(unknown(section, &pair.key, pair.key_span.clone(), &at));
        }
    }
    for key in section.required() {
        if !fields.has(key.name) {
            let what = section.header.trim_matches(['[', ']']);
            let what = what.split(['.', '<']).next().unwrap_or(what);
            problems.push(missing(from.header.clone(), from.path, what, key.name));
        }
    }
    fields
}

/// A key that is read and has no effect yet: silence would be worse than no key at all.
fn later(name: &str, span: Span, path: &str) -> Problem {
    let message = format!("`{name}` has no effect in this version of gc");
    Problem::error("ignored-key", span, path, message)
        .warning()
        .label("ignored")
}

/// A key that is not one of the section's.
fn unknown(section: &Section, name: &str, span: Span, path: &str) -> Problem {
    let shown = name.escape_debug();
    if let Some(instead) = section.foreign_key(name) {
        let help = (!instead.is_empty()).then(|| format!("see `{instead}`"));
        let message = format!("`{shown}` is not supported, ignored");
        return Problem::error("unsupported-key", span, path, message)
            .warning()
            .label("ignored")
            .help(help);
    }
    let message = format!("`{shown}` is not a key of {}", section.title());
    let problem = Problem::error("unknown-key", span, path, message)
        .label("unknown key")
        .help(unknown_help(section, name));
    if section.lenient {
        problem.warning()
    } else {
        problem
    }
}

fn unknown_help(section: &Section, name: &str) -> Option<String> {
    static FILES_WITH: LazyLock<Vec<Vec<&'static Section>>> =
        LazyLock::new(|| FILES.iter().map(FileKind::sections).collect());
    let foreign = section.foreign.iter().map(|(name, _)| *name);
    if let Some(meant) = nearest(name, section.all().map(|key| key.name)) {
        return Some(format!("did you mean `{meant}`?"));
    }
    if let Some(meant) = nearest(name, foreign) {
        return Some(format!("did you mean `{meant}`, which is not supported?"));
    }
    // A key of another kind of file would not help.
    let own = FILES_WITH.iter().find(|file| file.contains(&section));
    let mut homes: Vec<&str> = own
        .into_iter()
        .flatten()
        .filter(|other| !other.edits && !other.header.is_empty() && other.key(name).is_some())
        .map(|other| other.header)
        .collect();
    homes.dedup();
    homes.truncate(4);
    (!homes.is_empty()).then(|| format!("`{name}` belongs to {}", homes.join(" or ")))
}

pub(super) fn wrong_type(expected: &str, value: &Val, span: Span, path: &str) -> Problem {
    let found = value.noun();
    Problem::error(
        "wrong-type",
        span,
        path,
        format!("expected {expected}, found {found}"),
    )
    .label(format!("expected {expected}"))
    .expected(expected)
    .found(found)
}

/// A required key that is not there.
fn missing(header: Span, path: &str, what: &str, key: &str) -> Problem {
    let what = match what {
        "" => "file",
        "rigs" => "rig",
        what => what,
    };
    Problem::error(
        "missing-key",
        header,
        join(path, key),
        format!("the {what} has no `{key}`"),
    )
    .label(format!("no `{key}`"))
}

pub(super) fn invalid(span: Span, path: &str, message: impl Into<String>) -> Problem {
    Problem::error("invalid-value", span, path, message).label("invalid value")
}

/// The path of a key in a table, e.g. `agent[2].env.HOME`.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if bare {
        key.to_owned()
    } else {
        format!("{key:?}")
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}
