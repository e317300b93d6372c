use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A place for cities, and the arguments for one of them.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, city: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(city)
    }

    fn args(&self, city: &str) -> InitArgs {
        InitArgs {
            path: Some(self.path(city)),
            ..InitArgs::default()
        }
    }
}

/// Every file, directory and link below `dir`, with its content and mode.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_dir() {
            found.extend(snapshot(&path));
            Vec::new()
        } else {
            fs::read(&path).unwrap_or_default()
        };
        found.insert(path, (meta.permissions().mode(), content));
    }
    found
}

#[test]
fn a_city_is_made_with_its_parents() {
    let place = Place::new();
    let made = create(&place.args("far/my-city")).unwrap();
    let path = place.path("far/my-city");
    let expected = Created {
        name: "my-city".into(),
        path: path.clone(),
        template: Some("demo"),
        from: None,
        created: vec!["city.toml".into(), ".gc/".into()],
    };
    assert_eq!(made, expected);
    let config = fs::read_to_string(path.join("city.toml")).unwrap();
    assert!(config.contains("name = \"my-city\""));
    let mode = fs::metadata(path.join(".gc")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn an_existing_city_is_refused_and_stays_byte_identical() {
    let place = Place::new();
    create(&place.args("a")).unwrap();
    fs::write(place.path("a/city.toml"), "# mine\n").unwrap();
    fs::remove_dir(place.path("a/.gc")).unwrap();
    let before = snapshot(place.0.path());
    let error = create(&place.args("a")).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert_eq!(snapshot(place.0.path()), before);
}

#[test]
fn a_link_to_nowhere_counts_as_a_config() {
    let place = Place::new();
    fs::create_dir(place.path("a")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", place.path("a/city.toml")).unwrap();
    assert_eq!(create(&place.args("a")).unwrap_err().code, Code::Conflict);
}

#[test]
fn force_adds_only_what_is_missing() {
    let place = Place::new();
    let mut args = place.args("a");
    args.force = true;
    let whole = create(&args).unwrap();
    assert_eq!(whole.created, ["city.toml", ".gc/"]);

    fs::write(place.path("a/city.toml"), "# mine\n").unwrap();
    fs::remove_dir(place.path("a/.gc")).unwrap();
    let half = create(&args).unwrap();
    assert_eq!(
        (half.template, half.created),
        (None, vec![".gc/".to_owned()])
    );
    let config = fs::read(place.path("a/city.toml")).unwrap();
    assert_eq!(config, b"# mine\n");

    fs::write(place.path("a/city.toml"), "[workspace]\nname = 'own'\n").unwrap();
    let before = snapshot(place.0.path());
    let nothing = create(&args).unwrap();
    assert_eq!((nothing.name.as_str(), nothing.created), ("own", vec![]));
    assert_eq!(snapshot(place.0.path()), before);
}

#[test]
fn other_files_of_a_directory_are_left_alone() {
    let place = Place::new();
    fs::create_dir(place.path("a")).unwrap();
    fs::write(place.path("a/notes.md"), "mine").unwrap();
    create(&place.args("a")).unwrap();
    assert_eq!(fs::read(place.path("a/notes.md")).unwrap(), b"mine");
    fs::write(place.path("file"), "mine").unwrap();
    let error = create(&place.args("file")).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
}

#[test]
fn names_come_from_the_directory_or_the_flag() {
    let place = Place::new();
    let mut args = place.args("my city");
    let error = create(&args).unwrap_err();
    assert_eq!(error.code, Code::Usage);
    let hint = error.hint.unwrap();
    assert!(hint.ends_with("/my city' --name my-city"), "{hint}");
    assert!(!place.path("my city").exists(), "nothing was touched");

    args.name = Some("-bad".into());
    assert_eq!(create(&args).unwrap_err().code, Code::Usage);
    args.name = Some("good".into());
    assert_eq!(create(&args).unwrap().name, "good");

    let mut args = place.args("b");
    args.path = Some(place.path("b/../my city/.."));
    args.name = Some("up".into());
    fs::create_dir(place.path("b")).unwrap();
    assert_eq!(create(&args).unwrap().path, place.path(""));
}

#[test]
fn bad_arguments_touch_nothing() {
    let place = Place::new();
    let mut unknown = place.args("a");
    unknown.template = Some("dmeo".into());
    assert_eq!(create(&unknown).unwrap_err().code, Code::NotFound);
    let mut blank = place.args("a");
    blank.command = Some(" ".into());
    assert_eq!(create(&blank).unwrap_err().code, Code::Usage);
    assert!(snapshot(place.0.path()).is_empty());
}

#[test]
fn the_summary_says_what_to_do_next() {
    let mut made = Created {
        name: "my-city".into(),
        path: "/x/my-city".into(),
        template: Some("demo"),
        from: None,
        created: vec!["city.toml".into(), ".gc/".into()],
    };
    assert_eq!(
        summary(&made, Some(Path::new("my-city"))),
        "✓ created my-city (template demo)    next: cd my-city && gc start"
    );
    made.template = None;
    made.created = vec![".gc/".to_owned()];
    assert_eq!(
        summary(&made, None),
        "✓ completed my-city: .gc/    next: gc start"
    );
    assert_eq!(
        serde_json::to_string(&made).unwrap(),
        r#"{"name":"my-city","path":"/x/my-city","created":[".gc/"]}"#
    );
}
