//! From files to one city: fragments, packs, overrides and patches laid over each other
//! (config.md 2.8).

mod agents;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::fields::{self, Fields, Item, Written};
use super::files::Layer;
use super::keys::{CITY, FRAGMENT, Section, nearest};
use super::packs::Packs;
use super::pool::qualified;
use super::problem::{Problem, Problems};
use super::source::{self, Bytes};
use super::sources::Sources;
use super::syntax;
use super::tree::{Span, Table};

/// Everything the files say, in one piece.
#[derive(Debug)]
pub(super) struct Composed {
    /// The sections of the city's own files.
    pub(super) city: Fields,
    /// All agents, with overrides and patches.
    pub(super) agents: Vec<Entry>,
    pub(super) rigs: Vec<Item>,
    /// `[providers]` of packs and city.
    pub(super) providers: BTreeMap<String, Item>,
    pub(super) packs: Packs,
    /// Packs of the whole city, in load order.
    pub(super) city_packs: Vec<usize>,
    /// Packs of each rig.
    pub(super) rig_packs: HashMap<String, Vec<usize>>,
}

/// One `[[agent]]`, where it is made.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) fields: Fields,
    pub(super) path: String,
    pub(super) header: Span,
    /// Its `dir`, in a rig that of the rig.
    pub(super) dir: String,
    /// The pack it comes from.
    pub(super) pack: Option<usize>,
}

impl Entry {
    fn new(item: &Item) -> Self {
        Self {
            fields: item.fields.clone(),
            path: item.path.clone(),
            header: item.header.clone(),
            dir: item.fields.text("dir").unwrap_or_default().to_owned(),
            pack: None,
        }
    }

    /// Its full name, if it has a valid one.
    pub(super) fn full_name(&self) -> Option<String> {
        let misplaced = self.fields.has("dir") && self.fields.text("dir").is_none();
        let name = self.fields.text("name").filter(|_| !misplaced)?;
        Some(qualified(&self.dir, name))
    }
}

/// Reads one file by its section. A syntax error is reported and ends it.
pub(super) fn file(
    path: &Path,
    bytes: &Bytes,
    section: &Section,
    layer: Layer,
    problems: &mut Problems,
) -> Option<Fields> {
    let table = table(path, bytes, problems)?;
    Some(fields_of(&table, section, layer, problems))
}

fn table(path: &Path, bytes: &Bytes, problems: &mut Problems) -> Option<Table> {
    match source::decode(&bytes.bytes, &problems.files.shown(path)) {
        Ok(text) => syntax::parse(text, path, problems),
        Err(refusal) => {
            let base = problems.files.next_base();
            problems.files.add(path, refusal.text);
            let at = refusal.at + base;
            problems.push(Problem::error(refusal.code, at..at, "", refusal.message));
            None
        }
    }
}

fn fields_of(table: &Table, section: &Section, layer: Layer, problems: &mut Problems) -> Fields {
    let start = table.0.iter().map(|pair| pair.key_span.start).min();
    let start = start.unwrap_or_else(|| problems.files.last_base());
    let from = Written {
        table,
        header: start..start,
        path: "",
        layer,
    };
    fields::read(section, &from, problems)
}

/// Reads and joins all files of the city whose `city.toml` has these bytes. `more` are files to
/// lay over them.
pub(super) fn compose(
    bytes: &Bytes,
    more: &[PathBuf],
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Composed> {
    let root = problems.files.root().to_owned();
    let mut city = file(&source::file_of(&root), bytes, &CITY, Layer::City, problems)?;
    let includes: Vec<(PathBuf, Option<Span>, Layer)> = city
        .placed("include")
        .iter()
        .map(|(text, span)| {
            let path = problems.files.resolve(text, span);
            (path, Some(span.clone()), Layer::Fragment)
        })
        .chain(more.iter().map(|path| (path.clone(), None, Layer::Flag)))
        .collect();
    for (i, (path, span, layer)) in includes.into_iter().enumerate() {
        if let Some(fragment) = fragment(&path, span, i, layer, sources, problems) {
            city.lay(fragment, "", problems);
        }
    }
    let named = city.dict("packs").cloned().unwrap_or_default();
    let mut composed = Composed {
        agents: Vec::new(),
        rigs: city.tables("rigs").to_vec(),
        providers: BTreeMap::new(),
        packs: Packs::new(named, sources, problems),
        city_packs: Vec::new(),
        rig_packs: HashMap::new(),
        city,
    };
    composed.patch_rigs(problems);
    composed.include_packs(sources, problems);
    composed.join_providers(problems);
    composed.join_agents(problems);
    composed.apply_overrides(problems);
    composed.apply_patches(problems);
    composed.check_requirements(problems);
    Some(composed)
}

/// Reads a fragment; it cannot include others.
fn fragment(
    path: &Path,
    span: Option<Span>,
    index: usize,
    layer: Layer,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Fields> {
    let bytes = match sources.bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("{} {}", path.display(), error.why);
            let at = span.map_or(0..0, |span| span);
            let key = format!("include[{index}]");
            problems.push(Problem::error(error.code, at, key, message).label("no such file"));
            return None;
        }
    };
    let mut table = table(path, &bytes, problems)?;
    for pair in table.0.iter().filter(|pair| pair.key == "include") {
        let message = "a file that is included cannot include others";
        problems.push(
            Problem::error("nested-include", pair.key_span.clone(), "include", message)
                .label("not here")
                .help("list all files in `include` of city.toml".to_owned()),
        );
    }
    table.0.retain(|pair| pair.key != "include");
    Some(fields_of(&table, &FRAGMENT, layer, problems))
}

