//! Changes to a registry: one writer at a time, comments kept, old file or new file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::document::{self, Entry};
use super::{CityKey, Registry, RegistryError, lexical};
use crate::control::files::{self, Step};
use crate::control::lock;
use crate::model::CityName;

/// A registry without a single entry must not look like a file somebody emptied by accident.
const HEADER: &str =
    "# The cities of this machine. `gc register` and `gc unregister` edit this file.\n";

/// What an edit did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Nothing: it was so already.
    None,
    /// A city was added.
    Added,
    /// A registered city got another name.
    Renamed {
        /// The name it had.
        from: String,
    },
    /// A city was taken out.
    Removed,
}

impl Registry {
    /// Registers the city at `path` under `name`, or renames it if it is registered already.
    ///
    /// # Errors
    /// [`RegistryError::NameTaken`] if another city has the name, [`RegistryError::City`] if
    /// `path` is no directory; the errors of reading and writing otherwise.
    pub fn register(&self, path: &Path, name: &CityName) -> Result<Change, RegistryError> {
        let refuse = |reason: String| RegistryError::City {
            path: path.to_owned(),
            reason,
        };
        let canonical = fs::canonicalize(path).map_err(|e| refuse(e.to_string()))?;
        if !canonical.is_dir() {
            return Err(refuse("not a directory".to_owned()));
        }
        if canonical.to_str().is_none() {
            return Err(refuse("not a UTF-8 path".to_owned()));
        }
        self.edit(&mut |_| {}, |document, entries| {
            add(document, entries, &CityKey::of(&canonical), name)
        })
    }

    /// Takes the city at `path` out. A deleted directory is found by its path as written.
    ///
    /// # Errors
    /// Those of reading and writing the file. A city that is not registered is no error.
    pub fn unregister(&self, path: &Path) -> Result<Change, RegistryError> {
        let absolute = std::path::absolute(path).map_err(|source| self.io(source))?;
        let key = CityKey::of(&absolute);
        let written = lexical(&absolute);
        self.edit(&mut |_| {}, |document, entries| {
            let doomed = |entry: &Entry| {
                entry.path.as_deref().is_some_and(|path| {
                    lexical(path) == written || CityKey::of(path).same_city(&key)
                })
            };
            let found: Vec<usize> = (0..entries.len())
                .filter(|&i| doomed(&entries[i]))
                .collect();
            for index in found.iter().rev() {
                remove(document, *index);
            }
            Ok(if found.is_empty() {
                Change::None
            } else {
                Change::Removed
            })
        })
    }

    /// Locks, reads, applies `change` and writes if something changed.
    pub(super) fn edit(
        &self,
        reached: &mut dyn FnMut(Step),
        change: impl FnOnce(&mut DocumentMut, &[Entry]) -> Result<Change, RegistryError>,
    ) -> Result<Change, RegistryError> {
        let lock = self.lock_file();
        let _turn = lock::take_turn(&lock, self.turn)
            .map_err(|source| RegistryError::Io {
                file: lock.clone(),
                source,
            })?
            .ok_or(RegistryError::Locked(lock))?;
        let mut parsed = document::parse(&self.file, &self.bytes()?)?;
        let done = change(&mut parsed.document, &parsed.entries)?;
        if done == Change::None {
            return Ok(done);
        }
        let mut text = parsed.document.to_string();
        if text.trim().is_empty() {
            text = HEADER.to_owned();
        }
        files::replace_in_steps(&self.file, text.as_bytes(), reached)
            .map_err(|source| self.io(source))?;
        Ok(done)
    }

    fn lock_file(&self) -> PathBuf {
        let mut name = self.file.file_name().map_or_else(OsString::new, Into::into);
        name.push(".lock");
        self.file.with_file_name(name)
    }
}

/// Adds or renames the entry of `city` in a parsed registry.
pub(super) fn add(
    document: &mut DocumentMut,
    entries: &[Entry],
    city: &CityKey,
    name: &CityName,
) -> Result<Change, RegistryError> {
    let mut present = None;
    for (index, entry) in entries.iter().enumerate() {
        let Some(path) = entry.path.as_deref().filter(|p| p.is_absolute()) else {
            continue;
        };
        let key = CityKey::of(path);
        let held = entry.effective_name(&key.path);
        if key.same_city(city) {
            present.get_or_insert((index, held));
        } else if held.eq_ignore_ascii_case(name.as_str()) {
            return Err(RegistryError::NameTaken {
                name: name.clone(),
                path: key.path,
            });
        }
    }
    match present {
        Some((_, held)) if held == name.as_str() => Ok(Change::None),
        Some((index, from)) => {
            set_name(document, index, name);
            Ok(Change::Renamed { from })
        }
        None => {
            append(document, &city.path.to_string_lossy(), name);
            Ok(Change::Added)
        }
    }
}

fn set_name(document: &mut DocumentMut, index: usize, name: &CityName) {
    let new = value(name.as_str());
    match document.get_mut("cities") {
        Some(Item::ArrayOfTables(tables)) => {
            if let Some(table) = tables.get_mut(index) {
                table.insert("name", new);
            }
        }
        Some(Item::Value(Value::Array(values))) => {
            let table = values.get_mut(index).and_then(Value::as_inline_table_mut);
            if let Some(table) = table {
                table.insert("name", name.as_str().into());
            }
        }
        _ => {}
    }
}

fn append(document: &mut DocumentMut, path: &str, name: &CityName) {
    if let Some(Item::Value(Value::Array(values))) = document.get_mut("cities") {
        let mut table = InlineTable::new();
        table.insert("path", path.into());
        table.insert("name", name.as_str().into());
        values.push(table);
        return;
    }
    let mut table = Table::new();
    table.insert("path", value(path));
    table.insert("name", value(name.as_str()));
    if document.is_empty() {
        // A file of comments only: they head the file and stay above its first entry.
        let comments = document.trailing().as_str().unwrap_or_default().to_owned();
        let comments = comments.trim_end();
        if !comments.is_empty() {
            table.decor_mut().set_prefix(format!("{comments}\n\n"));
        }
        document.set_trailing("");
    }
    let cities = document
        .entry("cities")
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    if let Item::ArrayOfTables(tables) = cities {
        tables.push(table);
    }
}

/// Takes an entry out but keeps the comments above it: they may be about the whole file.
fn remove(document: &mut DocumentMut, index: usize) {
    match document.get_mut("cities") {
        Some(Item::ArrayOfTables(tables)) => {
            let Some(table) = tables.get(index) else {
                return;
            };
            let prefix = table.decor().prefix().and_then(|p| p.as_str());
            let comments = prefix.unwrap_or_default().to_owned();
            tables.remove(index);
            if comments.trim().is_empty() {
                return;
            }
            if let Some(next) = tables.get_mut(index) {
                let own = next.decor().prefix().and_then(|p| p.as_str());
                let joined = format!("{comments}{}", own.unwrap_or_default());
                next.decor_mut().set_prefix(joined);
            } else {
                let own = document.trailing().as_str().unwrap_or_default().to_owned();
                document.set_trailing(format!("{comments}{own}"));
            }
        }
        Some(Item::Value(Value::Array(values))) if index < values.len() => {
            values.remove(index);
        }
        _ => {}
    }
}
