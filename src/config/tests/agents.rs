//! What agents run: providers, prompts, templates, overlays, sessions.

use gascity_actors::model::PromptMode;

use super::layers::{errors, files, told, write};
use super::*;

#[test]
fn a_table_named_like_a_preset_merges_over_it() {
    // Row 21.
    let agent = first_agent(
        "[providers.claude]\nargs = ['--x']\n[[agent]]\nname = 'a'\nprovider = 'claude'\n",
    );
    assert_eq!(agent.launch.command.to_string(), "claude --x");
    assert_eq!(agent.launch.ready_prompt_prefix.as_deref(), Some("❯ "));
    assert_eq!(agent.launch.ready_delay.map(|d| d.as_secs()), Some(10));
    assert_eq!(agent.process_names, ["node", "claude"]);
}

#[test]
fn dialogs_of_a_preset_are_known_and_replaced_by_ones_of_your_own() {
    let asked = |provider: &str| {
        let toml = format!("{provider}[[agent]]\nname = 'a'\nprovider = 'claude'\n");
        let dismiss = loaded(&toml).spec.agents[0].launch.dismiss.clone();
        let lines = dismiss
            .iter()
            .map(|d| format!("{}: {}", d.matches, d.keys.join(" ")));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(
        asked(""),
        [
            "Do you trust the files in this folder?: Enter",
            "Yes, I trust this folder: Enter",
            "Bypass Permissions mode: Down Enter"
        ]
    );
    let own = "[[providers.claude.dismiss]]\nmatch = 'Really?'\nkeys = ['y', 'Enter']\n";
    assert_eq!(asked(own), ["Really?: y Enter"]);
    assert_eq!(asked("[providers.claude]\ndismiss = []\n"), [""; 0]);
    let anew = "[providers.claude]\n_replace = true\ncommand = 'claude'\n";
    assert_eq!(asked(anew), [""; 0]);
}

#[test]
fn providers_are_derived_replaced_and_checked() {
    let agent = first_agent(
        "[providers.mine]\nbase = 'codex'\ncommand = 'wrap codex'\n[[agent]]\nname = 'a'\nprovider = 'mine'\n",
    );
    assert_eq!(
        agent.launch.command.to_string(),
        "wrap codex --dangerously-bypass-approvals-and-sandbox"
    );
    assert_eq!(agent.launch.prompt.mode, PromptMode::None);
    let agent = first_agent(
        "[providers.amp]\n_replace = true\ncommand = 'amp'\n[[agent]]\nname = 'a'\nprovider = 'amp'\nargs = ['-q']\n",
    );
    assert_eq!(agent.launch.command.to_string(), "amp -q");
    let found = refused("[providers.a]\nbase = 'b'\n[providers.b]\nbase = 'a'\n");
    assert_eq!(found.diagnostics[0].code, "invalid-value");
    assert_eq!(only("[providers.a]\nargs = []\n").code, "missing-key");
    let found = only("[[agent]]\nname = 'a'\n");
    assert!(found.help.expect("help").contains("claude, codex, gemini"));
}

#[test]
fn a_mode_that_needs_a_flag_and_has_none_is_a_conflict() {
    // Row 10.
    let found = only(&format!("{AGENT}prompt_mode = 'flag'\n"));
    assert_eq!(
        (found.code.as_str(), found.path.as_str()),
        ("conflict", "agent[0].prompt_mode")
    );
    let agent = first_agent(&format!(
        "{AGENT}prompt_mode = 'flag'\nprompt_flag = '-p'\n"
    ));
    assert_eq!(
        (agent.launch.prompt.mode, agent.launch.prompt.flag.as_str()),
        (PromptMode::Flag, "-p")
    );
    assert_eq!(
        only(&format!("{AGENT}pool = {{ min = 3, max = 2 }}\n")).code,
        "conflict"
    );
}

#[test]
fn a_bad_template_is_shown_inside_its_string() {
    // Row 19.
    let found = only(&format!("{AGENT}session_setup = [\"x {{{{.Nope}}}}\"]\n"));
    assert_eq!(
        (found.code.as_str(), found.line, found.column),
        ("bad-template", 4, 21)
    );
    assert_eq!(found.path, "agent[0].session_setup[0]");
    assert!(found.help.expect("help").contains(".WorkDir"));
    let found = only(&format!("{AGENT}work_dir = 'x/{{{{.Session}}}}'\n"));
    assert_eq!((found.code.as_str(), found.column), ("bad-template", 15));
}

#[test]
fn templates_are_filled_in_and_pools_get_their_own() {
    let (_dir, root) = files(&[(
        "city.toml",
        "[[agent]]\nname = 'w'\ndir = 'd'\nstart_command = 'x'\nwork_dir = 'wt/{{.AgentBase}}'\npre_start = ['echo {{q .WorkDir}} {{.Session}} {{.CityName}} {{.ConfigDir}}']\nsession_live = ['true {{.Agent}}']\n[agent.pool]\nmax = 2\n[[agent]]\nname = 'one'\nstart_command = 'x'\npre_start = ['{{.Agent}} {{{{']\n",
    )]);
    let city = load(&root).expect("valid");
    let instance = city.spec.agents[0].instance(2);
    let dir = root.join("wt/w-2");
    assert_eq!(instance.launch.work_dir, dir);
    let line = format!("echo {} d--w-2 demo {}", dir.display(), root.display());
    assert_eq!(instance.launch.pre_start, [line]);
    assert_eq!(instance.live, ["true d/w-2"]);
    let other = city.spec.agents[0].instance(1);
    assert_ne!(instance.fingerprint.hash, other.fingerprint.hash);
    assert_eq!(city.spec.agents[1].launch.pre_start, ["one {{"]);
}

#[test]
fn sessions_are_named_by_their_template() {
    let text = "[workspace]\nname = 'my.city'\nsession_template = '{{.City}}-{{.Agent}}'\n[[agent]]\nname = 'w'\ndir = 'd'\nstart_command = 'x'\n";
    assert_eq!(first_agent(text).session.as_str(), "my_city-d--w");
    let pool = first_agent(&format!("{text}pool = {{ max = 2 }}\n"));
    assert_eq!(pool.instance(2).session.as_str(), "my_city-d--w-2");
    let found = only(
        &text
            .replace("{{.Agent}}", "x")
            .replace("[[agent]]", &format!("{AGENT}[[agent]]")),
    );
    assert_eq!(found.code, "duplicate-name");
    let long = format!(
        "[workspace]\nsession_template = '{}'\n{AGENT}",
        "x".repeat(129)
    );
    assert_eq!(only(&long).code, "invalid-value");
}

#[test]
fn a_prompt_has_variables_and_fragments_and_is_part_of_the_fingerprint() {
    let (_dir, root) = files(&[
        (
            "city.toml",
            "[[agent]]\nname = 'a'\nstart_command = 'x'\nprompt_template = 'prompts/a.md.tmpl'\nenv = { TEAM = 'red' }\n",
        ),
        (
            "prompts/a.md.tmpl",
            "I am {{.Agent}} of {{.TEAM}} in {{.CityName}}. {{fragment \"rules\"}}",
        ),
        ("prompts/shared/rules.md", "Be {{kind}}."),
    ]);
    let agent = |root: &Path| load(root).expect("valid").spec.agents[0].clone();
    let before = agent(&root);
    let text = before.launch.prompt.text.as_ref().expect("a prompt");
    let rendered = text.render(|name| (name == "TEAM").then(|| "red".into()));
    assert_eq!(rendered, "I am a of red in demo. Be {{kind}}.");
    assert_eq!(before.launch.prompt.mode, PromptMode::Arg);
    write(&root.join("prompts/shared/rules.md"), "Be quick.");
    let after = agent(&root);
    assert_eq!(
        before.fingerprint.differing_keys(&after.fingerprint),
        ["prompt.source"]
    );
    write(&root.join("prompts/a.md.tmpl"), "line\n{{.Nope}}");
    assert_eq!(told(&errors(&root)), ["bad-template prompts/a.md.tmpl:2:1"]);
    write(&root.join("prompts/a.md.tmpl"), "{{fragment \"gone\"}}");
    assert_eq!(told(&errors(&root)), ["unknown-ref city.toml:4:19"]);
}

#[test]
fn a_prompt_that_does_not_arrive_is_a_warning() {
    let (_dir, root) = files(&[
        (
            "city.toml",
            "[[agent]]\nname = 'a'\nprovider = 'codex'\nprompt_template = 'p.md'\n",
        ),
        ("p.md", "hello"),
    ]);
    let city = load(&root).expect("valid");
    assert_eq!(told(&city.warnings), ["prompt-undelivered city.toml:4:19"]);
}

#[test]
fn overlays_and_scripts_are_part_of_the_fingerprint() {
    let (_dir, root) = files(&[
        (
            "city.toml",
            "[[agent]]\nname = 'a'\nstart_command = 'x'\noverlay_dir = 'over'\nsession_setup_script = 'setup.sh'\nfingerprint_extra = { n = '1' }\ninstall_agent_hooks = ['claude']\n",
        ),
        ("over/x", "1"),
        ("setup.sh", "#!/bin/sh\n"),
    ]);
    assert_eq!(told(&errors(&root)), ["invalid-value city.toml:5:24"]);
    fs::set_permissions(root.join("setup.sh"), fs::Permissions::from_mode(0o755)).expect("set");
    let agent = || load(&root).expect("valid").spec.agents[0].clone();
    let before = agent();
    let built_in = root.join(".gc/system/hooks/claude");
    assert_eq!(before.launch.overlays, [built_in, root.join("over")]);
    write(&root.join("over/y/z"), "2");
    assert_eq!(
        before.fingerprint.differing_keys(&agent().fingerprint),
        ["overlay.0001"]
    );
    // A set of the city's own goes before the one that gc brings along.
    let before_own = agent();
    write(&root.join("hooks/claude/mine"), "1");
    let own = agent();
    assert_eq!(own.launch.overlays[0], root.join("hooks/claude"));
    assert_eq!(
        before_own.fingerprint.differing_keys(&own.fingerprint),
        ["overlay.0000"]
    );
    for key in ["fp.n", "session_setup_script"] {
        assert!(before.fingerprint.fields.contains_key(key), "{key}");
    }
}

#[test]
fn hook_sets_that_are_not_there_are_named() {
    let text = |sets: &str| format!("{AGENT}install_agent_hooks = [{sets}]\n");
    let all = "'claude', 'codex', 'gemini', 'opencode', 'copilot', 'cursor'";
    let (_dir, root) = files(&[("city.toml", &text(all))]);
    let city = load(&root).expect("valid");
    assert!(city.warnings.is_empty(), "{}", city.report);
    assert_eq!(city.spec.agents[0].launch.overlays.len(), 6);
    // Of the older tool: one warning each, and the city loads.
    write(&root.join("city.toml"), &text("'pi', 'omp'"));
    let city = load(&root).expect("valid");
    let codes: Vec<&str> = city.warnings.iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["unsupported-key", "unsupported-key"]);
    write(&root.join("city.toml"), &text("'cluade'"));
    let found = errors(&root);
    assert_eq!(found[0].code, "unknown-ref");
    assert_eq!(found[0].help.as_deref(), Some("did you mean \"claude\"?"));
}

