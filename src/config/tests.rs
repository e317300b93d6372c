//! What is accepted, what is refused, and how that is said.

mod agents;
mod depends;
mod fuzz;
mod layers;
mod packs;

mod pools;
mod rigs;
mod spec;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gascity_actors::model::AgentSpec;
use tempfile::TempDir;

use super::source::LARGEST;
use super::*;

/// A city directory named `demo` with that `city.toml`.
fn city(text: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path().canonicalize().expect("exists").join("demo");
    fs::create_dir(&root).expect("created");
    fs::write(root.join(FILE), text).expect("written");
    fs::set_permissions(root.join(FILE), fs::Permissions::from_mode(0o644)).expect("set");
    (dir, root)
}

fn loaded(text: &str) -> LoadedCity {
    let (_dir, root) = city(text);
    Loader::new(root)
        .gc_exe("/opt/gc")
        .load()
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn refused(text: &str) -> LoadError {
    let (_dir, root) = city(text);
    load(&root)
        .err()
        .unwrap_or_else(|| panic!("accepted: {text}"))
}

/// Code, line, column and path of each problem.
fn places(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .map(|d| format!("{} {}:{} {}", d.code, d.line, d.column, d.path))
        .collect()
}

/// The one problem of a file.
fn only(text: &str) -> Diagnostic {
    let mut diagnostics = refused(text).diagnostics;
    diagnostics.retain(|found| found.severity == "error");
    assert_eq!(diagnostics.len(), 1, "{text}: {diagnostics:#?}");
    diagnostics.remove(0)
}

/// An agent in a directory, with further lines.
fn agent_in(dir: &str, name: &str, more: &str) -> String {
    format!("[[agent]]\nname = '{name}'\ndir = '{dir}'\nstart_command = 'x'\n{more}\n")
}

fn first_agent(text: &str) -> Arc<AgentSpec> {
    loaded(text).spec.agents[0].clone()
}

const AGENT: &str = "[[agent]]\nname = \"a\"\nstart_command = \"sleep 60\"\n";

#[test]
fn an_empty_file_is_a_city_named_after_its_directory() {
    // Row 1.
    let (_dir, root) = city("");
    let city = load(&root).expect("valid");
    assert_eq!(city.spec.name.as_str(), "demo");
    assert_eq!(city.spec.root, root);
    assert!(city.spec.agents.is_empty() && city.warnings.is_empty() && city.report.is_empty());
    assert_eq!(city.spec.daemon, gascity_actors::model::Daemon::default());
    assert_eq!(city.session, SessionSettings::default());
}

#[test]
fn an_unknown_key_is_rendered_with_its_line_and_the_key_that_was_meant() {
    // Row 2.
    let text = format!("{}[daemon]\nmax_restart = 3\n", "\n".repeat(10));
    assert_eq!(
        refused(&text).to_string(),
        "\
error[unknown-key]: `max_restart` is not a key of [daemon]
  --> city.toml:12:1
   |
12 | max_restart = 3
   | ^^^^^^^^^^^ unknown key
   = path: daemon.max_restart
   = help: did you mean `max_restarts`?"
    );
}

#[test]
fn a_diagnostic_names_both_ends_of_its_place() {
    let found = only("[daemon]\nmax_restart = 3\n");
    assert_eq!(
        (found.line, found.column, found.end_line, found.end_column),
        (2, 1, 2, 12)
    );
    assert_eq!(
        (found.severity.as_str(), found.file.as_str()),
        ("error", "city.toml")
    );
}

#[test]
fn an_unknown_key_gets_the_help_that_fits() {
    for (text, help) in [
        ("[daemn]\n", Some("did you mean `daemon`?")),
        (
            "patrol_interval = '1s'\n",
            Some("`patrol_interval` belongs to [daemon]"),
        ),
        (
            "[workspace]\nmax_restarts = 3\n",
            Some("`max_restarts` belongs to [daemon] or [[agent]]"),
        ),
        ("[daemon]\nabsolutely_unheard_of = 1\n", None),
    ] {
        let found = only(text);
        assert_eq!(
            (found.code.as_str(), found.help.as_deref()),
            ("unknown-key", help),
            "{text}"
        );
    }
}

#[test]
fn a_number_for_a_duration_is_a_wrong_type_with_the_duration_that_was_meant() {
    // Row 3.
    let found = only("[daemon]\npatrol_interval = 30\n");
    assert_eq!(found.code, "wrong-type");
    assert_eq!((found.line, found.column), (2, 19));
    assert_eq!(found.help.as_deref(), Some("did you mean \"30s\"?"));
    assert_eq!(found.expected.as_deref(), Some("duration string"));
    assert_eq!(found.found.as_deref(), Some("integer"));
}

#[test]
fn values_outside_their_grammar_or_range_are_invalid() {
    // Row 4 and others.
    for line in [
        "[daemon]\npatrol_interval = '5mins'",
        "[daemon]\npatrol_interval = '-5s'",
        "[daemon]\npatrol_interval = '10ms'",
        "[daemon]\nrestart_window = '0'",
        "[daemon]\nmax_restarts = -1",
        "[daemon]\nmax_restarts = 99999999999999999999999",
        "[daemon]\nstart_parallelism = 0",
        "[session]\nprovider = 'acp'",
        "[session]\nprovider = 'exec:'",
        "[session]\nstdin = 'file'",
        "[workspace]\nname = 'a b'",
        "[[agent]]\nname = 'a--b'\nstart_command = 'x'",
        "[[agent]]\nname = 'a/b'\nstart_command = 'x'",
        "[[agent]]\nname = 'a'\nstart_command = ' '",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nrestart = 'always'",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nrestart_strategy = 'all'",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nsession_live = ['']",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\ndir = '/abs'",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\ndir = 'a//b'",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\npool = { max = -2 }",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\npool = { check_timeout = '0' }",
        "[daemon]\ncheck_timeout = '0'",
        "[daemon]\non_drift = 'always'",
        "[workspace]\nmax_agents = -1",
        "[[rigs]]\nname = 'r'\npath = '~root/x'",
        "[[rigs]]\nname = 'r'\npath = '/'\nprefix = 'Ab'",
        "[[rigs]]\nname = 'r'\npath = '/'\nprefix = 'abcdefghi'",
        "[[agent]]\nname = 'a'\nstart_command = \"x\\u0000\"",
    ] {
        assert_eq!(only(line).code, "invalid-value", "{line}");
    }
}

#[test]
fn values_of_another_type_are_refused() {
    for line in [
        "workspace = 3",
        "agent = 3",
        "[agent]\nname = 'a'",
        "agent = ['a']",
        "[workspace]\nsuspended = 'yes'",
        "[rigs]\nname = 'a'",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\npool = 3",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\npool = { max = '3' }",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\ndepends_on = 'b'",
        "[workspace]\nstart_command = 3",
        "[session]\nenv_passthrough = ['A', 1]",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nenv = { A = 1 }",
    ] {
        assert_eq!(only(line).code, "wrong-type", "{line}");
    }
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_file() {
    let text = "[daemon]\nmax_restart = 3\n[[agent]]\nname = 'a'\nstart_command = 'x'\nsuspended = 1\nnmae = 'x'\n";
    assert_eq!(
        places(&refused(text).diagnostics),
        [
            "unknown-key 2:1 daemon.max_restart",
            "wrong-type 6:13 agent[0].suspended",
            "unknown-key 7:1 agent[0].nmae"
        ]
    );
}

#[test]
fn only_the_first_hundred_problems_are_reported() {
    let text: String = (0..150).map(|i| format!("unheard_of_{i} = 1\n")).collect();
    assert_eq!(refused(&text).diagnostics.len(), 100);
}

#[test]
fn a_table_defined_twice_is_a_duplicate_key_that_names_the_first() {
    // Row 8.
    let found = only("[workspace]\nname = 'x'\n\n[workspace]\n");
    assert_eq!(
        (found.code.as_str(), found.line, found.column),
        ("duplicate-key", 4, 2)
    );
    assert_eq!((found.related[0].line, found.related[0].column), (1, 2));
}

#[test]
fn a_syntax_error_hides_semantic_checks() {
    assert_eq!(
        places(&refused("[daemon]\nmax_restart = 3\nx = \n").diagnostics),
        ["syntax 3:5 "]
    );
}

#[test]
fn an_agent_name_used_twice_names_the_first() {
    // Row 9, first half.
    let found = only(&format!("{AGENT}{AGENT}"));
    assert_eq!(
        (found.code.as_str(), found.line, found.column),
        ("duplicate-name", 5, 8)
    );
    assert_eq!((found.related[0].line, found.related[0].column), (2, 8));
}

#[test]
fn an_agent_without_name_or_command_is_reported_at_its_header() {
    // Row 20.
    let found = only("\n[[agent]]\nstart_command = 'x'\n");
    assert_eq!(
        (found.code.as_str(), found.line, found.column),
        ("missing-key", 2, 1)
    );
    let found = only("\n[[agent]]\nname = 'x'\n");
    assert_eq!(
        (found.code.as_str(), found.line, found.column),
        ("missing-key", 2, 1)
    );
    assert!(found.help.expect("help").contains("demo"));
}

#[test]
fn a_preset_that_does_not_exist_is_an_unknown_reference() {
    for (preset, help) in [
        ("dmeo", "did you mean \"demo\"?"),
        ("cluade", "did you mean \"claude\"?"),
    ] {
        let found = only(&format!("[[agent]]\nname = 'a'\nprovider = '{preset}'\n"));
        assert_eq!(
            (found.code.as_str(), found.help.as_deref()),
            ("unknown-ref", Some(help))
        );
    }
}

#[test]
fn variables_of_gc_itself_are_reserved() {
    // Row 24, first half.
    let found = only(&format!("{AGENT}env = {{ GC_AGENT = 'x' }}\n"));
    assert_eq!(
        (found.code.as_str(), found.path.as_str(), found.column),
        ("reserved-env", "agent[0].env.GC_AGENT", 9)
    );
}

#[test]
fn a_first_delay_beyond_the_longest_is_a_conflict() {
    for (text, line) in [
        (
            "[daemon]\nrestart_delay = '10s'\nrestart_delay_max = '5s'\n",
            3,
        ),
        (
            "[daemon]\nrestart_delay_max = '5s'\nrestart_delay = '10s'\n",
            3,
        ),
        ("[daemon]\nrestart_delay = '31s'\n", 2),
    ] {
        let found = only(text);
        assert_eq!(
            (found.code.as_str(), found.line),
            ("conflict", line),
            "{text}"
        );
    }
}

#[test]
fn keys_of_the_older_tool_warn_and_the_city_loads() {
    // Row 47.
    let city = loaded(&format!("[dolt]\nport = 1\n{AGENT}wake_mode = 'x'\n"));
    assert_eq!(
        places(&city.warnings),
        [
            "unsupported-key 1:2 dolt",
            "unsupported-key 6:1 agent[0].wake_mode"
        ]
    );
    assert!(
        city.report
            .starts_with("warning[unsupported-key]: `dolt` is not supported, ignored")
    );
    assert_eq!(
        only(&format!("{AGENT}wake_mod = 'x'\n")).code,
        "unknown-key"
    );
}

#[test]
fn the_users_own_tables_are_left_alone() {
    assert!(
        loaded("[x]\na = 1\n[x.y]\nb = { c = [1] }\n")
            .warnings
            .is_empty()
    );
}

#[test]
fn env_values_appear_in_no_output() {
    for text in [
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nenv = { A = 'hunter2', B = 1, GC_X = 'hunter2' }\n",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nenv = 'hunter2'\n",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\nevn = { A = 'hunter2' }\n",
        "[[agent]]\nname = 'a'\n[agent.env]\nA = 'hunter2'\nB = 7331\n",
        "[[agent]]\nname = 'a'\nenv = { A = 'hunter2' B = 'hunter2 }\n",
        "[[agent]]\nname = 'a'\n[agent.env]\nA = hunter2\nB = \"hunter2\n",
    ] {
        let error = refused(text);
        let json = serde_json::to_string(&error.diagnostics).expect("text");
        assert!(
            !error.summary.contains("hunter2") && !json.contains("hunter2"),
            "{text}\n{}",
            error.summary
        );
        assert!(!error.summary.contains("7331"), "{}", error.summary);
    }
}

#[test]
fn a_caret_behind_a_masked_value_keeps_its_true_position() {
    let error = refused(&format!(
        "{AGENT}env = {{ A = 'a long secret value', GC_X = 'y' }}\n"
    ));
    assert_eq!(error.diagnostics[0].column, 36);
    assert!(
        error.summary.contains("--> city.toml:4:36"),
        "{}",
        error.summary
    );
    assert!(
        error
            .summary
            .contains("4 | env = { A = ***, GC_X = *** }\n  |                  ^^^^ "),
        "{}",
        error.summary
    );
}

#[test]
fn files_that_cannot_be_config_are_refused_whole() {
    let (_dir, root) = city(vec![b'#'; (LARGEST + 1) as usize]);
    assert_eq!(
        load(&root).expect_err("too large").diagnostics[0].code,
        "limit"
    );
    fs::write(root.join(FILE), vec![b'#'; LARGEST as usize]).expect("written");
    assert!(load(&root).is_ok(), "as large as allowed");
    fs::write(root.join(FILE), b"a = 1\nb = '\xff'\n").expect("written");
    let error = load(&root).expect_err("not text");
    assert_eq!(
        (
            error.diagnostics[0].code.as_str(),
            error.diagnostics[0].line
        ),
        ("syntax", 2)
    );
    fs::remove_file(root.join(FILE)).expect("removed");
    let error = load(&root).expect_err("missing");
    assert_eq!(error.diagnostics[0].code, "file-missing");
    assert!(error.summary.contains("there is no city.toml in"));
    fs::create_dir(root.join(FILE)).expect("created");
    assert!(
        load(&root)
            .expect_err("a directory")
            .summary
            .contains("not a regular file")
    );
}

#[test]
fn a_directory_name_that_is_no_city_name_needs_a_configured_one() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path().join("my city");
    fs::create_dir(&root).expect("created");
    fs::write(root.join(FILE), "").expect("written");
    let error = load(&root).expect_err("no name");
    assert_eq!(
        places(&error.diagnostics),
        ["missing-key 1:1 workspace.name"]
    );
    fs::write(root.join(FILE), "[workspace]\nname = 'mine'\n").expect("written");
    assert_eq!(load(&root).expect("named").spec.name.as_str(), "mine");
}

#[test]
fn line_ends_of_other_systems_are_not_shown() {
    let summary = refused("[daemon]\r\nmax_restart = 3\r\n").summary;
    assert!(summary.contains("\n2 | max_restart = 3\n"), "{summary}");
}
