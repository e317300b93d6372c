//! From `[[rigs]]` to the directories that agents belong to.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::city::Surroundings;
use super::fields::{self, Fields, Item};
use super::keys::RIGS;
use super::problem::{Problem, Problems};
use super::source::Sources;

/// A directory that agents belong to.
#[derive(Debug)]
pub(super) struct Rig {
    /// Absolute, symbolic links and `..` left as they are.
    pub(super) root: PathBuf,
    pub(super) suspended: bool,
    /// Why its agents cannot run.
    pub(super) held: Option<String>,
}

/// The rigs of a file, by name.
#[derive(Debug, Default)]
pub(super) struct Rigs {
    rigs: HashMap<String, Rig>,
    names: HashMap<String, Range<usize>>,
}

impl Rigs {
    /// Reads all rigs. One without a directory is a warning, and a source: once the directory is
    /// there, the city is another.
    pub(super) fn read(
        table: &DeTable<'_>,
        around: &Surroundings<'_>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Self {
        let mut rigs = Self::default();
        for item in fields::tables(table, "rigs", &RIGS, problems) {
            let fields = fields::read(&RIGS, item.table, &item.path, problems);
            for key in ["name", "path"] {
                if item.table.get(key).is_none() {
                    problems.push(fields::missing(item.header.clone(), &item.path, "rig", key));
                }
            }
            let root = directory(&fields, &item.path, around, problems);
            let held = root
                .as_deref()
                .filter(|root| !root.is_dir())
                .map(|root| missing(root, &fields, &item.path, sources, problems));
            if let (Some(name), Some(root)) = (rigs.name(&fields, &item, problems), root) {
                let rig = Rig {
                    root,
                    suspended: fields.flag("suspended").unwrap_or(false),
                    held,
                };
                rigs.rigs.insert(name, rig);
            }
        }
        rigs
    }

    /// The rig of agents with this `dir`.
    pub(super) fn get(&self, dir: &str) -> Option<&Rig> {
        self.rigs.get(dir)
    }

    /// The name, unless it is taken.
    fn name(
        &mut self,
        fields: &Fields,
        item: &Item<'_, '_>,
        problems: &mut Problems,
    ) -> Option<String> {
        let (name, span) = (fields.text("name")?, fields.span("name")?);
        if let Some(first) = self.names.get(name) {
            problems.push(
                Problem::error(
                    "duplicate-name",
                    span,
                    format!("{}.name", item.path),
                    format!("rig `{name}` is defined twice"),
                )
                .label("second rig of this name")
                .related(first.clone(), "first rig of this name"),
            );
            return None;
        }
        self.names.insert(name.to_owned(), span);
        Some(name.to_owned())
    }
}

/// The absolute directory: as written, in the home directory or in the city.
fn directory(
    fields: &Fields,
    path: &str,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<PathBuf> {
    let (text, span) = (fields.text("path")?, fields.span("path")?);
    let at = format!("{path}.path");
    let joined = match text.strip_prefix('~') {
        None => around.root.join(text),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let Some(home) = around.home.as_deref().filter(|home| home.is_absolute()) else {
                let message = "`~` stands for the home directory, and `HOME` is not set";
                problems.push(fields::invalid(span, &at, message));
                return None;
            };
            home.join(rest.trim_start_matches('/'))
        }
        Some(_) => {
            let message = "only `~/` stands for a home directory";
            problems.push(fields::invalid(span, &at, message));
            return None;
        }
    };
    // Without `.` and doubled slashes; `..` stays, since behind a link it cannot be folded.
    Some(joined.components().collect())
}

/// Warns of a rig without a directory; the answer is why its agents cannot run.
fn missing(
    root: &Path,
    fields: &Fields,
    path: &str,
    sources: &mut Sources,
    problems: &mut Problems,
) -> String {
    sources.absent(root.to_owned());
    let label = if root.exists() {
        "not a directory"
    } else {
        "no such directory"
    };
    let held = format!("rig directory {} is missing", root.display());
    problems.push(
        Problem::error(
            "rig-path-missing",
            fields.span("path").unwrap_or(0..0),
            format!("{path}.path"),
            format!("{held}, so its agents are held"),
        )
        .warning()
        .label(label),
    );
    held
}
