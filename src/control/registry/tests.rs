use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::*;
use crate::control::files::Step;

struct Place {
    dir: tempfile::TempDir,
    registry: Registry,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(dir.path().join("cities.toml"));
        Self { dir, registry }
    }

    fn with(text: &str) -> Self {
        let place = Self::new();
        fs::write(place.registry.file(), text).unwrap();
        place
    }

    /// A city directory, canonical.
    fn city(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::canonicalize(path).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.registry.file()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let contents = self.registry.read().unwrap();
        let cities = contents.registered.cities.iter();
        cities.map(|c| c.name.to_string()).collect()
    }
}

fn name(text: &str) -> CityName {
    CityName::new(text).unwrap()
}

#[test]
fn a_missing_file_is_an_empty_registry() {
    let contents = Place::new().registry.read().unwrap();
    assert!(contents.empty && contents.registered.cities.is_empty());
}

#[test]
fn names_come_from_the_entry_the_city_or_the_directory() {
    let place = Place::new();
    let (a, b, c) = (place.city("a"), place.city("b"), place.city("c"));
    fs::write(b.join("city.toml"), "[workspace]\nname = \"bright\"\n").unwrap();
    let text = format!(
        "[[cities]]\npath = {a:?}\nname = \"x\"\n[[cities]]\npath = {b:?}\n[[cities]]\npath = {c:?}\n"
    );
    fs::write(place.registry.file(), text).unwrap();
    assert_eq!(place.names(), ["x", "bright", "c"]);
}

#[test]
fn hand_edited_conflicts_refuse_the_later_entry() {
    let place = Place::with(
        "[[cities]]\npath = \"/gone/one\"\nname = \"Town\"\n\
         [[cities]]\npath = \"/gone/two\"\nname = \"town\"\n\
         [[cities]]\npath = \"/gone/./one/\"\nname = \"other\"\n\
         [[cities]]\npath = \"relative\"\n[[cities]]\nname = \"lost\"\n\
         [[cities]]\npath = \"/gone/three\"\nname = \"no way\"\n",
    );
    let contents = place.registry.read().unwrap();
    assert_eq!(place.names(), ["Town"]);
    let refused: Vec<_> = contents
        .registered
        .refused
        .iter()
        .map(|(entry, why)| (entry.name.as_str(), why.as_str()))
        .collect();
    assert_eq!(refused[0], ("town", "name conflict with /gone/one"));
    assert_eq!(refused[1].0, "no-way");
    assert!(refused[1].1.starts_with("invalid city name \"no way\""));
    assert_eq!(
        contents.warnings,
        [
            "/gone/one is registered twice, the first entry counts",
            "entry 4 has no absolute path, skipped",
            "entry 5 has no absolute path, skipped",
        ]
    );
}

#[test]
fn refused_names_are_always_presentable() {
    for text in ["", "x", "--", "é", "x y", &"z".repeat(200), &"x".repeat(65)] {
        assert!(!presentable(text).as_str().is_empty());
    }
}

#[test]
fn parse_errors_name_line_and_column() {
    let place = Place::with("# fine\n[[cities]]\npath = /no/quotes\n");
    let error = place.registry.read().unwrap_err().to_string();
    let at = format!("{}:3:8: ", place.registry.file().display());
    assert!(error.starts_with(&at), "{error}");

    let place = Place::with("a = 1\ncities = 5\n");
    let error = place.registry.read().unwrap_err().to_string();
    assert!(
        error.ends_with(":2:10: `cities` must be an array of tables"),
        "{error}"
    );
}

#[test]
fn an_unparsable_file_is_never_overwritten() {
    let place = Place::with("[[cities]\n");
    let city = place.city("a");
    let before = place.text();
    assert!(matches!(
        place.registry.register(&city, &name("a")),
        Err(RegistryError::Parse { .. })
    ));
    assert!(place.registry.unregister(&city).is_err());
    assert_eq!(place.text(), before);
}

#[test]
fn registering_twice_or_through_a_symlink_changes_nothing() {
    let place = Place::new();
    let city = place.city("a");
    let link = place.dir.path().join("link");
    symlink(&city, &link).unwrap();
    let register = |path: &Path, as_name| place.registry.register(path, &name(as_name));
    assert_eq!(register(&city, "a").unwrap(), Change::Added);
    let text = place.text();
    assert_eq!(register(&city, "a").unwrap(), Change::None);
    assert_eq!(register(&link, "a").unwrap(), Change::None);
    assert_eq!(place.text(), text);
    let from = "a".to_owned();
    assert_eq!(register(&link, "b").unwrap(), Change::Renamed { from });
    assert_eq!(place.names(), ["b"]);
}

#[test]
fn a_taken_name_is_refused_with_its_place() {
    let place = Place::new();
    let (a, b) = (place.city("a"), place.city("b"));
    place.registry.register(&a, &name("X")).unwrap();
    let error = place.registry.register(&b, &name("x")).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "city name \"x\" already registered at {} (set a unique workspace.name)",
            a.display()
        )
    );
    assert_eq!(place.names(), ["X"]);
}

