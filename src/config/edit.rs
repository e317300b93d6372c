//! Edits of `city.toml` by gc itself, which keep comments and layout.
//!
//! A change is a splice of bytes at the place of a key. The result is read again before it is
//! written: it must load, and must differ from the old file in the intended key and in nothing
//! else.

mod splice;

use std::fs::{self, File};
use std::io;
use std::path::Path;

use gascity_actors::model::AgentName;
use gascity_actors::ports::LoadError;
use rustix::fs::FlockOperation;
use toml::{Table, Value};

use super::Loader;
use super::keys::nearest;
use super::source::{Bytes, file_of};
use crate::control::files;

/// Key that holds back a city, an agent or a rig.
const SUSPENDED: &str = "suspended";

/// What is held back, or let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The whole city.
    City,
    /// One agent, or all instances of a pool: the full name of its `[[agent]]`.
    Agent(AgentName),
    /// All agents of a rig.
    Rig(String),
}

/// What became of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Edited {
    /// It says what was asked for now.
    Changed,
    /// It said so before.
    Unchanged,
}

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
    /// The way the file is written leaves no place for the key.
    #[error("city.toml is written in a way gc cannot edit; set `suspended` by hand")]
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

/// Sets or removes `suspended` for `target` in the `city.toml` of the city at `root`.
///
/// To resume removes the key, so that suspend and resume leave the file as it was. Blocks on the
/// file system. Edits by gc exclude each other; an editor that saves in the same moment wins or is
/// told by its own check.
///
/// # Errors
/// [`EditError`]; the file is then unchanged.
pub fn set_suspended(root: &Path, target: &Target, suspended: bool) -> Result<Edited, EditError> {
    let root = fs::canonicalize(root)?;
    let lock = File::open(&root)?;
    // Released when the directory is closed.
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;

    let loader = Loader::new(&root);
    let path = file_of(&root);
    let old = Bytes::read(&path)?;
    loader
        .check(&root, &old)
        .result
        .map_err(EditError::Invalid)?;
    let text = std::str::from_utf8(&old.bytes).map_err(|_| EditError::Layout)?;
    let before: Table = text.parse().map_err(|_| EditError::Layout)?;
    let at = Place::find(&before, target)?;
    if at.is_suspended(&before) == suspended {
        return Ok(Edited::Unchanged);
    }
    let new = splice::set_suspended(text, at, suspended).ok_or(EditError::Layout)?;
    if !at.differs_only_here(before, &new, suspended) {
        return Err(EditError::Layout);
    }
    let new = Bytes {
        bytes: new.into_bytes(),
        executable: old.executable,
    };
    if loader.check(&root, &new).result.is_err() {
        return Err(EditError::Layout);
    }
    if Bytes::read(&path)?.bytes != old.bytes {
        return Err(EditError::Raced);
    }
    files::replace_keeping_mode(&path, &new.bytes)?;
    Ok(Edited::Changed)
}

/// The table of a file that holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Workspace,
    /// The table at this position of an array of tables.
    Item(&'static str, usize),
}

impl Place {
    /// Where `target` stands in a file that has no errors.
    fn find(table: &Table, target: &Target) -> Result<Self, EditError> {
        match target {
            Target::City => Ok(Self::Workspace),
            Target::Agent(name) => {
                named(table, "agent", name.as_str()).map_err(|nearest| EditError::UnknownAgent {
                    name: name.clone(),
                    nearest,
                })
            }
            Target::Rig(name) => {
                named(table, "rigs", name).map_err(|nearest| EditError::UnknownRig {
                    name: name.clone(),
                    nearest,
                })
            }
        }
    }

    /// The table in a parsed file.
    fn table(self, table: &Table) -> Option<&Table> {
        match self {
            Self::Workspace => table.get("workspace")?.as_table(),
            Self::Item(array, index) => table.get(array)?.get(index)?.as_table(),
        }
    }

    fn is_suspended(self, table: &Table) -> bool {
        self.table(table)
            .and_then(|table| table.get(SUSPENDED))
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }

    /// Whether `after` is `before` with the key set or removed here.
    fn differs_only_here(self, mut before: Table, after: &str, suspended: bool) -> bool {
        let Ok(after) = after.parse::<Table>() else {
            return false;
        };
        let here = match self {
            Self::Workspace => before
                .entry("workspace")
                .or_insert_with(|| Table::new().into())
                .as_table_mut(),
            Self::Item(array, index) => before
                .get_mut(array)
                .and_then(|array| array.get_mut(index))
                .and_then(Value::as_table_mut),
        };
        let Some(here) = here else {
            return false;
        };
        if suspended {
            here.insert(SUSPENDED.into(), true.into());
        } else {
            here.remove(SUSPENDED);
            // A table that was there for the key alone may be gone with it.
            if here.is_empty() && !after.contains_key("workspace") {
                before.remove("workspace");
            }
        }
        // Compared as text, since a number that is none does not equal itself.
        format!("{before:?}") == format!("{after:?}")
    }
}

/// The position of the table with that name, else the name that was probably meant.
fn named(table: &Table, array: &'static str, name: &str) -> Result<Place, Option<String>> {
    let items = table.get(array).and_then(Value::as_array);
    let names: Vec<String> = items.into_iter().flatten().map(full_name).collect();
    match names.iter().position(|other| other == name) {
        Some(index) => Ok(Place::Item(array, index)),
        None => Err(nearest(name, names.iter().map(String::as_str)).map(str::to_owned)),
    }
}

fn full_name(item: &Value) -> String {
    let text = |key| item.get(key).and_then(Value::as_str).unwrap_or_default();
    super::pool::qualified(text("dir"), text("name"))
}

#[cfg(test)]
mod tests;