#[test]
fn the_published_fingerprint_is_that_of_a_loaded_agent() {
    // Row 43: the second vector of config.md 6, through the loader.
    let text = "[[agent]]\nname = 'a'\nstart_command = \"sh -c 'sleep 60'\"\nwork_dir = '/c'\nnudge = 'go'\nsession_setup = ['echo hi']\n[agent.env]\nB = '${TOKEN}'\nA = '1'\n";
    assert_eq!(
        first_agent(text).fingerprint.hash,
        "v1:f24b1aad71539eec0cb4c89c598376a7cb79a07f033afaea98a4098fd1e252b2"
    );
    let live = first_agent(&format!("{AGENT}session_live = ['true']\n"));
    assert_eq!(
        live.live_hash(),
        "v1:787d91a77917a22b668498831fd7a7ec2277a30d803f963ba503cf1d3f0f184b"
    );
}

#[test]
fn hot_keys_change_no_fingerprint_and_others_only_their_agent() {
    // Rows 38 and 39, the part of the config.
    let base = format!(
        "{AGENT}work_dir = '/c'\n[[agent]]\nname = 'b'\nwork_dir = '/c'\nstart_command = 'y'\nenv = {{ A = '1' }}\n"
    );
    let hash = |text: &str, i: usize| loaded(text).spec.agents[i].fingerprint.clone();
    for hot in [
        "idle_timeout = '5m'",
        "depends_on = ['a']",
        "pool = { max = 4 }",
        "ready_delay_ms = 5",
        "restart = 'temporary'",
        "process_names = ['x']",
    ] {
        assert_eq!(hash(&base, 1), hash(&format!("{base}{hot}\n"), 1), "{hot}");
    }
    let changed = base.replace("'1'", "'2'");
    assert_eq!(hash(&base, 0), hash(&changed, 0));
    assert_eq!(hash(&base, 1).differing_keys(&hash(&changed, 1)), ["env.A"]);
}

