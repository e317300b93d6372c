//! Whether a value is of the kind its key takes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use gascity_actors::model::{AgentName, CityName};
use toml::de::{DeTable, DeValue};

use super::super::duration;
use super::super::keys::{Key, Kind, nearest};
use super::super::problem::{Problem, Problems};
use super::{Value, invalid, join, read, wrong_type};

/// Checks the value of `key`.
pub(super) fn check(
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
        (Kind::Limit, DeValue::Integer(_)) => limit(value).map(Value::Limit),
        (Kind::Texts | Kind::Words | Kind::Lines, DeValue::Array(array)) => {
            return texts(key.kind, array.iter(), path, problems);
        }
        (Kind::Table(section), DeValue::Table(table)) => {
            return Some(Value::Table(read(section, table, path, problems)));
        }
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

/// -1 stands for no limit.
fn limit(value: &DeValue<'_>) -> Result<Option<u32>, String> {
    let written = value.as_integer().map(|number| number.as_str());
    if written == Some("-1") {
        return Ok(None);
    }
    match count(value, 0, u32::MAX.into()) {
        Ok(number) => Ok(u32::try_from(number).ok()),
        Err(_) if written.is_some_and(|number| number.starts_with('-')) => {
            Err("must be at least -1, which is no limit".into())
        }
        Err(message) => Err(message),
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
        Kind::AgentName if text.contains('/') => {
            Some(format!("invalid name {text:?}: must not contain `/`"))
        }
        Kind::AgentName => AgentName::new(text)
            .err()
            .map(|error| format!("invalid name {text:?}: {}", error.rule)),
        Kind::Dir if !text.is_empty() => AgentName::new(text)
            .err()
            .map(|error| format!("invalid directory {text:?}: {}", error.rule)),
        Kind::Prefix if !is_prefix(text) => Some(format!(
            "invalid prefix {text:?}: 1 to 8 lower-case letters or digits, starting with a letter"
        )),
        Kind::Command | Kind::Path | Kind::Words | Kind::Lines if text.trim().is_empty() => {
            Some("must not be empty".into())
        }
        Kind::Path | Kind::Lines if text.contains("{{") => {
            Some("templates are not supported by this version of gc".into())
        }
        _ => None,
    };
    problem.map_or_else(|| Ok(text.to_owned()), Err)
}

fn is_prefix(text: &str) -> bool {
    text.len() <= 8
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
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
    kind: Kind,
    items: impl Iterator<Item = &'v toml::Spanned<DeValue<'i>>>,
    path: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let mut good = true;
    let (mut texts, mut spans) = (Vec::new(), Vec::new());
    for (i, item) in items.enumerate() {
        let at = format!("{path}[{i}]");
        let checked = match item.get_ref() {
            DeValue::String(text) => {
                text_of(kind, text).map_err(|message| invalid(item.span(), &at, message))
            }
            other => Err(wrong_type("string", other, item.span(), &at)),
        };
        match checked {
            Ok(text) => {
                texts.push(text);
                spans.push(item.span());
            }
            Err(problem) => {
                problems.push(problem);
                good = false;
            }
        }
    }
    good.then_some(Value::Texts(texts, spans))
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
