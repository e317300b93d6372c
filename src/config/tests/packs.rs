//! Packs: local ones, remote ones with a lock, and what may be wrong with them.

use super::super::packs::fetch::{FetchError, PackState, Wanted, fetch, list};
use super::layers::{errors, files, told, write};
use super::*;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

fn pack(name: &str, more: &str) -> String {
    format!("[pack]\nname = '{name}'\nschema = 1\n{more}")
}

fn worker(more: &str) -> String {
    format!("[[agent]]\nname = 'worker'\nstart_command = 'x'\n{more}")
}

fn names(city: &LoadedCity) -> Vec<String> {
    city.spec
        .agents
        .iter()
        .map(|agent| agent.name.to_string())
        .collect()
}

#[test]
fn agents_of_packs_are_stamped_where_the_pack_is_included() {
    let (_dir, root) = files(&[
        (
            "city.toml",
            "[workspace]\nincludes = ['packs/base']\n[[rigs]]\nname = 'r'\npath = '/'\nincludes = ['packs/base']\n",
        ),
        (
            "packs/base/pack.toml",
            &pack(
                "base",
                "[[agent]]\nname = 'both'\nstart_command = 'x'\n[[agent]]\nname = 'lead'\nscope = 'city'\nstart_command = 'x'\n[[agent]]\nname = 'hand'\nscope = 'rig'\nstart_command = 'x'\nprompt_template = 'p.md'\n[global]\nsession_live = ['true {{.ConfigDir}}']\n",
            ),
        ),
        ("packs/base/p.md", "hello"),
        ("packs/base/overlay/f", "x"),
    ]);
    let city = load(&root).expect("valid");
    assert_eq!(names(&city), ["both", "lead", "r/both", "r/hand"]);
    let hand = &city.spec.agents[3];
    assert_eq!(hand.launch.rig.as_ref().expect("in a rig").name, "r");
    assert_eq!(
        hand.live,
        [format!("true {}", root.join("packs/base").display())]
    );
    assert_eq!(hand.launch.overlays, [root.join("packs/base/overlay")]);
    assert_eq!(
        hand.launch
            .prompt
            .text
            .as_ref()
            .expect("prompt")
            .render(|_| None),
        "hello"
    );
}

#[test]
fn a_pack_is_part_of_the_revision_with_all_its_files() {
    let (_dir, root) = files(&[
        ("city.toml", "[workspace]\nincludes = ['p']\n"),
        ("p/pack.toml", &pack("p", "")),
    ]);
    let revision = || load(&root).expect("valid").spec.revision.clone();
    let before = revision();
    write(&root.join("p/sub/notes.txt"), "x");
    assert_ne!(revision(), before);
}

#[test]
fn patches_reach_agents_of_packs() {
    // Row 25, first half.
    let (_dir, root) = files(&[
        (
            "city.toml",
            "[[rigs]]\nname = 'r'\npath = '/'\nincludes = ['p']\n[[rigs.overrides]]\nagent = 'worker'\nnudge = 'over'\n[[patches.agent]]\ndir = 'r'\nname = 'worker'\nstart_command = 'patched'\n",
        ),
        ("p/pack.toml", &pack("p", &worker("nudge = 'own'\n"))),
    ]);
    let city = load(&root).expect("valid");
    let launch = &city.spec.agents[0].launch;
    assert_eq!(
        (launch.command.to_string().as_str(), launch.nudge.as_str()),
        ("patched", "over")
    );
}

#[test]
fn two_agents_of_one_name_are_refused_unless_one_is_a_fallback() {
    // Row 29.
    let (_dir, root) = files(&[
        ("city.toml", "[workspace]\nincludes = ['a', 'b']\n"),
        ("a/pack.toml", &pack("a", &worker(""))),
        ("b/pack.toml", &pack("b", &worker("nudge = 'b'\n"))),
    ]);
    let found = errors(&root);
    assert_eq!(told(&found), ["duplicate-name b/pack.toml:5:8"]);
    assert_eq!(found[0].related[0].file, "a/pack.toml");
    write(
        &root.join("a/pack.toml"),
        &pack("a", &worker("fallback = true\n")),
    );
    let city = load(&root).expect("valid");
    assert_eq!(
        (
            names(&city).len(),
            city.spec.agents[0].launch.nudge.as_str()
        ),
        (1, "b")
    );
    write(
        &root.join("b/pack.toml"),
        &pack("b", &worker("nudge = 'b'\nfallback = true\n")),
    );
    assert_eq!(
        load(&root).expect("valid").spec.agents[0].launch.nudge,
        "",
        "the first wins"
    );
}

