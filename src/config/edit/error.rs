//! Why an edit was not made.

use std::io;

use gascity_actors::model::AgentName;
use gascity_actors::ports::LoadError;

/// Why the file was left as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The file has errors; an edit could not tell what it changes.
    #[error("city.toml has errors\n{0}")]
    Invalid(#[source] LoadError),
    /// There is no such agent.
    #[error("there is no agent `{name}`{}", meant(.nearest))]
    UnknownAgent {
        /// The name that was asked for.
        name: AgentName,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// There is no such rig.
    #[error("there is no rig `{name}`{}", meant(.nearest))]
    UnknownRig {
        /// The name that was asked for.
        name: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// The rig is in the config, but not in this file.
    #[error("the rig `{0}` is not in city.toml but in a file it includes; change it there")]
    RigElsewhere(String),
    /// The rig has agents that are written for it.
    #[error("agents belong to the rig `{name}`: {}", .agents.join(", "))]
    InUse {
        /// The rig.
        name: String,
        /// Their full names.
        agents: Vec<String>,
    },
    /// With the edit, the config would have errors.
    #[error("the config would have errors\n{0}")]
    Refused(#[source] LoadError),
    /// The way the file is written leaves no place for the key.
    #[error("city.toml is written in a way gc cannot edit; change it by hand")]
    Layout,
    /// Somebody else wrote the file at the same time.
    #[error("city.toml changed meanwhile; try again")]
    Raced,
    /// The file cannot be read or written.
    #[error("cannot edit city.toml: {0}")]
    Io(#[from] io::Error),
}

fn meant(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}
