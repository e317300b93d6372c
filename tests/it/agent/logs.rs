//! What agents printed, and what is kept of it.

use super::{QUIET, refusal, sleeper, up};
use crate::util::{Place, eventually};

#[test]
fn output_is_shown_followed_and_kept_after_the_end() {
    let place = Place::new();
    let talker = "[[agent]]\nname = \"talks\"\nrestart = \"temporary\"\nstart_command = \"for i in 1 2 3; do echo line $i; done; exec sleep 600\"\n";
    let city = up(&place, &format!("{QUIET}{talker}"));
    let lines = eventually("three lines", || {
        let said = place.gc(&city, &["agent", "logs", "talks"]).ok();
        said.out.contains("line 3").then_some(said.out)
    });
    assert_eq!(lines, "line 1\nline 2\nline 3\n");
    let said = place
        .gc(&city, &["agent", "logs", "talks", "-n", "1", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["text"], &said["lines"]),
        (&"line 3".into(), &1.into())
    );
    let said = place.gc(&city, &["agent", "peek", "talks"]).fails(8);
    assert!(
        said.err.contains("hint: gc agent peek talks --log"),
        "{said:?}"
    );
    assert_eq!(
        refusal(&place, &city, &["agent", "peek", "talks"], 8)["code"],
        "unsupported"
    );
    let said = place
        .gc(&city, &["agent", "peek", "talks", "--log", "-n", "2"])
        .ok();
    assert_eq!(said.out, "line 2\nline 3\n");
    let error = refusal(&place, &city, &["agent", "logs", "talks", "--crash"], 1);
    assert_eq!(error["code"], "not_found");
    // What comes later is followed.
    let followed = place.path("followed");
    let mut follow = place.command(&city, &["agent", "logs", "talks", "-f", "-n", "1"]);
    let out = std::fs::File::create(&followed).unwrap();
    let mut follow = follow.stdout(out).spawn().unwrap();
    let read = || std::fs::read_to_string(&followed).unwrap();
    eventually("the tail", || (read() == "line 3\n").then_some(()));
    let log = city.join(".gc/runtime/logs/talks.log");
    let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
    std::io::Write::write_all(&mut log, b"line 4\n").unwrap();
    eventually("the new line", || {
        (read() == "line 3\nline 4\n").then_some(())
    });
    follow.kill().unwrap();
    follow.wait().unwrap();
    place.gc(&city, &["stop"]).ok();
    let after = place.gc(&city, &["agent", "logs", "talks", "-n", "1"]).ok();
    assert_eq!(after.out, "line 4\n");
}

#[test]
fn crash_captures_are_shown_by_age() {
    let place = Place::new();
    let city = place.city("town", &sleeper("w"));
    let captures = city.join(".gc/runtime/captures");
    std::fs::create_dir_all(&captures).unwrap();
    for (stamp, text) in [
        ("20260318T100000.000Z", "older\n"),
        ("20260318T110000.000Z", "newer\n"),
    ] {
        std::fs::write(captures.join(format!("w-{stamp}.txt")), text).unwrap();
    }
    let crash = |args: &[&str]| {
        let args = [&["agent", "logs", "w", "--crash"], args].concat();
        place.gc(&city, &args)
    };
    assert_eq!(crash(&[]).ok().out, "newer\n");
    assert_eq!(crash(&["2"]).ok().out, "older\n");
    let said = crash(&["3"]).fails(1);
    assert!(said.err.contains("only 2 crashes"), "{said:?}");
    let shown = place
        .gc(&city, &["agent", "show", "w", "--json"])
        .ok()
        .json();
    assert_eq!(shown["captures"].as_array().unwrap().len(), 2);
}
