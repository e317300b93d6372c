//! The joined config as people ask for it: whole, by agent, or one key with where it comes from.

mod show;

use std::sync::Arc;

use gascity_actors::model::AgentName;
use gascity_actors::ports::LoadError;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::compose::{Composed, Entry};
use super::edit::Target;
use super::fields::{Field, Fields, Item, Old, Value};
use super::files::{Files, Layer};
use super::keys::{AGENT, CITY, Kind, Section, nearest};
use super::running::RunningAgent;
use super::tree::Span;
use super::{Attempt, LoadedCity, Loader, schema};

pub use show::to_toml;
use show::{agent, shown, shown_key, table, with_defaults};

/// What stands in for a value that nobody may read.
const MASK: &str = "***";

/// A load with everything that led to it.
#[derive(Debug)]
pub struct Resolved {
    /// The city, or why there is none.
    pub result: Result<LoadedCity, LoadError>,
    composed: Option<Composed>,
    files: Files,
}

/// One key and where its value comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explained {
    /// The key as it was asked for.
    pub path: String,
    /// Its value; secrets are masked.
    pub value: Json,
    /// Where it is written; absent for a default.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What kind of file or table says so.
    pub layer: String,
    /// What a change of it means for a running city.
    pub class: String,
    /// Values it replaced, the latest first.
    pub overridden: Vec<Overridden>,
}

/// A value that another one replaced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overridden {
    /// The value.
    pub value: Json,
    /// Where it is written.
    #[serde(flatten)]
    pub place: Place,
    /// What kind of file or table says so.
    pub layer: String,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, relative to the city if it lies there.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Loader {
    /// Loads the city and keeps what led to it, for questions. Blocks on the file system.
    #[must_use]
    pub fn resolve(&self) -> Resolved {
        Resolved::of(self.attempt())
    }
}

impl Resolved {
    pub(super) fn of(attempt: Attempt) -> Self {
        Self {
            result: attempt.result,
            composed: attempt.composed,
            files: attempt.files,
        }
    }

    /// Whether an agent's own tables say that it does not run.
    pub(super) fn is_suspended(&self, agent: &str) -> bool {
        let entry = self.entry(agent);
        entry
            .and_then(|entry| entry.fields.flag("suspended"))
            .unwrap_or(false)
    }

    /// Whether what patches lie over says so.
    pub(super) fn is_suspended_below(&self, target: &Target) -> bool {
        let Target::Agent(name) = target else {
            return false;
        };
        let field = self
            .entry(name.as_str())
            .and_then(|entry| entry.fields.field("suspended"));
        let below = field.and_then(|field| match field.layer {
            Layer::Patch => field.over.first().map(|old| &old.value),
            _ => Some(&field.value),
        });
        matches!(below, Some(Value::Flag(true)))
    }

    /// Keeps what [`Self::show`] says in the spec, for whoever asks a running city.
    pub(super) fn keep_document(&mut self) {
        let document = self.show().to_string().into();
        if let Ok(city) = &mut self.result {
            Arc::make_mut(&mut city.spec).document = document;
        }
    }

    /// The whole config as one, with defaults; secrets are masked.
    #[must_use]
    pub fn show(&self) -> Json {
        let Some(composed) = &self.composed else {
            return json!({});
        };
        let mut whole = Map::new();
        for key in CITY.all() {
            let field = composed.city.field(key.name);
            match (key.kind, field) {
                (Kind::Table(section), field) => {
                    let fields = match field.map(|field| &field.value) {
                        Some(Value::Table(fields)) => Some(fields),
                        _ => None,
                    };
                    let shown = with_defaults(section, fields);
                    if fields.is_some() || ["workspace", "daemon", "session"].contains(&key.name) {
                        whole.insert(key.name.into(), Json::Object(shown));
                    }
                }
                (Kind::Free, _) | (_, None) => {}
                (_, Some(field))
                    if !["agent", "rigs", "providers", "include"].contains(&key.name) =>
                {
                    whole.insert(key.name.into(), shown(&field.value));
                }
                _ => {}
            }
        }
        if let (Ok(city), Some(Json::Object(workspace))) =
            (&self.result, whole.get_mut("workspace"))
        {
            workspace.insert("name".into(), json!(city.spec.name));
        }
        let items = |items: &[Item]| -> Vec<Json> {
            items
                .iter()
                .map(|item| Json::Object(table(&item.fields)))
                .collect()
        };
        if !composed.rigs.is_empty() {
            whole.insert("rigs".into(), json!(items(&composed.rigs)));
        }
        if !composed.providers.is_empty() {
            let providers = composed.providers.iter();
            let providers =
                providers.map(|(name, item)| (name.clone(), Json::Object(table(&item.fields))));
            whole.insert("providers".into(), Json::Object(providers.collect()));
        }
        let agents: Vec<Json> = composed.agents.iter().map(agent).collect();
        if !agents.is_empty() {
            whole.insert("agent".into(), json!(agents));
        }
        Json::Object(whole)
    }

    /// One agent: its table, and what is made of it.
    #[must_use]
    pub fn show_agent(&self, name: &str) -> Option<Json> {
        let mut shown = agent(self.entry(name)?);
        let spec = self.result.as_ref().ok().and_then(|city| {
            let name = AgentName::new(name).ok()?;
            city.spec.agent(&name).cloned()
        });
        if let Some(spec) = spec {
            shown["resolved"] = RunningAgent::of(&spec).resolved();
        }
        Some(shown)
    }

