//! Fragments, overrides and patches over each other, and where values come from.

use super::*;

/// A city of several files.
pub(super) fn files(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let (dir, root) = city("");
    for (name, text) in files {
        write(&root.join(name), text);
    }
    (dir, root)
}

pub(super) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("in a directory")).expect("created");
    fs::write(path, text).expect("written");
}

pub(super) fn errors(root: &Path) -> Vec<Diagnostic> {
    load(root).expect_err("refused").diagnostics
}

pub(super) fn told(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .map(|d| format!("{} {}:{}:{}", d.code, d.file, d.line, d.column))
        .collect()
}

#[test]
fn problems_of_all_files_are_reported_by_file_and_place() {
    // Row 6.
    let (_dir, root) = files(&[
        (
            "city.toml",
            "include = ['more.toml']\n[daemon]\nmax_restart = 3\n",
        ),
        (
            "more.toml",
            "[daemon]\npatrol_interval = 3\nfoo_bar_baz = 1\n",
        ),
    ]);
    assert_eq!(
        told(&errors(&root)),
        [
            "unknown-key city.toml:3:1",
            "wrong-type more.toml:2:19",
            "unknown-key more.toml:3:1",
        ]
    );
}

#[test]
fn a_broken_fragment_does_not_hide_the_mistakes_of_another() {
    // Row 7.
    let (_dir, root) = files(&[
        ("city.toml", "include = ['a.toml', 'b.toml']\n"),
        ("a.toml", "[daemon\n"),
        ("b.toml", "[daemon]\nmax_restarts = -1\n"),
    ]);
    assert_eq!(
        told(&errors(&root)),
        ["syntax a.toml:1:8", "invalid-value b.toml:2:16"]
    );
}

#[test]
fn tables_of_fragments_merge_per_key() {
    // Row 22.
    let (_dir, root) = files(&[
        (
            "city.toml",
            "include = ['conf/more.toml']\n[daemon]\npatrol_interval = '7s'\n",
        ),
        (
            "conf/more.toml",
            "[daemon]\nmax_restarts = 9\n[[agent]]\nname = 'a'\nstart_command = 'x'\n",
        ),
    ]);
    let city = load(&root).expect("valid");
    assert_eq!(city.spec.daemon.patrol_interval.as_secs(), 7);
    assert_eq!(city.spec.agents[0].limit.max_restarts, 9);
    assert!(city.warnings.is_empty(), "{}", city.report);
}

#[test]
fn a_value_set_twice_is_a_warning_and_the_later_file_wins() {
    // Row 23, but for the exit code.
    let (_dir, root) = files(&[
        (
            "city.toml",
            "include = ['more.toml']\n[daemon]\nmax_restarts = 1\n",
        ),
        ("more.toml", "[daemon]\nmax_restarts = 2\n"),
        (
            "third.toml",
            "[daemon]\nmax_restarts = 2\n[[agent]]\nname = 'a'\nstart_command = 'x'\n",
        ),
    ]);
    let city = Loader::new(&root)
        .file(root.join("third.toml"))
        .load()
        .expect("valid");
    assert_eq!(city.spec.agents[0].limit.max_restarts, 2);
    assert_eq!(told(&city.warnings), ["redefined more.toml:2:16"]);
    assert_eq!(city.warnings[0].related[0].file, "city.toml");
    assert!(city.report.contains("--> more.toml:2:16") && city.report.contains("city.toml:3"));
}

#[test]
fn a_fragment_cannot_include_others_and_a_missing_one_is_named() {
    // Row 24, second half.
    let (_dir, root) = files(&[
        ("city.toml", "include = ['more.toml', 'gone.toml']\n"),
        ("more.toml", "include = ['x.toml']\n"),
    ]);
    assert_eq!(
        told(&errors(&root)),
        [
            "file-missing city.toml:1:25",
            "nested-include more.toml:1:1"
        ]
    );
}

#[test]
fn lists_that_are_joined_are_joined_and_others_replaced() {
    let (_dir, root) = files(&[
        (
            "city.toml",
            "include = ['more.toml']\n[workspace]\nglobal_fragments = ['one']\ninstall_agent_hooks = ['a']\n[[agent]]\nname = 'a'\nstart_command = 'x'\n",
        ),
        (
            "more.toml",
            "[workspace]\nglobal_fragments = ['two']\ninstall_agent_hooks = ['b']\n",
        ),
        ("prompts/shared/one.md", "1"),
        ("prompts/shared/two.md", "2"),
        ("hooks/b/file", "x"),
    ]);
    let city = load(&root).expect("valid");
    let launch = &city.spec.agents[0].launch;
    let text = launch
        .prompt
        .text
        .as_ref()
        .expect("a prompt")
        .render(|_| None);
    assert_eq!(text, "1\n\n2");
    assert_eq!(launch.overlays, [root.join("hooks/b")]);
}

#[test]
fn a_patch_replaces_clears_appends_and_removes() {
    // Row 26.
    let agent = "[[agent]]\nname = 'a'\nstart_command = 'x'\npre_start = ['one']\nsession_setup = ['one']\nenv = { A = '1', B = '2' }\npool = { min = 1, max = 3 }\n";
    let patch = "[[patches.agent]]\nname = 'a'\npre_start = []\nsession_setup_append = ['two']\nsession_live_append = ['live']\nenv = { C = '3' }\nenv_remove = ['B']\npool = { max = 5 }\n";
    let spec = first_agent(&format!("{agent}{patch}"));
    assert!(spec.launch.pre_start.is_empty());
    assert_eq!(spec.launch.session_setup, ["one", "two"]);
    assert_eq!(spec.live, ["live"]);
    assert_eq!(spec.launch.env.keys().collect::<Vec<_>>(), ["A", "C"]);
    let pool = spec.pool.as_ref().expect("a pool");
    assert_eq!((pool.min, pool.max), (1, Some(5)));
}

