//! Which provider `auto` means, and how a city moves from one to the other.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::town::Town;
use crate::agent::{QUIET, sleeper};
use crate::util::{Place, events, eventually, is_alive};

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

/// Keys that only a new server takes up are a swap, too (config.md 5).
#[test]
fn every_setting_of_the_server_moves_the_city_to_a_new_one() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let toml = |keys: &str| {
        let session = format!("[session]\nprovider = \"tmux\"\n{keys}");
        format!("{session}{QUIET}{}", sleeper("w"))
    };
    let city = place.city("town", &toml(""));
    fs::write(city.join("tmux.conf"), "set -g status-left moved\n").unwrap();
    place.gc(&city, &["start"]).ok();
    let mut before = place.awaited_pid(&city, "w");
    let mut keys = String::new();
    for (key, value, socket, option, shown) in [
        ("socket", "\"elsewhere\"", "elsewhere", "", ""),
        (
            "history_lines",
            "4321",
            "elsewhere",
            "history-limit",
            "4321",
        ),
        (
            "tmux_config",
            "\"tmux.conf\"",
            "elsewhere",
            "status-left",
            "moved",
        ),
    ] {
        keys.push_str(&format!("{key} = {value}\n"));
        fs::write(city.join("city.toml"), toml(&keys)).unwrap();
        let swapped = eventually("the swap", || {
            let all = events(&city).into_iter();
            let named = serde_json::json!([format!("session.{key}")]);
            let mut swaps = all.filter(|e| e["type"] == "provider.swapped");
            swaps.find(|e| e["payload"]["keys"] == named)
        });
        assert_eq!(swapped["payload"]["to"], "tmux");
        let after = place.replacement(&city, "w", before);
        assert!(!is_alive(before));
        before = after;
        let panes = town
            .tmux(socket, &["list-panes", "-a", "-F", "#{pane_pid}"])
            .ok();
        assert!(panes.out.lines().any(|line| line == after.to_string()));
        assert_eq!(town.sockets().len(), 1, "{key}: the server before is gone");
        if !option.is_empty() {
            let value = town.tmux(socket, &["show-options", "-gv", option]).ok().out;
            assert_eq!(value.trim(), shown);
        }
    }
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_server_that_cannot_be_had_leaves_the_agents_where_they_are() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    town.tmux("taken", &["new-session", "-d", "sleep", "600"])
        .ok();
    let toml = |keys: &str| {
        let session = format!("[session]\nprovider = \"tmux\"\n{keys}");
        format!("{session}{QUIET}{}", sleeper("w"))
    };
    let city = place.city("town", &toml(""));
    place.gc(&city, &["start"]).ok();
    let pid = place.awaited_pid(&city, "w");
    for (key, why) in [
        ("socket = \"taken\"\n", "belongs to somebody else"),
        ("tmux_config = \"missing.conf\"\n", "missing.conf"),
    ] {
        fs::write(city.join("city.toml"), toml(key)).unwrap();
        let said = place.gc(&city, &["reload"]).fails(1);
        assert!(said.err.contains(why), "{said:?}");
        let config = place.status(&city)["config"].clone();
        assert_eq!(config["state"], "stale", "{config}");
        assert_eq!(place.pid(&city, "w"), Some(pid));
    }
    let failed = events(&city).into_iter();
    let failed = failed.filter(|event| event["type"] == "config.reload_failed");
    assert!(failed.count() >= 2);
    assert_eq!(crate::util::count(&city, "provider.swapped", ""), 0);
    fs::write(city.join("city.toml"), toml("")).unwrap();
    eventually("the config in force", || {
        (place.status(&city)["config"]["state"] == "ok").then_some(())
    });
    assert_eq!(place.pid(&city, "w"), Some(pid));
    place.gc(&city, &["stop"]).ok();
    town.tmux("taken", &["kill-server"]).ok();
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
