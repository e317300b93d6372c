//! The supervisor as a service of the user. The service manager is a script that takes notes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::util::{Place, Said};

struct Manager {
    place: Place,
    notes: PathBuf,
}

impl Manager {
    fn new() -> Self {
        let place = Place::new();
        let bin = place.path("bin");
        fs::create_dir_all(&bin).unwrap();
        let notes = place.path("notes");
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{}'\n[ ! -e '{}' ]\n",
            notes.display(),
            place.path("refuse").display()
        );
        let program = bin.join("systemctl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { place, notes }
    }

    fn gc(&self, args: &[&str]) -> Said {
        let path = std::env::var("PATH").unwrap();
        let mut command = self.place.command(&self.place.path(""), args);
        command
            .env(
                "PATH",
                format!("{}:{path}", self.place.path("bin").display()),
            )
            .env("HOME", self.place.path("user"))
            .env_remove("XDG_DATA_HOME");
        Said::by(&mut command)
    }

    /// What the manager was told since the last look.
    fn told(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.notes).unwrap_or_default();
        let _ = fs::remove_file(&self.notes);
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_service_is_installed_once_used_and_taken_out_again() {
    let manager = Manager::new();
    let shown = manager.gc(&["supervisor", "install", "--print"]).ok().out;
    assert!(
        shown.contains("KillMode=process") && shown.contains("GC_HOME="),
        "{shown}"
    );
    assert_eq!(manager.told(), [""; 0], "printing does nothing");
    let said = manager.gc(&["supervisor", "install", "--json"]).ok().json();
    let (name, file) = (
        said["name"].as_str().unwrap(),
        said["file"].as_str().unwrap(),
    );
    assert!(name.starts_with("gascity-supervisor-home-"), "{name}");
    assert_eq!(
        fs::read_to_string(file).unwrap().trim_end(),
        shown.trim_end()
    );
    let expected = [
        "daemon-reload".to_owned(),
        format!("enable {name}"),
        format!("start {name}"),
    ];
    let expected: Vec<String> = expected
        .iter()
        .map(|word| format!("--user {word}"))
        .collect();
    assert_eq!(manager.told(), expected);
    let again = manager.gc(&["supervisor", "install", "--json"]).ok().json();
    assert_eq!(again["already"], true);
    assert!(again["file"] == said["file"] && Path::new(file).exists());
    manager.told();
    // Whoever needs a supervisor has the service started; one that does not start is no obstacle.
    fs::write(manager.place.path("refuse"), "").unwrap();
    let city = manager
        .place
        .city("town", "[daemon]\npatrol_interval = \"1h\"\n");
    manager.gc(&["start", city.to_str().unwrap()]).ok();
    assert_eq!(manager.told(), [format!("--user start {name}")]);
    fs::remove_file(manager.place.path("refuse")).unwrap();
    manager.gc(&["supervisor", "stop"]).ok();
    assert_eq!(manager.told(), [format!("--user stop {name}")]);
    let gone = manager
        .gc(&["supervisor", "uninstall", "--json"])
        .ok()
        .json();
    assert_eq!(gone["removed"], true);
    assert!(!Path::new(file).exists());
    let expected = [
        format!("--user disable {name}"),
        "--user daemon-reload".to_owned(),
    ];
    assert_eq!(manager.told(), expected);
    let none = manager
        .gc(&["supervisor", "uninstall", "--json"])
        .ok()
        .json();
    assert_eq!(none["removed"], false);
}
