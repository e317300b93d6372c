//! Rigs: where their agents work, and when they do not.

use super::*;

fn rig(name: &str, more: &str) -> String {
    format!("[[rigs]]\nname = '{name}'\n{more}\n")
}

#[test]
fn agents_of_a_rig_work_in_its_directory() {
    let (dir, root) = city("");
    let outside = dir.path().canonicalize().expect("exists").join("app");
    fs::create_dir(&outside).expect("created");
    let work_dir = |path: &str, more: &str| {
        let text = rig("r", &format!("path = '{path}'")) + &agent_in("r", "w", more);
        fs::write(root.join(FILE), text).expect("written");
        let city = load(&root).unwrap_or_else(|error| panic!("{error}"));
        assert!(city.warnings.is_empty(), "{}", city.report);
        assert_eq!(city.spec.agents[0].held, None);
        city.spec.agents[0].launch.work_dir.clone()
    };
    assert_eq!(work_dir(&outside.display().to_string(), ""), outside);
    assert_eq!(work_dir("../app", ""), root.join("../app"));
    assert_eq!(work_dir("../app", "work_dir = 'own'"), root.join("own"));
    let home = PathBuf::from(std::env::var_os("HOME").expect("a home"));
    assert_eq!(work_dir("~/", ""), home);
}

#[test]
fn agents_of_a_rig_without_a_directory_are_held_and_the_city_loads() {
    // Row 28, the part of the config.
    let (_dir, root) =
        city(rig("r", "path = 'app'") + &agent_in("r", "w", "") + &agent_in("", "other", ""));
    let before = load(&root).expect("valid");
    assert_eq!(
        places(&before.warnings),
        ["rig-path-missing 3:8 rigs[0].path"]
    );
    let held = format!("rig directory {} is missing", root.join("app").display());
    assert_eq!(before.spec.agents[0].held, Some(held));
    assert_eq!(before.spec.agents[1].held, None);

    fs::create_dir(root.join("app")).expect("created");
    let after = load(&root).expect("valid");
    assert!(after.warnings.is_empty());
    assert_eq!(after.spec.agents[0].held, None);
    assert_ne!(
        after.spec.revision, before.spec.revision,
        "or it would stay held"
    );
    assert_eq!(
        after.spec.agents[0].fingerprint,
        before.spec.agents[0].fingerprint
    );
}

#[test]
fn agents_of_a_suspended_rig_are_suspended() {
    let city = loaded(
        &(rig("r", "path = '/'\nsuspended = true\nprefix = 'rr1'")
            + &agent_in("r", "db", "")
            + &agent_in("", "web", "depends_on = ['r/db']")),
    );
    let suspended: Vec<bool> = city
        .spec
        .agents
        .iter()
        .map(|agent| agent.suspended)
        .collect();
    assert_eq!(suspended, [true, false]);
    assert_eq!(
        places(&city.warnings),
        ["dependency-suspended 15:15 agent[1].depends_on[0]"]
    );
}

#[test]
fn a_rig_needs_a_name_of_its_own_and_a_path() {
    assert_eq!(
        places(
            &refused(
                "[[rigs]]\n[[rigs]]\nname = 'r'\npath = '/'\n[[rigs]]\nname = 'r'\npath = '/'\n"
            )
            .diagnostics
        ),
        [
            "missing-key 1:1 rigs[0].name",
            "missing-key 1:1 rigs[0].path",
            "duplicate-name 6:8 rigs[2].name"
        ]
    );
    let found = only(&rig("r", "path = '/'\nsuspendd = true"));
    assert_eq!(found.help.as_deref(), Some("did you mean `suspended`?"));
}

#[test]
fn two_rigs_cannot_share_a_prefix() {
    // Row 27.
    let both = rig("my-app", "path = '/'") + &rig("mid_air", "path = '/'");
    let found = only(&both);
    assert_eq!(found.code, "duplicate-name");
    assert!(found.message.contains("`ma`"), "{}", found.message);
    assert_eq!(found.related[0].line, 2);
    let apart = rig("my-app", "path = '/'") + &rig("mid_air", "path = '/'\nprefix = 'air'");
    let prefixes: Vec<String> = loaded(&apart).rigs.into_iter().map(|r| r.prefix).collect();
    assert_eq!(prefixes, ["ma", "air"]);
    // Nor with the city.
    let city = "[workspace]\nname = 'my-app'\n".to_owned() + &rig("mid_air", "path = '/'");
    assert_eq!(only(&city).code, "duplicate-name");
}
