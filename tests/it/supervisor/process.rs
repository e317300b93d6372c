//! One supervisor, its signals, its settings.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use super::Foreground;
use crate::util::{Place, QUIET, count, eventually, is_alive, kill, sleeper};

fn status(place: &Place) -> serde_json::Value {
    let said = place.gc(&place.path(""), &["supervisor", "status", "--json"]);
    said.ok().json()
}

// S1
#[test]
fn a_second_supervisor_names_the_first_and_leaves() {
    let place = Place::new();
    let here = place.path("");
    let home = here.join("user");
    let runtime = here.join("run");
    fs::create_dir_all(&home).unwrap();
    fs::create_dir_all(&runtime).unwrap();
    let with = |runtime: Option<&std::path::Path>, args: &[&str]| {
        let mut command = place.command(&here, args);
        command.env_remove("GC_HOME").env("HOME", &home);
        if let Some(runtime) = runtime {
            command.env("XDG_RUNTIME_DIR", runtime);
        }
        crate::util::Said::by(&mut command)
    };
    with(Some(&runtime), &["supervisor", "start"]).ok();
    assert!(runtime.join("gc/supervisor.sock").exists());
    let said = with(Some(&runtime), &["supervisor", "status", "--json"]).ok();
    let pid = said.json()["pid"].as_i64().unwrap();
    // Another shell without the variable has another runtime directory and the same home.
    for runtime in [None, Some(runtime.as_path())] {
        let second = with(runtime, &["supervisor", "run"]).fails(1);
        let text = format!("supervisor already running (pid {pid})");
        assert!(second.err.contains(&text), "{second:?}");
    }
    let start = with(None, &["supervisor", "start"]).fails(1);
    assert!(start.err.contains(&format!("pid {pid}")), "{start:?}");
    with(None, &["supervisor", "stop"]).ok();
    with(None, &["supervisor", "stop"]).fails(1);
    assert!(!is_alive(i32::try_from(pid).unwrap()));
}

// S2
#[test]
fn after_a_kill_the_stale_socket_is_replaced_and_agents_are_adopted() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let agent = place.pid(&city, "a").unwrap();
    let first = place.supervisor_pid();
    kill(first, Signal::KILL);
    eventually("its end", || (!is_alive(first)).then_some(()));
    assert!(place.home().join("supervisor.sock").exists(), "left behind");
    let mut second = Foreground::start(&place, &[], &[]);
    assert_eq!(place.awaited_pid(&city, "a"), agent);
    assert_eq!(count(&city, "agent.started", "a"), 1);
    second.signal(Signal::INT);
    assert_eq!(second.exit(), Some(0));
    assert!(!is_alive(agent));
}

// S3
#[test]
fn a_file_in_the_place_of_the_socket_is_left_alone() {
    let place = Place::new();
    fs::create_dir_all(place.home()).unwrap();
    let socket = place.home().join("supervisor.sock");
    fs::write(&socket, "mine").unwrap();
    let said = place.gc(&place.path(""), &["supervisor", "run"]).fails(1);
    assert!(said.err.contains("exists and is not a socket"), "{said:?}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
    let said = place.gc(&place.path(""), &["supervisor", "start"]).fails(1);
    assert!(said.err.contains("not a socket"), "{said:?}");
}

// S19
#[test]
fn an_agent_that_ignores_the_interrupt_is_killed_after_its_grace() {
    let place = Place::new();
    let city = place.city("town", &stubborn("500ms"));
    let mut supervisor = Foreground::start(&place, &[], &[]);
    place.gc(&city, &["start"]).ok();
    let agent = place.pid(&city, "deaf").unwrap();
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit(), Some(0));
    assert!(!is_alive(agent));
}

// S19
#[test]
fn a_second_signal_ends_it_at_once_with_its_own_exit_code() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let city = place.city("town", &stubborn("1h"));
        let mut supervisor = Foreground::start(&place, &[], &[]);
        place.gc(&city, &["start"]).ok();
        let agent = place.pid(&city, "deaf").unwrap();
        supervisor.signal(signal);
        eventually("the stop", || {
            let said = place.gc(&city, &["cities"]);
            said.out.contains("stopping").then_some(())
        });
        supervisor.signal(signal);
        assert_eq!(supervisor.exit(), Some(code));
        assert!(!is_alive(agent));
    }
}

