//! Edits of `city.toml` by gc itself, which keep comments and layout.
//!
//! A change is a splice of bytes at the place of a key. The result is read again before it is
//! written: it must load, and must differ from the old file in the intended key and in nothing
//! else.

mod error;
mod remove;
mod splice;

use std::fs::{self, File};
use std::io;
use std::path::Path;

use gascity_actors::model::AgentName;
use rustix::fs::FlockOperation;
use toml::{Table, Value};

use super::keys::nearest;
use super::source::{Bytes, file_of};
use super::{Loader, Resolved};
use crate::control::files;

pub use error::EditError;
pub use remove::remove_rig;

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

/// Sets or removes `suspended` for `target` in the `city.toml` of the city at `root`.
///
/// To resume removes the key, so that suspend and resume leave the file as it was. An agent of a
/// pack or a fragment is changed through `[[patches.agent]]`. Blocks on the file system. Edits by
/// gc exclude each other; an editor that saves in the same moment wins or is told by its own check.
///
/// # Errors
/// [`EditError`]; the file is then unchanged.
pub fn set_suspended(root: &Path, target: &Target, suspended: bool) -> Result<Edited, EditError> {
    edit(root, |text, before, resolved| {
        let at = Place::find(before, target, resolved)?;
        let is = match target {
            Target::Agent(name) => resolved.is_suspended(name.as_str()),
            _ => at.flag(before).unwrap_or(false),
        };
        if is == suspended {
            return Ok(None);
        }
        let elsewhere = matches!(at, Place::Item(PATCHES, _) | Place::NewPatch);
        let plain = splice::set(text, at, target, Some(suspended).filter(|on| *on));
        // Without the key, what a pack or fragment says itself would count again.
        let explicit = elsewhere && !suspended && resolved.is_suspended_below(target);
        let new = match explicit {
            true => splice::set(text, at, target, Some(false)),
            false => plain,
        };
        let new = new.ok_or(EditError::Layout)?;
        let value = Some(suspended).filter(|on| *on || explicit);
        match at.differs_only_here(before.clone(), &new, target, value) {
            true => Ok(Some(new)),
            false => Err(EditError::Layout),
        }
    })
}

/// Adds a table such as `[[agent]]` at the end of the `city.toml` of the city at `root`. The pairs
/// are keys and TOML values.
///
/// # Errors
/// [`EditError`]; the file is then unchanged. [`EditError::Refused`] says what is wrong with the
/// table.
pub fn append(
    root: &Path,
    array: &'static str,
    pairs: &[(&str, toml_edit::Value)],
) -> Result<Edited, EditError> {
    edit(root, |text, before, _| {
        let new = splice::append(text, &format!("[[{array}]]"), pairs);
        let added = new.get(text.len()..).unwrap_or_default().parse::<Table>();
        let added = added
            .ok()
            .and_then(|added| added.get(array)?.get(0).cloned());
        let mut expected = before.clone();
        let list = expected
            .entry(array)
            .or_insert_with(|| Value::Array(Vec::new()))
            .as_array_mut();
        match (list, added) {
            (Some(list), Some(added)) => list.push(added),
            _ => return Err(EditError::Layout),
        }
        match same(&expected, &new) {
            true => Ok(Some(new)),
            false => Err(EditError::Layout),
        }
    })
}

/// Reads the file, has `change` make another of it, checks that it loads and puts it in place.
fn edit(
    root: &Path,
    change: impl FnOnce(&str, &Table, &Resolved) -> Result<Option<String>, EditError>,
) -> Result<Edited, EditError> {
    let root = fs::canonicalize(root)?;
    let lock = File::open(&root)?;
    // Released when the directory is closed.
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;

    let loader = Loader::new(&root);
    let path = file_of(&root);
    let old = Bytes::read(&path)?;
    let resolved = Resolved::of(loader.check(&root, &old));
    if let Err(error) = resolved.result {
        return Err(EditError::Invalid(error));
    }
    let text = std::str::from_utf8(&old.bytes).map_err(|_| EditError::Layout)?;
    let before: Table = text.parse().map_err(|_| EditError::Layout)?;
    let Some(new) = change(text, &before, &resolved)? else {
        return Ok(Edited::Unchanged);
    };
    let new = Bytes {
        bytes: new.into_bytes(),
        executable: old.executable,
    };
    loader
        .check(&root, &new)
        .result
        .map_err(EditError::Refused)?;
    if Bytes::read(&path)?.bytes != old.bytes {
        return Err(EditError::Raced);
    }
    files::replace_keeping_mode(&path, &new.bytes)?;
    Ok(Edited::Changed)
}

/// Compared as text, since a number that is none does not equal itself.
fn same(expected: &Table, text: &str) -> bool {
    text.parse::<Table>()
        .is_ok_and(|table| format!("{table:?}") == format!("{expected:?}"))
}

/// An array of tables, by the keys that lead to it.
type Keys = &'static [&'static str];

const AGENTS: Keys = &["agent"];
const RIGS: Keys = &["rigs"];
const PATCHES: Keys = &["patches", "agent"];

/// The table of a file that holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Workspace,
    /// The table at this position of an array of tables.
    Item(Keys, usize),
    /// A patch that is not there yet.
    NewPatch,
}

