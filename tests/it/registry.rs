//! The registry under many hands: processes that write at once, that are killed, and editors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::util::{Place, QUIET, eventually, is_alive, kill, sleeper};

const MANY: usize = 50;

/// The registered paths; fails if the file does not parse.
fn registered(place: &Place) -> Vec<PathBuf> {
    let text = match fs::read_to_string(place.home().join("cities.toml")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{error}"),
    };
    let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let cities = table.get("cities").and_then(|cities| cities.as_array());
    let path = |city: &toml::Value| PathBuf::from(city["path"].as_str().unwrap());
    let mut paths: Vec<_> = cities.into_iter().flatten().map(path).collect();
    paths.sort();
    paths
}

fn spawn(place: &Place, city: &Path, args: &[&str]) -> Child {
    let mut command = place.command(city, args);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

// S7
#[test]
fn fifty_registrations_and_unregistrations_at_once_leave_what_was_asked_for() {
    let place = Place::new();
    let cities: Vec<PathBuf> = (0..MANY)
        .map(|n| place.city(&format!("c{n:02}"), QUIET))
        .collect();
    place.gc(&place.path(""), &["supervisor", "start"]).ok();
    let run = |verb: &str, cities: &[PathBuf]| {
        let children: Vec<Child> = cities
            .iter()
            .map(|city| match verb {
                "register" => spawn(&place, city, &["register", "--no-wait"]),
                _ => spawn(&place, city, &["unregister"]),
            })
            .collect();
        for child in children {
            registered(&place); // whenever one looks, it parses
            let done = child.wait_with_output().unwrap();
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
    };
    run("register", &cities);
    assert_eq!(registered(&place), cities);
    // Half of them leave while the others register once more.
    std::thread::scope(|scope| {
        scope.spawn(|| run("unregister", &cities[..MANY / 2]));
        scope.spawn(|| run("register", &cities[MANY / 2..]));
    });
    assert_eq!(registered(&place), cities[MANY / 2..]);
    let shown = place.gc(&place.path(""), &["cities", "--json"]).ok().json();
    assert_eq!(shown["total"], MANY / 2);
}

// S8
#[test]
fn a_registration_killed_at_any_time_leaves_the_old_file_or_the_new_one() {
    let place = Place::new();
    let old = place.city("old", QUIET);
    let new = place.city("new", QUIET);
    fs::create_dir_all(place.home()).unwrap();
    let before = format!(
        "# mine\n[[cities]]\npath = {:?}\nname = \"old\"\n",
        old.to_str().unwrap()
    );
    let file = place.home().join("cities.toml");
    let mut seen = [0, 0];
    for step in 0..40 {
        fs::write(&file, &before).unwrap();
        let mut command = place.command(&new, &["register", "--no-wait"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A little later each time, so that every step of the write is hit sooner or later.
        std::thread::sleep(std::time::Duration::from_micros(250 * step));
        kill(i32::try_from(child.id()).unwrap(), Signal::KILL);
        child.wait().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let found = registered(&place);
        if found == [old.clone()] {
            assert_eq!(text, before);
            seen[0] += 1;
        } else {
            let mut both = [old.clone(), new.clone()];
            both.sort();
            assert_eq!(found, both);
            assert!(text.starts_with("# mine\n"), "{text}");
            seen[1] += 1;
        }
        for pid in place.processes() {
            kill(pid, Signal::KILL); // the supervisor it may have started
        }
    }
    assert!(seen[0] > 0, "none was early enough: {seen:?}");
    // What a kill left behind is no obstacle.
    fs::write(&file, &before).unwrap();
    place.gc(&new, &["register"]).ok();
    assert_eq!(registered(&place).len(), 2);
}

// S9
#[test]
fn names_are_unique_and_a_city_is_one_by_any_path() {
    let place = Place::new();
    let named = format!("{QUIET}[workspace]\nname = \"Twin\"\n");
    let one = place.city("one", &named);
    let two = place.city("two", &named.replace("Twin", "twin"));
    place.gc(&one, &["register"]).ok();
    let refused = place.gc(&two, &["register"]).fails(1);
    let text = format!(
        "city name \"twin\" already registered at {} (set a unique workspace.name)",
        one.display()
    );
    assert!(refused.err.contains(&text), "{refused:?}");
    let link = place.path("link");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let again = place.gc(&link, &["register", "--json"]).ok().json();
    assert_eq!(again["already"], true);
    assert_eq!(registered(&place), [one]);
}

// S10
#[test]
fn an_entry_written_by_hand_starts_and_its_removal_stops_and_others_do_not_notice() {
    let place = Place::new();
    let first = place.city("first", &format!("{QUIET}{}", sleeper("a")));
    let second = place.city("second", &format!("{QUIET}{}", sleeper("b")));
    place.gc(&first, &["start"]).ok();
    let pid = place.pid(&first, "a").unwrap();
    let file = place.home().join("cities.toml");
    let before = fs::read_to_string(&file).unwrap();
    let entry = format!(
        "\n# by hand\n[[cities]]\npath = {:?}\n",
        second.to_str().unwrap()
    );
    fs::write(&file, format!("{before}{entry}")).unwrap();
    let other = place.awaited_pid(&second, "b");
    fs::write(&file, &before).unwrap();
    eventually("its stop", || (!is_alive(other)).then_some(()));
    assert_eq!(place.pid(&first, "a").unwrap(), pid);
}

// S11
#[test]
fn a_registry_that_breaks_or_vanishes_for_a_moment_stops_nobody() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    fs::create_dir_all(place.home()).unwrap();
    place.gc(&city, &["start"]).ok();
    let pid = place.pid(&city, "a").unwrap();
    let file = place.home().join("cities.toml");
    let good = fs::read_to_string(&file).unwrap();
    let status = || {
        let said = place.gc(&city, &["supervisor", "status", "--json"]);
        said.ok().json()
    };
    fs::write(&file, "[[cities]\n").unwrap();
    eventually("the complaint", || {
        (status()["registry"]["ok"] == false).then_some(())
    });
    assert!(
        status()["registry"]["error"]
            .as_str()
            .unwrap()
            .contains("1")
    );
    fs::write(&file, "").unwrap();
    // Read at once, and not believed: it may be a moment's accident of an editor.
    eventually("the empty file being read", || {
        place.gc(&city, &["supervisor", "reload"]).ok();
        (status()["registry"]["ok"] == true).then_some(())
    });
    assert!(is_alive(pid));
    assert_eq!(status()["cities"][0]["status"], "running");
    fs::write(&file, good).unwrap();
    place.gc(&city, &["supervisor", "reload"]).ok();
    assert_eq!(place.pid(&city, "a").unwrap(), pid);
}