#[test]
fn agents_at_intervals_are_checked_and_held() {
    let text = format!("{AGENT}every = '5m'\n");
    let agent = first_agent(&text);
    assert!(agent.held.as_ref().expect("held").contains("every"));
    assert_eq!(
        only(&format!("{text}pool = {{ max = 2 }}\n")).code,
        "conflict"
    );
    let watched = format!(
        "{AGENT}[agent.heartbeat]\ntriage = 'b'\n[[agent]]\nname = 'b'\nstart_command = 'x'\n"
    );
    assert_eq!(only(&watched).code, "conflict");
    let judged = loaded(&format!("{watched}every = '1m'\n"));
    assert_eq!(judged.spec.agents.len(), 2);
    assert_eq!(
        only(&format!("{AGENT}heartbeat = {{ stale_after = '20m' }}\n")).code,
        "conflict"
    );
    assert_eq!(
        only(&format!("{AGENT}heartbeat = {{ triage = 'x' }}\n")).code,
        "unknown-ref"
    );
}

#[test]
fn keys_without_effect_say_so() {
    let city = loaded("[daemon]\nwisp_ttl = '7d'\n[beads]\nprovider = 'file'\n");
    let codes: Vec<&str> = city.warnings.iter().map(|d| d.code.as_str()).collect();
    assert_eq!(codes, ["ignored-key", "half-configured", "ignored-key"]);
}

#[test]
fn durations_of_every_form_are_read() {
    // Row 5.
    for (text, seconds) in [("7d", 604_800), ("1h30m", 5400), ("1.5h", 5400)] {
        let (_dir, root) = city(format!(
            "[daemon]\nwisp_ttl = '{text}'\nwisp_gc_interval = '1h'\nrestart_window = '{text}'\n{AGENT}"
        ));
        let city = load(&root).expect("valid");
        assert_eq!(
            city.spec.agents[0].limit.window.as_secs(),
            seconds,
            "{text}"
        );
    }
}

#[test]
fn pods_need_an_image() {
    assert_eq!(
        only("[session]\nprovider = 'k8s'\n").path,
        "session.k8s.image"
    );
}