/// A city with an agent that hears no interrupt.
fn stubborn(grace: &str) -> String {
    format!(
        "[daemon]\npatrol_interval = \"1h\"\nshutdown_timeout = \"{grace}\"\n\
         [[agent]]\nname = \"deaf\"\nstart_command = \"trap '' INT TERM; while :; do sleep 1; done\"\n"
    )
}

// S27
#[test]
fn a_detached_supervisor_leaves_agents_for_the_next_and_a_stop_takes_them_along() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    fs::create_dir_all(place.home()).unwrap();
    let settings = "[supervisor]\non_sigterm = \"detach\"\n";
    fs::write(place.home().join("supervisor.toml"), settings).unwrap();
    place.gc(&city, &["start"]).ok();
    let agent = place.pid(&city, "a").unwrap();
    let first = place.supervisor_pid();
    kill(first, Signal::TERM);
    eventually("its end", || (!is_alive(first)).then_some(()));
    assert!(is_alive(agent));
    place.gc(&city, &["supervisor", "start"]).ok();
    assert_eq!(place.awaited_pid(&city, "a"), agent);
    assert_eq!(count(&city, "agent.adopted", "a"), 1);
    let stopped = place.gc(&city, &["supervisor", "stop"]).ok();
    assert!(
        stopped.out.contains("1 interrupted, 0 forced"),
        "{stopped:?}"
    );
    assert!(!is_alive(agent));
    // And the other way round: agents may be kept whatever the settings say.
    fs::remove_file(place.home().join("supervisor.toml")).unwrap();
    place.gc(&city, &["start"]).ok();
    let agent = place.pid(&city, "a").unwrap();
    place
        .gc(&city, &["supervisor", "stop", "--keep-agents"])
        .ok();
    assert!(is_alive(agent));
    place.gc(&city, &["stop"]).ok();
    assert!(!is_alive(agent));
}

// S20
#[test]
fn broken_settings_stop_a_first_start_but_no_running_supervisor() {
    let place = Place::new();
    let here = place.path("");
    let file = place.home().join("supervisor.toml");
    fs::create_dir_all(place.home()).unwrap();
    fs::write(&file, "[supervisor]\nport = 0\npatrol_intervall = \"1s\"\n").unwrap();
    let refused = place.gc(&here, &["supervisor", "start"]).fails(1);
    assert!(refused.err.contains("supervisor.toml:3:1"), "{refused:?}");
    assert!(refused.err.contains("patrol_intervall"), "{refused:?}");
    fs::write(&file, "[supervisor]\nlog_level = \"warn\"\n").unwrap();
    let supervisor = Foreground::start(&place, &[], &[]);
    fs::write(&file, "[supervisor]\nlog_level = \"loud\"\n").unwrap();
    supervisor.signal(Signal::HUP);
    let degraded = eventually("the complaint", || {
        let degraded = status(&place)["degraded"].to_string();
        degraded
            .contains("supervisor.toml:2:13")
            .then_some(degraded)
    });
    assert!(degraded.contains("settings:"), "{degraded}");
    let log = || fs::read_to_string(place.home().join("supervisor.log")).unwrap();
    assert!(!log().contains("INFO"), "the old level stays: {}", log());
    fs::write(&file, "[supervisor]\nlog_level = \"info\"\n").unwrap();
    supervisor.signal(Signal::HUP);
    eventually("the end of it", || {
        (status(&place)["degraded"] == serde_json::json!([])).then_some(())
    });
    // Taken without a restart, as the next line at that level shows.
    supervisor.signal(Signal::USR1);
    eventually("the actor tree in the log", || {
        log().contains("ACTOR").then_some(())
    });
}

