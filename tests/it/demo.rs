//! `gc demo`: the story is true, and nothing is left of it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::util::{Place, Said, eventually, kill};

/// The demo with its temporary directory inside the place.
fn demo(place: &Place, args: &[&str]) -> Command {
    let tmp = place.path("tmp");
    fs::create_dir_all(&tmp).unwrap();
    let mut command = place.command(&place.path(""), &[&["demo"], args].concat());
    command.env("TMPDIR", tmp);
    command
}

#[track_caller]
fn nothing_is_left(place: &Place) {
    assert_eq!(place.processes(), [0_i32; 0]);
    let left: Vec<_> = fs::read_dir(place.path("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!place.home().exists(), "the user's home was touched");
}

#[test]
fn the_story_is_told_and_nothing_is_left() {
    let place = Place::new();
    let said = Said::by(&mut demo(&place, &[])).ok();
    for part in [
        "kill -9",
        "is back after",
        "quarantined",
        "auditor",
        "0 processes left",
        "next: gc init",
    ] {
        assert!(said.out.contains(part), "{part} in\n{}", said.out);
    }
    nothing_is_left(&place);
}

#[test]
fn as_json_it_is_one_document() {
    let place = Place::new();
    let said = Said::by(&mut demo(&place, &["--json"])).ok();
    let seen = said.json();
    assert_eq!(seen["processes_left"], 0);
    assert_eq!(seen["quarantined_after_starts"], 3);
    assert_ne!(seen["killed_pid"], seen["replacement_pid"]);
    assert_eq!(said.err, "");
    nothing_is_left(&place);
}

#[test]
fn a_demo_that_is_told_to_end_cleans_up() {
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 130)] {
        let place = Place::new();
        let mut child = demo(&place, &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = lines.find(|line| line.as_ref().unwrap().contains("agents are up"));
        assert!(up.is_some());
        kill(i32::try_from(child.id()).unwrap(), signal);
        for line in lines {
            drop(line); // it must not block on a full pipe
        }
        assert_eq!(child.wait().unwrap().code(), Some(exit), "{signal:?}");
        nothing_is_left(&place);
    }
}

#[test]
fn a_demo_whose_reader_left_cleans_up_and_succeeds() {
    let place = Place::new();
    let mut child = demo(&place, &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut pipe = BufReader::new(child.stdout.take().unwrap());
    pipe.read_line(&mut first).unwrap();
    drop(pipe);
    let said = child.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert!(said.stderr.is_empty(), "{said:?}");
    eventually("the end of the agents", || {
        place.processes().is_empty().then_some(())
    });
    nothing_is_left(&place);
}
