//! `gc config`, `gc rig`, `gc pack` and `gc agent add`.

use std::fs;

use crate::util::{Place, QUIET, Said, sleeper};

#[test]
fn mistakes_are_shown_on_stderr_with_exit_one() {
    // Rows 2, 3 and 20.
    let place = Place::new();
    let city = place.city(
        "town",
        "[daemon]\nmax_restart = 3\npatrol_interval = 30\n[[agent]]\nname = \"a\"\n",
    );
    let said = place.gc(&city, &["config", "validate"]).fails(1);
    for part in [
        "error[unknown-key]",
        "--> city.toml:2:1",
        "did you mean `max_restarts`?",
        "did you mean \"30s\"?",
        "missing-key",
        "claude",
    ] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
    let json = place
        .gc(&city, &["config", "validate", "--json"])
        .fails(1)
        .json();
    assert_eq!(json["valid"], false);
    assert_eq!(json["diagnostics"].as_array().unwrap().len(), 3);
    assert_eq!(
        json["diagnostics"][0]["help"],
        "did you mean `max_restarts`?"
    );
}

#[test]
fn warnings_fail_only_when_asked_to() {
    // Row 23.
    let place = Place::new();
    let city = place.city(
        "town",
        "include = [\"more.toml\"]\n[daemon]\nmax_restarts = 1\n",
    );
    fs::write(city.join("more.toml"), "[daemon]\nmax_restarts = 2\n").unwrap();
    let said = place.gc(&city, &["config", "validate"]).ok();
    assert!(said.err.contains("warning[redefined]"), "{}", said.err);
    place
        .gc(&city, &["config", "validate", "--strict"])
        .fails(1);
    let said = place
        .gc(&city, &["config", "explain", "daemon.max_restarts"])
        .ok();
    for part in [
        "daemon.max_restarts = 2",
        "from more.toml:2:16 (fragment)",
        "over 1 at city.toml:3:16",
    ] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    fs::write(place.path("flag.toml"), "[daemon]\nmax_restarts = 7\n").unwrap();
    let shown = place
        .gc(
            &city,
            &["config", "show", "--format", "json", "-f", "../flag.toml"],
        )
        .ok()
        .json();
    assert_eq!(shown["daemon"]["max_restarts"], 7);
}

#[test]
fn keys_of_the_older_tool_warn_and_typos_of_them_fail() {
    // Row 47.
    let place = Place::new();
    let text = format!("[dolt]\nport = 1\n{}wake_mode = \"x\"\n", sleeper("a"));
    let city = place.city("town", &text);
    let said = place.gc(&city, &["config", "validate"]).ok();
    assert_eq!(
        said.err.matches("unsupported-key").count(),
        2,
        "{}",
        said.err
    );
    fs::write(city.join("city.toml"), format!("{text}wake_mod = \"x\"\n")).unwrap();
    let said = place.gc(&city, &["config", "validate"]).fails(1);
    assert!(
        said.err.contains("error[unknown-key]: `wake_mod`"),
        "{}",
        said.err
    );
}

#[test]
fn the_config_is_shown_without_secrets() {
    let place = Place::new();
    let city = place.city(
        "town",
        &format!("{}env = {{ TOKEN = \"hunter2\" }}\n", sleeper("a")),
    );
    let shown = place.gc(&city, &["config", "show"]).ok().out;
    assert!(
        shown.contains("start_command = \"sleep 600\"") && shown.contains("TOKEN = \"***\""),
        "{shown}"
    );
    let agent = place
        .gc(
            &city,
            &["config", "show", "--agent", "a", "--format", "json"],
        )
        .ok()
        .json();
    assert_eq!(agent["resolved"]["session"], "a");
    let said = place
        .gc(&city, &["config", "show", "--agent", "aa"])
        .fails(1);
    assert!(said.err.contains("did you mean"), "{}", said.err);
    for args in [
        &["config", "show"][..],
        &["config", "explain", "a"],
        &["config", "explain", "a.env.TOKEN"],
    ] {
        let said = place.gc(&city, args).ok();
        assert!(!(said.out + &said.err).contains("hunter2"), "{args:?}");
    }
}

#[test]
fn schemas_and_pages_are_made_for_every_file() {
    let place = Place::new();
    for file in ["city", "pack", "order", "supervisor"] {
        let args = ["config", "schema", "--file", file];
        let schema = place.gc(&place.path(""), &args).ok().json();
        assert_eq!(schema["additionalProperties"], false, "{file}");
        let page = [&args[..], &["--format", "markdown"]].concat();
        assert!(
            place
                .gc(&place.path(""), &page)
                .ok()
                .out
                .contains("| Key |")
        );
    }
}

