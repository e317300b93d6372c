//! Rows that concern every command, or many of anything.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::util::{Place, QUIET, eventually, sleeper};

/// Every command that is shown, as words.
fn commands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, words: &[String], all: &mut Vec<Vec<String>>) {
        for sub in command.get_subcommands() {
            let words = [words, &[sub.get_name().to_owned()]].concat();
            walk(sub, &words, all);
            all.push(words);
        }
    }
    let mut all = Vec::new();
    walk(&gascity::cli::tree(), &[], &mut all);
    all
}

// C23
#[test]
fn every_command_has_help_a_page_and_completions() {
    let place = Place::new();
    let here = place.path("");
    for words in commands() {
        for flag in ["-h", "--help"] {
            let said = place.gc(&here, &[&words[..], &[flag.to_owned()]].concat());
            let said = said.ok();
            assert!(said.out.contains("Usage: gc"), "{words:?}: {said:?}");
        }
    }
    let dir = here.join("man");
    place
        .gc(&here, &["man", "--dir", dir.to_str().unwrap()])
        .ok();
    for page in [
        "man1/gc-supervisor-upgrade.1",
        "man7/gc-environment.7",
        "man7/gc-exit-codes.7",
    ] {
        assert!(dir.join(page).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = place.gc(&here, &["completion", shell]).ok();
        assert!(said.out.contains("COMPLETE"), "{shell}: {said:?}");
    }
}

/// What the shell would offer at the end of this line.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let index = words.len().to_string();
    let mut command: Command = place.command(&place.path("town"), &["--", "gc"]);
    command
        .args(words)
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", index)
        .env("_CLAP_IFS", "\n");
    let said = crate::util::Said::by(&mut command);
    said.ok().out.lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_cities_and_agents() {
    let place = Place::new();
    let pool = "[[agent]]\nname = \"pool\"\nstart_command = \"sleep 600\"\n[agent.pool]\nmin = 2\nmax = 2\n";
    let city = place.city("town", &format!("{QUIET}{}{pool}", sleeper("a")));
    assert!(offered(&place, &["superv"]).contains(&"supervisor".to_owned()));
    assert!(
        offered(&place, &["agent", "show", ""]).contains(&"a".to_owned()),
        "from the config"
    );
    place.gc(&city, &["start"]).ok();
    let live = offered(&place, &["agent", "kill", ""]);
    for name in ["a", "pool-1", "pool-2"] {
        assert!(live.contains(&name.to_owned()), "{live:?}");
    }
    assert!(offered(&place, &["--city", ""]).contains(&"town".to_owned()));
    assert!(offered(&place, &["stop", "to"]).contains(&"town".to_owned()));
}

// C15
#[test]
fn a_worker_that_hangs_shows_as_unresponsive_and_no_other() {
    let place = Place::with_faults();
    let city = place.city("town", &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    place.gc(&city, &["start"]).ok();
    place.gc(&city, &["actors", "hang", "town/a"]).ok();
    let states = || {
        let tree = place.gc(&city, &["actors", "tree", "--json"]).ok().json();
        let city = tree["root"]["children"][0].clone();
        let state = |name: &str| {
            let mut children = city["children"].as_array().unwrap().iter();
            children.find(|c| c["name"] == name).unwrap()["state"].clone()
        };
        [state("a"), state("b")]
    };
    eventually("the state", || {
        (states() == [Value::from("unresponsive"), Value::from("running")]).then_some(())
    });
    // A city that hangs costs its own rows only.
    place.gc(&city, &["actors", "hang", "town"]).ok();
    let tree = place.gc(&city, &["actors", "tree"]).ok().out;
    assert!(tree.contains("unresponsive"), "{tree}");
}

// C16
#[test]
fn a_watched_tree_is_one_document_per_look() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let args = ["actors", "tree", "--watch", "--json", "--interval", "100ms"];
    let mut watch = place.command(&city, &args);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for line in lines.take(5) {
        let tree: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(tree["root"]["name"], "machine");
        assert_eq!(tree["root"]["children"][0]["mailbox_depth"], 0);
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}

// C16
#[test]
fn a_flood_shows_in_the_watched_tree_and_is_worked_off() {
    let place = Place::with_faults();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let args = ["actors", "tree", "--watch", "--json", "--interval", "100ms"];
    let mut watch = place.command(&city, &args);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut depth = || {
        let tree: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let worker = tree["root"]["children"][0]["children"].as_array().unwrap();
        let worker = worker.iter().find(|node| node["name"] == "a").unwrap();
        worker["mailbox_depth"].as_u64().unwrap()
    };
    assert_eq!(depth(), 0);
    let flood = ["actors", "flood", "town/a", "--held", "2s"];
    place.gc(&city, &flood).ok();
    eventually("the flood", || (depth() == 10_000).then_some(()));
    eventually("its end", || (depth() == 0).then_some(()));
    watch.kill().unwrap();
    watch.wait().unwrap();
    let shown = place.gc(&city, &["actors", "show", "town/a"]).ok().out;
    assert!(shown.contains("at most 10001"), "{shown}");
    assert!(shown.contains("MESSAGE  WAITED"), "{shown}");
    let json = place.gc(&city, &["actors", "show", "town/a", "--json"]);
    assert_eq!(json.ok().json()["messages"].as_array().unwrap().len(), 20);
    let said = place.gc(&city, &["actors", "show", "town/b"]).fails(1);
    assert!(said.err.contains("did you mean `town/a`?"), "{said:?}");
}

// C24
#[test]
fn two_hundred_agents_start_with_few_lines_of_progress() {
    let place = Place::new();
    let agents: String = (0..200).map(|n| sleeper(&format!("a{n}"))).collect();
    let toml = format!("{QUIET}[session]\nprovider = \"fake\"\n{agents}");
    let city = place.city("town", &toml);
    let began = std::time::Instant::now();
    let said = place.gc(&city, &["start"]).ok();
    assert!(said.out.contains("200 agents running"), "{said:?}");
    // Ten lines a second at most, besides the steps themselves.
    let most = 10 * (began.elapsed().as_secs() as usize + 1) + 5;
    assert!(said.err.lines().count() <= most, "{}", said.err);
}

// C8
#[test]
fn a_rig_names_its_city_unless_two_share_it() {
    let place = Place::new();
    let rig = place.path("code");
    std::fs::create_dir_all(rig.join("deep")).unwrap();
    let with_rig = |agent: &str| {
        let rig = format!(
            "[[rigs]]\nname = \"code\"\npath = {:?}\n",
            rig.to_str().unwrap()
        );
        format!("{QUIET}{rig}{}", sleeper(agent))
    };
    let one = place.city("one", &with_rig("a"));
    let two = place.city("two", &with_rig("b"));
    let deep = rig.join("deep");
    place.gc(&deep, &["status"]).fails(1);
    place.gc(&one, &["register"]).ok();
    let found = place.gc(&deep, &["status", "--json"]).ok().json();
    assert_eq!(found["name"], "one", "{found}");
    place.gc(&two, &["register"]).ok();
    let several = place.gc(&deep, &["status", "--json"]).fails(1);
    assert_eq!(several.json_error()["code"], "ambiguous");
    let elsewhere = place.gc(&place.path(""), &["stop", "--json"]).fails(1);
    assert_eq!(elsewhere.json_error()["code"], "not_found");
}

#[test]
fn the_doctor_finds_what_is_wrong_mends_what_it_can_and_packs_it_up() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let secret = "[agent.env]\nTOKEN = \"hunter2\"\n";
    let city = place.city("town", &format!("{QUIET}{}{secret}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let gone = place.city("gone", QUIET);
    place.gc(&gone, &["register"]).ok();
    assert_eq!(place.gc(&city, &["doctor"]).code, Some(0));
    std::fs::remove_dir_all(&gone).unwrap();
    let socket = place.home().join("supervisor.sock");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let sick = place.gc(&city, &["doctor", "--json"]).fails(10).json();
    let items = sick["items"].as_array().unwrap();
    for check in ["socket", "cities"] {
        let found = items.iter().find(|i| i["check"] == check).unwrap();
        assert_eq!(
            (&found["level"], &found["fixable"]),
            (&"error".into(), &true.into()),
            "{found}"
        );
    }
    let one = place.gc(&city, &["doctor", "--only", "socket"]).fails(10);
    assert!(one.out.contains("chmod 600"), "{one:?}");
    place.gc(&city, &["doctor", "--only", "sokcet"]).fails(2);
    let mended = place.gc(&city, &["doctor", "--fix"]).ok();
    assert_eq!(mended.out.matches("(mended)").count(), 2, "{mended:?}");
    let bundle = place.path("report.tar");
    let args = ["doctor", "--bundle", bundle.to_str().unwrap()];
    place.gc(&city, &args).ok();
    let bytes = std::fs::read(&bundle).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("gc-doctor/cities/town/city.toml") && has("supervisor ready"));
    assert!(!has("hunter2"), "no value of any variable");
    place.gc(&city, &args).fails(1); // never overwrites
}

// C11
#[test]
fn a_stop_counts_down_and_kills_only_who_stays() {
    let place = Place::new();
    let deaf = "[[agent]]\nname = \"deaf\"\nstart_command = \"trap '' INT; while :; do sleep 0.1; done\"\n";
    let toml = format!(
        "[daemon]\npatrol_interval = \"1h\"\nshutdown_timeout = \"2s\"\n{deaf}{}",
        sleeper("polite")
    );
    let city = place.city("town", &toml);
    place.gc(&city, &["start"]).ok();
    let said = place.gc(&city, &["stop"]).ok();
    for line in ["waiting 0s of 2s", "waiting 1s of 2s", "1 left: deaf"] {
        assert!(said.err.contains(line), "{line}: {said:?}");
    }
    assert!(said.out.contains("force-killed deaf"), "{said:?}");
    assert!(!said.out.contains("polite"), "{said:?}");
    // The same for all cities at once.
    place.gc(&city, &["start"]).ok();
    let said = place.gc(&city, &["supervisor", "stop"]).ok();
    assert!(said.err.contains("town"), "{said:?}");
    assert!(said.out.contains("2 interrupted, 1 forced"), "{said:?}");
}

#[test]
fn what_works_behind_the_actors_is_shown_on_request() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let kinds = |args: &[&str]| -> Vec<String> {
        let args = [&["actors", "tree", "--json"][..], args].concat();
        let tree = place.gc(&city, &args).ok().json();
        assert!(
            tree["index"].is_u64() && tree["taken_at"].is_string(),
            "{tree}"
        );
        let mut kinds = Vec::new();
        let mut left = vec![tree["root"].clone()];
        while let Some(node) = left.pop() {
            kinds.push(node["kind"].as_str().unwrap().to_owned());
            left.extend(node["children"].as_array().unwrap().iter().rev().cloned());
        }
        kinds
    };
    let plain = ["machine", "city", "tracker", "worker"];
    assert_eq!(kinds(&[]), plain);
    let whole = [
        "machine",
        "control",
        "event_log",
        "city",
        "tracker",
        "event_log",
        "config_watcher",
        "provider",
        "worker",
    ];
    assert_eq!(kinds(&["-a"]), whole);
    assert_eq!(
        kinds(&["--kind", "provider"]),
        ["machine", "city", "provider"]
    );
    let shown = place.gc(&city, &["actors", "show", "town/provider"]).ok();
    assert!(shown.out.contains("subprocess"), "{shown:?}");
    let tree = place.gc(&city, &["actors", "tree", "--json"]).ok().json();
    let worker = &tree["root"]["children"][0]["children"][1];
    assert_eq!(worker["strategy"], "one_for_one", "{worker}");

    // A log that cannot be written shows itself.
    let log = city.join(".gc/events.jsonl");
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    crate::util::kill(
        place.pid(&city, "a").unwrap(),
        rustix::process::Signal::KILL,
    );
    crate::util::eventually("an event log in trouble", || {
        let kinds = kinds(&["--problems"]);
        kinds.contains(&"event_log".to_owned()).then_some(())
    });
    let tree = place.gc(&city, &["actors", "tree", "--json"]).ok().json();
    let node = &tree["root"]["children"][0]["children"][1];
    assert_eq!(node["state"], "degraded", "{node}");
    assert!(node["last_error"]["at"].is_string() && node["last_error"]["message"].is_string());
    std::fs::remove_dir(&log).unwrap();
    place.gc(&city, &["agent", "restart", "a"]).ok();
    crate::util::eventually("a log that is well", || (kinds(&[]) == plain).then_some(()));
    place.gc(&city, &["stop"]).ok();
}
