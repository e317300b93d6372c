//! Edits change what they say, and nothing else.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::source::FILE;
use super::*;

fn city(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("demo");
    fs::create_dir(&root).unwrap();
    fs::write(root.join(FILE), text).unwrap();
    (dir, root)
}

fn agent(name: &str) -> Target {
    Target::Agent(AgentName::new(name).unwrap())
}

/// The file after a suspend, and after the resume that follows it.
fn there_and_back(text: &str, target: &Target) -> (String, String) {
    let (_dir, root) = city(text);
    let edit = |suspended| {
        let edited = set_suspended(&root, target, suspended)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(edited, Edited::Changed, "{text}");
        let again = set_suspended(&root, target, suspended).unwrap();
        assert_eq!(again, Edited::Unchanged, "{text}");
        fs::read_to_string(root.join(FILE)).unwrap()
    };
    (edit(true), edit(false))
}

fn check(text: &str, target: &Target, suspended: &str) {
    let (there, back) = there_and_back(text, target);
    assert_eq!(there, suspended);
    assert_eq!(back, text);
}

const COMMENTED: &str = "\
# My city.
[workspace]   # the city
  name = 'demo' # its name

[[rigs]]
path = '/' # everything
name = 'r'
# --- agents ---
[[agent]]
dir = 'r'
name = 'w'          # the worker
start_command = '''
run
'''
[agent.env]
A = '1'

[[agent]]
name = 'w'
start_command = 'x'
";

#[test]
fn suspend_and_resume_give_back_the_original_bytes() {
    for (target, line) in [
        (Target::City, "  name = 'demo' # its name\n"),
        (Target::Rig("r".into()), "name = 'r'\n"),
        (agent("r/w"), "name = 'w'          # the worker\n"),
        (agent("w"), "[[agent]]\nname = 'w'\n"),
    ] {
        let indent = if target == Target::City { "  " } else { "" };
        let expected = COMMENTED.replace(line, &format!("{line}{indent}suspended = true\n"));
        check(COMMENTED, &target, &expected);
    }
}

#[test]
fn every_way_to_write_a_table_is_edited_in_its_own_style() {
    let city = Target::City;
    for (text, suspended) in [
        ("", "workspace.suspended = true\n"),
        ("# hi\r\n", "workspace.suspended = true\r\n# hi\r\n"),
        (
            "\u{feff}[daemon]\n",
            "\u{feff}workspace.suspended = true\n[daemon]\n",
        ),
        ("\u{feff}", "\u{feff}workspace.suspended = true\n"),
        ("[workspace]", "[workspace]\nsuspended = true"),
        (
            "[ workspace ] # x\n[daemon]\n",
            "[ workspace ] # x\nsuspended = true\n[daemon]\n",
        ),
        (
            "[workspace]\r\nname = 'x'\r\n",
            "[workspace]\r\nname = 'x'\r\nsuspended = true\r\n",
        ),
        (
            "[workspace]\nname = 'x'",
            "[workspace]\nname = 'x'\nsuspended = true",
        ),
        (
            "workspace.name = 'x'\n",
            "workspace.name = 'x'\nworkspace.suspended = true\n",
        ),
        (
            " workspace . max_agents = 3\n",
            " workspace . max_agents = 3\n workspace . suspended = true\n",
        ),
        ("workspace = {}\n", "workspace = {suspended = true}\n"),
        (
            "workspace = { name = 'x' }\n",
            "workspace = { name = 'x', suspended = true }\n",
        ),
        (
            "workspace = {\n  max_agents = 1, # one\n  name = 'x', # us\n}\n",
            "workspace = {\n  max_agents = 1, # one\n  name = 'x', suspended = true, # us\n}\n",
        ),
    ] {
        check(text, &city, suspended);
    }
    check(
        "agent = [{ name = 'a', start_command = 'x' }, { name = 'b', start_command = 'x' }]\n",
        &agent("b"),
        "agent = [{ name = 'a', start_command = 'x' }, { name = 'b', suspended = true, start_command = 'x' }]\n",
    );
}

#[test]
fn a_key_that_the_user_wrote_is_changed_in_place_and_its_comment_stays() {
    let text = "[[agent]]\nname = 'a'\nsuspended = false # for now\nstart_command = 'x'\n";
    let (there, back) = there_and_back(text, &agent("a"));
    assert_eq!(there, text.replace("false", "true"));
    assert_eq!(
        back,
        text.replace("suspended = false # for now", "# for now")
    );
    let inline = "workspace = { suspended = true, name = 'x' }\n";
    let (_dir, root) = city(inline);
    assert_eq!(
        set_suspended(&root, &Target::City, false).unwrap(),
        Edited::Changed
    );
    assert_eq!(
        fs::read_to_string(root.join(FILE)).unwrap(),
        "workspace = { name = 'x' }\n"
    );
}