// S21
#[test]
fn a_service_manager_hears_of_readiness_and_only_of_a_root_that_lives() {
    let place = Place::with_faults();
    let here = place.path("");
    let listen = here.join("notify.sock");
    let heard = UnixDatagram::bind(&listen).unwrap();
    heard.set_read_timeout(Some(crate::util::LIMIT)).unwrap();
    let next = || {
        let mut bytes = [0; 512];
        let count = heard.recv(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    let env = [
        ("NOTIFY_SOCKET", listen.to_str().unwrap()),
        ("WATCHDOG_USEC", "200000"),
    ];
    let supervisor = Foreground::start(&place, &[], &env);
    assert_eq!(next().unwrap(), "READY=1");
    let until = |wanted: &str| {
        let mut readies = 0;
        loop {
            let said = next().unwrap();
            readies += usize::from(said == "READY=1");
            if said.starts_with(wanted) {
                return readies;
            }
        }
    };
    assert_eq!(until("STATUS=0/0 cities running"), 0);
    assert_eq!(until("WATCHDOG=1"), 0, "ready is said once");
    supervisor.signal(Signal::HUP);
    until("RELOADING=1\nMONOTONIC_USEC=");
    assert_eq!(until("READY=1"), 1);
    place.gc(&here, &["actors", "hang", "machine"]).ok();
    // Beats that were on their way may still come; then there are none.
    heard
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    eventually("silence", || next().is_err().then_some(()));
    assert!(is_alive(supervisor.pid()));
    let socket = place.gc(&here, &["supervisor", "status"]).ok();
    assert!(socket.out.contains("is running"), "{socket:?}");
}

#[test]
fn a_root_that_dies_ends_the_process_and_no_agent() {
    let place = Place::with_faults();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    let mut supervisor = Foreground::start(&place, &[], &[]);
    place.gc(&city, &["start"]).ok();
    let agent = place.pid(&city, "a").unwrap();
    place.gc(&city, &["actors", "crash", "machine"]).ok();
    assert_eq!(supervisor.exit(), Some(70));
    assert!(is_alive(agent));
}

// S25
#[test]
fn a_city_is_run_by_one_controller_standalone_or_supervised() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    let mut alone = place.command(&city, &["start", "--standalone"]);
    let mut alone = super::Foreground(alone.stderr(std::process::Stdio::null()).spawn().unwrap());
    place.awaited_pid(&city, "a");
    for command in ["register", "start"] {
        let refused = place.gc(&city, &[command]).fails(1);
        let pid = format!("(pid {})", alone.pid());
        assert!(refused.err.contains(&pid), "{refused:?}");
    }
    place.gc(&city, &["stop"]).ok();
    assert_eq!(alone.exit(), Some(0));
    place.gc(&city, &["start"]).ok();
    let refused = place.gc(&city, &["start", "--standalone"]).fails(1);
    let pid = format!("(pid {})", place.supervisor_pid());
    assert!(refused.err.contains(&pid), "{refused:?}");
}

#[test]
fn a_runtime_directory_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    fs::create_dir_all(place.home()).unwrap();
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = place.gc(&place.path(""), &["supervisor", "run"]).fails(1);
    assert!(refused.err.contains("is not private"), "{refused:?}");
    assert!(refused.err.contains("hint: chmod 700"), "{refused:?}");
}

#[test]
fn the_log_is_shown_filtered_and_followed() {
    use std::io::{BufRead as _, BufReader};
    let place = Place::new();
    let here = place.path("");
    let none = place.gc(&here, &["supervisor", "logs"]).fails(1);
    assert!(none.err.contains("no log yet"), "{none:?}");
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let all = place.gc(&here, &["supervisor", "logs"]).ok().out;
    assert!(
        all.contains("supervisor ready") && all.contains("city is running"),
        "{all}"
    );
    let about = place
        .gc(&here, &["supervisor", "logs", "--city", "town"])
        .ok()
        .out;
    assert!(
        !about.contains("supervisor ready") && about.contains("city is running"),
        "{about}"
    );
    let worse = place
        .gc(&here, &["supervisor", "logs", "--level", "error"])
        .ok();
    assert_eq!(worse.out, "");
    let last = place
        .gc(&here, &["supervisor", "logs", "-n", "1", "--json"])
        .ok()
        .json();
    assert!(
        last["text"].is_string() && last["level"] == "info",
        "{last}"
    );
    let mut follow = place.command(&here, &["supervisor", "logs", "-f", "-n", "1"]);
    let mut follow = Foreground(follow.stdout(std::process::Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    place.gc(&city, &["stop"]).ok();
    let told = lines.find(|line| {
        line.as_ref()
            .is_ok_and(|line| line.contains("city is stopped"))
    });
    assert!(told.is_some());
}