impl Composed {
    fn patches(&self, kind: &str) -> Vec<Item> {
        self.city
            .table("patches")
            .map(|patches| patches.tables(kind).to_vec())
            .unwrap_or_default()
    }

    fn patch_rigs(&mut self, problems: &mut Problems) {
        for patch in self.patches("rigs") {
            let Some((name, span)) = patch.fields.placed_text("name") else {
                continue;
            };
            let mut hit = false;
            for rig in &mut self.rigs {
                if rig.fields.text("name") == Some(name) {
                    rig.fields
                        .change(&without_identity(&patch.fields), problems);
                    hit = true;
                }
            }
            if !hit {
                let names = self.rigs.iter().filter_map(|rig| rig.fields.text("name"));
                problems.push(no_target("rig", name, span, &patch, names));
            }
        }
    }

    fn include_packs(&mut self, sources: &mut Sources, problems: &mut Problems) {
        if let Some(workspace) = self.city.table("workspace") {
            let refs = workspace.placed("includes").to_vec();
            let path = "workspace.includes";
            self.packs
                .include(&refs, path, &mut self.city_packs, sources, problems);
        }
        for rig in &self.rigs {
            let refs = rig.fields.placed("includes").to_vec();
            let mut scope = Vec::new();
            let path = format!("{}.includes", rig.path);
            self.packs
                .include(&refs, &path, &mut scope, sources, problems);
            if let Some(name) = rig.fields.text("name") {
                self.rig_packs
                    .entry(name.to_owned())
                    .or_default()
                    .extend(scope);
            }
        }
    }

    /// Every pack once, those of the city first.
    pub(super) fn all_packs(&self) -> Vec<usize> {
        let mut all = self.city_packs.clone();
        for rig in &self.rigs {
            let scope = rig
                .fields
                .text("name")
                .and_then(|name| self.rig_packs.get(name));
            for pack in scope.into_iter().flatten() {
                if !all.contains(pack) {
                    all.push(*pack);
                }
            }
        }
        all
    }

    /// The packs of an agent: those of the city, then those of its rig.
    pub(super) fn scope_of(&self, entry: &Entry) -> Vec<usize> {
        let mut scope = self.city_packs.clone();
        let rig = entry.dir.split('/').next().unwrap_or_default();
        for pack in self.rig_packs.get(rig).into_iter().flatten() {
            if !scope.contains(pack) {
                scope.push(*pack);
            }
        }
        scope
    }

    fn join_providers(&mut self, problems: &mut Problems) {
        let mut providers: BTreeMap<String, Item> = BTreeMap::new();
        let packs = self.all_packs();
        let of_packs = packs
            .iter()
            .filter_map(|index| self.packs.get(*index)?.fields.dict("providers"));
        for (name, item) in of_packs.chain(self.city.dict("providers")).flatten() {
            match providers.get_mut(name) {
                // A pack is there to be changed: no word about it.
                Some(own) => own.fields.change(&item.fields, problems),
                None => {
                    providers.insert(name.clone(), item.clone());
                }
            }
        }
        for patch in self.patches("providers") {
            let Some((name, span)) = patch.fields.placed_text("name") else {
                continue;
            };
            let change = without_identity(&patch.fields);
            match providers.get_mut(name) {
                Some(own) => own.fields.change(&change, problems),
                None if super::providers::is_preset(name) => {
                    let item = Item {
                        fields: change,
                        path: patch.path.clone(),
                        header: patch.header.clone(),
                    };
                    providers.insert(name.to_owned(), item);
                }
                None => {
                    let presets = super::providers::preset_names().map(str::to_owned);
                    let names: Vec<String> = providers.keys().cloned().chain(presets).collect();
                    let names = names.iter().map(String::as_str);
                    problems.push(no_target("provider", name, span, &patch, names));
                }
            }
        }
        self.providers = providers;
    }
}

/// A patch without the keys that say what it patches.
fn without_identity(fields: &Fields) -> Fields {
    let mut change = fields.clone();
    for key in ["name", "dir", "agent"] {
        change.remove(key);
    }
    change
}

fn no_target<'a>(
    what: &str,
    name: &str,
    span: Span,
    patch: &Item,
    names: impl Iterator<Item = &'a str>,
) -> Problem {
    let help = nearest(name, names).map(|meant| format!("did you mean \"{meant}\"?"));
    let message = format!("there is no {what} `{name}` to change");
    Problem::error("unknown-ref", span, format!("{}.name", patch.path), message)
        .label(format!("unknown {what}"))
        .help(help)
}
