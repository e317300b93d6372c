//! Packs: directories with agents, providers and prompts that a city or a rig includes.

pub mod fetch;
mod git;
mod lock;
mod reference;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::compose;
use super::fields::{Fields, Item};
use super::files::Layer;
use super::keys::PACK_FILE;
use super::problem::{Problem, Problems};
use super::sources::Sources;
use super::tree::Span;

pub(super) use lock::Lock;
pub(super) use reference::{Reference, Remote};

/// Name of the file that makes a directory a pack.
pub(super) const FILE: &str = "pack.toml";
/// Version of the format of packs.
const SCHEMA: u64 = 1;
/// How deep packs may include each other.
const DEEPEST: usize = 64;

/// A pack that was read.
#[derive(Debug)]
pub(super) struct Pack {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) fields: Fields,
    /// It has files for the working directories of agents.
    pub(super) has_overlay: bool,
    /// Its hook sets.
    pub(super) hooks: Vec<String>,
}

/// The packs of a load, each read once, however often it is included.
#[derive(Debug)]
pub(super) struct Packs {
    list: Vec<Pack>,
    by_dir: HashMap<PathBuf, Option<usize>>,
    /// `[packs]` of the city.
    named: BTreeMap<String, Item>,
    lock: Lock,
    cache: PathBuf,
    /// Remote packs that are asked for, with where.
    pub(super) remotes: Vec<Remote>,
}

