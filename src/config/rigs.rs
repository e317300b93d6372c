//! From `[[rigs]]` to the directories that agents belong to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::RigInfo;
use super::city::Surroundings;
use super::fields::{self, Fields, Item};
use super::problem::{Problem, Problems};
use super::sources::Sources;
use super::tree::Span;

/// A directory that agents belong to.
#[derive(Debug)]
pub(super) struct Rig {
    /// Absolute, symbolic links and `..` left as they are.
    pub(super) root: PathBuf,
    /// Begins the ids of its work.
    pub(super) prefix: String,
    pub(super) suspended: bool,
    /// Why its agents cannot run.
    pub(super) held: Option<String>,
}

/// The rigs of a city, by name.
#[derive(Debug, Default)]
pub(super) struct Rigs {
    rigs: HashMap<String, Rig>,
    names: HashMap<String, Span>,
    prefixes: HashMap<String, (String, Span)>,
    city_prefix: String,
}

impl Rigs {
    /// Reads all rigs. One without a directory is a warning, and a source: once the directory is
    /// there, the city is another.
    pub(super) fn read(
        items: &[Item],
        city: &str,
        around: &Surroundings<'_>,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Self {
        let mut rigs = Self {
            city_prefix: default_prefix(city),
            ..Self::default()
        };
        for item in items {
            let fields = &item.fields;
            let root = directory(fields, &item.path, around, problems);
            let held = root
                .as_deref()
                .filter(|root| !root.is_dir())
                .map(|root| missing(root, fields, &item.path, sources, problems));
            let name = rigs.name(item, problems);
            let prefix = name
                .as_deref()
                .and_then(|name| rigs.prefix(name, item, problems));
            if let (Some(name), Some(root)) = (name, root) {
                let rig = Rig {
                    root,
                    prefix: prefix.unwrap_or_default(),
                    suspended: fields.flag("suspended").unwrap_or(false),
                    held,
                };
                rigs.rigs.insert(name, rig);
            }
        }
        rigs
    }

    /// The rig of that name.
    pub(super) fn get(&self, name: &str) -> Option<&Rig> {
        self.rigs.get(name)
    }

    /// The rig as others may know it.
    pub(super) fn info(&self, name: &str) -> Option<RigInfo> {
        let rig = self.get(name)?;
        Some(RigInfo {
            name: name.to_owned(),
            path: rig.root.clone(),
            prefix: rig.prefix.clone(),
            suspended: rig.suspended,
            held: rig.held.clone(),
        })
    }

    /// The rig of agents with this `dir`: the one of that name, or of its first part.
    pub(super) fn find(&self, dir: &str) -> Option<(&str, &Rig)> {
        let first = dir.split('/').next().unwrap_or(dir);
        [dir, first]
            .into_iter()
            .find_map(|name| self.rigs.get_key_value(name))
            .map(|(name, rig)| (name.as_str(), rig))
    }

    /// Begins the ids of work that belongs to no rig.
    pub(super) fn city_prefix(&self) -> &str {
        &self.city_prefix
    }

    /// The name, unless it is taken.
    fn name(&mut self, item: &Item, problems: &mut Problems) -> Option<String> {
        let (name, span) = item.fields.placed_text("name")?;
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

    /// The prefix, set or made from the name, unless it is taken.
    fn prefix(&mut self, name: &str, item: &Item, problems: &mut Problems) -> Option<String> {
        let set = item.fields.placed_text("prefix");
        if set.is_none() && item.fields.has("prefix") {
            return None; // a bad one is reported already
        }
        let span = set.as_ref().map(|(_, span)| span.clone());
        let span = span.or_else(|| item.fields.span("name"))?;
        let prefix = set.map_or_else(|| default_prefix(name), |(prefix, _)| prefix.to_owned());
        let key = if item.fields.has("prefix") {
            "prefix"
        } else {
            "name"
        };
        let taken = |whose: &str| {
            let message = format!("rig `{name}` and {whose} both have the prefix `{prefix}`");
            Problem::error(
                "duplicate-name",
                span.clone(),
                format!("{}.{key}", item.path),
                message,
            )
            .label(format!("has the prefix `{prefix}`"))
            .help("set `prefix` to something else".to_owned())
        };
        if prefix == self.city_prefix {
            problems.push(taken("the city"));
            return None;
        }
        if let Some((other, first)) = self.prefixes.get(&prefix) {
            let problem = taken(&format!("rig `{other}`"));
            problems.push(problem.related(first.clone(), "so has this one"));
            return None;
        }
        self.prefixes
            .insert(prefix.clone(), (name.to_owned(), span));
        Some(prefix)
    }
}

/// A prefix made from a name: initials of its parts, or its first letters.
fn default_prefix(name: &str) -> String {
    let bare = ["-py", "-go"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    let mut parts: Vec<&str> = bare
        .split(['-', '_', '.'])
        .filter(|part| !part.is_empty())
        .collect();
    if let [one] = parts[..] {
        let humps = one
            .char_indices()
            .filter(|(at, c)| *at > 0 && c.is_ascii_uppercase());
        let mut from = 0;
        let cuts: Vec<usize> = humps.map(|(at, _)| at).chain([one.len()]).collect();
        parts.clear();
        for cut in cuts {
            parts.push(&one[from..cut]);
            from = cut;
        }
    }
    let prefix: String = match parts[..] {
        [one] if one.len() <= 3 => one.to_owned(),
        [one] => one.chars().take(2).collect(),
        _ => parts
            .iter()
            .filter_map(|part| part.chars().next())
            .take(8)
            .collect(),
    };
    let prefix = prefix.to_ascii_lowercase();
    // It must begin with a letter.
    let letters = prefix.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    if letters.is_empty() {
        "gc".into()
    } else {
        letters.to_owned()
    }
}

/// The absolute directory: as written, in the home directory or in the city.
fn directory(
    fields: &Fields,
    path: &str,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<PathBuf> {
    let (text, span) = fields.placed_text("path")?;
    let at = format!("{path}.path");
    let joined = match text.strip_prefix('~') {
        None => around.root.join(text.strip_prefix("//").unwrap_or(text)),
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
    sources.absent(root);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_made_from_names() {
        for (name, prefix) in [
            ("my-app", "ma"),
            ("mid_air", "ma"),
            ("app", "app"),
            ("backend", "ba"),
            ("tool-py", "to"),
            ("myBigApp", "mba"),
            ("X", "x"),
            ("9lives", "l"),
            ("42", "gc"),
        ] {
            assert_eq!(default_prefix(name), prefix, "{name}");
        }
    }
}