impl Place {
    /// Where `target` stands in a file that has no errors.
    fn find(table: &Table, target: &Target, resolved: &Resolved) -> Result<Self, EditError> {
        match target {
            Target::City => Ok(Self::Workspace),
            Target::Agent(name) => {
                if let Some(place) = named(table, AGENTS, name.as_str()) {
                    return Ok(place);
                }
                let names = resolved.agents();
                if !names.iter().any(|other| other == name.as_str()) {
                    let known = names.iter().map(String::as_str);
                    return Err(EditError::UnknownAgent {
                        name: name.clone(),
                        nearest: nearest(name.as_str(), known).map(str::to_owned),
                    });
                }
                Ok(named(table, PATCHES, name.as_str()).unwrap_or(Self::NewPatch))
            }
            Target::Rig(name) => named(table, RIGS, name).ok_or_else(|| {
                let rigs = resolved.result.iter().flat_map(|city| &city.rigs);
                let names: Vec<&str> = rigs.map(|rig| rig.name.as_str()).collect();
                match names.contains(&name.as_str()) {
                    true => EditError::RigElsewhere(name.clone()),
                    false => EditError::UnknownRig {
                        name: name.clone(),
                        nearest: nearest(name, names).map(str::to_owned),
                    },
                }
            }),
        }
    }

    /// What the key says here.
    fn flag(self, table: &Table) -> Option<bool> {
        let here = match self {
            Self::Workspace => table.get("workspace")?.as_table()?,
            Self::Item(path, index) => items(table, path).get(index)?.as_table()?,
            Self::NewPatch => return None,
        };
        here.get(SUSPENDED)?.as_bool()
    }

    /// Whether `after` is `before` with the key set or removed here.
    fn differs_only_here(
        self,
        mut before: Table,
        after: &str,
        target: &Target,
        value: Option<bool>,
    ) -> bool {
        if self == Self::NewPatch {
            let _ = push_patch(&mut before, target.identity()); // found out below, if not
        }
        let here = match self {
            Self::Workspace => before
                .entry("workspace")
                .or_insert_with(|| Table::new().into())
                .as_table_mut(),
            Self::Item(path, index) => item_mut(&mut before, path, index),
            Self::NewPatch => {
                let last = items(&before, PATCHES).len().saturating_sub(1);
                item_mut(&mut before, PATCHES, last)
            }
        };
        let Some(here) = here else {
            return false;
        };
        match value {
            Some(value) => {
                here.insert(SUSPENDED.into(), value.into());
            }
            None => {
                here.remove(SUSPENDED);
                let empty = here.is_empty();
                let only_names = here.keys().all(|key| key == "name" || key == "dir");
                // A table that was there for the key alone may be gone with it.
                match self {
                    Self::Workspace if empty && !after_has(after, "workspace") => {
                        before.remove("workspace");
                    }
                    Self::Item(PATCHES, index) if only_names => remove_patch(&mut before, index),
                    _ => {}
                }
            }
        }
        same(&before, after)
    }
}

impl Target {
    /// The keys of a patch that name it.
    fn identity(&self) -> Table {
        let mut table = Table::new();
        if let Self::Agent(name) = self {
            let (dir, name) = name
                .as_str()
                .rsplit_once('/')
                .unwrap_or(("", name.as_str()));
            table.insert("name".into(), name.into());
            if !dir.is_empty() {
                table.insert("dir".into(), dir.into());
            }
        }
        table
    }
}

fn after_has(after: &str, key: &str) -> bool {
    after
        .parse::<Table>()
        .is_ok_and(|table| table.contains_key(key))
}

/// Adds a patch at the end.
fn push_patch(table: &mut Table, patch: Table) -> Option<()> {
    let patches = table
        .entry("patches")
        .or_insert_with(|| Table::new().into());
    let list = patches.as_table_mut()?.entry("agent");
    let list = list
        .or_insert_with(|| Value::Array(Vec::new()))
        .as_array_mut()?;
    list.push(Value::Table(patch));
    Some(())
}

/// Takes out a patch, and what was there for it alone.
fn remove_patch(table: &mut Table, index: usize) {
    let Some(patches) = table.get_mut("patches").and_then(Value::as_table_mut) else {
        return;
    };
    if let Some(list) = patches.get_mut("agent").and_then(Value::as_array_mut) {
        list.remove(index);
        if list.is_empty() {
            patches.remove("agent");
        }
    }
    if patches.is_empty() {
        table.remove("patches");
    }
}

fn items(table: &Table, path: Keys) -> &[Value] {
    let Some((first, rest)) = path.split_first() else {
        return &[];
    };
    let found = rest
        .iter()
        .try_fold(table.get(*first), |at, key| Some(at?.get(*key)));
    found
        .flatten()
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn item_mut(table: &mut Table, path: Keys, index: usize) -> Option<&mut Table> {
    let (first, rest) = path.split_first()?;
    let list = rest
        .iter()
        .try_fold(table.get_mut(*first)?, |at, key| at.get_mut(*key))?;
    list.get_mut(index)?.as_table_mut()
}

/// The position of the table with that name.
fn named(table: &Table, path: Keys, name: &str) -> Option<Place> {
    let index = items(table, path)
        .iter()
        .position(|item| full_name(item) == name)?;
    Some(Place::Item(path, index))
}

fn full_name(item: &Value) -> String {
    let text = |key| item.get(key).and_then(Value::as_str).unwrap_or_default();
    super::pool::qualified(text("dir"), text("name"))
}

#[cfg(test)]
mod tests;
