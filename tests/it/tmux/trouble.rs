//! What agents, users and machines do to tmux.

use std::fs;

use rustix::process::Signal;

use super::town::Town;
use crate::agent::{QUIET, sleeper};
use crate::util::{count, eventually, is_alive, kill};

/// Ticks come quickly, to find what events do not tell.
const BUSY: &str = "[daemon]\npatrol_interval = \"200ms\"\nshutdown_timeout = \"1s\"\n";

fn agent(name: &str, line: &str) -> String {
    format!("[[agent]]\nname = \"{name}\"\nstart_command = '''{line}'''\n")
}

#[test]
fn loud_and_garbled_agents_do_not_disturb_the_others() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let loud = "while :; do head -c 1000000 /dev/zero | tr '\\0' x; sleep 0.1; done";
    let liar = "while :; do printf '%%begin 1 1 1\\n%%end 1 1 1\\n%%exit\\n%%error 1 1 1\\n'; sleep 0.01; done";
    let garbled = "while :; do head -c 100000 /dev/urandom; sleep 0.05; done";
    let quiet = "echo ☃ 你好; while read -r line; do echo \"<$line>\"; done";
    let agents = [
        agent("Loud_1", loud),
        agent("li-ar", liar),
        agent("garbled", garbled),
        agent("quiet", quiet),
    ];
    let city = town.up(&format!("{BUSY}{}", agents.concat()));
    town.shows(&city, "quiet", "☃ 你好");
    place
        .gc(&city, &["agent", "nudge", "quiet", "still there?"])
        .ok();
    town.shows(&city, "quiet", "<still there?>");
    for name in ["Loud_1", "li-ar", "garbled"] {
        place.gc(&city, &["agent", "peek", name, "-n", "3"]).ok();
    }
    let before = place.awaited_pid(&city, "quiet");
    kill(before, Signal::KILL);
    place.replacement(&city, "quiet", before);
    for name in ["Loud_1", "li-ar", "garbled"] {
        assert_eq!(count(&city, "agent.crashed", name), 0, "{name}");
        assert_eq!(place.instance(&city, name)["state"], "running");
    }
    place.gc(&city, &["stop"]).ok();
    assert_eq!(town.sockets().len(), 0);
}

/// Row 40.
#[test]
fn a_lost_client_keeper_or_socket_costs_nobody_anything() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = town.up(&format!("{BUSY}{}", sleeper("w")));
    let pid = place.awaited_pid(&city, "w");
    let clients = || children(place.supervisor_pid());
    let client = clients()[0];
    kill(client, Signal::KILL);
    let again = eventually("another client", || {
        clients()
            .into_iter()
            .find(|pid| *pid != client && is_alive(*pid))
    });
    town.tmux("town", &["kill-session", "-t", "=_gc"]).ok();
    eventually("another keeper", || {
        let alive = town.tmux("town", &["has-session", "-t", "=_gc"]).code == Some(0);
        alive
            .then(|| clients().into_iter().find(|pid| *pid != again))
            .flatten()
    });
    for socket in town.sockets() {
        fs::remove_file(socket).unwrap();
    }
    eventually("the socket", || {
        (town.tmux("town", &["has-session", "-t", "=w"]).code == Some(0)).then_some(())
    });
    assert_eq!(place.awaited_pid(&city, "w"), pid);
    assert_eq!(count(&city, "agent.crashed", "w"), 0);
    assert_eq!(count(&city, "agent.started", "w"), 1);
}

/// Row 40, with nobody there to notice.
#[test]
fn a_server_without_its_socket_is_found_by_the_next_supervisor() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let agents = format!("{}{}", sleeper("v"), sleeper("w"));
    let city = town.up(&format!("{QUIET}{agents}"));
    let pids = || ["v", "w"].map(|name| place.awaited_pid(&city, name));
    let (before, server) = (pids(), town.server("town"));
    let uid = rustix::process::getuid().as_raw();
    let hint = city.join(".gc/runtime/tmux");
    // The socket alone, then also its directory, then also the note of where it was.
    for round in 0..3 {
        kill(place.supervisor_pid(), Signal::KILL);
        for socket in town.sockets() {
            fs::remove_file(socket).unwrap();
        }
        if round > 0 {
            fs::remove_dir(place.path(&format!("tmux-{uid}"))).unwrap();
        }
        if round > 1 {
            fs::remove_file(&hint).unwrap();
        }
        place.gc(&city, &["start"]).ok();
        assert_eq!(pids(), before, "round {round}");
        assert_eq!(town.server("town"), server, "round {round}");
    }
    for name in ["v", "w"] {
        assert_eq!(count(&city, "agent.started", name), 1, "{name}");
    }
    place.gc(&city, &["stop"]).ok();
    assert!(!is_alive(server), "the server stays");
}