#[test]
fn schemas_name_every_key_of_their_files() {
    let place = Place::new();
    let keys = |file: &str, below: &[&str]| -> Vec<String> {
        let args = ["config", "schema", "--file", file];
        let schema = place.gc(&place.path(""), &args).ok().json();
        let at = below.iter().fold(&schema, |at, step| &at[*step]);
        at.as_object().unwrap().keys().cloned().collect()
    };
    let check = |file: &str, below: &[&str], expected: &str| {
        let found = keys(file, below);
        for key in expected.split_whitespace() {
            assert!(found.iter().any(|name| name == key), "{key} of {file}");
        }
        assert_eq!(
            found.len(),
            expected.split_whitespace().count(),
            "{file}: {found:?}"
        );
    };
    check(
        "supervisor",
        &["properties", "supervisor", "properties"],
        "port bind patrol_interval allow_mutations auth allowed_hosts allowed_origins \
         city_start_parallelism city_restart_delay city_restart_delay_max on_sigterm log_level log_format",
    );
    let tenant = [
        "properties",
        "tenants",
        "additionalProperties",
        "properties",
    ];
    check(
        "supervisor",
        &tenant,
        "cities resource_limit api_keys socket",
    );
    let limits = [&tenant[..], &["resource_limit", "properties"]].concat();
    check(
        "supervisor",
        &limits,
        "max_agents max_cities memory_max cpu_max",
    );
    check(
        "order",
        &["properties", "order", "properties"],
        "description formula exec gate interval schedule timezone catch_up check check_timeout on \
         subject start_from pool vars timeout work_timeout overlap retries retry_delay \
         retry_delay_max capture_output enabled",
    );
    check(
        "pack",
        &["properties", "pack", "properties"],
        "name schema version requires_gc includes requires",
    );
    check(
        "pack",
        &["properties"],
        "pack agent providers formulas patches global x",
    );
}

#[test]
fn suspend_and_resume_leave_a_commented_file_as_it_was() {
    // Row 46.
    let place = Place::new();
    let text = "# my city\n[workspace] # here\nname = \"town\"   # named\n\n# agents\n[[agent]]\nname = \"a\" # the only\nstart_command = \"sleep 600\"\n";
    let city = place.city("town", text);
    let read = || fs::read_to_string(city.join("city.toml")).unwrap();
    for target in [&["suspend"][..], &["agent", "suspend", "a"]] {
        place.gc(&city, target).ok();
        assert_eq!(
            read().lines().count(),
            text.lines().count() + 1,
            "{}",
            read()
        );
        let back: Vec<&str> = target
            .iter()
            .map(|word| if *word == "suspend" { "resume" } else { word })
            .collect();
        place.gc(&city, &back).ok();
        assert_eq!(read(), text);
    }
}

#[test]
fn an_agent_of_a_pack_is_suspended_by_a_patch_that_goes_again() {
    let place = Place::new();
    let text = "# mine\n[workspace]\nname = \"town\"\nincludes = [\"p\"]\n";
    let city = place.city("town", text);
    fs::create_dir(city.join("p")).unwrap();
    let pack = "[pack]\nname = \"p\"\nschema = 1\n[[agent]]\nname = \"w\"\nstart_command = \"sleep 600\"\n";
    fs::write(city.join("p/pack.toml"), pack).unwrap();
    let read = || fs::read_to_string(city.join("city.toml")).unwrap();
    place.gc(&city, &["agent", "suspend", "w"]).ok();
    assert_eq!(
        read(),
        format!("{text}\n[[patches.agent]]\nname = \"w\"\nsuspended = true\n")
    );
    place.gc(&city, &["agent", "resume", "w"]).ok();
    assert_eq!(read(), text);
    // A pack that suspends it itself is overruled.
    fs::write(
        city.join("p/pack.toml"),
        format!("{pack}suspended = true\n"),
    )
    .unwrap();
    place.gc(&city, &["agent", "resume", "w"]).ok();
    assert!(read().ends_with("suspended = false\n"), "{}", read());
    let shown = place
        .gc(&city, &["config", "explain", "w.suspended"])
        .ok()
        .out;
    assert!(
        shown.contains("w.suspended = false") && shown.contains("over true at p/pack.toml"),
        "{shown}"
    );
}