impl Packs {
    /// No packs yet, with the names that `[packs]` gives and the pins of `pack.lock`.
    pub(super) fn new(
        named: BTreeMap<String, Item>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Self {
        let root = problems.files.root().to_owned();
        Self {
            list: Vec::new(),
            by_dir: HashMap::new(),
            named,
            lock: Lock::read(&root, sources, problems),
            cache: fetch::cache_of(&root),
            remotes: Vec::new(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Pack> {
        self.list.get(index)
    }

    /// Reads what `refs` name and what that includes, into `scope`: the included before the
    /// including, each once.
    pub(super) fn include(
        &mut self,
        refs: &[(String, Span)],
        path: &str,
        scope: &mut Vec<usize>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) {
        let mut chain = Vec::new();
        self.descend(refs, path, scope, &mut chain, sources, problems);
    }

    fn descend(
        &mut self,
        refs: &[(String, Span)],
        path: &str,
        scope: &mut Vec<usize>,
        chain: &mut Vec<(PathBuf, String)>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) {
        for (i, (text, span)) in refs.iter().enumerate() {
            let at = format!("{path}[{i}]");
            let Some(dir) = self.directory(text, span, &at, sources, problems) else {
                continue;
            };
            if let Some(first) = chain.iter().position(|(other, _)| *other == dir) {
                problems.push(cycle(&chain[first..], span.clone(), &at));
                continue;
            }
            if chain.len() >= DEEPEST {
                let message = format!("packs include each other more than {DEEPEST} deep");
                problems.push(Problem::error("limit", span.clone(), at, message).label("too deep"));
                continue;
            }
            let Some(index) = self.read(&dir, span, &at, sources, problems) else {
                continue;
            };
            if scope.contains(&index) {
                continue;
            }
            let pack = &self.list[index];
            let name = pack.name.clone();
            let includes = pack
                .fields
                .table("pack")
                .map(|pack| pack.placed("includes").to_vec());
            chain.push((dir, name));
            let includes = includes.unwrap_or_default();
            self.descend(&includes, "pack.includes", scope, chain, sources, problems);
            chain.pop();
            if !scope.contains(&index) {
                scope.push(index);
            }
        }
    }

    /// The directory a reference leads to.
    fn directory(
        &mut self,
        text: &str,
        span: &Span,
        at: &str,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Option<PathBuf> {
        match Reference::parse(text, span, &self.named, at, problems)? {
            Reference::Local(dir) => {
                // However it is written, it is one pack; a link on the way may come to point
                // elsewhere.
                let real = std::fs::canonicalize(&dir).unwrap_or_else(|_| dir.clone());
                if real != dir {
                    sources.awaited(&dir);
                }
                Some(real)
            }
            Reference::Remote(remote) => {
                self.remotes.push(remote.clone());
                self.checkout(&remote, span, at, sources, problems)
            }
        }
    }

    /// Where a remote pack lies, if it was fetched and nobody changed it since.
    fn checkout(
        &mut self,
        remote: &Remote,
        span: &Span,
        at: &str,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Option<PathBuf> {
        let locked = self.lock.find(remote).cloned();
        let dir = locked.as_ref().map(|entry| entry.checkout(&self.cache));
        let found = dir.as_ref().filter(|dir| dir.is_dir());
        let (Some(locked), Some(dir)) = (locked, found) else {
            if let Some(dir) = &dir {
                sources.absent(dir);
            }
            let message = format!("pack {} is not here yet", remote);
            problems.push(
                Problem::error("pack-missing", span.clone(), at, message)
                    .label("not fetched")
                    .help("gc pack fetch".to_owned()),
            );
            return None;
        };
        match sources.tree(dir) {
            Ok(tree) if format!("sha256:{}", tree.hash) == locked.hash => {
                Some(dir.join(&remote.path))
            }
            Ok(_) => {
                let shown = problems.files.shown(dir);
                let message = format!("the checkout {shown} is not what was fetched");
                problems.push(
                    Problem::error("pack-hash", span.clone(), at, message)
                        .label("changed since")
                        .help(format!("remove {shown}, then gc pack fetch")),
                );
                None
            }
            Err(error) => {
                let message = format!("{} {}", dir.display(), error.why);
                problems.push(Problem::error(error.code, span.clone(), at, message).label("pack"));
                None
            }
        }
    }

    fn read(
        &mut self,
        dir: &Path,
        span: &Span,
        at: &str,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Option<usize> {
        if let Some(known) = self.by_dir.get(dir) {
            return *known;
        }
        let index = self.read_new(dir, span, at, sources, problems);
        self.by_dir.insert(dir.to_owned(), index);
        index
    }

    fn read_new(
        &mut self,
        dir: &Path,
        span: &Span,
        at: &str,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Option<usize> {
        let unreadable = |why: String, code| {
            Problem::error(code, span.clone(), at, format!("{} {why}", dir.display()))
                .label("no pack")
        };
        if let Err(error) = sources.tree(dir) {
            problems.push(unreadable(error.why, error.code));
            return None;
        }
        let bytes = match sources.bytes(&dir.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) => {
                problems.push(unreadable(format!("/{FILE} {}", error.why), error.code));
                return None;
            }
        };
        let fields = compose::file(&dir.join(FILE), &bytes, &PACK_FILE, Layer::Pack, problems)?;
        let pack = fields.table("pack")?;
        check_schema(pack, problems)?;
        check_version(pack, problems);
        let name = pack.text("name")?.to_owned();
        self.list.push(Pack {
            name,
            has_overlay: dir.join("overlay").is_dir(),
            hooks: super::overlays::sets_in(dir),
            dir: dir.to_owned(),
            fields,
        });
        Some(self.list.len() - 1)
    }
}

fn cycle(chain: &[(PathBuf, String)], span: Span, at: &str) -> Problem {
    let names = chain.iter().chain(chain.first());
    let names: Vec<&str> = names.map(|(_, name)| name.as_str()).collect();
    let message = format!("packs include each other: {}", names.join(" -> "));
    Problem::error("pack-cycle", span, at, message).label("closes the circle")
}

fn check_schema(pack: &Fields, problems: &mut Problems) -> Option<()> {
    let schema: u64 = pack.count("schema")?;
    if schema == SCHEMA {
        return Some(());
    }
    let span = pack.span("schema").unwrap_or(0..0);
    let message = format!("this version of gc reads packs of schema {SCHEMA}, not {schema}");
    problems
        .push(Problem::error("pack-schema", span, "pack.schema", message).label("unknown schema"));
    None
}

/// A pack for a newer gc may use keys that this one would misread.
fn check_version(pack: &Fields, problems: &mut Problems) {
    let Some((text, span)) = pack.placed_text("requires_gc") else {
        return;
    };
    let numbers = |text: &str| -> Option<Vec<u64>> {
        text.trim_start_matches([' ', '>', '='])
            .split('.')
            .map(|part| part.trim().parse().ok())
            .collect()
    };
    let own = env!("CARGO_PKG_VERSION");
    match (numbers(text), numbers(own)) {
        (Some(least), Some(version)) if least <= version => {}
        (Some(_), _) => {
            let message = format!("the pack needs gc {text}; this is {own}");
            problems.push(
                Problem::error("invalid-value", span, "pack.requires_gc", message)
                    .label("newer gc needed"),
            );
        }
        (None, _) => {
            let message = format!("{text:?} is no version: expected something like \">=0.1\"");
            problems.push(
                Problem::error("invalid-value", span, "pack.requires_gc", message)
                    .label("invalid value"),
            );
        }
    }
}
