//! What edits of the files mean for agents that run.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::util::{Place, QUIET, count, events, eventually, is_alive, sleeper};

/// Waits until so many configs were put in force since the start.
fn reloaded(city: &Path, times: usize) -> Value {
    eventually("a reload", || {
        let all: Vec<Value> = of_kind(city, "config.reloaded");
        (all.len() >= times).then(|| all[times - 1]["payload"].clone())
    })
}

fn of_kind(city: &Path, kind: &str) -> Vec<Value> {
    let all = events(city).into_iter();
    all.filter(|event| event["type"] == kind).collect()
}

fn edit(city: &Path, from: &str, to: &str) {
    let file = city.join("city.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    fs::write(file, text.replace(from, to)).unwrap();
}

/// A city of processes, whatever else is installed.
fn started(place: &Place, name: &str, agents: &str) -> std::path::PathBuf {
    let city = place.city(
        name,
        &format!("{QUIET}[session]\nprovider = \"subprocess\"\n{agents}"),
    );
    place.gc(&city, &["start"]).ok();
    city
}

#[test]
fn hot_keys_restart_nobody_and_an_edit_of_one_agent_restarts_that_one() {
    // Rows 38 and 39.
    let place = Place::new();
    let agents = format!("{}env = {{ A = \"1\" }}\n{}", sleeper("a"), sleeper("b"));
    let city = started(&place, "town", &agents);
    let (a, b) = (
        place.pid(&city, "a").unwrap(),
        place.pid(&city, "b").unwrap(),
    );
    edit(
        &city,
        "name = \"b\"",
        "name = \"b\"\nidle_timeout = \"9h\"\ndepends_on = [\"a\"]\nmax_restarts = 9",
    );
    let payload = reloaded(&city, 1);
    assert_eq!(payload["drifted"], serde_json::json!([]));
    assert_eq!(
        (place.pid(&city, "a"), place.pid(&city, "b")),
        (Some(a), Some(b))
    );
    edit(&city, "A = \"1\"", "A = \"2\"");
    place.replacement(&city, "a", a);
    assert_eq!(reloaded(&city, 2)["drifted"], serde_json::json!(["a"]));
    assert_eq!(place.pid(&city, "b"), Some(b));
    let drifted = eventually("the cause", || of_kind(&city, "agent.drifted").pop());
    assert_eq!(drifted["payload"]["keys"], serde_json::json!(["env.A"]));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn live_lines_run_again_in_the_same_process_and_a_reported_drift_restarts_nobody() {
    // Rows 40 and 41.
    let place = Place::new();
    let agents = "[[agent]]\nname = \"a\"\nstart_command = \"sleep 600\"\nsession_live = [\"touch one\"]\n\
                  [[agent]]\nname = \"p\"\nstart_command = \"sh -c 'sleep 600' x\"\non_drift = \"report\"\nprompt_template = \"p.md\"\nprompt_mode = \"none\"\n";
    let root = place.path("town");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("p.md"), "one").unwrap();
    let city = started(&place, "town", agents);
    let (a, p) = (
        place.pid(&city, "a").unwrap(),
        place.pid(&city, "p").unwrap(),
    );
    edit(&city, "touch one", "touch two");
    assert_eq!(reloaded(&city, 1)["live"], serde_json::json!(["a"]));
    eventually("the new line", || city.join("two").exists().then_some(()));
    assert_eq!(place.pid(&city, "a"), Some(a));
    fs::write(city.join("p.md"), "two").unwrap();
    assert_eq!(reloaded(&city, 2)["drifted"], serde_json::json!(["p"]));
    let drifted = eventually("the report", || of_kind(&city, "agent.drifted").pop());
    assert_eq!(
        drifted["payload"]["keys"],
        serde_json::json!(["prompt.source"])
    );
    assert_eq!(place.pid(&city, "p"), Some(p));
    assert!(is_alive(p));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_touch_is_no_change_and_every_way_of_saving_is() {
    // Rows 35 and 37.
    let place = Place::new();
    let root = place.path("town");
    fs::create_dir_all(root.join("packs/base/sub")).unwrap();
    fs::write(
        root.join("packs/base/pack.toml"),
        "[pack]\nname = \"base\"\nschema = 1\n",
    )
    .unwrap();
    let city = started(
        &place,
        "town",
        &format!("[workspace]\nincludes = [\"packs/base\"]\n{}", sleeper("a")),
    );
    let file = city.join("city.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text).unwrap();
    let now = std::time::SystemTime::now();
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(now)
        .unwrap();

    // An editor's save: another file takes the name.
    fs::write(city.join("new"), format!("{text}{}", sleeper("b"))).unwrap();
    fs::rename(city.join("new"), &file).unwrap();
    assert_eq!(reloaded(&city, 1)["added"], serde_json::json!(["b"]));
    // A new file in a directory of a pack, also a new one.
    fs::write(city.join("packs/base/sub/notes"), "x").unwrap();
    reloaded(&city, 2);
    fs::create_dir(city.join("packs/base/later")).unwrap();
    let prompt = city.join("packs/base/later/file");
    eventually("a watch on the new directory", || {
        fs::write(&prompt, format!("{:?}", Instant::now())).unwrap();
        (of_kind(&city, "config.reloaded").len() > 2).then_some(())
    });
    // A link that comes to point elsewhere.
    let before = of_kind(&city, "config.reloaded").len();
    fs::write(city.join("other.toml"), format!("{text}{}", sleeper("c"))).unwrap();
    std::os::unix::fs::symlink("other.toml", city.join("link")).unwrap();
    fs::rename(city.join("link"), &file).unwrap();
    eventually("the agent behind the link", || place.pid(&city, "c"));
    assert!(of_kind(&city, "config.reloaded").len() > before);
    assert_eq!(of_kind(&city, "config.reload_failed").len(), 0);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn many_writes_in_a_row_are_one_reload_and_endless_ones_are_not_waited_for() {
    // Row 36.
    let place = Place::new();
    let city = started(&place, "town", &sleeper("a"));
    let file = city.join("city.toml");
    let text = fs::read_to_string(&file).unwrap();
    let write = |i: u32| fs::write(&file, format!("{text}# {i}\n")).unwrap();
    // The machine may be slow: only a burst without a pause as long as the quiet time counts.
    let mut times = 0;
    loop {
        let before = of_kind(&city, "config.reloaded").len();
        let (began, mut last, mut gap) = (Instant::now(), Instant::now(), Duration::ZERO);
        for i in 0..50 {
            write(times * 100 + i);
            gap = gap.max(last.elapsed());
            last = Instant::now();
            std::thread::park_timeout(Duration::from_millis(3));
        }
        times += 1;
        let short =
            gap < Duration::from_millis(150) && began.elapsed() < Duration::from_millis(1500);
        reloaded(&city, before + 1);
        if short || times > 20 {
            place.gc(&city, &["reload"]).ok();
            let after = of_kind(&city, "config.reloaded").len();
            assert_eq!(after, before + 1, "burst {times}, longest gap {gap:?}");
            break;
        }
    }
    let before = of_kind(&city, "config.reloaded").len();
    let began = Instant::now();
    let mut i = 10_000;
    while began.elapsed() < Duration::from_secs(5) {
        write(i);
        i += 1;
        std::thread::park_timeout(Duration::from_millis(100));
    }
    eventually("reloads in between", || {
        (of_kind(&city, "config.reloaded").len() >= before + 2).then_some(())
    });
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_provider_that_cannot_be_used_changes_nothing() {
    // Row 44.
    let place = Place::new();
    let city = started(&place, "town", &sleeper("a"));
    let pid = place.pid(&city, "a").unwrap();
    edit(
        &city,
        "provider = \"subprocess\"",
        "provider = \"exec:/missing\"",
    );
    eventually("the refusal", || {
        of_kind(&city, "config.reload_failed").pop()
    });
    assert_eq!(place.status(&city)["config"]["state"], "stale");
    assert_eq!(place.pid(&city, "a"), Some(pid));
    edit(
        &city,
        "provider = \"exec:/missing\"",
        "provider = \"subprocess\"",
    );
    eventually("the config in force", || {
        (place.status(&city)["config"]["state"] == "ok").then_some(())
    });
    assert_eq!(place.pid(&city, "a"), Some(pid));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn keys_that_a_running_city_cannot_change_are_refused_until_undone() {
    let place = Place::new();
    let city = started(&place, "town", &sleeper("a"));
    let pid = place.pid(&city, "a").unwrap();
    let file = city.join("city.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[beads]\nprovider = \"file\"\n")).unwrap();
    let refused = eventually("the refusal", || {
        of_kind(&city, "config.reload_refused").pop()
    });
    assert_eq!(
        refused["payload"]["keys"],
        serde_json::json!(["beads.provider"])
    );
    assert_eq!(
        (&refused["payload"]["from"], &refused["payload"]["to"]),
        (&"sqlite".into(), &"file".into())
    );
    let config = place.status(&city)["config"].clone();
    assert_eq!(
        (&config["state"], &config["diagnostics"][0]["code"]),
        (&"refused".into(), &"identity-change".into())
    );
    fs::write(&file, text).unwrap();
    eventually("the config in force", || {
        (place.status(&city)["config"]["state"] == "ok").then_some(())
    });
    assert_eq!(place.pid(&city, "a"), Some(pid));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn a_broken_order_disables_itself_alone() {
    // Row 48.
    let place = Place::new();
    let city = started(&place, "town", &sleeper("a"));
    fs::create_dir(city.join("orders")).unwrap();
    fs::write(city.join("orders/bad.toml"), "[order\n").unwrap();
    fs::write(
        city.join("orders/good.toml"),
        "[order]\ngate = \"manual\"\nexec = \"true\"\n",
    )
    .unwrap();
    let text = fs::read_to_string(city.join("city.toml")).unwrap();
    fs::write(city.join("city.toml"), format!("{text}{}", sleeper("b"))).unwrap();
    eventually("the applied config", || place.pid(&city, "b"));
    assert_eq!(place.status(&city)["config"]["state"], "ok");
    let said = place.gc(&city, &["config", "validate"]).fails(1);
    assert!(said.err.contains("orders/bad.toml:1:7"), "{}", said.err);
    assert!(!said.err.contains("good.toml"), "{}", said.err);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn one_byte_of_one_command_restarts_one_agent_of_a_thousand() {
    let place = Place::new();
    let agents: String = (0..1000)
        .map(|i| format!("[[agent]]\nname = \"a{i}\"\nstart_command = \"sleep {i}9\"\n"))
        .collect();
    let text = format!(
        "[daemon]\npatrol_interval = \"1h\"\nstart_parallelism = 64\n[session]\nprovider = \"fake\"\n{agents}"
    );
    let city = place.city("town", &text);
    place.gc(&city, &["start"]).ok();
    let starts = || of_kind(&city, "agent.started").len();
    eventually("a thousand starts", || (starts() == 1000).then_some(()));
    edit(&city, "\"sleep 5009\"", "\"sleep 5008\"");
    eventually("the one restart", || {
        (count(&city, "agent.started", "a500") == 2).then_some(())
    });
    assert_eq!(reloaded(&city, 1)["drifted"], serde_json::json!(["a500"]));
    // Whatever else were to follow would be planned by then.
    place.gc(&city, &["reload"]).ok();
    assert_eq!(starts(), 1001);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn without_a_watcher_edits_are_found_at_the_next_look_and_status_says_so() {
    if crate::util::lacks(&["unshare"]) {
        return;
    }
    let place = Place::new();
    let text = "[daemon]\npatrol_interval = \"500ms\"\n[session]\nprovider = \"subprocess\"\n";
    let city = place.city("town", &format!("{text}{}", sleeper("a")));
    // The system's limit on watchers, for this supervisor alone.
    let script = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" start";
    let start = place.command::<&str>(&city, &[]);
    let mut limited = std::process::Command::new("unshare");
    limited.args(["--user", "--map-root-user", "sh", "-c", script]);
    limited.arg(start.get_program()).current_dir(&city);
    for (name, value) in start.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let said = crate::util::Said::by(&mut limited);
    if said.err.contains("unshare:") || said.err.contains("max_inotify_instances") {
        println!("skipped: no user namespaces here");
        return;
    }
    said.ok();
    let told = eventually("the event", || {
        of_kind(&city, "config.watch_degraded").pop()
    });
    let why = told["message"].as_str().unwrap();
    assert!(why.contains("max_user_instances"), "{told}");
    let status = place.status(&city);
    assert!(
        status["degraded"][0]
            .as_str()
            .unwrap()
            .contains("edits are seen within 500ms"),
        "{status}"
    );
    let page = place.gc(&city, &["status"]);
    assert!(
        page.out.contains("config files are not watched"),
        "{page:?}"
    );
    fs::write(
        city.join("city.toml"),
        format!("{text}{}{}", sleeper("a"), sleeper("b")),
    )
    .unwrap();
    eventually("the edit", || place.pid(&city, "b"));
    place.gc(&city, &["stop"]).ok();
}