#[test]
fn packs_include_each_other_once_and_never_in_a_circle() {
    // Row 30.
    let (_dir, root) = files(&[
        ("city.toml", "[workspace]\nincludes = ['a', 'b']\n"),
        ("a/pack.toml", &pack("a", "includes = ['../base']\n")),
        ("b/pack.toml", &pack("b", "includes = ['//base']\n")),
        ("base/pack.toml", &pack("base", &worker(""))),
    ]);
    // `//base` and `../base` are one directory, so a diamond loads once.
    assert_eq!(
        names(&load(&root).unwrap_or_else(|e| panic!("{e}"))),
        ["worker"]
    );
    write(
        &root.join("base/pack.toml"),
        &pack("base", "includes = ['../a']\n"),
    );
    let found = errors(&root);
    assert_eq!(found[0].code, "pack-cycle");
    assert!(
        found[0].message.contains("a -> base -> a"),
        "{}",
        found[0].message
    );
    write(
        &root.join("base/pack.toml"),
        "[pack]\nname = 'base'\nschema = 2\n",
    );
    assert_eq!(errors(&root)[0].code, "pack-schema");
    assert!(errors(&root)[0].message.contains("schema 1"));
}

#[test]
fn a_pack_says_what_it_needs() {
    let (_dir, root) = files(&[
        ("city.toml", "[workspace]\nincludes = ['p']\n"),
        (
            "p/pack.toml",
            &pack(
                "p",
                "requires_gc = '>=99'\n[[pack.requires]]\nagent = 'lead'\n",
            ),
        ),
    ]);
    let codes: Vec<String> = errors(&root).iter().map(|d| d.code.clone()).collect();
    assert_eq!(codes, ["invalid-value", "unknown-ref"]);
}

#[test]
fn references_that_lead_nowhere_are_refused() {
    for (text, code) in [
        ("pakc", "unknown-ref"),
        ("./gone", "file-missing"),
        ("https://h/r", "pack-missing"),
        ("https://h/r#-x", "invalid-value"),
        ("https://h/r//../x", "invalid-value"),
        ("https://h/o/r/tree/main/p", "invalid-value"),
    ] {
        let found = only(&format!(
            "[workspace]\nincludes = ['{text}']\n[packs.pack]\nsource = 'x'\n"
        ));
        assert_eq!(found.code, code, "{text}");
    }
    let found = refused("[workspace]\nincludes = ['http://h/r']\n").diagnostics;
    assert!(found.iter().any(|d| d.code == "insecure-url"));
}

#[test]
fn a_link_out_of_a_pack_is_refused() {
    let (_dir, root) = files(&[
        ("city.toml", "[workspace]\nincludes = ['p']\n"),
        ("p/pack.toml", &pack("p", "")),
    ]);
    std::os::unix::fs::symlink("/etc", root.join("p/out")).expect("linked");
    assert_eq!(errors(&root)[0].code, "invalid-value");
}

/// Runs git in a repository of its own.
fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    let output = command
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "init.defaultBranch=main",
        ])
        .arg("-C")
        .arg(dir)
        .args(args)
        .output()
        .expect("git runs");
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn has_git() -> bool {
    let found = std::process::Command::new("git")
        .arg("--version")
        .output()
        .is_ok();
    if !found {
        println!("skipped: git not installed");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"));
    }
    found
}

/// A repository with a pack in `packs/base`, and a city that includes it.
fn remote() -> (TempDir, TempDir, PathBuf, PathBuf) {
    let source = tempfile::tempdir().expect("temporary directory");
    let repo = source.path().canonicalize().expect("exists");
    git(&repo, &["init", "-q"]);
    write(
        &repo.join("packs/base/pack.toml"),
        &pack("base", &worker("")),
    );
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "one"]);
    let url = format!("file://{}", repo.display());
    let (dir, root) = city(format!(
        "[workspace]\nincludes = ['base']\n[packs.base]\nsource = '{url}'\nref = 'main'\npath = 'packs/base'\n"
    ));
    (source, dir, repo, root)
}

