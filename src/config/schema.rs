//! What the tables of [`super::keys`] say, for editors and for people: a JSON schema and the
//! reference page.

use serde_json::{Map, Value, json};

use super::keys::{FileKind, Key, Kind, Section};

/// The JSON schema of a kind of file.
#[must_use]
pub fn json_schema(file: &FileKind) -> Value {
    let mut schema = object(file.top);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(file.file);
    schema
}

fn object(section: &Section) -> Value {
    let mut properties = Map::new();
    for key in section.all() {
        properties.insert(key.name.into(), property(key));
        if section.edits && key.kind.is_list() {
            let name = format!("{}_append", key.name);
            let list = json!({
                "type": "array",
                "items": {"type": "string"},
                "description": format!("Appended to `{}`", key.name),
            });
            properties.insert(name, list);
        }
    }
    if section.edits && section.key("env").is_some() {
        let list = json!({
            "type": "array",
            "items": {"type": "string"},
            "description": "Variables to take out of `env`",
        });
        properties.insert("env_remove".into(), list);
    }
    let required: Vec<&str> = section.required().map(|key| key.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": section.lenient,
    })
}

fn property(key: &Key) -> Value {
    let mut schema = shape(key.kind);
    schema["description"] = json!(key.doc);
    if let Some(default) = default(key) {
        schema["default"] = default;
    }
    if key.later {
        schema["x-no-effect-yet"] = json!(true);
    }
    if key.kind.section().is_none() && key.kind != Kind::Free {
        schema["x-change"] = json!(key.reload.as_str());
    }
    schema
}

