//! `--json`: one document on stdout, or nothing there and an error object on stderr.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use serde_json::Value;

use crate::util::{Place, QUIET, sleeper};

/// Command lines in the order of a city's life, with a key each answer has.
const LIFE: &[(&[&str], &str)] = &[
    (&["version"], "version"),
    (&["help", "exit-codes"], "text"),
    (&["init", "fresh"], "created"),
    (&["start"], "supervisor_pid"),
    (&["start"], "instances"),
    (&["register"], "already"),
    (&["status"], "instances"),
    (&["status", "--all"], "items"),
    (&["reload"], "revision"),
    (&["cities"], "items"),
    (&["actors", "tree"], "root"),
    (&["actors", "show", "machine"], "messages"),
    (&["top", "--once"], "lines"),
    (&["events", "-n", "1"], "seq"),
    (&["events", "--seq"], "seq"),
    (&["supervisor", "status"], "pid"),
    (&["supervisor", "reload"], ""),
    (&["supervisor", "logs", "-n", "1"], "text"),
    (&["supervisor", "upgrade"], "pid"),
    (&["supervisor", "install", "--print"], "text"),
    (&["doctor"], "items"),
    (&["event", "emit", "x.y"], "seq"),
    (&["completion", "zsh"], "script"),
    (&["man"], "text"),
    (&["agent", "list"], "items"),
    (&["agent", "show", "a"], "qualified_name"),
    (&["help", "quickstart"], "text"),
    (&["restart"], "instances"),
    (&["stop"], "killed"),
    (&["stop"], "killed"),
    (&["unregister"], "stopped"),
    (&["supervisor", "stop"], "stopped"),
    (&["supervisor", "start"], "pid"),
    (&["supervisor", "stop", "--force"], "killed"),
];

// C6
#[test]
fn every_command_answers_with_one_document() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    for (words, key) in LIFE {
        let args = [*words, &["--json"]].concat();
        let said = place.gc(&city, &args).ok();
        let document = said.json();
        assert_eq!(said.out.lines().count(), 1, "{words:?}: {said:?}");
        assert!(
            key.is_empty() || document.get(key).is_some(),
            "{words:?}: {document}"
        );
        assert_eq!(said.err, "", "{words:?}");
    }
}

// C6
#[test]
fn every_failure_is_one_error_object() {
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    let nowhere = place.path("");
    for (dir, args, code) in [
        (&city, &["actors", "tree"][..], "not_running"),
        (&city, &["actors", "crash", "town"], "not_running"),
        (&city, &["reload"], "not_running"),
        (&city, &["supervisor", "stop"], "not_running"),
        (&city, &["supervisor", "reload"], "not_running"),
        (&city, &["init"], "conflict"),
        (&city, &["statsu"], "usage"),
        (&city, &["supervisor"], "usage"),
        (&city, &["start", "--bogus"], "usage"),
        (&city, &["help", "nonsense"], "usage"),
        (&nowhere, &["start"], "not_found"),
        (&nowhere, &["stop"], "not_found"),
        (&nowhere, &["status"], "not_found"),
        (&nowhere, &["events"], "not_found"),
        (&nowhere, &["register"], "not_found"),
        (&nowhere, &["restart"], "not_found"),
        (&nowhere, &["unregister", "nobody"], "not_found"),
        (
            &city,
            &["--city", "town", "status", "../other"],
            "not_found",
        ),
    ] {
        let args = [args, &["--json"]].concat();
        let said = place.gc(dir, &args);
        let error = said.json_error();
        assert_eq!(error["code"], code, "{args:?}: {error}");
        assert_ne!(said.code, Some(0), "{args:?}");
    }
    assert_eq!(place.processes(), [0_i32; 0], "a failure started something");
}

/// A server of another version, or one that is silent, behind the supervisor's socket.
fn impostor(place: &Place, answer: Option<Value>) {
    std::fs::create_dir_all(place.home()).unwrap();
    let listener = UnixListener::bind(place.home().join("supervisor.sock")).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line); // whatever it asks
            if let Some(answer) = &answer {
                let _ = writeln!(&stream, "{answer}"); // it may have left
            }
            kept.push(stream);
        }
    });
}

// C21
#[test]
fn a_supervisor_of_another_protocol_is_named_with_a_way_out() {
    let place = Place::new();
    let answer = serde_json::json!({"id": 1, "ok": false, "error": {
        "code": "unsupported_version", "message": "speak 9", "supported": [9]}});
    impostor(&place, Some(answer));
    let said = place
        .gc(&place.path(""), &["supervisor", "status"])
        .fails(1);
    for part in ["protocol [9]", "hint: restart the supervisor"] {
        assert!(said.err.contains(part), "{part} in {said:?}");
    }
}

// C21
#[test]
fn a_supervisor_that_never_answers_is_a_timeout_that_names_the_log() {
    let place = Place::new();
    impostor(&place, None);
    let city = place.city("town", &sleeper("a"));
    let error = place.gc(&city, &["start", "--json"]).fails(1).json_error();
    assert_eq!(error["code"], "timeout");
    assert!(
        error["hint"].as_str().unwrap().contains("supervisor.log"),
        "{error}"
    );
    assert!(
        !place.home().join("cities.toml").exists(),
        "nothing was registered"
    );
}
