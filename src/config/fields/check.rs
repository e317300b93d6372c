//! Whether a value is of the kind its key takes.

use std::collections::BTreeMap;

use gascity_actors::model::Template;

use super::super::duration;
use super::super::files::Layer;
use super::super::keys::{Key, Kind, Section, nearest};
use super::super::problem::{Problem, Problems};
use super::super::tree::{Node, Span, Table, Val};
use super::grammar::{at_least, count, limit, text_of};
use super::{Item, Value, Variable, Written, invalid, join, read, wrong_type};

/// Checks the value of `key`.
pub(super) fn check(
    key: &Key,
    node: &Node,
    path: &str,
    layer: Layer,
    problems: &mut Problems,
) -> Option<Value> {
    let span = || node.span.clone();
    let checked = match (key.kind, &node.value) {
        (Kind::Free, _) => Ok(Value::Flag(true)),
        (Kind::Flag, Val::Boolean(flag)) => Ok(Value::Flag(*flag)),
        (Kind::Count(least, most), Val::Integer { digits, radix }) => {
            count(digits, *radix, least, most).map(Value::Count)
        }
        (Kind::Limit, Val::Integer { digits, radix }) => limit(digits, *radix).map(Value::Limit),
        (Kind::Duration(least), Val::Text(text)) => {
            at_least(text, least).map(|duration| Value::Duration(duration, text.clone()))
        }
        (Kind::OneOrMore, Val::Text(text)) => {
            text_of(Kind::Command, text).map(|text| Value::Texts(vec![(text, span())]))
        }
        (Kind::OneOrMore, Val::Array(_)) => {
            return texts(Kind::Words, node, path, problems).map(Value::Texts);
        }
        (Kind::KeyHashes, Val::Array(_)) => return key_hashes(node, path, problems),
        (kind, Val::Array(_)) if kind.is_list() => {
            return texts(kind, node, path, problems).map(Value::Texts);
        }
        (Kind::Table(section), Val::Table(table)) => {
            let from = Written {
                table,
                header: span(),
                path,
                layer,
            };
            return Some(Value::Table(read(section, &from, problems)));
        }
        (Kind::Tables(section), Val::Array(items)) => {
            return Some(tables(section, items, path, layer, problems));
        }
        (Kind::Tables(section), other) => {
            let help = format!("each is written as `{}`", section.header);
            problems.push(wrong_type(key.kind.noun(), other, span(), path).help(help));
            return None;
        }
        (Kind::Dict(section), Val::Table(table)) => {
            return Some(dict(section, table, path, layer, problems));
        }
        (Kind::Env | Kind::Map, Val::Table(table)) => {
            return map(table, key.kind == Kind::Env, path, layer, problems);
        }
        (
            Kind::Word {
                allowed,
                unsupported,
            },
            Val::Text(text),
        ) => return word(allowed, unsupported, text, span(), path, problems),
        (Kind::Template(variables), Val::Text(text)) => {
            return template(text, variables, node, path, problems)
                .then(|| Value::Text(text.clone()));
        }
        (kind, Val::Text(text)) if kind.noun() == "string" => text_of(kind, text).map(Value::Text),
        (
            Kind::Duration(_),
            Val::Integer {
                digits: written, ..
            }
            | Val::Float(written),
        ) => {
            let meant = Some(format!("{written}s")).filter(|text| duration::parse(text).is_ok());
            let help = format!("did you mean \"{}\"?", meant.as_deref().unwrap_or("30s"));
            problems.push(wrong_type(key.kind.noun(), &node.value, span(), path).help(help));
            return None;
        }
        (kind, other) => {
            problems.push(wrong_type(kind.noun(), other, span(), path));
            return None;
        }
    };
    checked
        .map_err(|message| problems.push(invalid(span(), path, message)))
        .ok()
}

/// Reports a text that is no template of these variables.
fn template(
    text: &str,
    variables: &[&str],
    node: &Node,
    path: &str,
    problems: &mut Problems,
) -> bool {
    if text.contains('\0') {
        problems.push(invalid(node.span.clone(), path, "must not contain NUL"));
        return false;
    }
    let Err(error) = Template::parse(text, |name| variables.contains(&name)) else {
        return true;
    };
    let span = problems
        .files
        .inside(&node.span, text, error.start, error.end);
    let help = format!("variables: .{}", variables.join(" ."));
    problems.push(
        Problem::error("bad-template", span, path, error.message)
            .label("in this template")
            .help(help),
    );
    false
}

