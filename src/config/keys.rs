//! The keys of `city.toml`: one table for each section.
//!
//! The tables drive parsing, checks and suggestions, and are what a schema or a reference page is
//! made from. A key is added here first.

mod agent;
mod city;

use std::time::Duration;

pub use agent::{AGENT, POOL, RIGS};
pub use city::{DAEMON, SECTIONS, SESSION, TOP, WORKSPACE};

/// What a change of a key means for a running city (config.md, reload classes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reload {
    /// Takes effect at once, nothing restarts.
    Hot,
    /// Restarts the agents it touches.
    Drift,
    /// Applied to running agents without a restart.
    Live,
    /// Moves the agents to another session provider.
    Swap,
    /// Refused until the city restarts.
    Refused,
}

/// What values a key takes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// The name of a city.
    CityName,
    /// The name of an agent, without a directory.
    AgentName,
    /// Names of agents or rigs joined by `/`, or nothing.
    Dir,
    /// The prefix of ids of a rig.
    Prefix,
    /// Any text.
    Text,
    /// Text that says something.
    Command,
    /// A path; relative ones start at the city's root.
    Path,
    /// `true` or `false`.
    Flag,
    /// A whole number, with its bounds.
    Count(u64, u64),
    /// A whole number, or -1 for no limit.
    Limit,
    /// A duration string, with its least value.
    Duration(Duration),
    /// One of a few words.
    Word {
        /// The words.
        allowed: &'static [&'static str],
        /// Words, or prefixes ending in `:`, that gc knows of and does not support here.
        unsupported: &'static [&'static str],
    },
    /// A list of texts.
    Texts,
    /// A list of texts that say something.
    Words,
    /// A list of lines for a shell.
    Lines,
    /// A table of its own.
    Table(&'static Section),
    /// Environment variables. The values are masked in every output.
    Env,
}

impl Kind {
    /// The kind as a message names it.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Flag => "boolean",
            Self::Count(..) | Self::Limit => "integer",
            Self::Duration(_) => "duration string",
            Self::Texts | Self::Words | Self::Lines => "array of strings",
            Self::Table(_) => "table",
            Self::Env => "table of strings",
            Self::CityName
            | Self::AgentName
            | Self::Dir
            | Self::Prefix
            | Self::Text
            | Self::Command
            | Self::Path
            | Self::Word { .. } => "string",
        }
    }
}

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
}

/// A table of the file and its keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Section {
    /// The header as it is written; empty for the top of the file.
    pub header: &'static str,
    /// The keys it takes.
    pub keys: &'static [Key],
    /// Keys that belong to the format and that this version does not act on: errors, because a
    /// setting that is silently without effect is worse than none.
    pub planned: &'static [&'static str],
    /// Keys of the older Go tool: ignored with a warning.
    pub foreign: &'static [&'static str],
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
    }
}

impl Section {
    /// The key of that name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
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
        for (_, section) in SECTIONS.iter().copied().chain([("", &TOP)]) {
            let mut seen = HashSet::new();
            let names = section.keys.iter().map(|key| key.name);
            for name in names
                .chain(section.planned.iter().copied())
                .chain(section.foreign.iter().copied())
            {
                assert!(seen.insert(name), "{name} in {}", section.title());
            }
        }
    }
}
