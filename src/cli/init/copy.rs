//! `gc init --from` and `--file`: a city like one that is there.

use std::fs;
use std::path::Path;

use toml_edit::DocumentMut;

use super::failed;
use crate::cli::{CliError, CliResult, Code};
use crate::model::CityName;

/// Of a city, what belongs to that one alone.
const OWN: [&str; 2] = [".gc", ".git"];

/// The text of a `city.toml`, for a city of another name.
///
/// # Errors
/// `not_found` if there is no such file, `config` if it is not TOML.
pub(super) fn config(file: &Path, name: &CityName) -> CliResult<String> {
    let text = fs::read_to_string(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            CliError::new(Code::NotFound, format!("there is no {}", file.display()))
        }
        _ => failed(file, &error),
    })?;
    let broken = |error: &dyn std::fmt::Display| {
        CliError::new(Code::Config, format!("{} is no config", file.display())).cause(error)
    };
    let mut document: DocumentMut = text.parse().map_err(|error| broken(&error))?;
    let workspace = document.entry("workspace").or_insert(toml_edit::table());
    match workspace.as_table_like_mut() {
        Some(table) => set(table, name),
        None => return Err(broken(&"workspace is not a table")),
    }
    Ok(document.to_string())
}

/// Sets the name, and keeps what stands around it.
fn set(table: &mut dyn toml_edit::TableLike, name: &CityName) {
    let mut new = toml_edit::Value::from(name.as_str());
    if let Some(old) = table.get("name").and_then(toml_edit::Item::as_value) {
        *new.decor_mut() = old.decor().clone();
    }
    table.insert("name", new.into());
}

/// Copies whatever else is in the city at `from` and not at `to`; says what.
///
/// # Errors
/// If the system refuses.
pub(super) fn rest(from: &Path, to: &Path) -> CliResult<Vec<String>> {
    let mut copied = Vec::new();
    for entry in fs::read_dir(from).map_err(|error| failed(from, &error))? {
        let name = entry.map_err(|error| failed(from, &error))?.file_name();
        let own = OWN.iter().any(|own| name == *own) || name == "city.toml";
        if !own && copy(&from.join(&name), &to.join(&name))? {
            copied.push(name.to_string_lossy().into_owned());
        }
    }
    copied.sort();
    Ok(copied)
}

/// Copies files, directories and links, but never over something.
fn copy(from: &Path, to: &Path) -> CliResult<bool> {
    let wrong = |error| failed(from, &error);
    let kind = fs::symlink_metadata(from).map_err(wrong)?.file_type();
    let there = fs::symlink_metadata(to).is_ok();
    if kind.is_dir() {
        if !there {
            fs::create_dir(to).map_err(|error| failed(to, &error))?;
        }
        let mut any = !there;
        if to.is_dir() {
            for entry in fs::read_dir(from).map_err(wrong)? {
                let name = entry.map_err(wrong)?.file_name();
                any |= copy(&from.join(&name), &to.join(&name))?;
            }
        }
        return Ok(any);
    }
    if there {
        return Ok(false);
    }
    if kind.is_symlink() {
        let target = fs::read_link(from).map_err(wrong)?;
        std::os::unix::fs::symlink(target, to).map_err(|error| failed(to, &error))?;
    } else if kind.is_file() {
        fs::copy(from, to).map_err(wrong)?;
    } else {
        return Ok(false); // sockets and pipes belong to who made them
    }
    Ok(true)
}
