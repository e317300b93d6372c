//! The name a city is registered under.

use std::path::Path;

use serde::Deserialize;

use super::error::{CliError, CliResult, Code};
use crate::control::home::CityDir;
use crate::model::CityName;

#[derive(Deserialize)]
struct Document {
    workspace: Option<Workspace>,
}

#[derive(Deserialize)]
struct Workspace {
    name: Option<String>,
}

/// `workspace.name` of the city at `root`, else the name of its directory.
///
/// # Errors
/// [`Code::Config`] when `city.toml` cannot be read or the name breaks the rules.
pub(super) fn city_name(root: &Path) -> CliResult<CityName> {
    let file = CityDir::new(root).config();
    let config = |what: String| CliError::new(Code::Config, format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|e| config(e.to_string()))?;
    let document: Document =
        toml::from_str(&text).map_err(|e| config("not valid TOML".to_owned()).cause(e))?;
    let configured = document.workspace.and_then(|workspace| workspace.name);
    let name = configured.unwrap_or_else(|| {
        let last = root.file_name().unwrap_or_default();
        last.to_string_lossy().into_owned()
    });
    CityName::new(&name).map_err(|e| config(e.to_string()).hint("set workspace.name in city.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let toml = "[workspace]\nname = \"dark\"\nother = 1\n";
        assert_eq!(named(toml).unwrap().as_str(), "dark");
    }

    #[test]
    fn broken_files_and_names_are_config_errors() {
        for toml in ["[workspace", "[workspace]\nname = \"a b\"\n"] {
            assert_eq!(named(toml).unwrap_err().code, Code::Config, "{toml}");
        }
    }
}
