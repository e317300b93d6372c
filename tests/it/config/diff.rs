//! `gc config diff` and `gc config show --running`: the files against what runs (config.md 7).

use std::fs;

use serde_json::json;

use crate::util::{Place, QUIET, eventually, sleeper};

const DIFF: [&str; 3] = ["config", "diff", "--json"];
const SHOW: [&str; 4] = ["config", "show", "--running", "--json"];

#[test]
fn a_city_that_does_not_run_has_nothing_to_compare_with() {
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    for args in [&DIFF[..], &SHOW] {
        let error = place.gc(&city, args).fails(1).json_error();
        assert_eq!(error["code"], "not_running", "{error}");
        assert!(error["hint"].is_string(), "{error}");
    }
    // A supervisor that runs other cities knows nothing of this one.
    let other = place.city("other", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&other, &["start"]).ok();
    for args in [&DIFF[..], &SHOW] {
        let error = place.gc(&city, args).fails(1).json_error();
        assert_eq!(error["code"], "not_running", "{error}");
    }
    place.gc(&other, &["stop"]).ok();
}

#[test]
fn what_differs_from_the_running_city_is_named_with_its_effect() {
    let place = Place::new();
    let session = "[session]\nprovider = \"subprocess\"\n";
    let agents = ["kept", "edited", "live", "gone"].map(sleeper).concat();
    let text = format!("{QUIET}{session}{agents}");
    let city = place.city("town", &text);
    place.gc(&city, &["start"]).ok();
    let same = place.gc(&city, &DIFF).ok().json();
    assert_eq!(
        (&same["same"], &same["changed"]),
        (&json!(true), &json!([]))
    );
    let said = place.gc(&city, &["config", "diff"]).ok().out;
    assert!(said.contains("what is on disk is in force"), "{said}");

    // A change that the running city refuses keeps everything else on disk from it.
    let edited = format!(
        "[beads]\nprovider = \"file\"\n{QUIET}max_restarts = 9\n{session}{}{}env = {{ TOKEN = \"hunter2\" }}\n{}session_live = [\"true\"]\n{}",
        sleeper("kept"),
        sleeper("edited"),
        sleeper("live"),
        sleeper("new"),
    );
    fs::write(city.join("city.toml"), &edited).unwrap();
    eventually("the refusal", || {
        (place.status(&city)["config"]["state"] == "refused").then_some(())
    });
    let diff = place.gc(&city, &DIFF).ok().json();
    let expected = json!({
        "same": false,
        "added": ["new"],
        "removed": ["gone"],
        "drifted": [{"agent": "edited", "keys": ["env.TOKEN"]}],
        "live": ["live"],
        "refused": [{"key": "beads.provider", "from": "sqlite", "to": "file"}],
        "swapped": [],
        "outdated": [],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&diff[key], value, "{key} in {diff}");
    }
    let restarts = json!({"key": "daemon.max_restarts", "from": 5, "to": 9});
    let changed = diff["changed"].as_array().unwrap();
    assert!(changed.contains(&restarts), "{diff}");
    let said = place.gc(&city, &["config", "diff"]).ok().out;
    for part in [
        "+ new",
        "- gone",
        "needs a new run: env.TOKEN",
        "refused until gc restart town",
        "5 -> 9",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("hunter2") && !diff.to_string().contains("hunter2"));

    // What runs is still what was before.
    let shown = place.gc(&city, &SHOW).ok().json();
    assert_eq!(shown["daemon"]["max_restarts"], 5);
    let args = ["config", "show", "--running", "--agent"];
    let gone = place.gc(&city, &[&args[..], &["gone"]].concat()).ok().out;
    assert!(gone.contains("start_command = \"sleep 600\""), "{gone}");
    let new = place.gc(&city, &[&args[..], &["new"]].concat()).fails(1);
    assert!(new.err.contains("there is no agent new"), "{new:?}");

    // The swap of a provider is named before it happens.
    let swap = edited.replace("\"subprocess\"", "\"fake\"");
    fs::write(city.join("city.toml"), swap).unwrap();
    let diff = place.gc(&city, &DIFF).ok().json();
    let swapped = json!([{"key": "session.provider", "from": "subprocess", "to": "fake"}]);
    assert_eq!(diff["swapped"], swapped);

    // Files with errors can be compared with nothing.
    fs::write(city.join("city.toml"), "[daemon\n").unwrap();
    let error = place.gc(&city, &DIFF).fails(1).json_error();
    assert_eq!(error["code"], "config", "{error}");
    assert_eq!(place.gc(&city, &SHOW).ok().json(), shown);
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn the_environment_of_the_command_says_nothing_about_the_running_city() {
    let place = Place::new();
    let city = place.city(
        "town",
        &format!(
            "{QUIET}[session]\nprovider = \"subprocess\"\n{}",
            sleeper("a")
        ),
    );
    place.gc(&city, &["start"]).ok();
    let mut command = place.command(&city, &DIFF);
    let said = crate::util::Said::by(command.env("GC_SESSION", "fake")).ok();
    assert_eq!(said.json()["swapped"], json!([]));
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn agents_that_run_with_an_earlier_config_are_named() {
    let place = Place::new();
    let text = format!(
        "{QUIET}on_drift = \"report\"\n[session]\nprovider = \"subprocess\"\n{}",
        sleeper("a")
    );
    let city = place.city("town", &text);
    place.gc(&city, &["start"]).ok();
    fs::write(
        city.join("city.toml"),
        text.replace("sleep 600", "sleep 601"),
    )
    .unwrap();
    let diff = eventually("the new config", || {
        let diff = place.gc(&city, &DIFF).ok().json();
        (diff["same"] == true && diff["outdated"] == json!(["a"])).then_some(diff)
    });
    assert_eq!(diff["drifted"], json!([]), "{diff}");
    place.gc(&city, &["stop"]).ok();
}
