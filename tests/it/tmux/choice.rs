//! Which provider `auto` means, and how a city moves from one to the other.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::town::Town;
use crate::agent::{QUIET, sleeper};
use crate::util::{Place, eventually, is_alive};

fn chosen(place: &Place, city: &Path) -> (String, String) {
    let status = place.status(city);
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    (text("provider"), text("provider_why"))
}

/// A program that says this when asked for its version.
fn impostor(place: &Place, says: &str) -> PathBuf {
    let path = place.path("tmux");
    fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn auto_is_tmux_where_one_can_be_used() {
    let Some(town) = Town::new() else { return };
    let city = town.place.city("town", &format!("{QUIET}{}", sleeper("w")));
    town.place.gc(&city, &["start"]).ok();
    let (provider, why) = chosen(&town.place, &city);
    assert_eq!(provider, "tmux");
    assert!(why.starts_with("tmux "), "{why}");
}

#[test]
fn auto_is_plain_processes_elsewhere_and_says_why() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("w")));
    place.gc(&city, &["start"]).ok();
    let expected = "auto: tmux is switched off by GC_TMUX";
    let (provider, why) = chosen(&place, &city);
    assert_eq!((provider.as_str(), why.as_str()), ("subprocess", expected));
    let page = place.gc(&city, &["status"]).ok().out;
    assert!(page.contains(&format!("subprocess ({expected})")), "{page}");

    for (says, expected) in [
        ("tmux 3.1c", "auto: tmux 3.1c is too old: 3.2 is needed"),
        ("hello", "auto: \"hello\\n\" is no version of tmux"),
    ] {
        let mut place = Place::new();
        let program = impostor(&place, says);
        place.use_tmux(program);
        let city = place.city("town", &format!("{QUIET}{}", sleeper("w")));
        place.gc(&city, &["start"]).ok();
        let (provider, why) = chosen(&place, &city);
        assert_eq!((provider.as_str(), why.as_str()), ("subprocess", expected));
    }
}

#[test]
fn tmux_that_was_asked_for_and_cannot_be_used_is_an_error() {
    let place = Place::new();
    let toml = format!("[session]\nprovider = \"tmux\"\n{QUIET}{}", sleeper("w"));
    let city = place.city("town", &toml);
    let said = place.gc(&city, &["start"]).fails(1);
    assert!(said.err.contains("tmux is switched off"), "{said:?}");
}

#[test]
fn a_city_moves_to_tmux_and_back_while_it_runs() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let toml = |provider: &str| {
        let session = format!("[session]\nprovider = \"{provider}\"\n");
        format!("{session}{QUIET}{}", sleeper("w"))
    };
    let city = place.city("town", &toml("subprocess"));
    place.gc(&city, &["start"]).ok();
    let mut before = place.awaited_pid(&city, "w");
    for provider in ["tmux", "subprocess"] {
        fs::write(city.join("city.toml"), toml(provider)).unwrap();
        eventually("the move", || {
            (chosen(place, &city).0 == provider).then_some(())
        });
        let after = place.replacement(&city, "w", before);
        assert!(!is_alive(before));
        before = after;
    }
    eventually("the end of the server", || {
        town.sockets().is_empty().then_some(())
    });
}

/// Sessions started under another provider are not started twice.
#[test]
fn what_runs_elsewhere_is_adopted_there() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let toml = format!("{QUIET}{}", sleeper("w"));
    let city = place.city("town", &toml);
    place.gc(&city, &["start"]).ok();
    let pid = place.awaited_pid(&city, "w");
    place
        .gc(&city, &["supervisor", "stop", "--keep-agents"])
        .ok();
    // For the next supervisor there is no tmux, but there are agents on it.
    let mut start = place.command(&city, &["start"]);
    let said = crate::util::Said::by(start.env("GC_TMUX", ""));
    assert_ne!(
        said.code,
        Some(0),
        "what cannot be seen is not started again: {said:?}"
    );
    assert!(is_alive(pid));
    place.gc(&city, &["supervisor", "stop"]);
    // And the other way round.
    place.gc(&city, &["start"]).ok();
    assert_eq!(place.awaited_pid(&city, "w"), pid);
    place.gc(&city, &["stop"]).ok();
    place.gc(&city, &["supervisor", "stop"]);
    let mut start = place.command(&city, &["start"]);
    crate::util::Said::by(start.env("GC_TMUX", "")).ok();
    let pid = place.awaited_pid(&city, "w");
    place
        .gc(&city, &["supervisor", "stop", "--keep-agents"])
        .ok();
    place.gc(&city, &["start"]).ok();
    assert_eq!(chosen(place, &city).0, "tmux");
    assert_eq!(place.awaited_pid(&city, "w"), pid, "it is where it was");
    place.gc(&city, &["agent", "restart", "w"]).ok();
    let after = place.replacement(&city, "w", pid);
    let panes = town
        .tmux("town", &["list-panes", "-a", "-F", "#{pane_pid}"])
        .ok();
    assert!(panes.out.lines().any(|line| line == after.to_string()));
}
