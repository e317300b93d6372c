//! What only a terminal sees: colour, width, pager, spinner, questions.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::util::{Place, QUIET, eventually, kill, sleeper};

/// A terminal of this many columns: our end, and the one for the child.
pub(crate) fn terminal(columns: u16) -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (ours, theirs)
}

/// What the command shows on a terminal, without carriage returns.
fn shown(
    place: &Place,
    args: &[&str],
    env: &[(&str, &str)],
    columns: u16,
) -> (Option<i32>, String) {
    let (ours, theirs) = terminal(columns);
    let mut command = place.command(&place.path("town"), args);
    command
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env("LANG", "C.UTF-8")
        .env_remove("LC_ALL")
        .env("GC_PAGER", "")
        .envs(env.iter().copied())
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command); // and with it our copies of the child's end
    let mut text = Vec::new();
    // A terminal whose last process is gone ends with an error.
    let _ = File::from(ours).read_to_end(&mut text);
    let code = child.wait().unwrap().code();
    (code, String::from_utf8_lossy(&text).replace('\r', ""))
}

fn started() -> Place {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    place
}

// C7
#[test]
fn colour_follows_terminal_flag_and_environment() {
    let place = started();
    let coloured = |args: &[&str], env: &[(&str, &str)]| {
        let args = [&["suspend", "--json"][..], args].concat();
        let args: Vec<&str> = args.into_iter().filter(|arg| *arg != "--json").collect();
        let (code, text) = shown(&place, &args, env, 80);
        assert_eq!(code, Some(0), "{text}");
        text.contains("\u{1b}[")
    };
    assert!(coloured(&[], &[]));
    assert!(!coloured(&[], &[("NO_COLOR", "1")]));
    assert!(!coloured(&[], &[("TERM", "dumb")]));
    assert!(!coloured(&["--no-color"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&["--color=never"], &[]));
    assert!(coloured(&["--color=always"], &[("NO_COLOR", "1")]));
    assert!(!coloured(
        &[],
        &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]
    ));
    // Not a terminal.
    let piped = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = place.command(&place.path("town"), &[&["suspend"][..], args].concat());
        let said = crate::util::Said::by(command.env_remove("NO_COLOR").envs(env.iter().copied()));
        said.ok().out.contains("\u{1b}[")
    };
    assert!(!piped(&[], &[]));
    assert!(piped(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(piped(&["--color=always"], &[]));
    assert!(!piped(&[], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
}

#[test]
fn tables_fit_the_terminal_unless_wide_and_are_whole_in_a_pipe() {
    let place = started();
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    for args in [
        &["actors", "tree"][..],
        &["agent", "list"],
        &["cities"],
        &["doctor"],
    ] {
        let (_, text) = shown(&place, args, &[], 40);
        assert!(widest(&text) <= 40, "{args:?}: {text}");
    }
    let (_, text) = shown(&place, &["agent", "list", "--wide"], &[], 40);
    assert!(widest(&text) > 40, "{text}");
    let piped = place
        .gc(&place.path("town"), &["agent", "list", "--wide"])
        .ok();
    assert!(!piped.out.contains('…'), "{piped:?}");
}

#[test]
fn long_answers_go_through_the_pager_on_a_terminal_only() {
    let place = started();
    let pager = ("GC_PAGER", "sed s/^/paged:/");
    for args in [&["help", "start"][..], &["events"], &["help", "exit-codes"]] {
        let (code, text) = shown(&place, args, &[pager], 80);
        assert_eq!(code, Some(0));
        assert!(text.contains("paged:"), "{args:?}: {text}");
    }
    let (_, text) = shown(&place, &["events", "--no-pager"], &[pager], 80);
    assert!(
        !text.contains("paged:") && text.contains("agent.started"),
        "{text}"
    );
    let (_, text) = shown(&place, &["events"], &[("GC_PAGER", "no-such-pager")], 80);
    assert!(text.contains("agent.started"), "{text}");
    let mut command = place.command(&place.path("town"), &["events"]);
    let said = crate::util::Said::by(command.env("GC_PAGER", "sed s/^/paged:/")).ok();
    assert!(!said.out.contains("paged:"), "{said:?}");
}

#[test]
fn an_ascii_locale_gets_no_other_signs() {
    let place = started();
    let (_, text) = shown(&place, &["actors", "tree"], &[("LANG", "C")], 80);
    assert!(text.is_ascii() && text.contains("`- "), "{text}");
}

/// A start that waits until somebody reads from the FIFO in the way of its event log.
fn stuck_start(place: &Place) -> Child {
    let city = place.city("stuck", &format!("{QUIET}{}", sleeper("a")));
    std::fs::create_dir_all(city.join(".gc")).unwrap();
    let fifo = std::process::Command::new("mkfifo")
        .arg(city.join(".gc/events.lock"))
        .status();
    assert!(fifo.unwrap().success());
    let mut command = place.command(&city, &["start"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

// C12
#[test]
fn who_stops_watching_a_start_leaves_it_going() {
    let place = Place::new();
    let mut start = stuck_start(&place);
    let city = place.path("stuck");
    eventually("the start under way", || {
        let said = place.gc(&city, &["cities"]);
        said.out.contains("loading_config").then_some(())
    });
    kill(i32::try_from(start.id()).unwrap(), Signal::INT);
    let status = eventually("its end", || start.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    let mut said = String::new();
    start
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(said.contains("goes on starting"), "{said}");
    // Now the way is free.
    let _reader = File::options()
        .read(true)
        .write(true)
        .open(city.join(".gc/events.lock"))
        .unwrap();
    place.awaited_pid(&city, "a");
}

#[test]
fn a_watched_tree_ends_with_q_and_gives_the_terminal_back() {
    use rustix::termios::{LocalModes, tcgetattr};

    let place = started();
    let (ours, theirs) = terminal(100);
    let before = tcgetattr(&theirs).unwrap();
    assert!(before.local_modes.contains(LocalModes::ECHO));
    let args = ["actors", "tree", "--watch", "--interval", "100ms"];
    let mut watch = place.command(&place.path("town"), &args);
    watch
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap());
    let mut watch = watch.env("TERM", "xterm").spawn().unwrap();
    let mut ours = File::from(ours);
    let mut seen = String::new();
    while !seen.contains("need") && !seen.contains(" actors") {
        let mut bytes = [0; 4096];
        let n = ours.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    assert!(
        !tcgetattr(&theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    );
    std::io::Write::write_all(&mut ours, b"q").unwrap();
    let ended = eventually("its end", || watch.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    let after = tcgetattr(&theirs).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
}

#[test]
fn at_a_terminal_a_new_city_is_asked_for() {
    let place = Place::new();
    let (ours, theirs) = terminal(100);
    let mut ours = File::from(ours);
    std::io::Write::write_all(&mut ours, b"solo\n\n").unwrap();
    let mut command = place.command(&place.path(""), &["init", "asked"]);
    command
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = Vec::new();
    let _ = ours.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(text.contains("What do its agents run?"), "{text}");
    let toml = std::fs::read_to_string(place.path("asked/city.toml")).unwrap();
    assert!(
        toml.contains("name = \"worker\"") && toml.contains("provider = \"demo\""),
        "{toml}"
    );
    // Without a person, or with an answer, nothing is asked.
    let said = place.gc(&place.path(""), &["init", "silent"]).ok();
    assert!(
        said.err.is_empty() && said.out.contains("template demo"),
        "{said:?}"
    );
}
