//! The life of agents in tmux, as their user sees it.

use rustix::process::Signal;

use super::town::Town;
use crate::agent::{QUIET, refusal, sleeper};
use crate::util::{count, eventually, is_alive, kill};

#[test]
fn agents_are_started_replaced_and_stopped_and_nothing_is_left() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = town.up(&format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    let status = place.status(&city);
    assert_eq!(status["provider"], "tmux");
    let why = status["provider_why"].as_str().unwrap();
    assert!(
        why.starts_with("tmux ") && why.ends_with("socket town"),
        "{why}"
    );
    let page = place.gc(&city, &["status"]).ok().out;
    assert!(page.contains(why), "{page}");
    let before = place.awaited_pid(&city, "a");
    kill(before, Signal::KILL);
    let after = place.replacement(&city, "a", before);
    assert!(is_alive(after));
    assert_eq!(count(&city, "agent.crashed", "a"), 1);
    assert_eq!(count(&city, "agent.crashed", "b"), 0);
    place.gc(&city, &["stop"]).ok();
    assert!(!is_alive(after));
    assert_eq!(town.sockets(), Vec::<std::path::PathBuf>::new());
    place.gc(&city, &["supervisor", "stop"]);
    eventually("the last process", || {
        place.processes().is_empty().then_some(())
    });
}

#[test]
fn peek_nudge_and_logs_work_and_attach_says_what_it_lacks() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let listener = "[[agent]]\nname = \"ear\"\nstart_command = \"echo héllo ☃; while read -r line; do echo \\\"<$line>\\\"; done\"\n";
    let plain =
        "[[agent]]\nname = \"plain\"\nsession = \"subprocess\"\nstart_command = \"sleep 600\"\n";
    let city = town.up(&format!("{QUIET}{listener}{plain}"));
    town.shows(&city, "ear", "héllo ☃");
    let said = place.gc(&city, &["agent", "nudge", "ear", "it's \"$HOME\" ; ~ ☃"]);
    assert_eq!(said.ok().out, "delivered\n");
    town.shows(&city, "ear", "<it's \"$HOME\" ; ~ ☃>");
    let logs = place.gc(&city, &["agent", "logs", "ear", "-n", "0"]).ok();
    assert!(logs.out.starts_with("héllo ☃\n"), "{logs:?}");
    let last = place.gc(&city, &["agent", "peek", "ear", "-n", "1"]).ok();
    assert_eq!(last.out, "<it's \"$HOME\" ; ~ ☃>\n");
    // No terminal here.
    let error = refusal(place, &city, &["agent", "attach", "ear"], 2);
    assert_eq!(error["error"], "this needs a terminal");
    // Nothing to attach to, whatever the others have.
    let error = refusal(place, &city, &["agent", "peek", "plain"], 8);
    let error = error["error"].as_str().unwrap();
    assert!(error.contains("the provider subprocess"), "{error}");
    let shown = place.gc(&city, &["agent", "show", "plain", "--json"]).ok();
    assert_eq!(shown.json()["provider"], "subprocess");
    let shown = place.gc(&city, &["agent", "show", "ear", "--json"]).ok();
    assert_eq!(shown.json()["provider"], "tmux");
}

/// Sessions without a supervisor are reached all the same.
#[test]
fn sessions_outlive_the_supervisor_and_are_adopted() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let talker = "[[agent]]\nname = \"w\"\nstart_command = \"echo hello; exec sleep 600\"\n";
    let city = town.up(&format!("{QUIET}{talker}"));
    let pid = place.awaited_pid(&city, "w");
    kill(place.supervisor_pid(), Signal::KILL);
    eventually("its end", || {
        let said = place.gc(&city, &["agent", "list", "--json"]);
        (said.code == Some(0) && said.json()["source"] == "files").then_some(())
    });
    assert_eq!(place.gc(&city, &["agent", "peek", "w"]).ok().out, "hello\n");
    place.gc(&city, &["start"]).ok();
    assert_eq!(place.awaited_pid(&city, "w"), pid);
    assert_eq!(count(&city, "agent.adopted", "w"), 1);
    place
        .gc(&city, &["supervisor", "stop", "--keep-agents"])
        .ok();
    assert!(is_alive(pid));
    place.gc(&city, &["stop"]).ok();
    assert!(!is_alive(pid));
    assert_eq!(town.sockets(), Vec::<std::path::PathBuf>::new());
}

/// W19 and row 39: the server takes everybody along, and nobody is blamed.
#[test]
fn killing_the_server_brings_everybody_back_uncharged() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let agents: String = (0..8).map(|n| sleeper(&format!("a{n}"))).collect();
    let city = town.up(&format!("{QUIET}{agents}"));
    let before: Vec<i32> = (0..8)
        .map(|n| place.awaited_pid(&city, &format!("a{n}")))
        .collect();
    kill(town.server("town"), Signal::KILL);
    for (n, pid) in before.iter().enumerate() {
        let name = format!("a{n}");
        place.replacement(&city, &name, *pid);
        assert_eq!(place.instance(&city, &name)["restarts_in_window"], 0);
        assert_eq!(count(&city, "agent.crashed", &name), 0);
    }
    assert!(before.iter().all(|pid| !is_alive(*pid)));
}

/// Row 49.
#[test]
fn a_name_that_is_taken_is_left_alone_and_the_own_server_found_again() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let theirs = ["new-session", "-d", "-s", "mine", "sleep 600"];
    town.tmux("town", &theirs).ok();
    let city = town.up(&format!("{QUIET}{}", sleeper("w")));
    let pid = place.awaited_pid(&city, "w");
    let names = town
        .tmux("town", &["list-sessions", "-F", "#{session_name}"])
        .ok();
    assert_eq!(names.out, "mine\n", "theirs is untouched");
    let socket = |sockets: Vec<std::path::PathBuf>| {
        let names = sockets
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy());
        let mut names: Vec<String> = names.map(|name| name.into_owned()).collect();
        names.sort();
        names
    };
    let found = socket(town.sockets());
    assert_eq!((found.len(), found[0].as_str()), (2, "town"));
    assert!(found[1].starts_with("town-") && found[1].len() == "town-".len() + 8);
    // The plain name is free again, but the city keeps its server.
    town.tmux("town", &["kill-server"]).ok();
    kill(place.supervisor_pid(), Signal::KILL);
    eventually("another supervisor", || {
        (place.gc(&city, &["start"]).code == Some(0)).then_some(())
    });
    assert_eq!(place.awaited_pid(&city, "w"), pid);
}

#[test]
fn a_user_who_works_on_the_server_is_not_disturbed() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = town.up(&format!("{QUIET}{}", sleeper("w")));
    town.tmux("town", &["new-session", "-d", "-s", "mine", "sleep 600"])
        .ok();
    town.tmux("town", &["split-window", "-d", "-t", "=w:", "sleep 600"])
        .ok();
    place.gc(&city, &["supervisor", "reload"]).ok();
    let foreign = eventually("the listing", || {
        place.gc(&city, &["status"]);
        let status = place.status(&city);
        let foreign = status["foreign_sessions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        (!foreign.is_empty()).then_some(foreign)
    });
    assert_eq!(foreign, ["mine"]);
    place.gc(&city, &["stop"]).ok();
    let names = town
        .tmux("town", &["list-sessions", "-F", "#{session_name}"])
        .ok();
    assert!(
        names.out.contains("mine") && !names.out.contains('w'),
        "{names:?}"
    );
    town.tmux("town", &["kill-server"]).ok();
}