fn word(
    allowed: &'static [&'static str],
    unsupported: &[&str],
    text: &str,
    span: Span,
    path: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let fits = |word: &&str| match word.strip_suffix(':') {
        Some(_) => text
            .strip_prefix(*word)
            .is_some_and(|rest| !rest.trim().is_empty() && !rest.contains('\0')),
        None => *word == text,
    };
    if allowed.iter().any(fits) {
        return Some(Value::Text(text.to_owned()));
    }
    if text.is_empty() && allowed.contains(&"auto") {
        return Some(Value::Text("auto".to_owned())); // left open by the user
    }
    let help = if unsupported.contains(&text) {
        Some(format!("{text:?} is not supported by gc; use one of those"))
    } else {
        nearest(text, allowed.iter().copied()).map(|meant| format!("did you mean \"{meant}\"?"))
    };
    let choice = allowed
        .iter()
        .map(|word| match word.ends_with(':') {
            true => format!("\"{word}<script>\""),
            false => format!("{word:?}"),
        })
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

/// The texts of a list; `None` if one of them is not valid.
pub(super) fn texts(
    kind: Kind,
    node: &Node,
    path: &str,
    problems: &mut Problems,
) -> Option<Vec<(String, Span)>> {
    let Val::Array(items) = &node.value else {
        problems.push(wrong_type(
            kind.noun(),
            &node.value,
            node.span.clone(),
            path,
        ));
        return None;
    };
    let mut good = true;
    let mut texts = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let at = format!("{path}[{i}]");
        let checked = match &item.value {
            Val::Text(text) => {
                text_of(kind, text).map_err(|message| invalid(item.span.clone(), &at, message))
            }
            other => Err(wrong_type("string", other, item.span.clone(), &at)),
        };
        match (checked, kind) {
            (Ok(text), Kind::Lines(variables))
                if !template(&text, variables, item, &at, problems) =>
            {
                good = false;
            }
            (Ok(text), _) => texts.push((text, item.span.clone())),
            (Err(problem), _) => {
                problems.push(problem);
                good = false;
            }
        }
    }
    good.then_some(texts)
}

/// Messages about keys never hold them.
fn key_hashes(node: &Node, path: &str, problems: &mut Problems) -> Option<Value> {
    let texts = texts(Kind::Texts, node, path, problems)?;
    let mut good = true;
    for (i, (text, span)) in texts.iter().enumerate() {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            let at = format!("{path}[{i}]");
            let message = "not the hash of a key: expected `sha256:` and 64 hex digits";
            problems.push(
                invalid(span.clone(), &at, message)
                    .help("write the hash, never the key".to_owned()),
            );
            good = false;
        }
    }
    good.then_some(Value::Texts(texts))
}

fn tables(
    section: &'static Section,
    items: &[Node],
    path: &str,
    layer: Layer,
    problems: &mut Problems,
) -> Value {
    let mut found = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        match &item.value {
            Val::Table(table) => found.push(one(
                section,
                table,
                item.span.clone(),
                path,
                layer,
                problems,
            )),
            other => problems.push(wrong_type("table", other, item.span.clone(), &path)),
        }
    }
    Value::Tables(found)
}

fn dict(
    section: &'static Section,
    table: &Table,
    path: &str,
    layer: Layer,
    problems: &mut Problems,
) -> Value {
    let mut found = BTreeMap::new();
    for pair in &table.0 {
        let path = join(path, &pair.key);
        match &pair.node.value {
            Val::Table(table) => {
                let header = pair.key_span.clone();
                let item = one(section, table, header, path, layer, problems);
                found.insert(pair.key.clone(), item);
            }
            other => problems.push(wrong_type("table", other, pair.node.span.clone(), &path)),
        }
    }
    Value::Dict(found)
}

fn one(
    section: &Section,
    table: &Table,
    header: Span,
    path: String,
    layer: Layer,
    problems: &mut Problems,
) -> Item {
    let from = Written {
        table,
        header: header.clone(),
        path: &path,
        layer,
    };
    Item {
        fields: read(section, &from, problems),
        path,
        header,
    }
}

/// Messages about variables never hold their values.
fn map(
    table: &Table,
    env: bool,
    path: &str,
    layer: Layer,
    problems: &mut Problems,
) -> Option<Value> {
    let mut good = true;
    let mut map = BTreeMap::new();
    for pair in &table.0 {
        let name = &pair.key;
        let at = join(path, name);
        let key_span = pair.key_span.clone();
        let problem = match &pair.node.value {
            _ if env && name.starts_with("GC_") => {
                let message = format!("`{}` is set by gc itself", name.escape_debug());
                Problem::error("reserved-env", key_span, at, message)
                    .label("names beginning with GC_ are reserved")
            }
            _ if name.is_empty() || name.contains(['=', '\0']) => {
                let message = "not a name of a variable";
                Problem::error("invalid-value", key_span, at, message).label("invalid name")
            }
            Val::Text(text) if text.contains('\0') => {
                invalid(pair.node.span.clone(), &at, "must not contain NUL")
            }
            Val::Text(text) => {
                let variable = Variable {
                    text: text.clone(),
                    span: pair.node.span.clone(),
                    layer,
                };
                map.insert(name.clone(), variable);
                continue;
            }
            other => wrong_type("string", other, pair.node.span.clone(), &at),
        };
        problems.push(problem);
        good = false;
    }
    good.then_some(Value::Map(map, env))
}
