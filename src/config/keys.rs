//! Every key of every file gc reads: one table for each section.
//!
//! The tables drive parsing, checks and suggestions, the JSON schema and the reference page. A key
//! is added here first.

mod agent;
mod city;
mod kind;
mod machine;
mod pack;

pub use agent::{AGENT, HEARTBEAT, PATCH_AGENT, POOL, RIG_OVERRIDE, RIGS};
pub use city::{CITY, DAEMON, FRAGMENT, ORDER_OVERRIDE, SESSION, WORKSPACE};
pub use kind::{Kind, Reload, Variables};
pub use machine::{SUPERVISOR, SUPERVISOR_FILE, TENANT};
pub use pack::{LOCK_FILE, ORDER, ORDER_FILE, PACK, PACK_FILE, PROVIDER};

pub(super) use agent::VARIABLES;

/// One key of a section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The values it takes.
    pub kind: Kind,
    /// The default as TOML; empty if there is none.
    pub default: &'static str,
    /// What a change of it means.
    pub reload: Reload,
    /// What it is for, in one line.
    pub doc: &'static str,
    /// It must be there.
    pub required: bool,
    /// Lists of several files are joined.
    pub joins: bool,
    /// Read and checked, and without effect in this version.
    pub later: bool,
}

/// A table of a file and its keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Section {
    /// The header as it is written; empty for the top of the file.
    pub header: &'static str,
    /// The keys it takes.
    pub keys: &'static [Key],
    /// Another section whose keys it takes too, but for some.
    pub also: Option<(&'static Section, &'static [&'static str])>,
    /// It changes something defined elsewhere: lists take `_append`, `env` takes `env_remove`.
    pub edits: bool,
    /// gc itself writes the file, so unknown keys are those of another version: a warning.
    pub lenient: bool,
    /// Keys of the older Go tool, ignored with a warning, each with what replaces it.
    pub foreign: &'static [(&'static str, &'static str)],
}

impl Section {
    const fn new(header: &'static str, keys: &'static [Key]) -> Self {
        Self {
            header,
            keys,
            also: None,
            edits: false,
            lenient: false,
            foreign: &[],
        }
    }

    const fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    const fn foreign(mut self, foreign: &'static [(&'static str, &'static str)]) -> Self {
        self.foreign = foreign;
        self
    }

    const fn editing(mut self, of: &'static Self, except: &'static [&'static str]) -> Self {
        self.also = Some((of, except));
        self.edits = true;
        self
    }

    /// All keys, its own first.
    pub fn all(&self) -> impl Iterator<Item = &'static Key> {
        let keys = self.keys.iter();
        let (others, except) = self.also.map_or((&[][..], &[][..]), |(section, except)| {
            (section.keys, except)
        });
        keys.chain(others.iter().filter(|key| !except.contains(&key.name)))
    }

    /// Keys that must be there. What changes something else needs none of that.
    pub fn required(&self) -> impl Iterator<Item = &'static Key> {
        let edits = self.edits;
        let own = self.keys.iter().filter(move |_| edits);
        let all = self.all().filter(move |_| !edits);
        own.chain(all).filter(|key| key.required)
    }

    /// The key of that name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.all().find(|key| key.name == name)
    }

    /// What replaces a key of the older Go tool, if it is one.
    #[must_use]
    pub fn foreign_key(&self, name: &str) -> Option<&'static str> {
        let also = self.also.map_or(&[][..], |(section, _)| section.foreign);
        self.foreign
            .iter()
            .chain(also)
            .find(|(key, _)| *key == name)
            .map(|(_, instead)| *instead)
    }

    /// The list that `name` appends to, e.g. `pre_start` for `pre_start_append`.
    #[must_use]
    pub fn appended(&self, name: &str) -> Option<&'static Key> {
        let list = name.strip_suffix("_append").filter(|_| self.edits)?;
        self.key(list).filter(|key| key.kind.is_list())
    }

    /// The section as a message names it.
    #[must_use]
    pub fn title(&self) -> &'static str {
        if self.header.is_empty() {
            "the top level"
        } else {
            self.header
        }
    }
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reload: Reload,
    doc: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        reload,
        doc,
        required: false,
        joins: false,
        later: false,
    }
}

impl Key {
    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn joins(mut self) -> Self {
        self.joins = true;
        self
    }

    const fn later(mut self) -> Self {
        self.later = true;
        self
    }
}

/// A kind of file gc reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileKind {
    /// Word for it on the command line.
    pub word: &'static str,
    /// Name of the file.
    pub file: &'static str,
    /// Its top level.
    pub top: &'static Section,
}

/// All kinds of files.
pub const FILES: [FileKind; 4] = [
    FileKind {
        word: "city",
        file: "city.toml",
        top: &CITY,
    },
    FileKind {
        word: "pack",
        file: "pack.toml",
        top: &PACK_FILE,
    },
    FileKind {
        word: "order",
        file: "order.toml",
        top: &ORDER_FILE,
    },
    FileKind {
        word: "supervisor",
        file: "supervisor.toml",
        top: &SUPERVISOR_FILE,
    },
];

impl FileKind {
    /// Every section of the file, from the top, each once.
    #[must_use]
    pub fn sections(&self) -> Vec<&'static Section> {
        let mut found = vec![self.top];
        let mut at = 0;
        while at < found.len() {
            for section in found[at].all().filter_map(|key| key.kind.section()) {
                if !found.iter().any(|seen| seen.header == section.header) {
                    found.push(section);
                }
            }
            at += 1;
        }
        found
    }
}

/// The key of `candidates` that was probably meant by `word`.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let limit = if length <= 4 { 1 } else { 2 };
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(length) <= limit)
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_typo_finds_its_key_and_a_short_word_only_a_close_one() {
        let nearest = |word| nearest(word, ["max_restarts", "restart", "args", "env"]);
        assert_eq!(nearest("max_restart"), Some("max_restarts"));
        assert_eq!(nearest("amx_restarst"), Some("max_restarts"));
        assert_eq!(nearest("evn"), Some("env"));
        assert_eq!(nearest("arg"), Some("args"));
        assert_eq!(nearest("en"), Some("env"));
        assert_eq!(nearest("gs"), None);
        assert_eq!(nearest("max_retries"), None);
    }

    #[test]
    fn no_name_stands_twice_in_a_section() {
        for section in FILES.iter().flat_map(FileKind::sections) {
            let mut seen = HashSet::new();
            let foreign = section.foreign.iter().map(|(name, _)| *name);
            for name in section.all().map(|key| key.name).chain(foreign) {
                assert!(seen.insert(name), "{name} in {}", section.title());
            }
        }
    }

    #[test]
    fn defaults_are_values_of_their_keys() {
        for section in FILES.iter().flat_map(FileKind::sections) {
            for key in section.keys.iter().filter(|key| !key.default.is_empty()) {
                let line = format!("value = {}", key.default);
                let table: toml::Table = line
                    .parse()
                    .unwrap_or_else(|error| panic!("{} of {}: {error}", key.name, section.title()));
                assert!(table.contains_key("value"));
                assert!(!key.required, "{} of {}", key.name, section.title());
            }
        }
    }

    #[test]
    fn what_is_changed_elsewhere_can_be_appended_to() {
        let list = PATCH_AGENT.appended("pre_start_append").map(|key| key.name);
        assert_eq!(list, Some("pre_start"));
        assert!(PATCH_AGENT.appended("nudge_append").is_none());
        assert!(AGENT.appended("pre_start_append").is_none());
        assert!(PATCH_AGENT.key("scope").is_none());
    }
}
