//! How agents are started: what is run for them, and what they see.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tmux::town::Town;
use crate::util::{GC, Place, QUIET, environment, events, eventually, sleeper};

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

/// What agents inherit of this test's own environment, which is that of the supervisor.
fn inherited() -> BTreeMap<String, String> {
    let plain = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TERM",
        "TMPDIR",
        "TZ",
        "SSH_AUTH_SOCK",
    ];
    std::env::vars()
        .filter(|(name, _)| {
            let family = ["LC_", "XDG_"]
                .iter()
                .any(|family| name.starts_with(family));
            plain.contains(&&**name) || family && name != "XDG_RUNTIME_DIR"
        })
        .collect()
}

const FULL: &str = "[[rigs]]\nname = \"hello\"\npath = \"hello\"\n\
    [providers.p]\ncommand = \"sleep\"\nargs = [\"600\"]\nprompt_mode = \"none\"\n\
    process_names = []\nenv = { A = \"preset\", B = \"preset\" }\n\
    [[agent]]\nname = \"w\"\ndir = \"hello\"\nprovider = \"p\"\nprompt_template = \"prompt.md\"\n\
    env = { B = \"agent $$ ${HOME}\" }\nheartbeat = { stale_after = \"1m\" }\n";

/// The environment of the agent of [`FULL`] (sessions.md 4).
fn expected(place: &Place, city: &Path, token: &str) -> BTreeMap<String, String> {
    let (root, home) = (city.display(), std::env::var("HOME").unwrap_or_default());
    let mut env = inherited();
    let path = format!("{root}/.gc/bin:{}", env["PATH"]);
    let heartbeat = format!("{root}/.gc/runtime/heartbeats/hello--w.json");
    for (name, value) in [
        ("A", "preset"),
        ("B", &*format!("agent $ {home}")),
        ("GC_HOME", &place.home().display().to_string()),
        ("GC_BIN", GC),
        ("GC_CITY", &root.to_string()),
        ("GC_CITY_NAME", "town"),
        ("GC_CITY_RUNTIME_DIR", &format!("{root}/.gc/runtime")),
        ("GC_AGENT", "hello/w"),
        ("GC_TEMPLATE", "hello/w"),
        ("GC_SESSION_NAME", "hello--w"),
        ("GC_SESSION_ID", token),
        ("GC_DIR", &format!("{root}/hello")),
        ("GC_RIG", "hello"),
        ("GC_RIG_ROOT", &format!("{root}/hello")),
        (
            "GC_PROMPT_FILE",
            &format!("{root}/.gc/runtime/prompts/hello--w.md"),
        ),
        ("GC_HEARTBEAT_FILE", &heartbeat),
        ("PATH", &path),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    env
}

fn full_city(place: &Place, session: &str) -> std::path::PathBuf {
    let city = place.city("town", &format!("{QUIET}{session}{FULL}"));
    fs::write(city.join("prompt.md"), "be good\n").unwrap();
    fs::create_dir(city.join("hello")).unwrap();
    place.gc(&city, &["start"]).ok();
    city
}

/// Conformance row 7, on plain processes; and nothing of degraded mode, which nobody asked for.
#[test]
fn the_environment_of_an_agent_is_what_is_written_and_nothing_else() {
    let place = Place::new();
    let city = full_city(&place, "[session]\nprovider = \"subprocess\"\n");
    let agent = place.instance(&city, "hello/w");
    let pid = place.awaited_pid(&city, "hello/w");
    let token = agent["session_id"].as_str().unwrap();
    assert_eq!(environment(pid), expected(&place, &city, token));
    assert!(city.join(".gc/runtime/heartbeats").is_dir());
    assert_eq!(place.status(&city)["mode"], "normal");
    let said = place.gc(&city, &["status"]).ok().out;
    assert!(said.contains("  Mode        normal\n"), "{said}");
}

/// The same in a pane, with the few variables by which programs know their terminal.
#[test]
fn in_tmux_it_is_the_same_beside_what_tells_of_the_terminal() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = full_city(place, "");
    let agent = place.instance(&city, "hello/w");
    let pid = place.awaited_pid(&city, "hello/w");
    let mut env = environment(pid);
    let own = [
        "TERM",
        "TMUX",
        "TMUX_PANE",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "PWD",
    ];
    for name in own {
        env.remove(name);
    }
    let mut want = expected(place, &city, agent["session_id"].as_str().unwrap());
    want.insert("GC_TMUX_SOCKET".into(), "town".into());
    want.remove("TERM");
    assert_eq!(env, want);
}