#[test]
fn rigs_and_agents_are_added_to_the_file() {
    let place = Place::new();
    let text =
        format!("# kept\n{QUIET}[workspace]\nname = \"town\"\ndefault_rig_includes = [\"//p\"]\n");
    let city = place.city("town", &text);
    fs::create_dir_all(city.join("p")).unwrap();
    fs::write(city.join("p/pack.toml"), "[pack]\nname = \"p\"\nschema = 1\n[[agent]]\nname = \"w\"\nscope = \"rig\"\nstart_command = \"sleep 600\"\n").unwrap();
    fs::create_dir_all(place.path("backend")).unwrap();
    place.gc(&city, &["rig", "add", "../backend"]).ok();
    let read = || fs::read_to_string(city.join("city.toml")).unwrap();
    assert!(
        read().starts_with(&text) && read().contains("includes = [\"//p\"]"),
        "{}",
        read()
    );
    place
        .gc(
            &city,
            &[
                "agent",
                "add",
                "--name",
                "x",
                "--dir",
                "backend",
                "--command",
                "sleep 600",
            ],
        )
        .ok();
    place.gc(&city, &["rig", "suspend", "backend"]).ok();
    let rigs = place.gc(&city, &["rig", "list", "--json"]).ok().json();
    let rig = &rigs["items"][0];
    assert_eq!(
        (&rig["name"], &rig["prefix"], &rig["state"], &rig["agents"]),
        (
            &"backend".into(),
            &"ba".into(),
            &"suspended".into(),
            &2.into()
        )
    );
    place.gc(&city, &["rig", "resume", "backend"]).ok();
    let rig = place
        .gc(&city, &["rig", "status", "backend", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&rig["name"], &rig["state"]),
        (&"backend".into(), &"active".into())
    );
    assert_eq!(rig["agents"][0]["qualified_name"], "backend/w");
    let text = place.gc(&city, &["rig", "status", "backend"]).ok().out;
    assert!(
        text.starts_with("backend  ") && text.contains("backend/w"),
        "{text}"
    );
    let said = place.gc(&city, &["rig", "status", "bakend"]).fails(1);
    assert!(said.err.contains("did you mean `backend`?"), "{said:?}");
    let listed = place.gc(&city, &["rig", "list"]).ok().out;
    assert!(
        listed.contains("NAME") && listed.contains("active"),
        "{listed}"
    );
    let before = read();
    let said = place
        .gc(
            &city,
            &["agent", "add", "--name", "bad name", "--command", "x"],
        )
        .fails(1);
    assert!(said.err.contains("invalid name"), "{}", said.err);
    place
        .gc(
            &city,
            &["agent", "add", "--name", "y", "--provider", "cluade"],
        )
        .fails(1);
    place.gc(&city, &["rig", "add", "/no/such/dir"]).fails(1);
    assert_eq!(read(), before, "nothing is written");
}

#[test]
fn a_pack_that_is_not_here_is_named_and_not_fetched_by_a_check() {
    // Row 31.
    let place = Place::new();
    let city = place.city(
        "town",
        "[workspace]\nincludes = [\"file:///no/such/repo\"]\n",
    );
    let said = place.gc(&city, &["config", "validate"]).fails(1);
    assert!(
        said.err.contains("pack-missing") && said.err.contains("gc pack fetch"),
        "{}",
        said.err
    );
    let listed = place.gc(&city, &["pack", "list"]).ok();
    assert!(listed.out.contains("not pinned"), "{listed:?}");
    place.gc(&city, &["pack", "fetch"]).fails(1);
    assert!(!city.join("pack.lock").exists());
}

/// Runs git in `dir`, without whatever the tests inherited.
fn git(dir: &std::path::Path, args: &[&str]) {
    let mut command = std::process::Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    let settings = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "init.defaultBranch=main",
    ];
    let said = Said::by(command.args(settings).arg("-C").arg(dir).args(args));
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_start_gets_what_is_pinned_and_nothing_else() {
    if std::process::Command::new("git")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: git not installed");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"));
        return;
    }
    let place = Place::new();
    let repo = place.path("repo");
    fs::create_dir_all(&repo).unwrap();
    git(&repo, &["init", "-q"]);
    let pack = format!("[pack]\nname = \"p\"\nschema = 1\n{}", sleeper("w"));
    fs::write(repo.join("pack.toml"), &pack).unwrap();
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "one"]);
    let url = format!("file://{}", repo.display());
    let city = place.city(
        "town",
        &format!("{QUIET}[workspace]\nincludes = [\"{url}\"]\n"),
    );
    let said = place.gc(&city, &["start"]).fails(1);
    assert!(said.err.contains("gc pack fetch"), "{}", said.err);
    place.gc(&city, &["pack", "fetch"]).ok();
    // Upstream goes on, the checkout is lost: a start gets the pinned commit.
    fs::write(repo.join("pack.toml"), format!("{pack}nudge = \"new\"\n")).unwrap();
    git(&repo, &["commit", "-qam", "two"]);
    fs::remove_dir_all(city.join(".gc/cache")).unwrap();
    place.gc(&city, &["start"]).ok();
    assert!(place.pid(&city, "w").is_some());
    let nudge = place
        .gc(&city, &["config", "explain", "w.nudge", "--json"])
        .ok()
        .json();
    assert_eq!(nudge["items"][0]["value"], serde_json::Value::Null);
    let moved = place.gc(&city, &["pack", "update"]).ok();
    assert!(moved.out.contains(" to "), "{moved:?}");
    place.gc(&city, &["stop"]).ok();
}