#[test]
fn unknown_names_suggest_the_one_that_was_meant() {
    let (_dir, root) = city(COMMENTED);
    let said = |target| set_suspended(&root, &target, true).unwrap_err().to_string();
    assert_eq!(
        said(agent("r/v")),
        "there is no agent `r/v`; did you mean `r/w`?"
    );
    assert_eq!(said(agent("unheard-of")), "there is no agent `unheard-of`");
    assert_eq!(
        said(Target::Rig("rr".into())),
        "there is no rig `rr`; did you mean `r`?"
    );
    assert_eq!(fs::read_to_string(root.join(FILE)).unwrap(), COMMENTED);
}

#[test]
fn a_file_with_errors_is_never_edited() {
    for text in [
        "[daemon]\nmax_restart = 3\n",
        "[workspace\n",
        "a = '\u{0}'\n",
    ] {
        let (_dir, root) = city(text);
        let error = set_suspended(&root, &Target::City, true).unwrap_err();
        assert!(matches!(error, EditError::Invalid(_)), "{error}");
        assert_eq!(fs::read_to_string(root.join(FILE)).unwrap(), text);
    }
    let (_dir, root) = city("");
    fs::remove_file(root.join(FILE)).unwrap();
    assert!(matches!(
        set_suspended(&root, &Target::City, true),
        Err(EditError::Io(_))
    ));
}

#[test]
fn an_edit_keeps_mode_and_link_and_leaves_nothing_beside_the_file() {
    let (dir, root) = city("");
    let real = dir.path().join("real.toml");
    fs::rename(root.join(FILE), &real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../real.toml", root.join(FILE)).unwrap();
    let _ = set_suspended(&root, &Target::City, true).unwrap();
    assert!(fs::symlink_metadata(root.join(FILE)).unwrap().is_symlink());
    assert_eq!(
        fs::read_to_string(&real).unwrap(),
        "workspace.suspended = true\n"
    );
    assert_eq!(
        fs::metadata(&real).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
}

/// Blank lines, comments and lines of other tables, as people leave them.
fn noise() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            Just(String::new()),
            "# ?[a-z\\[\\]='\" ]{0,12}".prop_map(|text| text),
            Just("# suspended = true".to_owned()),
        ],
        0..3,
    )
    .prop_map(|lines| lines.iter().map(|line| format!("{line}\n")).collect())
}

/// A table with its keys in some order, indented and commented somehow.
fn written(header: &'static str, keys: Vec<String>) -> impl Strategy<Value = String> {
    (
        Just(keys).prop_shuffle(),
        prop::collection::vec(noise(), 6),
        prop_oneof![Just(""), Just("  "), Just("\t")],
        prop_oneof![Just(""), Just(" # why"), Just("   ")],
    )
        .prop_map(move |(keys, noise, indent, comment)| {
            let mut text = format!("{}{header}{comment}\n", noise[0]);
            for (key, noise) in keys.iter().zip(&noise[1..]) {
                text.push_str(&format!("{noise}{indent}{key}{comment}\n"));
            }
            text
        })
}

fn item(header: &'static str, keys: &[&str]) -> BoxedStrategy<String> {
    written(header, keys.iter().map(|key| (*key).to_owned()).collect()).boxed()
}

