//! What kinds of values there are, and what a change of one means.

use std::time::Duration;

use super::Section;

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

impl Reload {
    /// The class as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Drift => "restart",
            Self::Live => "live",
            Self::Swap => "swap",
            Self::Refused => "city",
        }
    }
}

/// Names of template variables.
pub type Variables = &'static [&'static str];

/// What values a key takes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// The name of a city, or of a socket.
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
    /// A path; relative ones start at the directory of the file that holds them.
    Path,
    /// A text with variables.
    Template(Variables),
    /// `true` or `false`.
    Flag,
    /// A whole number, with its bounds.
    Count(u64, u64),
    /// A whole number, or -1 for no limit.
    Limit,
    /// A duration string, with its least value.
    Duration(Duration),
    /// A size such as `512MiB`.
    Size,
    /// A share such as `50%`.
    Percent,
    /// The hash of a key; masked in every output.
    KeyHashes,
    /// One of a few words.
    Word {
        /// The words; one that ends in `:` stands before any text.
        allowed: &'static [&'static str],
        /// Words gc knows of and does not support.
        unsupported: &'static [&'static str],
    },
    /// A list of texts.
    Texts,
    /// A text, or a list of texts.
    OneOrMore,
    /// A list of texts that say something.
    Words,
    /// A list of lines for a shell, with variables.
    Lines(Variables),
    /// A table of texts.
    Map,
    /// Environment variables. The values are masked in every output.
    Env,
    /// A table of its own.
    Table(&'static Section),
    /// An array of tables.
    Tables(&'static Section),
    /// Tables by names the user chooses.
    Dict(&'static Section),
    /// Anything: the user's own.
    Free,
}

impl Kind {
    /// The kind as a message names it.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Flag => "boolean",
            Self::Count(..) | Self::Limit => "integer",
            Self::Duration(_) => "duration string",
            Self::Texts | Self::Words | Self::Lines(_) | Self::KeyHashes => "array of strings",
            Self::Table(_) => "table",
            Self::Tables(_) => "array of tables",
            Self::Dict(_) => "table of tables",
            Self::Map | Self::Env => "table of strings",
            Self::OneOrMore => "string or array of strings",
            Self::Free => "anything",
            Self::CityName
            | Self::AgentName
            | Self::Dir
            | Self::Prefix
            | Self::Text
            | Self::Command
            | Self::Path
            | Self::Template(_)
            | Self::Size
            | Self::Percent
            | Self::Word { .. } => "string",
        }
    }

    /// A list of texts, which a patch may append to.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.noun() == "array of strings"
    }

    /// The section behind a table, an array of tables or named tables.
    #[must_use]
    pub fn section(&self) -> Option<&'static Section> {
        match self {
            Self::Table(section) | Self::Tables(section) | Self::Dict(section) => Some(section),
            _ => None,
        }
    }
}