#[test]
fn a_remote_pack_is_fetched_on_request_and_pinned() {
    // Rows 31 and 32.
    if !has_git() {
        return;
    }
    let (_source, _dir, repo, root) = remote();
    let found = errors(&root);
    assert_eq!(
        (found[0].code.as_str(), found[0].help.as_deref()),
        ("pack-missing", Some("gc pack fetch"))
    );
    assert!(
        fetch(&root, &Wanted::Locked, LIMIT)
            .expect("nothing pinned")
            .is_empty()
    );
    let got = fetch(&root, &Wanted::Missing, LIMIT).expect("fetched");
    let first = git(&repo, &["rev-parse", "HEAD"]);
    assert_eq!(
        (got[0].name.as_str(), got[0].commit.as_str(), got[0].fetched),
        ("base", first.as_str(), true)
    );
    let lock = fs::read_to_string(root.join("pack.lock")).expect("written");
    assert!(lock.contains(&first) && lock.contains("sha256:"), "{lock}");
    assert_eq!(names(&load(&root).expect("valid")), ["worker"]);

    // The branch moves upstream: a load and a fetch keep the pin, only an update moves it.
    write(
        &repo.join("packs/base/pack.toml"),
        &pack("base", &worker("nudge = 'new'\n")),
    );
    git(&repo, &["commit", "-qam", "two"]);
    assert_eq!(load(&root).expect("valid").spec.agents[0].launch.nudge, "");
    let same = fetch(&root, &Wanted::Missing, LIMIT).expect("nothing to do");
    assert_eq!(
        (same[0].commit.as_str(), same[0].fetched),
        (first.as_str(), false)
    );
    fs::remove_dir_all(root.join(".gc/cache")).expect("removed");
    assert_eq!(errors(&root)[0].code, "pack-missing");
    let again = fetch(&root, &Wanted::Locked, LIMIT).expect("fetched");
    assert_eq!(
        (again[0].commit.as_str(), again[0].fetched),
        (first.as_str(), true)
    );
    assert_eq!(load(&root).expect("valid").spec.agents[0].launch.nudge, "");
    let moved = fetch(&root, &Wanted::Newest(None), LIMIT).expect("updated");
    assert_eq!(moved[0].from.as_deref(), Some(first.as_str()));
    assert_eq!(
        load(&root).expect("valid").spec.agents[0].launch.nudge,
        "new"
    );
    assert_eq!(list(&root).expect("listed")[0].state, PackState::Locked);
    let unknown = fetch(&root, &Wanted::Newest(Some("other".into())), LIMIT);
    assert!(matches!(unknown, Err(FetchError::Unknown(_))));
}

#[test]
fn a_checkout_that_somebody_edited_is_refused() {
    // Row 32, second half.
    if !has_git() {
        return;
    }
    let (_source, _dir, _repo, root) = remote();
    fetch(&root, &Wanted::Missing, LIMIT).expect("fetched");
    let cache = fs::read_dir(root.join(".gc/cache/packs")).expect("there");
    let checkout = cache
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.is_dir());
    let file = checkout.expect("a checkout").join("packs/base/pack.toml");
    write(&file, &pack("base", &worker("nudge = 'evil'\n")));
    assert_eq!(errors(&root)[0].code, "pack-hash");
    assert_eq!(list(&root).expect("listed")[0].state, PackState::Altered);
}

#[test]
fn what_is_no_pack_is_not_pinned() {
    if !has_git() {
        return;
    }
    let (_source, _dir, repo, root) = remote();
    git(&repo, &["rm", "-q", "packs/base/pack.toml"]);
    write(&repo.join("x"), "x");
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "gone"]);
    let error = fetch(&root, &Wanted::Missing, LIMIT).expect_err("no pack");
    assert!(error.to_string().contains("pack.toml"), "{error}");
    assert!(!root.join("pack.lock").exists());
    let left = fs::read_dir(root.join(".gc/cache/packs"))
        .expect("there")
        .count();
    assert_eq!(left, 0, "nothing is left behind");
}
