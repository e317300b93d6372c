//! The control socket: its dialects, limits and whom it serves.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use super::as_nobody;
use crate::util::{LIMIT, Place, QUIET, sleeper};

fn connect(place: &Place) -> UnixStream {
    let stream = UnixStream::connect(place.home().join("supervisor.sock")).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// All that the server says to this, until it closes.
fn answer(place: &Place, request: &[u8]) -> String {
    let mut stream = connect(place);
    let _ = stream.write_all(request); // a server may close before it has read all
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    said
}

// S5
#[test]
fn words_are_answered_and_abuse_is_cut_off() {
    let place = Place::new();
    let city = place.city(
        "town",
        &format!("[daemon]\npatrol_interval = \"1s\"\n{}", sleeper("a")),
    );
    place.gc(&city, &["start"]).ok();
    let pid = place.supervisor_pid();
    let mut silent = connect(&place); // holds its connection through all that follows
    assert_eq!(answer(&place, b"ping\n"), format!("{pid}\n"));
    let status: Value = serde_json::from_str(&answer(&place, b"status\n")).unwrap();
    assert_eq!(status["pid"], pid);
    assert_eq!(answer(&place, b"bogus\n"), "error: unknown command\n");
    assert_eq!(answer(&place, b"reload\n"), "ok\n");
    assert_eq!(answer(&place, b"poke\n"), "ok\n");
    let huge = [b"{\"op\":\"".as_slice(), &vec![b'x'; 2 << 20]].concat();
    assert!(answer(&place, &huge).contains("too_large"));
    assert!(answer(&place, b"{\"op\":\xff}\n").contains("bad_request"));
    assert!(answer(&place, b"{nonsense\n").contains("bad_request"));
    let mut nothing = Vec::new();
    silent.read_to_end(&mut nothing).unwrap();
    assert_eq!(nothing, b"", "a silent client is closed without a word");
    let ticks = place.status(&city)["ticks_missed"].clone();
    assert!(ticks.is_null() || ticks == 0, "{ticks}");
}

// S6
#[test]
fn another_version_of_the_protocol_is_refused_with_what_is_spoken() {
    let place = Place::new();
    place.gc(&place.path(""), &["supervisor", "start"]).ok();
    let stream = connect(&place);
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut ask = |line: &str| {
        writeln!(&stream, "{line}").unwrap();
        serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()
    };
    let refused = ask(r#"{"v":2,"id":7,"op":"ping"}"#);
    assert_eq!(refused["error"]["code"], "unsupported_version", "{refused}");
    assert_eq!(refused["error"]["supported"], serde_json::json!([1]));
    let ok = ask(r#"{"id":"x","op":"ping","later":true}"#);
    assert_eq!((&ok["id"], &ok["ok"]), (&"x".into(), &true.into()), "{ok}");
    let unknown = ask(r#"{"v":1,"id":8,"op":"dance"}"#);
    assert_eq!(unknown["error"]["code"], "unknown_op");
}

#[test]
fn the_log_level_and_events_are_within_reach_of_the_socket() {
    let place = Place::new();
    let city = place.city("town", QUIET);
    place.gc(&city, &["start"]).ok();
    let ask = |line: &str| {
        let said = answer_line(&place, line);
        serde_json::from_str::<Value>(&said).unwrap()
    };
    assert_eq!(
        ask(r#"{"id":1,"op":"log","params":{"level":"debug"}}"#)["ok"],
        true
    );
    let bad = ask(r#"{"id":1,"op":"log","params":{"level":"a=b=c"}}"#);
    assert_eq!(bad["error"]["code"], "bad_request", "{bad}");
    let emit = r#"{"id":1,"op":"event","params":{"city":"town","event":{"type":"my.news","subject":"s","payload":{"k":1}}}}"#;
    let seq = ask(emit)["result"]["seq"].as_u64().unwrap();
    let event = crate::util::events(&city)
        .into_iter()
        .find(|event| event["seq"] == seq)
        .unwrap();
    assert_eq!(
        (&event["type"], &event["payload"]["k"]),
        (&"my.news".into(), &1.into())
    );
    let log = fs::read_to_string(place.home().join("supervisor.log")).unwrap();
    assert!(log.contains("DEBUG"), "{log}");
}

fn answer_line(place: &Place, line: &str) -> String {
    let stream = connect(place);
    writeln!(&stream, "{line}").unwrap();
    BufReader::new(stream).lines().next().unwrap().unwrap()
}

// S4, C9
#[test]
fn another_user_is_turned_away_without_a_byte() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let socket = place.home().join("supervisor.sock");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let Some(denied) = as_nobody(&place, &["supervisor", "stop", "--json"]) else {
        return;
    };
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert_eq!(denied.json_error()["code"], "denied");
    let log = fs::read_to_string(place.home().join("supervisor.log")).unwrap();
    assert!(log.contains("another user turned away uid=65534"), "{log}");
    assert!(place.pid(&city, "a").is_some(), "nothing happened");
    let denied = as_nobody(&place, &["status", city.to_str().unwrap(), "--json"]).unwrap();
    assert_eq!(denied.code, Some(1), "{denied:?}");
}