#[test]
fn a_patch_of_nobody_is_an_unknown_reference() {
    // Row 25, second half.
    let found = only(&format!(
        "{AGENT}[[patches.agent]]\nname = 'b'\nnudge = 'x'\n"
    ));
    assert_eq!(
        (found.code.as_str(), found.line, found.column),
        ("unknown-ref", 5, 8)
    );
    let found = only("[[patches.rigs]]\nname = 'r'\n");
    assert_eq!(found.code, "unknown-ref");
    let found = only("[[patches.providers]]\nname = 'cluade'\n");
    assert_eq!(found.help.as_deref(), Some("did you mean \"claude\"?"));
}

#[test]
fn rigs_and_providers_can_be_patched() {
    let (_dir, root) = files(&[(
        "city.toml",
        "[[rigs]]\nname = 'r'\npath = 'a'\n[[patches.rigs]]\nname = 'r'\npath = 'b'\nsuspended = true\n[[patches.providers]]\nname = 'amp'\nargs_append = ['--more']\n[[agent]]\nname = 'w'\ndir = 'r'\nprovider = 'amp'\n",
    )]);
    fs::create_dir(root.join("b")).expect("created");
    let city = load(&root).expect("valid");
    let agent = &city.spec.agents[0];
    assert!(agent.suspended);
    assert_eq!(agent.launch.work_dir, root.join("b"));
    assert_eq!(
        agent.launch.command.to_string(),
        "amp --dangerously-allow-all --no-ide --more"
    );
}

#[test]
fn a_key_tells_where_its_value_comes_from_and_what_it_replaced() {
    let (_dir, root) = files(&[
        (
            "city.toml",
            "include = ['more.toml']\n[daemon]\nmax_restarts = 1\n[[rigs]]\nname = 'r'\npath = '/'\n[[rigs.overrides]]\nagent = 'a'\nnudge = 'over'\n[[agent]]\nname = 'a'\ndir = 'r'\nstart_command = 'x'\nnudge = 'own'\nenv = { SECRET = 'hunter2' }\n[[patches.agent]]\nname = 'a'\ndir = 'r'\nnudge = 'patched'\n",
        ),
        ("more.toml", "[daemon]\nmax_restarts = 2\n"),
    ]);
    let resolved = Loader::new(&root).resolve();
    let [daemon] = &resolved.explain("daemon.max_restarts").expect("known")[..] else {
        panic!("one")
    };
    assert_eq!(daemon.value, 2);
    assert_eq!(
        daemon.place.as_ref().expect("written").to_string(),
        "more.toml:2:16"
    );
    assert_eq!(
        (daemon.layer.as_str(), daemon.class.as_str()),
        ("fragment", "hot")
    );
    assert_eq!(daemon.overridden[0].value, 1);
    assert_eq!(daemon.overridden[0].place.to_string(), "city.toml:3:16");
    let nudge = &resolved.explain("r/a.nudge").expect("known")[0];
    assert_eq!(
        (nudge.value.as_str(), nudge.layer.as_str()),
        (Some("patched"), "patch")
    );
    let over: Vec<&str> = nudge
        .overridden
        .iter()
        .map(|old| old.layer.as_str())
        .collect();
    assert_eq!(over, ["rig override", "city"]);
    let plain = &resolved.explain("daemon.restart_window").expect("known")[0];
    assert_eq!(
        (plain.value.as_str(), plain.layer.as_str()),
        (Some("1h"), "default")
    );
    assert_eq!(plain.place, None);
    let all = resolved.explain("r/a").expect("known");
    let shown = serde_json::to_string(&all).expect("text") + &resolved.show().to_string();
    assert!(
        shown.contains("env") && !shown.contains("hunter2"),
        "{shown}"
    );
    assert_eq!(
        resolved
            .explain("daemon.max_restart")
            .expect_err("unknown")
            .as_deref(),
        Some("daemon.max_restarts")
    );
}

#[test]
fn what_is_shown_loads_again() {
    let text = "[daemon]\nmax_restarts = 4\n[[rigs]]\nname = 'r'\npath = '/'\n[[agent]]\nname = 'a'\ndir = 'r'\nstart_command = 'x'\npool = { min = 2 }\ndepends_on = ['b']\n[[agent]]\nname = 'b'\nstart_command = 'y'\n";
    let (_dir, root) = city(text);
    let shown = to_toml(&Loader::new(&root).resolve().show());
    let before = load(&root).expect("valid").spec;
    fs::write(root.join(FILE), &shown).expect("written");
    let after = load(&root)
        .unwrap_or_else(|error| panic!("{shown}\n{error}"))
        .spec;
    let plain = |spec: &CitySpec| CitySpec {
        revision: String::new(),
        ..spec.clone()
    };
    assert_eq!(plain(&before), plain(&after));
}

#[test]
fn the_environment_chooses_a_provider_over_the_files_and_changes_no_fingerprint() {
    // Row 42, the part of the config.
    let (_dir, root) = city(format!("[session]\nprovider = 'subprocess'\n{AGENT}"));
    let plain = load(&root).expect("valid").spec;
    let other = Loader::new(&root)
        .provider("session", "fake")
        .load()
        .expect("valid")
        .spec;
    assert_eq!(
        (plain.provider.as_str(), other.provider.as_str()),
        ("subprocess", "fake")
    );
    assert_eq!(plain.agents[0].fingerprint, other.agents[0].fingerprint);
}
