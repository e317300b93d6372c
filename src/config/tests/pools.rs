//! Pools: sizes, names of instances, what they must not collide with.

use super::*;

fn pool(name: &str, settings: &str) -> String {
    agent_in("", name, &format!("[agent.pool]\n{settings}\n"))
}

/// Names and sessions of the first instances of the first agent.
fn instances(text: &str, count: u32) -> Vec<(String, String)> {
    let template = first_agent(text);
    (1..=count)
        .map(|slot| template.instance(slot))
        .map(|agent| (agent.name.to_string(), agent.session.to_string()))
        .collect()
}

#[test]
fn without_a_maximum_a_pool_has_its_minimum_and_at_least_one() {
    // Row 11.
    let max = |settings| {
        first_agent(&pool("w", settings))
            .pool
            .clone()
            .expect("a pool")
            .max
    };
    assert_eq!(max("min = 2"), Some(2));
    assert_eq!(max(""), Some(1));
    assert_eq!(max("min = 2\nmax = -1"), None);
    assert_eq!(
        max("min = 2\nmax = 0"),
        Some(0),
        "disabled, whatever the minimum"
    );
    let expected = [("w-1", "w-1"), ("w-2", "w-2")];
    assert_eq!(
        instances(&pool("w", "min = 2"), 2),
        expected.map(|(name, session)| (name.to_owned(), session.to_owned()))
    );
}

#[test]
fn the_only_instance_of_a_pool_in_a_rig_has_its_name_and_the_rigs() {
    // Row 13.
    let text = format!(
        "[[rigs]]\nname = 'r'\npath = '/'\n{}",
        agent_in("r", "w", "[agent.pool]\nmax = 1")
    );
    assert_eq!(instances(&text, 1), [("r/w".to_owned(), "r--w".to_owned())]);
    let agent = first_agent(&text);
    assert_eq!(agent.pool.as_ref().expect("a pool").dir, Path::new("/"));
}

#[test]
fn instances_share_the_fingerprint_of_their_template() {
    let template = first_agent(&pool("w", "max = 3"));
    assert_eq!(template.instance(1).fingerprint, template.fingerprint);
    assert_eq!(template.instance(3).fingerprint, template.fingerprint);
}

#[test]
fn a_minimum_above_the_maximum_is_a_conflict_at_the_later_key() {
    // Row 10, first half.
    let found = only(&pool("w", "min = 3\nmax = 2"));
    assert_eq!(
        (found.code.as_str(), found.path.as_str()),
        ("conflict", "agent[0].pool.max")
    );
    assert_eq!((found.line, found.related[0].line), (7, 6));
    assert_eq!(
        only(&pool("w", "max = 2\nmin = 3")).path,
        "agent[0].pool.min"
    );
}

#[test]
fn a_drain_without_a_time_limit_is_never_forced() {
    let limit = |settings| {
        let pool = first_agent(&pool("w", settings))
            .pool
            .clone()
            .expect("a pool");
        pool.drain_timeout.map(|limit| limit.as_secs())
    };
    assert_eq!(limit(""), Some(300));
    assert_eq!(limit("drain_timeout = '0'"), None);
}

#[test]
fn an_instance_must_not_be_named_as_another_agent() {
    // Row 12.
    let other = |name| agent_in("", name, "");
    for (text, line) in [
        (pool("w", "max = 3") + &other("w-2"), 9),
        (other("w-3") + &pool("w", "max = 3"), 7),
        (pool("w", "max = -1") + &other("w-4000000"), 9),
        (pool("w", "max = 3") + &pool("w-2", "max = 1"), 9),
    ] {
        let found = only(&text);
        assert_eq!(
            (found.code.as_str(), found.line),
            ("duplicate-name", line),
            "{text}"
        );
        assert_eq!(found.related.len(), 1);
    }
    for text in [
        pool("w", "max = 3") + &other("w-4") + &other("w-02") + &other("w-0"),
        pool("w", "max = 1") + &other("w-1"),
        pool("w", "max = 0") + &other("w-1"),
        pool("w", "max = 3") + &agent_in("d", "w-1", ""),
    ] {
        loaded(&text);
    }
}

#[test]
fn a_name_that_numbers_would_spoil_is_no_name_of_a_pool() {
    let long = "x".repeat(62);
    for name in ["w-", &long] {
        let found = only(&pool(name, "max = 2"));
        assert_eq!(
            (found.code.as_str(), found.line),
            ("invalid-value", 2),
            "{name}"
        );
        loaded(&pool(name, "max = 1"));
    }
    let deep = ["d".repeat(60), "e".repeat(60)].join("/");
    assert_eq!(only(&agent_in(&deep, "abcdef", "")).code, "invalid-value");
}

#[test]
fn a_file_names_the_first_instances_and_is_part_of_the_revision() {
    let (_dir, root) = city(agent_in(
        "d",
        "w",
        "pool = { max = 3, namepool = 'lists/names' }",
    ));
    let names = root.join("lists/names");
    fs::create_dir(root.join("lists")).expect("created");
    fs::write(&names, "# people\n\nann\n  bob # the second\n").expect("written");
    let first = load(&root).unwrap_or_else(|error| panic!("{error}"));
    let template = &first.spec.agents[0];
    let named: Vec<String> = (1..=3)
        .map(|i| template.instance(i).name.to_string())
        .collect();
    assert_eq!(named, ["d/ann", "d/bob", "d/w-3"]);
    fs::write(&names, "ann\n").expect("written");
    assert_ne!(
        load(&root).expect("valid").spec.revision,
        first.spec.revision
    );
    fs::write(&names, "a\nb\nc\nd\n").expect("written");
    let pool = load(&root).expect("valid").spec.agents[0].pool.clone();
    assert_eq!(
        pool.expect("a pool").names.len(),
        3,
        "no more than instances"
    );

    for (list, code) in [
        (&b"a b\n"[..], "invalid-value"),
        (b"d/ann\n", "invalid-value"),
        (b"\xff\n", "invalid-value"),
        (b"ann\nann\n", "duplicate-name"),
        (b"w-3\n", "duplicate-name"),
        (b"w\n", "duplicate-name"),
    ] {
        fs::write(&names, list).expect("written");
        let error = load(&root).expect_err("a bad list");
        assert_eq!(error.diagnostics.len(), 1, "{error}");
        assert_eq!(error.diagnostics[0].code, code, "{error}");
    }
    fs::remove_file(&names).expect("removed");
    let error = load(&root).expect_err("no list");
    assert_eq!(
        places(&error.diagnostics),
        ["file-missing 5:30 agent[0].pool.namepool"]
    );
}

#[test]
fn a_list_of_names_needs_a_maximum() {
    for max in ["-1", "0"] {
        let found = only(&pool("w", &format!("namepool = 'names'\nmax = {max}")));
        assert_eq!((found.code.as_str(), found.line), ("conflict", 7));
    }
}
