//! The name a city is registered under.

use std::path::Path;

use super::error::{CliError, CliResult};
use crate::config;
use crate::config::packs::fetch::fetch_for_start;
use crate::model::CityName;

/// `workspace.name` of the city at `root`, else the name of its directory. Packs that are pinned
/// and not here are fetched.
///
/// # Errors
/// `config` with every problem of `city.toml`, if it has any.
pub(super) fn city_name(root: &Path) -> CliResult<CityName> {
    let error = match config::load(root) {
        Ok(loaded) => return Ok(loaded.spec.name.clone()),
        Err(error) => error,
    };
    match fetch_for_start(root, &error) {
        Ok(true) => config::load(root)
            .map(|loaded| loaded.spec.name.clone())
            .map_err(|error| CliError::config(root, error.summary)),
        Ok(false) => Err(CliError::config(root, error.summary)),
        Err(failed) => Err(CliError::config(
            root,
            format!("{failed}\n{}", error.summary),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Code;

    fn named(toml: &str) -> CliResult<CityName> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("bright");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("city.toml"), toml).unwrap();
        city_name(&root)
    }

    #[test]
    fn the_configured_name_wins_over_the_directory() {
        assert_eq!(named("").unwrap().as_str(), "bright");
        let toml = "[workspace]\nname = \"dark\"\n";
        assert_eq!(named(toml).unwrap().as_str(), "dark");
    }

    #[test]
    fn broken_files_and_names_are_config_errors() {
        for toml in ["[workspace", "[workspace]\nname = \"a b\"\n"] {
            assert_eq!(named(toml).unwrap_err().code, Code::Config, "{toml}");
        }
    }
}
