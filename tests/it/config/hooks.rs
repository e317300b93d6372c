//! Hook sets that gc brings along (config.md 2.10).

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::util::{Place, QUIET, environment, events, eventually};

/// All commands in a file of hooks.
fn commands(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                match value.as_str() {
                    Some(text) if ["command", "bash"].contains(&key.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => commands(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| commands(item, found)),
        _ => {}
    }
}

#[test]
fn programs_tell_the_city_what_they_do_through_files_that_gc_wrote() {
    let place = Place::new();
    let sets = ["claude", "codex", "gemini", "opencode", "copilot", "cursor"];
    let text = format!(
        "{QUIET}[session]\nprovider = \"subprocess\"\n[[agent]]\nname = \"a\"\nwork_dir = \"work\"\nstart_command = \"sleep 600\"\ninstall_agent_hooks = {sets:?}\n"
    );
    let city = place.city("town", &text);
    // What is the user's own stays.
    fs::create_dir_all(city.join("work/.gemini")).unwrap();
    fs::write(city.join("work/.gemini/settings.json"), "{}").unwrap();
    place.gc(&city, &["start"]).ok();
    let pid = place.awaited_pid(&city, "a");
    let read = |path: &str| fs::read_to_string(city.join("work").join(path)).unwrap();
    assert_eq!(read(".gemini/settings.json"), "{}");
    assert!(read(".opencode/plugins/gc.js").contains("hook.turn_end"));
    let kinds = || -> Vec<String> {
        let all = events(&city).into_iter();
        let ours = all.filter(|e| e["actor"] == "a" && e["subject"] == "a");
        ours.map(|e| e["type"].as_str().unwrap().to_owned())
            .filter(|kind| kind.starts_with("hook."))
            .collect()
    };
    let mut expected = 0;
    for path in [
        ".claude/settings.local.json",
        ".codex/hooks.json",
        ".github/hooks/gc.json",
        ".cursor/hooks.json",
    ] {
        let mut found = Vec::new();
        commands(&serde_json::from_str(&read(path)).unwrap(), &mut found);
        assert!(found.len() >= 3, "{path}");
        for command in found {
            // As the program would run it, in the environment of the agent.
            let run = |agent: bool| {
                let mut shell = Command::new("sh");
                let mut env = environment(pid);
                if !agent {
                    env.remove("GC_AGENT");
                }
                let shell = shell.args(["-c", &command]).env_clear().envs(env);
                let done = shell.current_dir(city.join("work")).output().unwrap();
                assert!(done.status.success() && done.stdout.is_empty(), "{command}");
            };
            run(true);
            expected += 1;
            eventually("the event", || (kinds().len() == expected).then_some(()));
            // Outside of an agent they do nothing.
            run(false);
            assert_eq!(kinds().len(), expected, "{command}");
        }
    }
    for kind in ["session_start", "turn_end", "attention", "session_end"] {
        let kind = format!("hook.{kind}");
        assert!(kinds().contains(&kind), "{kind}");
    }
    place.gc(&city, &["stop"]).ok();
}
