//! No text may make the loader panic, hang or answer without a reason.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::*;

/// Checks text as [`Loader::load`] does, without a file of its own.
fn check(text: &str) {
    let bytes = Bytes {
        bytes: text.as_bytes().to_vec(),
        executable: false,
    };
    let attempt = Loader::new("/c")
        .gc_exe("gc")
        .check(Path::new("/c"), &bytes);
    if let Err(error) = attempt.result {
        assert!(
            error
                .diagnostics
                .iter()
                .any(|found| found.severity == "error"),
            "refused without a reason:\n{text}"
        );
        assert!(error.diagnostics.len() <= 100);
    }
}

/// The same for the other files: the text as a fragment, a pack, an order, a lock file, and as
/// the settings of the machine.
fn check_files(root: &Path, text: &str) {
    let city = "include = ['f.toml']\n[workspace]\nincludes = ['p']\n";
    let files = [
        ("city.toml", city),
        ("f.toml", text),
        ("p/pack.toml", text),
        ("orders/o.toml", text),
        ("pack.lock", text),
    ];
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    if let Err(error) = Loader::new(root).gc_exe("gc").load() {
        let mut found = error.diagnostics.iter();
        assert!(
            found.any(|found| found.severity == "error"),
            "no reason:\n{text}"
        );
    }
    let _ = SupervisorFile::parse(Path::new("/h/supervisor.toml"), text);
}

/// Words the format knows: keys, headers, and pieces of values.
fn dictionary() -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for section in keys::FILES.iter().flat_map(keys::FileKind::sections) {
        words.push(format!("{}\n", section.header));
        for key in section.all() {
            words.push(format!("{} = ", key.name));
            words.push(format!("{} = {}\n", key.name, key.default));
        }
    }
    let pieces = [
        "'",
        "\"",
        "'''",
        "\"\"\"",
        "[",
        "]",
        "{",
        "}",
        "=",
        "\n",
        ".",
        ",",
        "#",
        "\\u0000",
        "{{.Agent}}",
        "{{",
        "{{q .",
        "${A}",
        "[\"x\"]",
        "{ a = 1 }",
        "true",
        "-1",
        "99999999999999999999",
        "1e9",
        "\"30s\"",
        "'a'",
        "'../..'",
        "'//x'",
        "'https://h/r//p#v'",
        "1979-05-27",
        "\u{feff}",
        "ä",
        "\r\n",
        "[[agent]]\nname = 'a'\nstart_command = 'x'\n",
        "[[patches.agent]]\nname = 'a'\n",
        "env_remove = ['A']\n",
        "pre_start_append = ['x']\n",
        "[providers.claude]\n",
        "[packs.p]\n",
    ];
    words.extend(pieces.map(str::to_owned));
    words
}

/// Texts to begin with: valid and invalid ones.
fn seeds() -> Vec<String> {
    let all: String = keys::FILES[0]
        .sections()
        .iter()
        .filter(|section| !section.header.contains('<'))
        .map(|section| {
            let keys = section.all().filter(|key| !key.default.is_empty());
            let lines: String = keys
                .map(|key| format!("{} = {}\n", key.name, key.default))
                .collect();
            format!(
                "{}\nname = 'a'\nstart_command = 'x'\n{lines}",
                section.header
            )
        })
        .collect();
    let example = include_str!("../../templates/demo/city.toml");
    let cities = [
        "",
        "[workspace]\nname = 'x'\nincludes = ['p']\n[packs.p]\nsource = 'https://h/r'\n",
        "[[rigs]]\nname = 'r'\npath = 'r'\n[[rigs.overrides]]\nagent = 'a'\nnudge = 'x'\n",
        "[[agent]]\nname = 'a'\nprovider = 'claude'\nenv = { A = '${B}' }\n[agent.pool]\nmax = 3\n",
        "[providers.a]\nbase = 'b'\n[providers.b]\nbase = 'a'\n[[agent]]\nname = 'w'\nprovider = 'a'\n",
    ];
    cities
        .into_iter()
        .chain([example])
        .map(str::to_owned)
        .chain([all])
        .collect()
}

/// A text with random pieces cut out, doubled, moved or put in.
fn mutate(text: &str, words: &[String], dice: &mut impl FnMut(usize) -> usize) -> String {
    let mut text = text.to_owned();
    for _ in 0..=dice(6) {
        let cut = |text: &str, dice: &mut dyn FnMut(usize) -> usize| {
            let at = dice(text.len() + 1);
            (0..=at)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0)
        };
        let at = cut(&text, dice);
        let to = cut(&text, dice).max(at).min(at + 200);
        let to = (at..=to)
            .rev()
            .find(|to| text.is_char_boundary(*to))
            .unwrap_or(at);
        match dice(5) {
            0 => text.replace_range(at..to, ""),
            1 => {
                let piece = text[at..to].to_owned();
                text.insert_str(at, &piece);
            }
            2 => {
                let piece = text[at..to].to_owned();
                let elsewhere = cut(&text, dice);
                text.insert_str(elsewhere, &piece);
            }
            _ => text.insert_str(at, &words[dice(words.len())]),
        }
        let end = (0..=text.len().min(20_000))
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// Mutates texts for `GC_FUZZ_SECONDS`, by default a moment. What failed is printed.
#[test]
fn no_mutation_of_a_config_makes_the_loader_panic_or_hang() {
    let seconds = std::env::var("GC_FUZZ_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(2);
    let until = Instant::now() + Duration::from_secs(seconds);
    let words = dictionary();
    let mut corpus = seeds();
    let mut runner = TestRunner::default();
    let numbers = any::<u64>();
    let mut dice = |below: usize| {
        let drawn = numbers.new_tree(&mut runner).expect("a number").current();
        usize::try_from(drawn % below.max(1) as u64).unwrap_or(0)
    };
    let place = tempfile::tempdir().expect("temporary directory");
    let (mut runs, mut slowest) = (0_u64, Duration::ZERO);
    while Instant::now() < until {
        let from = dice(corpus.len());
        let text = mutate(&corpus[from], &words, &mut dice);
        let began = spent();
        let checked = std::panic::catch_unwind(|| {
            check(&text);
            // Files cost more than text alone.
            if runs % 8 == 0 {
                check_files(place.path(), &text);
            }
        });
        let took = spent().saturating_sub(began);
        assert!(checked.is_ok(), "the loader panicked at:\n{text}");
        // A load of this size takes milliseconds.
        assert!(took < Duration::from_secs(30), "{took:?} for:\n{text}");
        slowest = slowest.max(took);
        runs += 1;
        if corpus.len() < 400 {
            corpus.push(text);
        } else if dice(50) == 0 {
            let at = dice(corpus.len());
            corpus[at] = text;
        }
    }
    println!(
        "{runs} texts, the slowest took {slowest:?}; peak memory {}",
        peak_memory()
    );
}

/// Time this thread has computed: a busy machine makes no text slow.
fn spent() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.unwrap_or("unknown")
        .trim_start_matches("VmHWM:")
        .trim()
        .to_owned()
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in any::<String>()) {
        check(&text);
    }
}

#[test]
fn a_large_file_full_of_mistakes_is_read_in_good_time() {
    let started = Instant::now();
    check(&"a = 1\n".repeat(20_000));
    check(&format!("{}a = 1\n", "a.".repeat(100_000)));
    check(&"[[agent]]\nenv = { A = 1 }\n".repeat(5_000));
    check(&"[[patches.agent]]\nname = 'a'\n".repeat(5_000));
    let took = started.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}
