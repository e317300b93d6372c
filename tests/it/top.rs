//! `gc top`, as a plain frame and on a real terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};

use crate::terminal::terminal;
use crate::util::{Place, QUIET, eventually, kill, sleeper};

/// Leaves the screen that is not the shell's.
const LEFT: &str = "\u{1b}[?1049l";

fn started(names: &[&str]) -> Place {
    let place = Place::new();
    let agents: String = names.iter().map(|name| sleeper(name)).collect();
    let toml = format!("{QUIET}[session]\nprovider = \"fake\"\n{agents}");
    let city = place.city("town", &toml);
    place.gc(&city, &["start"]).ok();
    place
}

/// The frame without what is different each time: process ids, ages, and columns made by them.
fn timeless(frame: &str) -> String {
    fn word(word: &str) -> &str {
        let digits = word.trim_end_matches(['s', 'm', 'h']);
        let is_age = word.len() > 1
            && digits.len() < word.len()
            && digits.chars().all(|c| c.is_ascii_digit());
        if is_age { "#" } else { word }
    }
    let line = |line: &str| {
        line.split_whitespace()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let lines = frame.lines().skip(1).map(line);
    lines.collect::<Vec<_>>().join("\n")
}

// C20
#[test]
fn a_plain_frame_shows_the_agents() {
    let place = started(&["planner", "scout"]);
    let args = ["top", "--once", "--width", "80", "--height", "24"];
    let frame = place.gc(&place.path("town"), &args).ok().out;
    assert_eq!(frame.lines().count(), 24, "{frame}");
    let head = frame.lines().next().unwrap();
    assert!(head.starts_with("supervisor pid "), "{frame}");
    assert!(head.contains("1/1 cities  2/2 agents up  tick "), "{frame}");
    let expected = format!(
        "\
[1 agents] 2 actors 3 events sort: name

NAME STATE UP RESTARTS NOTE
>planner running # 0/5 pid 1
scout running # 0/5 pid 2
{}Enter detail / filter s sort p peek a attach n nudge r restart d drain …",
        "\n".repeat(17)
    );
    assert_eq!(timeless(&frame), expected);
}

#[test]
fn without_a_terminal_or_a_supervisor_it_says_what_to_do() {
    let place = started(&["a"]);
    let city = place.path("town");
    let said = place.gc(&city, &["top"]).fails(2);
    assert!(said.err.ends_with("hint: gc top --once\n"), "{said:?}");
    place.gc(&city, &["supervisor", "stop"]).ok();
    let said = place.gc(&city, &["top", "--once"]).fails(1);
    assert!(said.err.ends_with("hint: gc start\n"), "{said:?}");
}

/// `gc top` on a terminal of its own.
struct Top {
    child: Child,
    terminal: File,
    shown: Arc<Mutex<String>>,
}

impl Top {
    fn run(place: &Place) -> Self {
        let (ours, theirs) = terminal(80);
        let mut command = place.command(&place.path("town"), &["top", "--interval", "100ms"]);
        command
            .env("TERM", "xterm")
            .env("LANG", "C.UTF-8")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs);
        let child = command.spawn().unwrap();
        drop(command); // and with it our copies of the child's end
        let terminal = File::from(ours);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, sink) = (terminal.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // A terminal whose last process is gone ends with an error.
            while let Ok(count) = reader.read(&mut chunk) {
                let text = String::from_utf8_lossy(&chunk[..count]);
                sink.lock().unwrap().push_str(&text);
            }
        });
        Self {
            child,
            terminal,
            shown,
        }
    }

    fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is written; what was written before does not count.
    fn shows(&self, text: &str) {
        eventually(text, || {
            let mut shown = self.shown.lock().unwrap();
            let at = shown.find(text)?;
            shown.drain(..at + text.len());
            Some(())
        });
    }

    fn ends(&mut self) -> Option<i32> {
        let status = eventually("its end", || self.child.try_wait().unwrap());
        status.code()
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON)
    }
}

#[test]
fn on_a_terminal_keys_work_and_the_terminal_is_given_back() {
    let place = started(&["planner", "scout"]);
    let mut top = Top::run(&place);
    top.shows("2/2 agents up");
    top.shows(">planner");
    assert!(top.is_raw());
    top.types("j");
    top.shows(">scout");
    top.types("2");
    top.shows("[2 actors]");
    top.types("1x");
    top.shows("kill planner? [y/N]");
    top.types("n");
    top.shows("nothing was done");
    let before = place.pid(&place.path("town"), "planner").unwrap();
    top.types("ry");
    top.shows("restart planner:");
    eventually("another run", || {
        let now = place.pid(&place.path("town"), "planner");
        now.filter(|now| *now != before)
    });
    top.types("q");
    top.shows(LEFT);
    assert_eq!(top.ends(), Some(0));
    assert!(!top.is_raw());
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    let place = started(&["a"]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut top = Top::run(&place);
        top.shows("1/1 agents up");
        kill(i32::try_from(top.child.id()).unwrap(), signal);
        assert_eq!(top.ends(), Some(code));
        top.shows(LEFT);
        assert!(!top.is_raw());
    }
}

#[test]
fn a_supervisor_that_goes_is_told_and_found_again() {
    let place = started(&["a"]);
    let city = place.path("town");
    let mut top = Top::run(&place);
    top.shows("1/1 agents up");
    place.gc(&city, &["supervisor", "stop"]).ok();
    top.shows("trying again");
    place.gc(&city, &["start"]).ok();
    let pid = place.supervisor_pid();
    top.shows(&format!("supervisor pid {pid}"));
    top.types("\u{3}");
    assert_eq!(top.ends(), Some(130));
}
