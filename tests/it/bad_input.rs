//! Bad input of every kind: a clear error, a next step, and nothing lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::util::{Place, QUIET, contents, count, is_root, kill, sleeper};

#[test]
fn files_that_are_no_config_are_refused_before_anything_is_made() {
    let place = Place::new();
    let huge = "x".repeat(2 << 20);
    for (name, toml, part) in [
        ("syntax", "[daemon\n".as_bytes(), "city.toml:1:"),
        ("binary", b"\xff\xfe\x00", "not UTF-8"),
        ("huge", huge.as_bytes(), "larger than"),
        ("typo", b"[deamon]\n", "did you mean"),
        ("type", b"[daemon]\nmax_restarts = \"3\"\n", "integer"),
        ("twice", b"[[agent]]\nname = \"a\"\nstart_command = \"x\"\n[[agent]]\nname = \"a\"\nstart_command = \"x\"\n", "a"),
        ("secret", b"[[agent]]\nname = \"a\"\nstart_command = \"x\"\nenv = { GC_X = \"hidden\" }\n", "GC_X"),
    ] {
        let city = place.city(name, "");
        fs::write(city.join("city.toml"), toml).unwrap();
        let before = contents(&city);
        for args in [&["start"][..], &["register"], &["restart"], &["start", "--standalone"]] {
            let said = place.gc(&city, args).fails(1);
            assert!(said.err.contains(part), "{name}: {said:?}");
            assert!(said.err.contains("hint: mend "), "{name} {args:?}: {said:?}");
            assert!(!said.err.contains("hidden"), "{said:?}");
        }
        assert_eq!(contents(&city), before, "{name}");
    }
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[test]
fn a_name_that_is_taken_leaves_its_owner_alone() {
    let place = Place::new();
    let toml = format!("[workspace]\nname = \"same\"\n{QUIET}{}", sleeper("a"));
    let (one, two) = (place.city("one", &toml), place.city("two", &toml));
    place.gc(&one, &["start"]).ok();
    let pid = place.pid(&one, "a");
    let said = place.gc(&two, &["start"]).fails(1);
    for part in [
        "already registered",
        "hint: set another name",
        "gc unregister",
    ] {
        assert!(said.err.contains(part), "{part} in {said:?}");
    }
    assert!(!two.join(".gc").exists());
    assert_eq!(place.pid(&one, "a"), pid);
}

#[test]
fn a_registry_that_cannot_be_read_is_never_overwritten() {
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    fs::create_dir_all(place.home()).unwrap();
    let file = place.home().join("cities.toml");
    fs::write(&file, "garbage[[").unwrap();
    for args in [&["start"][..], &["cities"], &["stop"], &["unregister"]] {
        let said = place.gc(&city, args).fails(1);
        assert!(said.err.contains("cities.toml:1:"), "{said:?}");
        assert!(said.err.contains("hint: mend "), "{said:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "garbage[[");
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[test]
fn a_second_controller_names_the_first() {
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    place.gc(&city, &["start"]).ok();
    let pid = place.supervisor_pid().to_string();
    for args in [
        &["supervisor", "run"][..],
        &["supervisor", "start"],
        &["start", "--standalone"],
    ] {
        let said = place.gc(&city, args).fails(1);
        assert!(
            said.err.contains(&pid) && said.err.contains("hint: gc"),
            "{said:?}"
        );
    }
    assert_eq!(place.instance(&city, "a")["state"], "running");
}

#[test]
fn a_path_too_long_for_a_socket_is_no_obstacle() {
    let place = Place::new();
    let name = "l".repeat(60);
    let dir = place.path(&[name.as_str(); 3].join("/"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("city.toml"), format!("{QUIET}{}", sleeper("a"))).unwrap();
    let mut running = place
        .command(&dir, &["start", "--standalone"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    place.awaited_pid(&dir, "a");
    place.gc(&dir, &["stop"]).ok();
    assert!(running.wait().unwrap().success());
    let home = dir.join("home");
    let far = |args: &[&str]| {
        let home = ["--home", home.to_str().unwrap()];
        place.gc(&dir, &[&home, args].concat())
    };
    far(&["start"]).ok();
    far(&["stop"]).ok();
    far(&["supervisor", "stop"]).ok();
}

#[test]
fn directories_that_cannot_be_written_are_named() {
    if is_root() {
        return; // no permission stops root
    }
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    let close = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    close(&city, 0o500);
    for args in [&["start"][..], &["start", "--standalone"]] {
        let said = place.gc(&city, args).fails(1);
        assert!(said.err.contains("ermission denied"), "{said:?}");
        assert!(said.err.contains("hint: "), "{said:?}");
    }
    let cities = place.gc(&city, &["cities", "--json"]).ok().json();
    assert_eq!(cities["total"], 0, "the entry was taken back");
    close(&city, 0o700);
    let locked = place.path("locked");
    fs::create_dir_all(&locked).unwrap();
    close(&locked, 0o500);
    let home = locked.join("home");
    let args = ["--home", home.to_str().unwrap(), "start"];
    let said = place.gc(&city, &args).fails(1);
    assert!(said.err.contains("hint: ls -ld "), "{said:?}");
    let said = place.gc(&locked, &["init", "new"]).fails(1);
    assert!(said.err.contains("hint: ls -ld "), "{said:?}");
    close(&locked, 0o700);
    fs::set_permissions(city.join("city.toml"), fs::Permissions::from_mode(0o000)).unwrap();
    let said = place.gc(&city, &["start"]).fails(1);
    assert!(said.err.contains("ermission denied"), "{said:?}");
}

#[test]
fn a_start_killed_halfway_can_be_repeated() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    // At the mercy of the scheduler it dies before, in, or after any of its steps.
    for round in 0..6_u32 {
        let mut child = place
            .command(&city, &["start"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..round * 2000 {
            std::thread::yield_now();
        }
        kill(i32::try_from(child.id()).unwrap(), Signal::KILL);
        child.wait().unwrap();
    }
    place.gc(&city, &["start"]).ok();
    for agent in ["a", "b"] {
        assert_eq!(place.instance(&city, agent)["state"], "running");
        assert_eq!(count(&city, "agent.started", agent), 1);
    }
    place.gc(&city, &["stop"]).ok();
    place.gc(&city, &["supervisor", "stop"]).ok();
    assert_eq!(place.processes(), [0_i32; 0]);
}
