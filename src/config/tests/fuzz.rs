//! No text may make the loader panic.

use proptest::prelude::*;

use super::*;

/// Checks text as [`Loader::load`] does, without a file.
fn check(text: &str) {
    let mut problems = Problems::default();
    let parsed = syntax::parse(text, &mut problems);
    let around = city::Surroundings {
        root: Path::new("/c"),
        gc_exe: Path::new("gc"),
        home: None,
    };
    let built = parsed
        .table
        .and_then(|table| city::build(&table, &around, &mut Sources::default(), &mut problems));
    let report = problems.report(&parsed.text);
    assert!(
        built.is_some() || !report.diagnostics.is_empty(),
        "refused without a reason"
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn no_text_that_looks_like_config_makes_the_loader_panic(
        lines in prop::collection::vec(
            prop_oneof![
                "\\[{0,2}(workspace|daemon|session|agent|agent.env|agent.pool|rigs|x|dolt|ä)\\]{0,2}",
                "(name|dir|path|env|env.A|min|max|max_restarts|restart_delay|stdin|args|\"\\\\u0000\")? ?=? ?['\"]{0,3}[a-z0-9äß{}=,\t]{0,6}['\"]{0,3}",
                "(min|max|max_agents) = -?[0-9]{1,2}",
                "depends_on = \\['/?[ab]{1,2}(-1)?', 'a'\\]",
                "(env|agent|args|pool) = [\\[{]{1,2}([A-Z]{1,3} = ['\"]?s['\"]?,? ?){0,3}[\\]}]{0,2}",
            ],
            0..12,
        ),
        end in prop_oneof![Just("\n"), Just("\r\n")],
    ) {
        check(&lines.join(end));
    }
}

#[test]
fn a_large_file_full_of_mistakes_is_read_in_good_time() {
    let started = std::time::Instant::now();
    check(&"a = 1\n".repeat(20_000));
    check(&format!("{}a = 1\n", "a.".repeat(100_000)));
    check(&"[[agent]]\nenv = { A = 1 }\n".repeat(5_000));
    let took = started.elapsed();
    assert!(took < std::time::Duration::from_secs(60), "{took:?}");
}
