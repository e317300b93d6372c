//! Talking to agents in tmux, with a terminal and without.

use std::fs;

use super::town::Town;
use crate::agent::QUIET;
use crate::util::{GC, eventually, is_alive};

/// Says back what it is told.
const EAR: &str = "[[agent]]\nname = \"ear\"\nstart_command = \"echo ready; while read -r line; do echo \\\"<$line>\\\"; done\"\n";

/// Row 27. The terminal is a pane of another tmux.
#[test]
fn a_terminal_is_put_onto_a_session_and_taken_off_again() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = town.up(&format!("{QUIET}{EAR}"));
    let pid = place.awaited_pid(&city, "ear");
    town.shows(&city, "ear", "ready");
    let line = format!(
        "env GC_HOME={} GC_TMUX={} TMUX_TMPDIR={} {GC} agent attach ear",
        place.home().display(),
        town.program.display(),
        place.path("").display(),
    );
    let dir = city.to_str().unwrap();
    let terminal = ["new-session", "-d", "-s", "t", "-x", "100", "-y", "30"];
    town.tmux("outer", &[&terminal[..], &["-c", dir, &line]].concat())
        .ok();
    let clients = || {
        let list = ["list-clients", "-t", "=ear:", "-F", "#{client_readonly}"];
        town.tmux("town", &list).ok().out
    };
    eventually("the terminal", || (clients() == "0\n").then_some(()));
    town.tmux("outer", &["send-keys", "-t", "=t:", "typed", "Enter"])
        .ok();
    town.shows(&city, "ear", "<typed>");
    town.tmux("outer", &["send-keys", "-t", "=t:", "C-b", "d"])
        .ok();
    eventually("the end of it", || clients().is_empty().then_some(()));
    assert!(is_alive(pid), "the agent does not mind");
    town.tmux("outer", &["kill-server"]);
}

#[test]
fn long_and_multi_line_messages_arrive_as_one() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    // Writes down what comes in, one line after the other.
    let keeper = "[[agent]]\nname = \"ear\"\nstart_command = \"echo ready; cat >heard\"\n";
    let city = town.up(&format!("{QUIET}{keeper}"));
    town.shows(&city, "ear", "ready");
    let text = format!("first\n{}\n-last ☃", "y".repeat(2000));
    let file = place.path("message");
    fs::write(&file, format!("{text}\n")).unwrap();
    let mut command = place.command(&city, &["agent", "nudge", "ear", "--stdin"]);
    let said = crate::util::Said::by(command.stdin(fs::File::open(&file).unwrap()));
    assert_eq!(said.ok().out, "delivered\n");
    eventually("all of it", || {
        let heard = fs::read_to_string(city.join("heard")).unwrap_or_default();
        (heard.trim_end() == text).then_some(())
    });
}

/// Row 25.
#[test]
fn a_session_in_which_somebody_scrolls_is_told_all_the_same() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = town.up(&format!("{QUIET}{EAR}"));
    town.shows(&city, "ear", "ready");
    town.tmux("town", &["copy-mode", "-t", "=ear:"]).ok();
    place.gc(&city, &["agent", "nudge", "ear", "hello"]).ok();
    town.shows(&city, "ear", "<hello>");
    // Nothing is seen of this one, so nobody can say whether it arrived.
    let deaf = "[[agent]]\nname = \"deaf\"\nstart_command = \"stty -echo; exec sleep 600\"\n";
    fs::write(
        city.join("city.toml"),
        format!("[session]\nprovider = \"tmux\"\n{QUIET}{EAR}{deaf}"),
    )
    .unwrap();
    place.awaited_pid(&city, "deaf");
    let said = place.gc(&city, &["agent", "nudge", "deaf", "hello"]).ok();
    assert_eq!(said.out, "delivered, but no reaction was seen\n");
}

#[test]
fn logs_are_followed_through_a_restart() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let talker = "[[agent]]\nname = \"w\"\nstart_command = \"echo one; while ! test -e go; do sleep 0.05; done; echo two; exec sleep 600\"\n";
    let city = town.up(&format!("{QUIET}{talker}"));
    town.shows(&city, "w", "one");
    let followed = place.path("followed");
    let mut follow = place.command(&city, &["agent", "logs", "w", "-f"]);
    let out = fs::File::create(&followed).unwrap();
    let mut follow = follow.stdout(out).spawn().unwrap();
    let read = || fs::read_to_string(&followed).unwrap();
    eventually("what was there", || (read() == "one\n").then_some(()));
    fs::write(city.join("go"), "").unwrap();
    eventually("what came", || (read() == "one\ntwo\n").then_some(()));
    follow.kill().unwrap();
    follow.wait().unwrap();
}
