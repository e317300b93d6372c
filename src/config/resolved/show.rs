//! Checked values as JSON and TOML, secrets masked.

use serde_json::{Map, Value as Json, json};

use super::super::compose::Entry;
use super::super::fields::{Fields, Value};
use super::super::keys::{Key, Kind, Section};
use super::super::schema;
use super::MASK;

pub(super) fn agent(entry: &Entry) -> Json {
    let mut shown = table(&entry.fields);
    if !entry.dir.is_empty() {
        shown.insert("dir".into(), json!(entry.dir));
    }
    Json::Object(shown)
}

pub(super) fn table(fields: &Fields) -> Map<String, Json> {
    fields
        .iter()
        .map(|(name, field)| (name.to_owned(), shown_key(field.key, &field.value)))
        .collect()
}

pub(super) fn with_defaults(section: &Section, fields: Option<&Fields>) -> Map<String, Json> {
    let mut shown = Map::new();
    for key in section.all() {
        let set = fields.and_then(|fields| fields.field(key.name));
        let value = match set {
            Some(field) => Some(shown_key(key, &field.value)),
            None => schema::default(key),
        };
        shown.extend(value.map(|value| (key.name.to_owned(), value)));
    }
    shown
}

pub(super) fn shown_key(key: &Key, value: &Value) -> Json {
    match (key.kind, value) {
        (Kind::KeyHashes, Value::Texts(texts)) => json!(vec![MASK; texts.len()]),
        _ => shown(value),
    }
}

pub(super) fn shown(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Flag(flag) => json!(flag),
        Value::Count(count) => json!(count),
        Value::Limit(limit) => limit.map_or(json!(-1), |limit| json!(limit)),
        Value::Duration(_, written) => json!(written),
        Value::Texts(texts) => json!(texts.iter().map(|(text, _)| text).collect::<Vec<_>>()),
        Value::Map(map, secret) => map
            .iter()
            .map(|(name, variable)| {
                let text = if *secret { MASK } else { &variable.text };
                (name.clone(), json!(text))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Table(fields) => Json::Object(table(fields)),
        Value::Tables(items) => items
            .iter()
            .map(|item| Json::Object(table(&item.fields)))
            .collect::<Vec<_>>()
            .into(),
        Value::Dict(items) => items
            .iter()
            .map(|(name, item)| (name.clone(), Json::Object(table(&item.fields))))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// The same as TOML.
#[must_use]
pub fn to_toml(value: &Json) -> String {
    let mut document = toml_edit::DocumentMut::new();
    if let Json::Object(map) = value {
        for (key, value) in map {
            document.insert(key, item(value));
        }
    }
    document.to_string()
}

fn item(value: &Json) -> toml_edit::Item {
    match value {
        Json::Object(map) => {
            let mut table = toml_edit::Table::new();
            // Plain values first: behind the header of a table they would belong to that.
            let (tables, plain): (Vec<_>, Vec<_>) = map
                .iter()
                .partition(|(_, value)| matches!(value, Json::Object(_)) || is_tables(value));
            for (key, value) in plain.into_iter().chain(tables) {
                table.insert(key, item(value));
            }
            toml_edit::Item::Table(table)
        }
        value if is_tables(value) => {
            let mut tables = toml_edit::ArrayOfTables::new();
            for one in value.as_array().into_iter().flatten() {
                if let toml_edit::Item::Table(table) = item(one) {
                    tables.push(table);
                }
            }
            toml_edit::Item::ArrayOfTables(tables)
        }
        value => plain(value).map_or(toml_edit::Item::None, toml_edit::Item::Value),
    }
}

fn is_tables(value: &Json) -> bool {
    value
        .as_array()
        .is_some_and(|items| !items.is_empty() && items.iter().all(Json::is_object))
}

fn plain(value: &Json) -> Option<toml_edit::Value> {
    Some(match value {
        Json::String(text) => text.as_str().into(),
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => number.as_i64()?.into(),
        Json::Array(items) => items
            .iter()
            .filter_map(plain)
            .collect::<toml_edit::Array>()
            .into(),
        _ => return None,
    })
}
