//! Directories that are copied into the working directory of an agent: overlays of packs, hook
//! sets, its own.

use std::path::{Path, PathBuf};

use super::compose::{Composed, Entry};
use super::hooks;
use super::keys::nearest;
use super::problem::{Problem, Problems};
use super::sources::Sources;
use super::tree::Span;

/// Hook sets of the older Go tool.
const FOREIGN: [&str; 2] = ["pi", "omp"];

/// A directory to copy and what stands for it in the fingerprint.
pub(super) struct Overlay {
    pub(super) dir: PathBuf,
    pub(super) hash: String,
}

/// The overlays of an agent, in the order they are applied.
pub(super) fn of(
    entry: &Entry,
    composed: &Composed,
    sets: &[(String, Span, String)],
    sources: &mut Sources,
    problems: &mut Problems,
) -> Vec<Overlay> {
    let mut found = Vec::new();
    let scope = composed.scope_of(entry);
    let packs: Vec<&super::packs::Pack> = scope
        .iter()
        .filter_map(|index| composed.packs.get(*index))
        .collect();
    for pack in packs.iter().filter(|pack| pack.has_overlay) {
        let dir = pack.dir.join("overlay");
        let span = entry.header.clone();
        found.extend(tree(dir, span, &entry.path, sources, problems));
    }
    for (name, span, at) in sets {
        let root = problems.files.root().to_owned();
        let own = std::iter::once(root.join("hooks").join(name)).filter(|dir| dir.is_dir());
        let packs = packs.iter().rev().filter(|pack| pack.hooks.contains(name));
        let dir = own
            .chain(packs.map(|pack| pack.dir.join("hooks").join(name)))
            .next();
        match dir {
            Some(dir) => found.extend(tree(dir, span.clone(), at, sources, problems)),
            None => {
                sources.awaited(&root.join("hooks").join(name));
                match hooks::dir(&root, name) {
                    Some(dir) => found.push(Overlay {
                        hash: hooks::hash(name),
                        dir,
                    }),
                    None => problems.push(missing(name, span.clone(), at)),
                }
            }
        }
    }
    if let Some((text, span)) = entry.fields.placed_text("overlay_dir") {
        let dir = problems.files.resolve(text, &span);
        let at = format!("{}.overlay_dir", entry.path);
        found.extend(tree(dir, span, &at, sources, problems));
    }
    found
}

fn tree(
    dir: PathBuf,
    span: Span,
    at: &str,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Overlay> {
    match sources.tree(&dir) {
        Ok(tree) => Some(Overlay {
            hash: tree.hash.clone(),
            dir,
        }),
        Err(error) => {
            let message = format!("{} {}", dir.display(), error.why);
            problems.push(Problem::error(error.code, span, at, message).label("nothing to copy"));
            None
        }
    }
}

fn missing(name: &str, span: Span, at: &str) -> Problem {
    if FOREIGN.contains(&name) {
        let message = format!("hook set `{name}` is not supported, ignored");
        return Problem::error("unsupported-key", span, at, message)
            .warning()
            .label("ignored");
    }
    let help = match nearest(name, hooks::names()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => {
            let names: Vec<&str> = hooks::names().collect();
            format!("make hooks/{name}, or use one of: {}", names.join(", "))
        }
    };
    Problem::error(
        "unknown-ref",
        span,
        at,
        format!("there is no hook set {name:?}"),
    )
    .label("unknown hook set")
    .help(help)
}

/// The names of the hook sets in a directory.
pub(super) fn sets_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("hooks"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
