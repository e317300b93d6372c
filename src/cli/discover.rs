//! Which city a command is about.

use std::path::{Path, PathBuf};

use super::error::{CliError, CliResult, Code};
use super::values::did_you_mean;
use crate::control::home::CityDir;
use crate::ports::CityEntry;

/// What a command will do to the city it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Look only; guessing the sole registered city does no harm.
    Read,
    /// Change something.
    Change,
}

/// Everything that may name a city.
#[derive(Debug, Clone)]
pub(super) struct Clues<'a> {
    /// `--city`.
    pub(super) flag: Option<&'a str>,
    /// The positional argument.
    pub(super) positional: Option<&'a str>,
    /// `GC_CITY`, a path.
    pub(super) env: Option<&'a Path>,
    /// The working directory, absolute.
    pub(super) cwd: &'a Path,
    /// What the command will do.
    pub(super) access: Access,
}

/// The city a command is about. It need not exist: a deleted one can still be unregistered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Its root, without symbolic links as far as it exists.
    pub(super) root: PathBuf,
    /// What to tell the user about the choice.
    pub(super) note: Option<String>,
}

/// Finds the city. `registered` is asked only when the answer depends on it.
///
/// # Errors
/// [`Code::Usage`] when flag and argument differ, [`Code::NotFound`] when nothing fits.
pub(super) fn discover(
    clues: &Clues<'_>,
    registered: impl Fn() -> CliResult<Vec<CityEntry>>,
) -> CliResult<Found> {
    let named = |text: &str| by_path_or_name(text, clues.cwd, &registered);
    let found = |root| Found { root, note: None };
    match (clues.flag, clues.positional) {
        (Some(flag), Some(positional)) => {
            let (one, other) = (named(flag)?, named(positional)?);
            if one != other {
                let message = format!("--city {flag} and {positional} are two cities");
                return Err(CliError::new(Code::Usage, message));
            }
            return Ok(found(one));
        }
        (Some(text), None) | (None, Some(text)) => return named(text).map(found),
        (None, None) => {}
    }
    if let Some(path) = clues.env.filter(|path| !path.as_os_str().is_empty()) {
        return Ok(found(settled(&clues.cwd.join(path))));
    }
    let ancestor = clues.cwd.ancestors().find(|dir| is_city(dir));
    if let Some(root) = ancestor {
        return Ok(found(settled(root)));
    }
    let cities = registered()?;
    if let Some(root) = by_rig(clues.cwd, &cities)? {
        return Ok(found(root));
    }
    if clues.access == Access::Read
        && let [only] = cities.as_slice()
    {
        return Ok(Found {
            root: only.path.clone(),
            note: Some(format!("using {}, the only registered city", only.name)),
        });
    }
    let message = "no city here: neither this directory nor one above it has a city.toml";
    Err(CliError::new(Code::NotFound, message)
        .hint("create one with gc init, or name one with --city"))
}

/// The one registered city with a rig that `cwd` lies in.
fn by_rig(cwd: &Path, cities: &[CityEntry]) -> CliResult<Option<PathBuf>> {
    let cwd = settled(cwd);
    let holds = |city: &&CityEntry| rigs(&city.path).iter().any(|rig| cwd.starts_with(rig));
    let hits: Vec<&CityEntry> = cities.iter().filter(holds).collect();
    match hits.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.path.clone())),
        several => {
            let names: Vec<&str> = several.iter().map(|city| city.name.as_str()).collect();
            let message = format!("this directory is a rig of {}", names.join(" and "));
            Err(CliError::new(Code::Ambiguous, message).hint(format!("--city {}", names[0])))
        }
    }
}

/// The directories of a city's rigs, as far as its config can be read.
fn rigs(root: &Path) -> Vec<PathBuf> {
    let read = || {
        if !is_city(root) {
            return None;
        }
        let text = std::fs::read_to_string(CityDir::new(root).config()).ok()?;
        text.parse::<toml::Table>().ok()
    };
    let config = read().unwrap_or_default();
    let rigs = config.get("rigs").and_then(|rigs| rigs.as_array());
    let path = |rig: &toml::Value| {
        let path = rig.get("path")?.as_str()?;
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        Some(settled(&match path.strip_prefix("~/") {
            Some(rest) => home()?.join(rest),
            None => root.join(path),
        }))
    };
    rigs.into_iter().flatten().filter_map(path).collect()
}

/// A value with `/` or of an existing directory is a path, any other one a registered name.
fn by_path_or_name(
    text: &str,
    cwd: &Path,
    registered: impl Fn() -> CliResult<Vec<CityEntry>>,
) -> CliResult<PathBuf> {
    let path = cwd.join(text);
    if text.contains('/') || path.is_dir() {
        return Ok(settled(&path));
    }
    let cities = registered()?;
    let hit = cities
        .iter()
        .find(|city| city.name.as_str().eq_ignore_ascii_case(text));
    if let Some(city) = hit {
        return Ok(city.path.clone());
    }
    let names: Vec<&str> = cities.iter().map(|city| city.name.as_str()).collect();
    let mut error = CliError::new(
        Code::NotFound,
        format!("no directory and no registered city is called {text:?}"),
    );
    error.hint = did_you_mean(text, &names);
    Err(error)
}

