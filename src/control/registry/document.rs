//! The text of a registry and its raw entries.

use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{Document, DocumentMut, Item, Table, TableLike, Value};

use super::{RegistryError, digest};

/// One entry as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Option<PathBuf>,
    pub(super) name: Option<String>,
    /// Keys that mean nothing.
    pub(super) unknown: Vec<String>,
}

impl Entry {
    fn read(table: &dyn TableLike) -> Self {
        let text = |key| table.get(key).and_then(Item::as_str);
        Self {
            path: text("path").map(PathBuf::from),
            name: text("name").map(str::to_owned),
            unknown: unknown(table, &["path", "name"]),
        }
    }

    /// The name written here, else the one the city gives itself, else that of its directory.
    pub(super) fn effective_name(&self, path: &Path) -> String {
        self.name
            .clone()
            .or_else(|| declared_name(path))
            .or_else(|| Some(path.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_default()
    }
}

/// Keys of a table that are not known.
fn unknown(table: &dyn TableLike, known: &[&str]) -> Vec<String> {
    let keys = table.iter().map(|(key, _)| key.to_owned());
    keys.filter(|key| !known.contains(&key.as_str())).collect()
}

/// `workspace.name` of the city at `path`; a config that cannot be read names nothing.
fn declared_name(path: &Path) -> Option<String> {
    let file = path.join("city.toml");
    // Reading a FIFO would take for ever, and with it the whole registry.
    if !fs::metadata(&file).is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let config: toml::Table = text.parse().ok()?;
    let name = config.get("workspace")?.get("name")?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// A registry that parsed.
pub(super) struct Parsed {
    pub(super) entries: Vec<Entry>,
    /// Keys beside the entries.
    pub(super) unknown: Vec<String>,
    pub(super) document: DocumentMut,
}

/// Parses `bytes`, the content of `file`.
pub(super) fn parse(file: &Path, bytes: &[u8]) -> Result<Parsed, RegistryError> {
    let error = |at: usize, message: &str| {
        let (line, column) = position(bytes, at);
        RegistryError::Parse {
            file: file.to_owned(),
            line,
            column,
            message: message.to_owned(),
            digest: digest(bytes),
        }
    };
    let text = std::str::from_utf8(bytes).map_err(|e| error(e.valid_up_to(), "not UTF-8"))?;
    let document = Document::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        error(at, e.message())
    })?;
    let entries = read_entries(document.as_table())
        .map_err(|at| error(at, "`cities` must be an array of tables"))?;
    Ok(Parsed {
        entries,
        unknown: unknown(document.as_table(), &["cities"]),
        document: document.into_mut(),
    })
}

/// The entries, or the offset of what is not one.
fn read_entries(root: &Table) -> Result<Vec<Entry>, usize> {
    let start = |span: Option<std::ops::Range<usize>>| span.map_or(0, |span| span.start);
    match root.get("cities") {
        None => Ok(Vec::new()),
        Some(Item::ArrayOfTables(tables)) => Ok(tables.iter().map(|t| Entry::read(t)).collect()),
        Some(Item::Value(Value::Array(values))) => values
            .iter()
            .map(|value| match value.as_inline_table() {
                Some(table) => Ok(Entry::read(table)),
                None => Err(start(value.span())),
            })
            .collect(),
        Some(other) => Err(start(other.span())),
    }
}

/// Line and column of the byte `at`, both from 1; columns count characters.
fn position(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = bytes.get(..at).unwrap_or(bytes);
    let line_start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |i| i + 1);
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = String::from_utf8_lossy(&before[line_start..])
        .chars()
        .count()
        + 1;
    (line, column)
}