fn shape(kind: Kind) -> Value {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    match kind {
        Kind::CityName => text("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        Kind::AgentName => text("^[A-Za-z0-9](?!.*--)[A-Za-z0-9_-]{0,62}$"),
        Kind::Dir => text("^([A-Za-z0-9][A-Za-z0-9_-]{0,62}(/[A-Za-z0-9][A-Za-z0-9_-]{0,62})*)?$"),
        Kind::Prefix => text("^[a-z][a-z0-9]{0,7}$"),
        Kind::Text | Kind::Template(_) => json!({"type": "string"}),
        Kind::Command | Kind::Path => json!({"type": "string", "minLength": 1}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Count(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Limit => json!({"type": "integer", "minimum": -1, "maximum": u32::MAX}),
        Kind::Duration(_) => text("^(0|([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+)$"),
        Kind::Size => text("^[0-9]+(B|KiB|MiB|GiB)$"),
        Kind::Percent => text("^[0-9]+%$"),
        Kind::KeyHashes => json!({
            "type": "array",
            "items": {"type": "string", "pattern": "^sha256:[0-9A-Fa-f]{64}$"},
        }),
        Kind::Word { allowed, .. } => match allowed.iter().any(|word| word.ends_with(':')) {
            false => json!({"enum": allowed}),
            true => text(&format!(
                "^({})$",
                allowed
                    .iter()
                    .map(|word| match word.ends_with(':') {
                        true => format!("{word}.+"),
                        false => (*word).to_owned(),
                    })
                    .collect::<Vec<_>>()
                    .join("|")
            )),
        },
        Kind::Texts | Kind::Words | Kind::Lines(_) => {
            json!({"type": "array", "items": {"type": "string"}})
        }
        Kind::OneOrMore => json!({"type": ["string", "array"], "items": {"type": "string"}}),
        Kind::Map => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Kind::Env => json!({
            "type": "object",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"not": {"pattern": "^GC_"}},
        }),
        Kind::Table(section) => object(section),
        Kind::Tables(section) => json!({"type": "array", "items": object(section)}),
        Kind::Dict(section) => json!({"type": "object", "additionalProperties": object(section)}),
        Kind::Free => json!({}),
    }
}

/// The default of a key, if it has one.
pub(super) fn default(key: &Key) -> Option<Value> {
    let line = format!("value = {}", key.default);
    let table: toml::Table = line.parse().ok()?;
    serde_json::to_value(table.get("value")?).ok()
}

/// The reference page of a kind of file.
#[must_use]
pub fn markdown(file: &FileKind) -> String {
    let mut page = format!("# `{}`\n", file.file);
    for section in file.sections() {
        let title = match section.header {
            "" => "Top level".to_owned(),
            header => format!("`{header}`"),
        };
        page.push_str(&format!("\n## {title}\n\n"));
        if let Some((other, except)) = section.also.filter(|_| section.edits) {
            page.push_str(&format!(
                "Takes all keys of `{}` but {}; what is here replaces what was there. Lists also \
                 take `<key>_append`",
                other.header,
                names(except)
            ));
            if section.key("env").is_some() {
                page.push_str(
                    ", `env` merges, and `env_remove` is a list of variables to take out",
                );
            }
            page.push_str(".\n\n");
        }
        page.push_str("| Key | Type | Default | Meaning | Change |\n|---|---|---|---|---|\n");
        let keys: Vec<&Key> = match section.edits {
            true => section.keys.iter().collect(),
            false => section.all().collect(),
        };
        for key in keys {
            page.push_str(&row(key));
        }
    }
    page
}

fn names(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn row(key: &Key) -> String {
    let default = match key.default {
        _ if key.required => "required".to_owned(),
        "" => "-".to_owned(),
        default => format!("`{default}`"),
    };
    let change = match (key.kind.section(), key.kind) {
        (Some(_), _) | (_, Kind::Free) => "",
        _ => key.reload.as_str(),
    };
    let later = match key.later {
        true => ". *No effect in this version*",
        false => "",
    };
    format!(
        "| `{}` | {} | {} | {}{later} | {} |\n",
        key.name,
        type_of(key.kind).replace('|', "\\|"),
        default.replace('|', "\\|"),
        key.doc.replace('|', "\\|"),
        change
    )
}

fn type_of(kind: Kind) -> String {
    match kind {
        Kind::CityName | Kind::AgentName | Kind::Dir => "name".into(),
        Kind::Prefix => "prefix".into(),
        Kind::Command | Kind::Text => "string".into(),
        Kind::Path => "path".into(),
        Kind::Template(_) => "string with variables".into(),
        Kind::Flag => "bool".into(),
        Kind::Count(least, most) if most < u64::from(u32::MAX) => {
            format!("integer, {least} to {most}")
        }
        Kind::Count(0, _) => "integer".into(),
        Kind::Count(least, _) => format!("integer, at least {least}"),
        Kind::Limit => "integer, -1 or more".into(),
        Kind::Duration(least) if least.is_zero() => "duration".into(),
        Kind::Duration(least) if least.as_millis() == 0 => "duration > 0".into(),
        Kind::Duration(least) => format!("duration, at least {least:?}"),
        Kind::Size => "size".into(),
        Kind::Percent => "percent".into(),
        Kind::KeyHashes => "list of hashes".into(),
        Kind::Word { allowed, .. } => {
            let words = allowed.iter().map(|word| match word.ends_with(':') {
                true => format!("`\"{word}<script>\"`"),
                false => format!("`\"{word}\"`"),
            });
            words.collect::<Vec<_>>().join(", ")
        }
        Kind::Texts | Kind::Words => "list of strings".into(),
        Kind::Lines(_) => "list of shell lines with variables".into(),
        Kind::OneOrMore => "string or list of strings".into(),
        Kind::Map | Kind::Env => "table of strings".into(),
        Kind::Table(_) => "table".into(),
        Kind::Tables(_) => "tables".into(),
        Kind::Dict(_) => "tables by name".into(),
        Kind::Free => "anything".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::FILES;
    use super::*;

    #[test]
    fn the_schema_has_every_key_and_its_default() {
        let schema = json_schema(&FILES[0]);
        let daemon = &schema["properties"]["daemon"]["properties"];
        assert_eq!(daemon["max_restarts"]["default"], 5);
        assert_eq!(daemon["patrol_interval"]["default"], "30s");
        let agent = &schema["properties"]["agent"]["items"];
        assert_eq!(agent["required"], json!(["name"]));
        assert_eq!(agent["additionalProperties"], false);
        let patch = &schema["properties"]["patches"]["properties"]["agent"]["items"];
        assert_eq!(patch["properties"]["pre_start_append"]["type"], "array");
    }

    #[test]
    fn the_page_has_every_key() {
        for file in FILES {
            let page = markdown(&file);
            for key in file.sections().iter().flat_map(|section| section.keys) {
                assert!(
                    page.contains(&format!("| `{}` |", key.name)),
                    "{}",
                    key.name
                );
            }
        }
    }
}