/// Whether `dir` is the root of a city.
#[must_use]
pub(super) fn is_city(dir: &Path) -> bool {
    CityDir::new(dir).config().is_file()
}

fn settled(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    // A city that is gone: as far as its path exists.
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CityName;

    struct World {
        _dir: tempfile::TempDir,
        base: PathBuf,
        registered: Vec<CityEntry>,
    }

    impl World {
        /// Two cities, `one` and `two`, and an empty directory `else`.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path().canonicalize().unwrap();
            for city in ["one", "two"] {
                std::fs::create_dir_all(base.join(city).join("deep/er")).unwrap();
                std::fs::write(base.join(city).join("city.toml"), "").unwrap();
            }
            std::fs::create_dir(base.join("else")).unwrap();
            Self {
                _dir: dir,
                base,
                registered: Vec::new(),
            }
        }

        fn register(mut self, name: &str, path: &str) -> Self {
            self.registered.push(CityEntry {
                name: CityName::new(name).unwrap(),
                path: self.base.join(path),
            });
            self
        }

        fn find(&self, cwd: &str, adjust: impl FnOnce(&mut Clues<'_>)) -> Result<String, Code> {
            let cwd = self.base.join(cwd);
            let mut clues = Clues {
                flag: None,
                positional: None,
                env: None,
                cwd: &cwd,
                access: Access::Change,
            };
            adjust(&mut clues);
            let found = discover(&clues, || Ok(self.registered.clone()));
            let found = found.map_err(|error| error.code)?;
            let relative = found.root.strip_prefix(&self.base).unwrap();
            Ok(relative.display().to_string())
        }
    }

    #[test]
    fn a_directory_inside_a_city_belongs_to_it() {
        let world = World::new();
        assert_eq!(world.find("one/deep/er", |_| {}), Ok("one".into()));
        assert_eq!(world.find("else", |_| {}), Err(Code::NotFound));
    }

    #[test]
    fn flag_or_argument_win_over_variable_and_directory() {
        let world = World::new();
        let found = world.find("one", |clues| clues.env = Some(Path::new("../two")));
        assert_eq!(found, Ok("two".into()));
        let found = world.find("one", |clues| {
            clues.env = Some(Path::new("/nowhere"));
            clues.positional = Some("../two");
        });
        assert_eq!(found, Ok("two".into()));
    }

    #[test]
    fn flag_and_argument_must_agree() {
        let world = World::new();
        let found = world.find("else", |clues| {
            clues.flag = Some("../one");
            clues.positional = Some("../two");
        });
        assert_eq!(found, Err(Code::Usage));
        let found = world.find("else", |clues| {
            clues.flag = Some("../one");
            clues.positional = Some("../one/.");
        });
        assert_eq!(found, Ok("one".into()));
    }

    #[test]
    fn a_word_is_a_registered_name_unless_it_is_a_directory() {
        let world = World::new()
            .register("bright", "one")
            .register("two", "one");
        let find = |name: &'static str| world.find("", |clues| clues.flag = Some(name));
        assert_eq!(find("bright"), Ok("one".into()));
        assert_eq!(find("Bright"), Ok("one".into()));
        assert_eq!(find("two"), Ok("two".into()));
        assert_eq!(find("dark"), Err(Code::NotFound));
    }

    #[test]
    fn a_deleted_city_is_still_named_by_its_path() {
        let world = World::new();
        let found = world.find("", |clues| clues.positional = Some("./gone"));
        assert_eq!(found, Ok("gone".into()));
    }

    #[test]
    fn a_directory_in_a_rig_belongs_to_the_city_of_the_rig() {
        let world = World::new().register("one", "one").register("two", "two");
        let rig = |city: &str, path: &str| {
            let text = format!("[[rigs]]\nname = \"r\"\npath = \"{path}\"\n");
            std::fs::write(world.base.join(city).join("city.toml"), text).unwrap();
        };
        std::fs::create_dir_all(world.base.join("else/deep")).unwrap();
        rig("one", "../else");
        assert_eq!(world.find("else/deep", |_| {}), Ok("one".into()));
        rig("two", &world.base.join("else").display().to_string());
        assert_eq!(world.find("else/deep", |_| {}), Err(Code::Ambiguous));
        rig("one", "../elsewhere");
        assert_eq!(world.find("else", |_| {}), Ok("two".into()));
    }

    #[test]
    fn only_readers_fall_back_to_the_sole_registered_city() {
        let world = World::new().register("one", "one");
        let read = |clues: &mut Clues<'_>| clues.access = Access::Read;
        assert_eq!(world.find("else", read), Ok("one".into()));
        assert_eq!(world.find("else", |_| {}), Err(Code::NotFound));
        let world = world.register("two", "two");
        assert_eq!(world.find("else", read), Err(Code::NotFound));
    }
}