/// Row 41.
#[test]
fn an_agent_whose_pane_is_killed_is_replaced_whatever_else_is_in_its_session() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = town.up(&format!("{QUIET}{}", sleeper("w")));
    let pid = place.awaited_pid(&city, "w");
    let split = [
        "split-window",
        "-d",
        "-t",
        "=w:",
        "-P",
        "-F",
        "#{pane_pid}",
        "sleep 600",
    ];
    let other: i32 = town.tmux("town", &split).ok().out.trim().parse().unwrap();
    let panes = ["list-panes", "-t", "=w:", "-F", "#{pane_pid} #{pane_id}"];
    let panes = town.tmux("town", &panes).ok().out;
    let own = panes
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{pid} ")));
    town.tmux("town", &["kill-pane", "-t", own.unwrap()]).ok();
    let after = place.replacement(&city, "w", pid);
    assert!(is_alive(after) && !is_alive(pid));
    eventually("the end of the other pane", || {
        (!is_alive(other)).then_some(())
    });
    assert_eq!(count(&city, "agent.crashed", "w"), 1);
}

#[test]
fn an_agent_whose_program_is_gone_from_its_session_is_a_zombie() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let line = "cp /bin/sleep marked 2>/dev/null; ./marked 600; echo it is gone; exec sleep 600";
    let watched = format!("{}process_names = [\"marked\"]\n", agent("w", line));
    let city = town.up(&format!("{BUSY}restart_delay = \"10ms\"\n{watched}"));
    let before = place.awaited_pid(&city, "w");
    let program = eventually("the program", || {
        let found = children(before);
        found.into_iter().find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.trim() == "marked")
        })
    });
    kill(program, Signal::KILL);
    place.replacement(&city, "w", before);
    assert!(!is_alive(before));
    let crash = place.gc(&city, &["agent", "logs", "w", "--crash"]).ok();
    assert!(crash.out.contains("it is gone"), "{crash:?}");
}

#[test]
fn last_words_are_kept() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let line = "until test -e go; do sleep 0.05; done; echo no such model ☃; exit 3";
    let city = place.city(
        "town",
        &format!(
            "[session]\nprovider = \"tmux\"\n{QUIET}{}max_restarts = 1\n",
            agent("w", line)
        ),
    );
    place.gc(&city, &["start"]).ok();
    place.awaited_pid(&city, "w"); // before that, its end would be a failed start
    fs::write(city.join("go"), "").unwrap();
    let crash = eventually("a capture", || {
        let said = place.gc(&city, &["agent", "logs", "w", "--crash"]);
        (said.code == Some(0)).then_some(said.out)
    });
    assert!(crash.contains("no such model ☃"), "{crash}");
}

/// What the agent says for itself.
#[test]
fn an_agent_in_tmux_is_asked_to_finish_and_says_so() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let line = "until \"$GC_BIN\" agent drain-check; do sleep 0.1; done; \"$GC_BIN\" agent drain-ack; exec sleep 600";
    let city = town.up(&format!(
        "{QUIET}{}restart = \"temporary\"\n",
        agent("w", line)
    ));
    let pid = place.awaited_pid(&city, "w");
    place.gc(&city, &["agent", "drain", "w"]).ok();
    eventually("its end", || (!is_alive(pid)).then_some(()));
    assert_eq!(count(&city, "agent.crashed", "w"), 0);
}

/// Rows 17 and 47: a city that does nothing runs nothing, however many agents it has.
#[test]
fn two_hundred_agents_are_watched_without_a_process() {
    const AGENTS: usize = 200;
    let Some(mut town) = Town::new() else { return };
    let log = town.count_runs();
    let agents: String = (0..AGENTS).map(|n| sleeper(&format!("a{n}"))).collect();
    let city = town.up(&format!("[daemon]\npatrol_interval = \"200ms\"\nshutdown_timeout = \"1s\"\nstart_parallelism = 16\n{agents}"));
    let place = &town.place;
    let supervisor = place.supervisor_pid();
    let clients = children(supervisor);
    assert_eq!(clients.len(), 1, "one connection");
    let runs = || fs::read_to_string(&log).unwrap().lines().count();
    let before = runs();
    let mut ticks = 0;
    let mut last = serde_json::Value::Null;
    while ticks <= 10 {
        let tick = eventually("a tick", || {
            let tick = place.status(&city)["last_tick_at"].clone();
            (tick != last).then_some(tick)
        });
        last = tick;
        ticks += 1;
    }
    assert_eq!(runs(), before, "nothing was run");
    assert_eq!(children(supervisor), clients);
    let status = place.status(&city);
    let running = status["instances"].as_array().unwrap().iter();
    assert_eq!(running.filter(|i| i["state"] == "running").count(), AGENTS);
    assert_eq!(status["degraded"].as_array().map_or(0, Vec::len), 0);
    // All at once, and everybody returns without blame.
    kill(town.server("town"), Signal::KILL);
    eventually("everybody", || {
        let status = place.status(&city);
        let all = status["instances"].as_array().unwrap();
        let back = all
            .iter()
            .filter(|i| i["state"] == "running" && i["generation"] == 2);
        (back.count() == AGENTS).then_some(())
    });
    let status = place.status(&city);
    let all = status["instances"].as_array().unwrap();
    assert!(all.iter().all(|i| i["restarts_in_window"] == 0));
    place.gc(&city, &["stop"]).ok();
    assert_eq!(town.sockets().len(), 0);
}

/// The children of a process.
fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let lists = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let mut found: Vec<i32> = lists
        .flat_map(|list| {
            let pids = list.split_whitespace().map(|pid| pid.parse().unwrap());
            pids.collect::<Vec<i32>>()
        })
        .filter(|pid| is_alive(*pid))
        .collect();
    found.sort_unstable();
    found
}
