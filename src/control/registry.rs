//! `cities.toml`: the cities a machine is meant to host.
//!
//! Reading is forgiving entry by entry, since people edit the file; writing is strict: a file that
//! does not parse is never overwritten, comments and unknown keys survive, and a crash leaves the
//! old file or the new one.

mod document;
mod edit;
mod settle;
mod watch;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

pub use edit::Change;
pub use settle::EmptyGuard;
pub use watch::RegistryWatch;

use crate::model::CityName;
use crate::ports::{CityEntry, Registered};
use document::Entry;

/// A registry that could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The file is not a registry; the position counts from 1.
    #[error("{}:{line}:{column}: {message}", .file.display())]
    Parse {
        /// The registry.
        file: PathBuf,
        /// Line of the problem.
        line: usize,
        /// Column of the problem, in characters.
        column: usize,
        /// What is wrong.
        message: String,
        /// Hash of the content, so that one broken content is logged once.
        digest: Digest,
    },
    /// Another city has the name.
    #[error("city name \"{name}\" already registered at {} (set a unique workspace.name)", .path.display())]
    NameTaken {
        /// The name asked for.
        name: CityName,
        /// The city that has it.
        path: PathBuf,
    },
    /// The city's directory cannot be a registry entry.
    #[error("{}: {reason}", .path.display())]
    City {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Another process keeps writing.
    #[error("{}: still locked by another process", .0.display())]
    Locked(PathBuf),
    /// The file system said no.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A hash of the file's content.
pub type Digest = [u8; 32];

/// What one read of the registry found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Cities to host and entries that cannot be, in file order.
    pub registered: Registered,
    /// Entries passed over, one sentence each.
    pub warnings: Vec<String>,
    /// The file is missing or holds nothing but white space; see [`EmptyGuard`].
    pub empty: bool,
    /// Hash of the content: equal hashes need no second warning.
    pub digest: Digest,
}

/// One `cities.toml`.
#[derive(Debug, Clone)]
pub struct Registry {
    file: PathBuf,
    turn: Duration,
}

impl Registry {
    /// The registry in `file`, which need not exist.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            turn: Duration::from_secs(10),
        }
    }

    /// Waits this long for other writers in place of 10 s.
    #[must_use]
    pub fn with_turn_limit(mut self, limit: Duration) -> Self {
        self.turn = limit;
        self
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the registry. A missing file is an empty one.
    ///
    /// # Errors
    /// [`RegistryError::Parse`] when the file is not a registry, [`RegistryError::Io`] when it
    /// cannot be read. The last good set should stay in force then.
    pub fn read(&self) -> Result<Contents, RegistryError> {
        let bytes = self.bytes()?;
        let parsed = document::parse(&self.file, &bytes)?;
        let mut contents = resolve(&parsed.entries);
        let ignored = |key| format!("`{key}` is not a key of a registry, ignored");
        contents.warnings.extend(parsed.unknown.iter().map(ignored));
        contents.empty = bytes.trim_ascii().is_empty();
        contents.digest = digest(&bytes);
        Ok(contents)
    }

    fn bytes(&self) -> Result<Vec<u8>, RegistryError> {
        match fs::read(&self.file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(|source| self.io(source)),
        }
    }

    fn io(&self, source: io::Error) -> RegistryError {
        RegistryError::Io {
            file: self.file.clone(),
            source,
        }
    }
}

fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// Turns raw entries into cities: one for each directory, one for each name, the first wins.
fn resolve(entries: &[Entry]) -> Contents {
    let mut registered = Registered::default();
    let mut warnings = Vec::new();
    let mut keys: Vec<CityKey> = Vec::new();
    let mut names: HashMap<String, PathBuf> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let number = index + 1;
        let ignored = |key| format!("entry {number}: `{key}` is not a key of [[cities]], ignored");
        warnings.extend(entry.unknown.iter().map(ignored));
        let Some(path) = entry.path.as_deref().filter(|p| p.is_absolute()) else {
            warnings.push(format!("entry {number} has no absolute path, skipped"));
            continue;
        };
        let key = CityKey::of(path);
        if keys.iter().any(|known| known.same_city(&key)) {
            let path = key.path.display();
            warnings.push(format!(
                "{path} is registered twice, the first entry counts"
            ));
            continue;
        }
        let path = key.path.clone();
        keys.push(key);
        let text = entry.effective_name(&path);
        match CityName::new(&text) {
            Err(e) => {
                let name = presentable(&text);
                registered
                    .refused
                    .push((CityEntry { name, path }, e.to_string()));
            }
            Ok(name) => match names.get(&text.to_ascii_lowercase()) {
                Some(first) => {
                    let reason = format!("name conflict with {}", first.display());
                    registered.refused.push((CityEntry { name, path }, reason));
                }
                None => {
                    names.insert(text.to_ascii_lowercase(), path.clone());
                    registered.cities.push(CityEntry { name, path });
                }
            },
        }
    }
    Contents {
        registered,
        warnings,
        empty: false,
        digest: [0; 32],
    }
}

/// A refused entry still needs a name to be listed under.
fn presentable(text: &str) -> CityName {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    let safe: String = text.chars().map(safe).take(63).collect();
    CityName::new(&safe)
        .or_else(|_| CityName::new(format!("x{safe}")))
        .unwrap_or_else(|_| unreachable!("a letter, then allowed letters only"))
}

/// What makes two paths the same city: the canonical path, or else device and inode.
#[derive(Debug)]
struct CityKey {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl CityKey {
    /// A deleted directory keeps its lexical path.
    fn of(path: &Path) -> Self {
        match (fs::canonicalize(path), fs::metadata(path)) {
            (Ok(path), Ok(meta)) => Self {
                path,
                inode: Some((meta.dev(), meta.ino())),
            },
            _ => Self {
                path: lexical(path),
                inode: None,
            },
        }
    }

    fn same_city(&self, other: &Self) -> bool {
        self.path == other.path || (self.inode.is_some() && self.inode == other.inode)
    }
}

/// `path` without `.`, `..` and a trailing `/`, without looking at the disk.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests;
