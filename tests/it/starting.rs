//! How agents are started: what is run for them, and what they see.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::util::{Place, QUIET, events, eventually};

/// What `env` wrote to a file, without what a shell adds of its own.
fn written(path: &Path) -> BTreeMap<String, String> {
    let text = eventually("an environment is written", || {
        fs::read_to_string(path)
            .ok()
            .filter(|text| text.contains("END="))
    });
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let own = ["PWD", "OLDPWD", "SHLVL", "_", "END"];
    let pairs = pairs.filter(|(name, _)| !own.contains(name));
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn lines_of_the_setup_see_what_the_agent_sees_and_their_failure_is_a_warning() {
    let place = Place::new();
    let city = place.city(
        "setup",
        &format!(
            "{QUIET}[session]\nprovider = \"subprocess\"\nsetup_timeout = \"300ms\"\n\
             [[agent]]\nname = \"w\"\nwork_dir = \"work\"\nprompt_template = \"prompt.md\"\n\
             start_command = \"(env; echo END=) >agent.env; exec sleep 600\"\nprompt_mode = \"none\"\n\
             env = {{ MINE = \"a $$ b\" }}\n\
             session_setup = [\"(env; echo END=) >setup.env\", \"echo no luck >&2; exit 3\"]\n\
             session_setup_script = \"slow\"\nsession_live = [\"(env; echo END=) >live.env\"]\n"
        ),
    );
    fs::write(city.join("prompt.md"), "be good\n").unwrap();
    fs::write(city.join("slow"), "#!/bin/sh\nexec sleep 600\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(city.join("slow"), mode).unwrap();
    place.gc(&city, &["start"]).ok();
    let agent = written(&city.join("work/agent.env"));
    assert_eq!(agent["MINE"], "a $ b");
    assert_eq!(agent["GC_AGENT"], "w");
    assert!(agent.contains_key("GC_PROMPT_FILE"));
    assert_eq!(written(&city.join("work/setup.env")), agent);
    assert_eq!(written(&city.join("work/live.env")), agent);
    let all = events(&city);
    let started = all.iter().find(|e| e["type"] == "agent.started").unwrap();
    let setup = "session_setup failed: exit 3: no luck";
    let script = "session_setup_script failed: timed out after 300ms";
    assert_eq!(started["payload"]["error"], format!("{setup}; {script}"));
    let page = place.gc(&city, &["agent", "show", "w"]).ok().out;
    for warning in [setup, script] {
        assert!(
            page.contains(&format!("  Warning     {warning}\n")),
            "{page}"
        );
    }
}