    /// The full names of all agents.
    #[must_use]
    pub fn agents(&self) -> Vec<String> {
        let composed = self.composed.iter();
        composed
            .flat_map(|composed| &composed.agents)
            .filter_map(Entry::full_name)
            .collect()
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let mut entries = self.composed.iter().flat_map(|composed| &composed.agents);
        entries.find(|entry| entry.full_name().as_deref() == Some(name))
    }

    /// Where the value of a key comes from: `daemon.max_restarts`, `worker.env.A`, or the name of
    /// an agent for all its keys.
    ///
    /// # Errors
    /// The path that was probably meant, if there is one.
    pub fn explain(&self, path: &str) -> Result<Vec<Explained>, Option<String>> {
        let none = Fields::default();
        if let Some(entry) = self.entry(path) {
            let mut all = Vec::new();
            for (_, field) in entry.fields.iter() {
                self.fields_of(path, field, &mut all);
            }
            return Ok(all);
        }
        let names = self.agents();
        let owner = names
            .iter()
            .filter(|name| {
                path.strip_prefix(name.as_str())
                    .is_some_and(|rest| rest.starts_with('.'))
            })
            .max_by_key(|name| name.len());
        let found = match owner.and_then(|name| Some((name, self.entry(name)?))) {
            Some((name, entry)) => {
                let rest: Vec<&str> = path[name.len() + 1..].split('.').collect();
                self.walk(&AGENT, &entry.fields, &rest, path)
            }
            None => {
                let city = self
                    .composed
                    .as_ref()
                    .map_or(&none, |composed| &composed.city);
                let rest: Vec<&str> = path.split('.').collect();
                self.walk(&CITY, city, &rest, path)
            }
        };
        found.ok_or_else(|| {
            let keys = CITY
                .all()
                .filter_map(|key| Some((key.name, key.kind.section()?)));
            let keys: Vec<String> = keys
                .flat_map(|(name, section)| {
                    section.all().map(move |key| format!("{name}.{}", key.name))
                })
                .chain(names)
                .collect();
            nearest(path, keys.iter().map(String::as_str)).map(str::to_owned)
        })
    }

    fn walk(
        &self,
        section: &'static Section,
        fields: &Fields,
        rest: &[&str],
        path: &str,
    ) -> Option<Vec<Explained>> {
        let (first, rest) = rest.split_first()?;
        let key = section.key(first)?;
        let field = fields.field(first);
        match (key.kind, field.map(|field| &field.value), rest) {
            (Kind::Table(inner), value, [_, ..]) => {
                let none = Fields::default();
                let fields = match value {
                    Some(Value::Table(fields)) => fields,
                    _ => &none,
                };
                self.walk(inner, fields, rest, path)
            }
            (Kind::Dict(inner), Some(Value::Dict(items)), [name, rest @ ..]) => {
                let item = items.get(*name)?;
                match rest {
                    [] => {
                        let mut all = Vec::new();
                        for (_, field) in item.fields.iter() {
                            self.fields_of(path, field, &mut all);
                        }
                        Some(all)
                    }
                    rest => self.walk(inner, &item.fields, rest, path),
                }
            }
            (_, Some(Value::Map(map, secret)), [name]) => {
                let variable = map.get(*name)?;
                Some(vec![Explained {
                    path: path.to_owned(),
                    value: json!(if *secret { MASK } else { &variable.text }),
                    place: self.place(&variable.span),
                    layer: variable.layer.as_str().into(),
                    class: key.reload.as_str().into(),
                    overridden: Vec::new(),
                }])
            }
            (_, Some(_), []) => {
                let field = field?;
                let mut all = Vec::new();
                match field.value {
                    Value::Table(_) => {
                        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
                        self.fields_of(parent, field, &mut all);
                    }
                    _ => all.push(self.explained(path, field)),
                }
                Some(all)
            }
            (_, None, []) => Some(vec![Explained {
                path: path.to_owned(),
                value: schema::default(key).unwrap_or(Json::Null),
                place: None,
                layer: "default".into(),
                class: key.reload.as_str().into(),
                overridden: Vec::new(),
            }]),
            _ => None,
        }
    }

    /// All keys below a field.
    fn fields_of(&self, parent: &str, field: &Field, all: &mut Vec<Explained>) {
        let path = match parent {
            "" => field.key.name.to_owned(),
            parent => format!("{parent}.{}", field.key.name),
        };
        match &field.value {
            Value::Table(fields) => {
                for (_, field) in fields.iter() {
                    self.fields_of(&path, field, all);
                }
            }
            Value::Map(map, secret) => all.extend(map.iter().map(|(name, variable)| Explained {
                path: format!("{path}.{name}"),
                value: json!(if *secret { MASK } else { &variable.text }),
                place: self.place(&variable.span),
                layer: variable.layer.as_str().into(),
                class: field.key.reload.as_str().into(),
                overridden: Vec::new(),
            })),
            _ => all.push(self.explained(&path, field)),
        }
    }

    fn explained(&self, path: &str, field: &Field) -> Explained {
        let overridden = |old: &Old| {
            Some(Overridden {
                value: shown_key(field.key, &old.value),
                place: self.place(&old.span)?,
                layer: old.layer.as_str().into(),
            })
        };
        Explained {
            path: path.to_owned(),
            value: shown_key(field.key, &field.value),
            place: self.place(&field.span),
            layer: field.layer.as_str().into(),
            class: field.key.reload.as_str().into(),
            overridden: field.over.iter().filter_map(overridden).collect(),
        }
    }

    fn place(&self, span: &Span) -> Option<Place> {
        let (file, line, column) = self.files.position(span);
        (line > 0).then_some(Place { file, line, column })
    }
}
