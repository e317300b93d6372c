//! Reads a table by its section: every key known, every value of its kind.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use gascity_actors::model::{AgentName, CityName};
use toml::de::{DeTable, DeValue};

use super::duration;
use super::keys::{Key, Kind, SECTIONS, Section, nearest};
use super::problem::{Problem, Problems};

/// A checked value.
#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Flag(bool),
    Count(u64),
    Duration(Duration),
    Texts(Vec<String>),
    Env(BTreeMap<String, String>),
}

/// The checked values of one table, by key.
#[derive(Debug, Default)]
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
            Value::Texts(texts) => Some(texts),
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
                if let Some(checked) = check(known, value.get_ref(), value.span(), &at, problems) {
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
        .filter(|_| section.header.is_empty());
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

fn check(
    key: &Key,
    value: &DeValue<'_>,
    span: Range<usize>,
    path: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let checked = match (key.kind, value) {
        (Kind::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
        (Kind::Count(least, most), DeValue::Integer(_)) => {
            count(value, least, most).map(Value::Count)
        }
        (Kind::Duration(least), DeValue::String(text)) => {
            at_least(text, least).map(Value::Duration)
        }
        (Kind::Texts, DeValue::Array(array)) => return texts(array.iter(), path, problems),
        (Kind::Env, DeValue::Table(table)) => return env(table, path, problems),
        (
            Kind::Word {
                allowed,
                unsupported,
            },
            DeValue::String(text),
        ) => {
            return word(allowed, unsupported, text, span, path, problems);
        }
        (kind, DeValue::String(text)) if kind.noun() == "string" => {
            text_of(kind, text).map(Value::Text)
        }
        (Kind::Duration(_), DeValue::Integer(_) | DeValue::Float(_)) => {
            let written = match value {
                DeValue::Integer(number) => number.as_str(),
                DeValue::Float(number) => number.as_str(),
                _ => "30",
            };
            let meant = Some(format!("{written}s")).filter(|text| duration::parse(text).is_ok());
            let help = format!("did you mean \"{}\"?", meant.as_deref().unwrap_or("30s"));
            problems.push(wrong_type(key.kind.noun(), value, span, path).help(help));
            return None;
        }
        _ => {
            problems.push(wrong_type(key.kind.noun(), value, span, path));
            return None;
        }
    };
    checked
        .map_err(|message| problems.push(invalid(span, path, message)))
        .ok()
}

fn count(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let number = value
        .as_integer()
        .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        Some(number) if number > most => Err(format!("must be at most {most}")),
        _ if value
            .as_integer()
            .is_some_and(|number| !number.as_str().starts_with('-'))
            && number.is_none() =>
        {
            Err(format!("must be at most {most}"))
        }
        _ => Err(format!("must be at least {least}")),
    }
}

fn at_least(text: &str, least: Duration) -> Result<Duration, String> {
    match duration::parse(text) {
        Err(rule) => Err(format!("invalid duration {text:?}: {rule}")),
        Ok(duration) if duration < least && least == Duration::from_nanos(1) => {
            Err("must be more than 0".into())
        }
        Ok(duration) if duration < least => Err(format!("must be at least {least:?}")),
        Ok(duration) => Ok(duration),
    }
}

fn text_of(kind: Kind, text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err("must not contain NUL".into());
    }
    let problem = match kind {
        Kind::CityName => CityName::new(text).err().map(|error| error.to_string()),
        Kind::AgentName => match AgentName::new(text) {
            Ok(_) if text.contains('/') => {
                Some(format!("invalid agent name {text:?}: must not contain `/`"))
            }
            checked => checked.err().map(|error| error.to_string()),
        },
        Kind::Command | Kind::Path if text.trim().is_empty() => Some("must not be empty".into()),
        Kind::Path if text.contains("{{") => {
            Some("templates are not supported by this version of gc".into())
        }
        _ => None,
    };
    problem.map_or_else(|| Ok(text.to_owned()), Err)
}

fn word(
    allowed: &'static [&'static str],
    unsupported: &[&str],
    text: &str,
    span: Range<usize>,
    path: &str,
    problems: &mut Problems,
) -> Option<Value> {
    if allowed.contains(&text) {
        return Some(Value::Text(text.to_owned()));
    }
    if text.is_empty() && allowed.contains(&"auto") {
        return Some(Value::Text("auto".to_owned())); // left open by the user
    }
    let known = unsupported
        .iter()
        .any(|word| *word == text || (word.ends_with(':') && text.starts_with(word)));
    let help = if known {
        Some(format!("{text:?} is not supported by this version of gc"))
    } else {
        nearest(text, allowed.iter().copied()).map(|meant| format!("did you mean \"{meant}\"?"))
    };
    let choice = allowed
        .iter()
        .map(|word| format!("{word:?}"))
        .collect::<Vec<_>>()
        .join(", ");
    problems.push(
        invalid(span, path, format!("{text:?} is not one of {choice}"))
            .expected(choice)
            .found(format!("{text:?}"))
            .help(help),
    );
    None
}

fn texts<'v, 'i: 'v>(
    items: impl Iterator<Item = &'v toml::Spanned<DeValue<'i>>>,
    path: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let mut good = true;
    let mut texts = Vec::new();
    for (i, item) in items.enumerate() {
        let at = format!("{path}[{i}]");
        match item.get_ref() {
            DeValue::String(text) if !text.contains('\0') => texts.push(text.to_string()),
            DeValue::String(_) => {
                problems.push(invalid(item.span(), &at, "must not contain NUL"));
                good = false;
            }
            other => {
                problems.push(wrong_type("string", other, item.span(), &at));
                good = false;
            }
        }
    }
    good.then_some(Value::Texts(texts))
}

/// Messages about variables never hold their values.
fn env(table: &DeTable<'_>, path: &str, problems: &mut Problems) -> Option<Value> {
    let mut good = true;
    let mut env = BTreeMap::new();
    for (key, value) in table {
        let name = key.get_ref();
        let at = join(path, name);
        let problem = match value.get_ref() {
            _ if name.starts_with("GC_") => {
                let message = format!("`{}` is set by gc itself", name.escape_debug());
                Problem::error("reserved-env", key.span(), at, message)
                    .label("names beginning with GC_ are reserved")
            }
            _ if name.is_empty() || name.contains(['=', '\0']) => Problem::error(
                "invalid-value",
                key.span(),
                at,
                "not a name of an environment variable",
            )
            .label("invalid name"),
            DeValue::String(text) if text.contains('\0') => {
                invalid(value.span(), &at, "must not contain NUL")
            }
            DeValue::String(text) => {
                env.insert(name.to_string(), text.to_string());
                continue;
            }
            other => wrong_type("string", other, value.span(), &at),
        };
        problems.push(problem);
        good = false;
    }
    good.then_some(Value::Env(env))
}