#[test]
fn comments_and_unknown_keys_survive_edits() {
    let place = Place::with(
        "# my cities\nowner = \"me\" # who\n\n# first\n[[cities]]\npath = \"/gone/one\"\nname = \"one\"\ncolour = \"red\" # mine\n\n# second\n[[cities]]\npath = \"/gone/two\"\nname = \"two\"\n\n[other]\nx = 1\n# the end\n",
    );
    assert_eq!(
        place.registry.read().unwrap().warnings,
        [
            "entry 1: `colour` is not a key of [[cities]], ignored",
            "`owner` is not a key of a registry, ignored",
            "`other` is not a key of a registry, ignored",
        ]
    );
    let city = place.city("three");
    place.registry.register(&city, &name("three")).unwrap();
    let text = place.text();
    for part in [
        "# my cities",
        "# who",
        "# first",
        "# mine",
        "# second",
        "[other]\nx = 1",
        "# the end",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.ends_with("[other]\nx = 1\n# the end\n"), "{text}");
    assert_eq!(place.names(), ["one", "two", "three"]);

    place.registry.unregister(Path::new("/gone/one")).unwrap();
    let text = place.text();
    for part in [
        "# my cities",
        "# first",
        "# second",
        "[other]\nx = 1",
        "# the end",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("# mine"));
    assert_eq!(place.names(), ["two", "three"]);
}

#[test]
fn inline_registries_are_edited_too() {
    let place = Place::with("cities = [{ path = \"/gone/one\", name = \"one\" }] # short\n");
    let city = place.city("two");
    place.registry.register(&city, &name("two")).unwrap();
    assert_eq!(place.names(), ["one", "two"]);
    place.registry.unregister(Path::new("/gone/one")).unwrap();
    assert_eq!(place.names(), ["two"]);
    assert!(place.text().contains("# short"));
}

#[test]
fn a_deleted_city_is_unregistered_by_its_path() {
    let place = Place::new();
    let city = place.city("a");
    place.registry.register(&city, &name("a")).unwrap();
    fs::remove_dir(&city).unwrap();
    let same = city.join("../a/");
    assert_eq!(place.registry.unregister(&same).unwrap(), Change::Removed);
    assert_eq!(place.registry.unregister(&same).unwrap(), Change::None);
    let contents = place.registry.read().unwrap();
    assert!(contents.registered.cities.is_empty());
    assert!(!contents.empty, "emptied on purpose, so it counts at once");
}

#[test]
fn a_symlinked_registry_is_written_at_its_target() {
    let place = Place::new();
    let real = place.dir.path().join("real.toml");
    fs::write(&real, "# kept\n").unwrap();
    symlink("real.toml", place.registry.file()).unwrap();
    let city = place.city("a");
    place.registry.register(&city, &name("a")).unwrap();
    assert!(
        fs::symlink_metadata(place.registry.file())
            .unwrap()
            .is_symlink()
    );
    assert!(fs::read_to_string(&real).unwrap().starts_with("# kept\n"));
    assert_eq!(place.names(), ["a"]);
}

#[test]
fn a_writer_that_never_lets_go_is_reported() {
    let place = Place::new();
    let lock = place.dir.path().join("cities.toml.lock");
    let _held = super::super::lock::take_turn(&lock, Duration::from_secs(20)).unwrap();
    let registry = place
        .registry
        .clone()
        .with_turn_limit(Duration::from_millis(1));
    let error = registry.register(&place.city("a"), &name("a")).unwrap_err();
    assert!(matches!(error, RegistryError::Locked(_)), "{error}");
}

#[test]
fn parallel_registrations_lose_nothing_and_the_file_always_parses() {
    let place = Place::new();
    let cities: Vec<_> = (0..50).map(|n| place.city(&format!("c{n}"))).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                place.registry.read().expect("parses at all times");
            }
        });
        let writers: Vec<_> = cities
            .iter()
            .enumerate()
            .map(|(n, city)| {
                let registry = place
                    .registry
                    .clone()
                    .with_turn_limit(Duration::from_secs(120));
                scope.spawn(move || registry.register(city, &name(&format!("c{n}"))).unwrap())
            })
            .collect();
        for writer in writers {
            assert_eq!(writer.join().unwrap(), Change::Added);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(place.names().len(), 50);
}

const STEPS: [Step; 4] = [Step::Created, Step::Written, Step::Synced, Step::Renamed];

/// Registers a city and kills itself at the step the environment names. Alone, a no-op.
#[test]
fn child_that_dies_while_writing() {
    let vars = ["GC_TEST_REGISTRY", "GC_TEST_CITY", "GC_TEST_STEP"].map(std::env::var_os);
    let [Some(file), Some(city), Some(step)] = vars else {
        return;
    };
    let fatal = STEPS[step.to_str().unwrap().parse::<usize>().unwrap()];
    let mut die_at_step = |step| {
        if step == fatal {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
    };
    let key = CityKey::of(Path::new(&city));
    let _ = Registry::new(file).edit(&mut die_at_step, |document, entries| {
        edit::add(document, entries, &key, &name("new"))
    });
}

#[test]
fn a_kill_at_any_step_leaves_the_old_or_the_new_file() {
    for (index, step) in STEPS.iter().enumerate() {
        let place = Place::new();
        place
            .registry
            .register(&place.city("old"), &name("old"))
            .unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "control::registry::tests::child_that_dies_while_writing",
            ])
            .env("GC_TEST_REGISTRY", place.registry.file())
            .env("GC_TEST_CITY", place.city("new"))
            .env("GC_TEST_STEP", index.to_string())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{step:?}");
        let expected: &[&str] = match step {
            Step::Renamed => &["old", "new"],
            _ => &["old"],
        };
        assert_eq!(place.names(), expected, "{step:?}");
        place
            .registry
            .register(&place.city("new"), &name("new"))
            .unwrap();
        assert_eq!(
            place.names(),
            ["old", "new"],
            "the next writer is not disturbed"
        );
    }
}
