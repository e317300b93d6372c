//! `gc start --dry-run` and the tree's filters.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::agent::{QUIET, sleeper};
use crate::util::Place;

/// Every file below `dir` with its change time.
fn files(dir: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let meta = entry.metadata().unwrap();
            found.insert(entry.path(), meta.modified().unwrap());
            if meta.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found
}

fn layered() -> String {
    let needs = |name: &str, on: &str| format!("{}depends_on = [\"{on}\"]\n", sleeper(name));
    let off = format!("{}suspended = true\n", sleeper("off"));
    let agents = [needs("web", "api"), needs("api", "db"), sleeper("db"), off];
    format!("{QUIET}{}", agents.concat())
}

// C4
#[test]
fn a_dry_run_names_every_wave_and_touches_nothing() {
    let place = Place::new();
    let city = place.city("town", &layered());
    let before = files(&place.path(""));
    let text = place.gc(&city, &["start", "--dry-run"]).ok().out;
    for part in [
        "would start 3 agents",
        "1     db",
        "2     api",
        "3     web",
        "exec sleep 600",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(text.contains("suspended: off"), "{text}");
    assert!(text.ends_with("no side effects (--dry-run)\n"), "{text}");
    let plan = place.gc(&city, &["start", "-n", "--json"]).ok().json();
    let wave = |name: &str| {
        let starts = plan["would_start"].as_array().unwrap();
        starts.iter().find(|start| start["name"] == name).unwrap()["wave"].clone()
    };
    assert_eq!(
        (wave("db"), wave("api"), wave("web")),
        (1.into(), 2.into(), 3.into())
    );
    assert_eq!(files(&place.path("")), before, "no file was touched");
    assert_eq!(place.processes(), [0_i32; 0]);
    assert!(!place.home().exists());
}

#[test]
fn a_dry_run_of_a_running_city_starts_nobody_and_one_of_a_broken_city_fails() {
    let place = Place::new();
    let city = place.city("town", &layered());
    place.gc(&city, &["start"]).ok();
    let plan = place.gc(&city, &["start", "-n", "--json"]).ok().json();
    assert_eq!(plan["would_start"].as_array().unwrap().len(), 0);
    assert_eq!(plan["running"].as_array().unwrap().len(), 3);
    let again = place.gc(&city, &["restart", "-n"]).ok().out;
    assert!(again.contains("would start 3 agents"), "{again}");
    place.gc(&city, &["stop"]).ok();
    let broken = place.city("broken", "[daemon]\nbogus = 1\n");
    let said = place.gc(&broken, &["start", "-n", "--json"]).fails(1);
    let error: serde_json::Value = serde_json::from_str(said.err.trim()).unwrap();
    assert_eq!((said.out.as_str(), &error["code"]), ("", &"config".into()));
}

#[test]
fn the_tree_is_narrowed_by_kind_state_and_depth_and_tells_dependencies() {
    let place = Place::new();
    let city = place.city("town", &layered());
    place.gc(&city, &["start"]).ok();
    let tree = |args: &[&str]| {
        let args = [&["actors", "tree"], args].concat();
        place.gc(&city, &args).ok().out
    };
    let workers = tree(&["--kind", "worker"]);
    assert!(
        workers.contains("web") && !workers.contains("tracker"),
        "{workers}"
    );
    let off = tree(&["--state", "suspended"]);
    assert!(off.contains("off") && !off.contains("web"), "{off}");
    let cities = tree(&["--depth", "1"]);
    assert!(
        cities.contains("town") && !cities.contains("web"),
        "{cities}"
    );
    assert!(!tree(&[]).contains("after:"));
    assert!(tree(&["-v"]).contains("after: api"));
    place.gc(&city, &["stop"]).ok();
}
