//! Rules of the house that the compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

use crate::util::repository;

/// All that `actors` may depend on: nothing of it touches the world.
const ACTORS_MAY_USE: [&str; 12] = [
    "chrono",
    "chrono-tz",
    "cron",
    "futures",
    "ractor",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "tokio",
    "tokio-util",
    "tracing",
];

/// What `actors` may use of tokio.
const TOKIO_FEATURES: [&str; 4] = ["macros", "rt", "sync", "time"];

/// Every file below `dir` that belongs to the repository.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let name = entry.file_name();
            let is_dir = entry.file_type().unwrap().is_dir();
            match is_dir {
                true if name != "target" && name != ".git" => open.push(entry.path()),
                false if name != ".git" => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

fn lines_with(file: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let hits = text.lines().enumerate().filter(|(_, line)| wanted(line));
    hits.map(|(at, line)| format!("{}:{}: {}", file.display(), at + 1, line.trim()))
        .collect()
}

#[test]
fn actors_depend_on_nothing_that_touches_the_world() {
    let text = fs::read_to_string(repository().join("actors/Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let used = manifest["dependencies"].as_table().unwrap();
    let more: Vec<&String> = used
        .keys()
        .filter(|name| !ACTORS_MAY_USE.contains(&name.as_str()))
        .collect();
    assert!(more.is_empty(), "{more:?}");
    let features = used["tokio"]["features"].as_array().unwrap();
    let more: Vec<_> = features
        .iter()
        .filter(|name| !TOKIO_FEATURES.contains(&name.as_str().unwrap()))
        .collect();
    assert!(more.is_empty(), "{more:?}");
    for table in ["build-dependencies", "target"] {
        assert!(!manifest.contains_key(table), "{table}");
    }
}

#[test]
fn code_names_no_roles() {
    // In halves, so that this file passes.
    let roles = [
        concat!("may", "or"),
        concat!("dea", "con"),
        concat!("wit", "ness"),
        concat!("pole", "cat"),
        concat!("refi", "nery"),
        concat!("\"bo", "ot\""),
    ];
    let names_one = |line: &str| {
        let line = line.to_lowercase();
        roles.iter().any(|role| line.contains(role))
    };
    let templates = repository().join("src/templates");
    let found: Vec<String> = ["src", "actors", "benches", "tests"]
        .iter()
        .flat_map(|dir| files(&repository().join(dir)))
        .filter(|file| !file.starts_with(&templates))
        .flat_map(|file| lines_with(&file, names_one))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let names_one = |line: &str| places.iter().any(|place| line.contains(place));
    let found: Vec<String> = files(repository())
        .iter()
        .flat_map(|file| lines_with(file, names_one))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn modules_are_files_named_after_themselves() {
    let found: Vec<PathBuf> = ["src", "actors/src", "benches"]
        .iter()
        .flat_map(|dir| files(&repository().join(dir)))
        .filter(|file| file.ends_with("mod.rs"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}