#[test]
fn without_the_tmux_a_city_wants_agents_run_degraded_and_know() {
    let place = Place::new();
    let own = "[[agent]]\nname = \"own\"\nsession = \"subprocess\"\n\
               start_command = \"while read -r l; do echo got $l; done\"\n";
    let reads = "[[agent]]\nname = \"reads\"\nrestart = \"temporary\"\n\
                 start_command = \"cat; echo nothing to read\"\n\
                 nudge = \"go\"\n";
    let city = place.city("town", &format!("{QUIET}{}{own}{reads}", sleeper("w")));
    place.gc(&city, &["start"]).ok();
    let why = "tmux is switched off by GC_TMUX";
    let status = place.status(&city);
    assert_eq!(
        (&status["mode"], &status["mode_reason"]),
        (&"degraded".into(), &why.into())
    );
    let said = place.gc(&city, &["status"]).ok().out;
    let line = format!("  Mode        degraded: {why}; agents have no screen and no input\n");
    assert!(said.contains(&line), "{said}");
    let degraded = |agent: &str| {
        let env = environment(place.awaited_pid(&city, agent));
        ["GC_DEGRADED", "GT_DEGRADED"].map(|name| env.get(name).cloned())
    };
    assert_eq!(
        degraded("w"),
        [Some("true".to_owned()), Some("true".to_owned())]
    );
    assert_eq!(degraded("own"), [None, None], "it asked for what it has");
    // Nothing can be said to the one, everything to the other.
    let shown = place.gc(&city, &["agent", "show", "own"]).ok().out;
    assert!(shown.contains("own (subprocess)"), "{shown}");
    let error = place.gc(&city, &["agent", "nudge", "w", "hi", "--json"]);
    let error = error.fails(8).json_error();
    assert!(error["error"].as_str().unwrap().contains(why), "{error}");
    for command in ["peek", "attach"] {
        place.gc(&city, &["agent", command, "w"]).fails(8);
    }
    place.gc(&city, &["agent", "nudge", "own", "hi"]).ok();
    // A program that reads its input finds none.
    eventually("it is done", || {
        let said = place.gc(&city, &["agent", "logs", "reads"]).out;
        said.contains("nothing to read").then_some(())
    });
    let all = events(&city);
    let told = |kind: &str| all.iter().find(|e| e["type"] == kind).cloned().unwrap();
    assert_eq!(told("mode.degraded")["payload"]["reason"], why);
    let reads = all
        .iter()
        .find(|e| e["type"] == "agent.started" && e["subject"] == "reads");
    let error = reads.unwrap()["payload"]["error"].as_str().unwrap();
    assert!(error.starts_with("prompt-undelivered: "), "{error}");
}

/// A question of the program stands before its prompt; the answer is seen byte by byte.
#[test]
fn in_tmux_a_dialog_is_answered_before_the_agent_is_ready() {
    let Some(town) = Town::new() else { return };
    let place = &town.place;
    let city = place.city(
        "town",
        &format!(
            "{QUIET}[providers.asks]\ncommand = \"sh asks.sh\"\nprompt_mode = \"none\"\n\
             process_names = [\"sh\"]\nready_prompt_prefix = \"> \"\n\
             dismiss = [{{ match = \"trust me\", keys = [\"Down\", \"Enter\"] }}]\n\
             [[agent]]\nname = \"w\"\nprovider = \"asks\"\n"
        ),
    );
    let script = "echo 'Do you trust me?'; stty -icanon -echo min 1\n\
                  keys=$(dd bs=1 count=4 2>/dev/null | od -An -tx1)\n\
                  echo \"pressed$keys\"; echo 'Do you trust me?'; printf '> '; exec sleep 600\n";
    fs::write(city.join("asks.sh"), script).unwrap();
    place.gc(&city, &["start"]).ok();
    let screen = place.gc(&city, &["agent", "peek", "w"]).ok().out;
    assert!(screen.contains("pressed 1b 5b 42 0a\n"), "{screen}");
    let all = events(&city);
    let started = all.iter().find(|e| e["type"] == "agent.started").unwrap();
    assert_eq!(started["payload"].get("ready"), None, "its prompt was seen");
}

/// Conformance row 4: without readiness hints, a program that ends at once was up and crashed.
/// Returns how its end was told.
fn ends_at_once(place: &Place, session: &str) -> [serde_json::Value; 2] {
    let agent = |name: &str, line: &str| {
        format!(
            "[[agent]]\nname = \"{name}\"\nrestart = \"temporary\"\nstart_command = \"{line}\"\n"
        )
    };
    let city = place.city(
        "town",
        &format!(
            "{QUIET}{session}{}{}",
            agent("w", "echo last words; exit 3"),
            agent("none", "no-such-program; exit"),
        ),
    );
    place.gc(&city, &["start"]);
    [("w", 3), ("none", 127)].map(|(agent, code)| {
        let told = eventually("its end is told", || {
            let mut all = events(&city).into_iter();
            all.find(|e| e["subject"] == agent && e["payload"]["class"].is_string())
        });
        assert_eq!(told["type"], "agent.crashed", "{told}");
        assert_eq!(told["payload"]["exit_code"], code, "{told}");
        told
    })
}

#[test]
fn a_program_that_ends_at_once_crashed_and_its_last_words_are_kept() {
    let place = Place::new();
    let told = ends_at_once(&place, "[session]\nprovider = \"subprocess\"\n");
    for (told, words) in told.iter().zip(["last words", "no-such-program"]) {
        assert!(told["message"].as_str().unwrap().contains(words), "{told}");
        let capture = told["payload"]["capture"].as_str().unwrap();
        let text = eventually("the capture", || {
            let text = fs::read_to_string(capture).ok();
            text.filter(|text| text.contains(words))
        });
        let header = text.split("\n\n").next().unwrap();
        let keys = header.lines().filter_map(|line| line.split(':').next());
        let keys: Vec<&str> = keys.collect();
        assert_eq!(keys, ["agent", "token", "pid", "exit", "uptime", "source"]);
        assert!(header.ends_with("source: log"), "{header}");
    }
}

/// Here the words may be lost: a tmux that sees the end first drops what it has not read.
#[test]
fn in_tmux_a_program_that_ends_at_once_crashed() {
    let Some(town) = Town::new() else { return };
    let _ = ends_at_once(&town.place, "");
}