fn file() -> impl Strategy<Value = String> {
    let command = "start_command = '''\nx\nsuspended = true\n'''";
    (
        prop_oneof![
            Just(String::new()),
            item("[workspace]", &["name = 'x'", "max_agents = 3"]),
            item("", &["workspace.name = \"x\""]),
            item("", &["workspace = { max_agents = 3 }"]),
        ],
        item(
            "[x]",
            &["suspended = true", "none = nan", "day = 2020-01-02"],
        ),
        item("[[rigs]]", &["name = 'r'", "path = '/'"]),
        item(
            "[[agent]]",
            &["name = \"a\"", "start_command = 'x'", "dir = 'r'"],
        ),
        item("[agent.env]", &["suspended = 'A'"]),
        item("[[agent]]", &["name = 'a'", command, "max_restarts = 1_0"]),
        any::<[bool; 2]>(),
    )
        .prop_map(|(workspace, x, rig, first, env, second, [crlf, cut])| {
            let mut text = [workspace, x, rig, first, env, second].concat();
            if cut {
                text.truncate(text.trim_end_matches('\n').len());
            }
            if crlf {
                text.replace('\n', "\r\n")
            } else {
                text
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_edit_of_any_file_adds_one_line_and_its_undoing_takes_it_away(
        text in file(),
        target in prop_oneof![
            Just(Target::City),
            Just(Target::Rig("r".into())),
            Just(agent("r/a")),
            Just(agent("a")),
        ],
    ) {
        let (_dir, root) = city(&text);
        let spec = |root: &Path| (*super::super::load(root).unwrap().spec).clone();
        let before = spec(&root);
        prop_assert_eq!(set_suspended(&root, &target, true).unwrap(), Edited::Changed);
        let after = spec(&root);
        let held: Vec<bool> = after.agents.iter().map(|agent| agent.suspended).collect();
        let first = target == agent("r/a") || matches!(target, Target::Rig(_));
        prop_assert_eq!((after.suspended, held), (target == Target::City, vec![first, target == agent("a")]));
        let fingerprints = |spec: &gascity_actors::model::CitySpec| {
            spec.agents.iter().map(|agent| agent.fingerprint.hash.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(fingerprints(&before), fingerprints(&after));
        prop_assert_eq!(set_suspended(&root, &target, false).unwrap(), Edited::Changed);
        prop_assert_eq!(fs::read_to_string(root.join(FILE)).unwrap(), text);
        prop_assert_eq!(spec(&root), before);
    }
}

/// A city with comments, a pack with an agent `p`, and some agents of its own.
fn with_pack(text: &str, pack: &str) -> (TempDir, PathBuf) {
    let (dir, root) = city(text);
    fs::create_dir(root.join("pack")).unwrap();
    let head = "[pack]\nname = 'pack'\nschema = 1\n[[agent]]\nname = 'p'\nstart_command = 'x'\n";
    fs::write(root.join("pack/pack.toml"), format!("{head}{pack}")).unwrap();
    (dir, root)
}

/// The agents as loaded, each with whether it is held back.
fn agents(root: &Path) -> Vec<(String, bool, String)> {
    let city = super::super::load(root).unwrap_or_else(|error| panic!("{error}"));
    let agents = city.spec.agents.iter();
    agents
        .map(|a| (a.name.to_string(), a.suspended, a.fingerprint.hash.clone()))
        .collect()
}

fn some_city() -> impl Strategy<Value = String> {
    const PARTS: [&str; 6] = [
        "# a comment\n",
        "\n",
        "[x]\nmine = { a = [1, 2] } # kept\n",
        "[[patches.agent]]\nname = 'p'\nnudge = 'n' # patched\n",
        "[daemon]\nmax_restarts = 3 # three\n",
        "[[rigs]]\nname = 'r1'\npath = '/' # all\n",
    ];
    let agents = prop::collection::vec("[ \t]{0,3}(# [a-zä]{0,9})?", 0..4);
    let parts = prop::sample::subsequence(PARTS.to_vec(), 0..=PARTS.len());
    (parts, agents, any::<bool>()).prop_map(|(parts, agents, crlf)| {
        let mut text = String::from("# head\n[workspace] # here\nincludes = ['pack']\n");
        for (i, tail) in agents.iter().enumerate() {
            text.push_str(&format!(
                "[[agent]]{tail}\nname = 'own{i}'\nstart_command = 'x' {tail}\n"
            ));
        }
        text.extend(parts);
        match crlf {
            true => text.replace('\n', "\r\n"),
            false => text,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_added_table_follows_an_untouched_file_that_loads(text in some_city(), cut in any::<bool>()) {
        let text = match cut {
            true => text.trim_end().to_owned(),
            false => text,
        };
        let (_dir, root) = with_pack(&text, "");
        let before = agents(&root);
        let pairs = [("name", "new".into()), ("start_command", "sleep \"1\"".into())];
        prop_assert_eq!(append(&root, "agent", &pairs).unwrap(), Edited::Changed);
        let after = fs::read_to_string(root.join(FILE)).unwrap();
        prop_assert!(after.starts_with(&text), "{after}");
        let now = agents(&root);
        prop_assert_eq!(&now[..before.len()], &before[..]);
        prop_assert_eq!((now.len(), now.last().unwrap().0.as_str()), (before.len() + 1, "new"));
    }

    #[test]
    fn holding_an_agent_of_a_pack_changes_nothing_else_and_its_undoing_leaves_no_trace(
        text in some_city(), own in any::<bool>(),
    ) {
        let (_dir, root) = with_pack(&text, if own { "suspended = true\n" } else { "" });
        let before = agents(&root);
        let hold = |on| set_suspended(&root, &agent("p"), on).unwrap();
        let read = || fs::read_to_string(root.join(FILE)).unwrap();
        prop_assert_eq!(hold(!own), Edited::Changed);
        let now = agents(&root);
        for (old, new) in before.iter().zip(&now) {
            prop_assert_eq!(new.1, old.1 != (old.0 == "p"));
            prop_assert_eq!((&old.0, &old.2), (&new.0, &new.2));
        }
        // Every line that was there is there, in its order.
        let lines = read();
        let mut lines = lines.lines();
        prop_assert!(text.lines().all(|line| lines.any(|other| other == line)));
        prop_assert_eq!(hold(own), Edited::Changed);
        if !own {
            prop_assert_eq!(read(), text);
        }
        prop_assert_eq!(agents(&root), before);
    }
}

#[test]
fn a_table_that_would_break_the_config_is_not_added() {
    let (_dir, root) = city("[[agent]]\nname = 'a'\nstart_command = 'x'\n");
    let before = fs::read_to_string(root.join(FILE)).unwrap();
    let twice = append(
        &root,
        "agent",
        &[("name", "a".into()), ("start_command", "x".into())],
    );
    let Err(EditError::Refused(error)) = twice else {
        panic!("{twice:?}")
    };
    assert_eq!(error.diagnostics[0].code, "duplicate-name");
    assert_eq!(fs::read_to_string(root.join(FILE)).unwrap(), before);
}
