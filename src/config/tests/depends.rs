//! References between agents.

use gascity_actors::policy::check_dependencies;

use super::*;

fn agent(name: &str, needs: &str) -> String {
    agent_in("", name, &format!("depends_on = [{needs}]"))
}

/// Agent and what it needs, for all agents.
fn needs(text: &str) -> Vec<String> {
    let city = loaded(text);
    assert!(check_dependencies(&city.spec.agents).is_ok());
    let line = |agent: &Arc<AgentSpec>| {
        let on: Vec<&str> = agent.depends_on.iter().map(|name| name.as_str()).collect();
        format!("{}: {}", agent.name, on.join(" "))
    };
    city.spec.agents.iter().map(line).collect()
}

#[test]
fn the_same_name_in_two_directories_is_two_agents() {
    // Row 9, second half.
    let city =
        loaded(&(agent_in("a", "w", "") + &agent_in("b/c", "w", "") + &agent_in("", "w", "")));
    let shown: Vec<_> = city
        .spec
        .agents
        .iter()
        .map(|agent| {
            (
                agent.name.as_str(),
                agent.session.as_str(),
                agent.launch.work_dir.clone(),
            )
        })
        .collect();
    let root = &city.spec.root;
    assert_eq!(
        shown,
        [
            ("a/w", "a--w", root.join("a")),
            ("b/c/w", "b--c--w", root.join("b/c")),
            ("w", "w", root.clone())
        ]
    );
    let twice = only(&(agent_in("a", "w", "") + &agent_in("a", "w", "")));
    assert_eq!((twice.code.as_str(), twice.line), ("duplicate-name", 7));
}

#[test]
fn an_unknown_agent_suggests_the_one_that_was_meant() {
    // Row 15.
    let found = only(&(agent("a", "'nope'") + &agent("node", "")));
    assert_eq!(
        (found.code.as_str(), found.path.as_str(), found.column),
        ("unknown-ref", "agent[0].depends_on[0]", 15)
    );
    assert_eq!(found.help.as_deref(), Some("did you mean \"node\"?"));
    let help = |text: String| only(&text).help;
    let in_rig = agent_in("r", "web", "depends_on = ['/dbb']");
    assert_eq!(
        help(in_rig + &agent("db", "")).as_deref(),
        Some("did you mean \"/db\"?")
    );
    let pool = agent_in("", "w", "pool = { max = 2 }");
    assert_eq!(
        help(agent("a", "'w-2'") + &pool).as_deref(),
        Some("it is an instance; name its pool, `w`")
    );
    assert_eq!(help(agent("a", "'something else'")), None);
}

#[test]
fn a_bare_name_is_that_of_the_same_directory_before_the_citys() {
    // Row 17.
    let city = [
        agent_in("r", "one", "depends_on = ['db', 'db']"),
        agent_in("r", "two", "depends_on = ['/db']"),
        agent_in("r", "three", "depends_on = ['log']"),
        agent_in("", "four", "depends_on = ['r/db', 'db']"),
        agent_in("r", "db", ""),
        agent_in("", "db", ""),
        agent_in("", "log", ""),
    ]
    .concat();
    assert_eq!(
        needs(&city)[..4],
        ["r/one: r/db", "r/two: db", "r/three: log", "four: r/db db"]
    );
}

#[test]
fn agents_that_wait_for_each_other_are_named_in_a_circle() {
    // Row 16.
    let circle = agent("a", "'b'") + &agent("b", "'c'") + &agent("c", "'a'");
    let found = only(&circle);
    assert_eq!(found.code, "dependency-cycle");
    assert_eq!(found.path, "agent[2].depends_on[0]");
    assert!(
        found.message.ends_with(": a -> b -> c -> a"),
        "{}",
        found.message
    );
    assert!(only(&agent("a", "'a'")).message.ends_with(": a -> a"));
    let two = circle + &agent("d", "'e', 'a'") + &agent("e", "'d'");
    assert_eq!(
        places(&refused(&two).diagnostics),
        [
            "dependency-cycle 15:15 agent[2].depends_on[0]",
            "dependency-cycle 25:15 agent[4].depends_on[0]"
        ]
    );
    assert_eq!(
        refused(&(agent("a", "'b', 'nope'") + &agent("b", "'a'")))
            .diagnostics
            .len(),
        2,
        "a circle hides no other problem"
    );
}

#[test]
fn everything_may_depend_on_everything_above_it() {
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let quoted = |names: &[String]| {
        names
            .iter()
            .map(|n| format!("'{n}'"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let text: String = (0..40)
        .map(|i| agent(&names[i], &quoted(&names[..i])))
        .collect();
    assert_eq!(needs(&text).len(), 40);
}

#[test]
fn a_very_long_chain_of_agents_is_no_trouble() {
    let text: String = (0..8_000)
        .map(|i| {
            format!(
                "[[agent]]\nname = 'n{i}'\nstart_command = 'x'\ndepends_on = ['n{}']\n",
                i + 1
            )
        })
        .collect();
    assert_eq!(only(&text).code, "unknown-ref");
}

#[test]
fn an_agent_that_depends_on_a_suspended_one_is_a_warning() {
    let warnings = |text: &str| places(&loaded(text).warnings);
    let db = agent_in("", "db", "suspended = true");
    assert_eq!(
        warnings(&(agent("a", "'db'") + &db)),
        ["dependency-suspended 5:15 agent[0].depends_on[0]"]
    );
    let sleeping = agent_in("", "a", "depends_on = ['db']\nsuspended = true");
    assert!(warnings(&(sleeping + &db)).is_empty());
    let city = format!("[workspace]\nsuspended = true\n{}{db}", agent("a", "'db'"));
    assert!(warnings(&city).is_empty());
}
