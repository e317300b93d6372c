//! Reads a table by its section: every key known, every value of its kind.

mod check;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::keys::{SECTIONS, Section, nearest};
use super::problem::{Problem, Problems};

/// A checked value.
#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Flag(bool),
    Count(u64),
    /// `None` is no limit.
    Limit(Option<u32>),
    Duration(Duration),
    /// Each with its place.
    Texts(Vec<String>, Vec<Range<usize>>),
    Env(BTreeMap<String, String>),
    Table(Fields),
}

/// The checked values of one table, by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(BTreeMap<&'static str, (Value, Range<usize>)>);

impl Fields {
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.0.get(key)?.0 {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.0.get(key)?.0 {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    pub(super) fn count<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        match self.0.get(key)?.0 {
            Value::Count(count) => T::try_from(count).ok(),
            _ => None,
        }
    }

    pub(super) fn duration(&self, key: &str) -> Option<Duration> {
        match self.0.get(key)?.0 {
            Value::Duration(duration) => Some(duration),
            _ => None,
        }
    }

    pub(super) fn texts(&self, key: &str) -> Option<&[String]> {
        match &self.0.get(key)?.0 {
            Value::Texts(texts, _) => Some(texts),
            _ => None,
        }
    }

    /// The texts of a list, each with its place.
    pub(super) fn placed(&self, key: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
        let (texts, spans) = match self.0.get(key) {
            Some((Value::Texts(texts, spans), _)) => (texts.as_slice(), spans.as_slice()),
            _ => Default::default(),
        };
        texts.iter().map(String::as_str).zip(spans.iter().cloned())
    }

    /// A number, or `Some(None)` for no limit.
    pub(super) fn limit(&self, key: &str) -> Option<Option<u32>> {
        match self.0.get(key)?.0 {
            Value::Limit(limit) => Some(limit),
            _ => None,
        }
    }

    pub(super) fn table(&self, key: &str) -> Option<&Fields> {
        match &self.0.get(key)?.0 {
            Value::Table(fields) => Some(fields),
            _ => None,
        }
    }

    pub(super) fn env(&self, key: &str) -> BTreeMap<String, String> {
        match self.0.get(key) {
            Some((Value::Env(env), _)) => env.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// Where the value of `key` stands, if it was set and valid.
    pub(super) fn span(&self, key: &str) -> Option<Range<usize>> {
        self.0.get(key).map(|(_, span)| span.clone())
    }
}

/// Reads `table`, whose path in the file is `path`.
pub(super) fn read(
    section: &Section,
    table: &DeTable<'_>,
    path: &str,
    problems: &mut Problems,
) -> Fields {
    let mut fields = Fields::default();
    for (key, value) in table {
        let at = join(path, key.get_ref());
        match section.key(key.get_ref()) {
            Some(known) => {
                if let Some(checked) =
                    check::check(known, value.get_ref(), value.span(), &at, problems)
                {
                    fields.0.insert(known.name, (checked, value.span()));
                }
            }
            None => problems.push(unknown(section, key.get_ref(), key.span(), &at)),
        }
    }
    fields
}

/// A table that must be one.
pub(super) fn as_table<'t, 'i>(
    value: &'t DeValue<'i>,
    span: Range<usize>,
    path: &str,
    problems: &mut Problems,
) -> Option<&'t DeTable<'i>> {
    if let DeValue::Table(table) = value {
        return Some(table);
    }
    problems.push(wrong_type("table", value, span, path));
    None
}

/// One table of an array of tables.
pub(super) struct Item<'t, 'i> {
    pub(super) table: &'t DeTable<'i>,
    pub(super) path: String,
    pub(super) header: Range<usize>,
}

/// The array of tables called `name`, whose `section` says how it is written.
pub(super) fn tables<'t, 'i>(
    file: &'t DeTable<'i>,
    name: &str,
    section: &Section,
    problems: &mut Problems,
) -> Vec<Item<'t, 'i>> {
    let Some(value) = file.get(name) else {
        return Vec::new();
    };
    let DeValue::Array(array) = value.get_ref() else {
        problems.push(
            wrong_type("array of tables", value.get_ref(), value.span(), name)
                .help(format!("each is written as `{}`", section.header)),
        );
        return Vec::new();
    };
    let mut items = Vec::new();
    for (i, item) in array.iter().enumerate() {
        let path = format!("{name}[{i}]");
        if let Some(table) = as_table(item.get_ref(), item.span(), &path, problems) {
            items.push(Item {
                table,
                path,
                header: item.span(),
            });
        }
    }
    items
}

/// A key that is not one of the section's.
pub(super) fn unknown(section: &Section, name: &str, span: Range<usize>, path: &str) -> Problem {
    let shown = name.escape_debug();
    if section.foreign.contains(&name) {
        return Problem::error(
            "unsupported-key",
            span,
            path,
            format!("`{shown}` is not supported, ignored"),
        )
        .warning()
        .label("ignored");
    }
    let message = format!("`{shown}` is not a key of {}", section.title());
    Problem::error("unknown-key", span, path, message)
        .label("unknown key")
        .help(unknown_help(section, name))
}

fn unknown_help(section: &Section, name: &str) -> Option<String> {
    if section.planned.contains(&name) {
        return Some(format!("`{name}` is not supported by this version of gc"));
    }
    let tables = SECTIONS
        .iter()
        .map(|(table, _)| *table)
        .filter(|table| section.header.is_empty() && !table.contains('.'));
    let own = section.keys.iter().map(|key| key.name).chain(tables);
    if let Some(meant) = nearest(name, own) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let homes: Vec<_> = SECTIONS
        .iter()
        .filter(|(_, other)| other.key(name).is_some())
        .map(|(_, other)| other.header)
        .collect();
    (!homes.is_empty()).then(|| format!("`{name}` belongs to {}", homes.join(" or ")))
}

pub(super) fn wrong_type(
    expected: &str,
    value: &DeValue<'_>,
    span: Range<usize>,
    path: &str,
) -> Problem {
    let found = value.type_str();
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
pub(super) fn missing(header: Range<usize>, path: &str, what: &str, key: &str) -> Problem {
    Problem::error(
        "missing-key",
        header,
        format!("{path}.{key}"),
        format!("the {what} has no `{key}`"),
    )
    .label(format!("no `{key}`"))
}

pub(super) fn invalid(span: Range<usize>, path: &str, message: impl Into<String>) -> Problem {
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
