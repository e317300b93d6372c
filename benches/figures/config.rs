//! Loading a large config, taking up an edit of it, and looking for edits.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use gascity::config::{self, ConfigFiles, Loader};
use gascity::ports::Desired as _;

use crate::median;

const PACKS: usize = 50;
const AGENTS: usize = 1000;
const ROUNDS: usize = 21;
/// The quiet time after a save, which is no work.
const QUIET: Duration = Duration::from_millis(200);

pub(crate) fn measure() {
    println!("config: {AGENTS} agents over {PACKS} packs, {ROUNDS} rounds, median");
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("city");
    write_city(&root);
    let mut loads: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let city = config::load(&root).unwrap();
            assert_eq!(city.spec.agents.len(), AGENTS);
            nanos(began.elapsed())
        })
        .collect();
    println!("  load and validate: {:.1} ms", median(&mut loads) / 1000.0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(edits(&root));
}

/// From the save to the new specs, without the quiet time, and the cost of a look without a change.
async fn edits(root: &Path) {
    let files = ConfigFiles::watch(Loader::new(root));
    files.load().await.unwrap();
    let mut changes = files.changes();
    // The first load brings files to watch, which is told as a change.
    changes.changed().await.unwrap();
    let file = root.join("city.toml");
    let text = fs::read_to_string(&file).unwrap();
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        changes.mark_unchanged();
        let before = files.load().await.unwrap().revision.clone();
        let began = Instant::now();
        fs::write(&file, format!("{text}# {round}\n")).unwrap();
        loop {
            changes.changed().await.unwrap();
            if files.load().await.unwrap().revision != before {
                break;
            }
        }
        taken.push(nanos(began.elapsed().saturating_sub(QUIET)));
    }
    println!(
        "  save to applied, beyond the quiet time: {:.1} ms",
        median(&mut taken) / 1000.0
    );
    let mut looks: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            assert!(!files.is_changed());
            nanos(began.elapsed())
        })
        .collect();
    println!(
        "  a look without a change: {:.2} ms",
        median(&mut looks) / 1000.0
    );
}

fn write_city(root: &Path) {
    let each = AGENTS / PACKS;
    let mut includes = Vec::new();
    for pack in 0..PACKS {
        let dir = root.join(format!("packs/p{pack}"));
        fs::create_dir_all(dir.join("prompts/shared")).unwrap();
        let mut text = format!("[pack]\nname = \"p{pack}\"\nschema = 1\n");
        for agent in 0..each {
            text.push_str(&format!(
                "[[agent]]\nname = \"a{pack}-{agent}\"\nprovider = \"claude\"\n\
                 prompt_template = \"prompts/role.md.tmpl\"\nenv = {{ N = \"{agent}\" }}\n\
                 pre_start = [\"mkdir -p {{{{q .WorkDir}}}}\"]\nidle_timeout = \"30m\"\n"
            ));
            if agent > 0 {
                text.push_str(&format!("depends_on = [\"a{pack}-{}\"]\n", agent - 1));
            }
        }
        fs::write(dir.join("pack.toml"), text).unwrap();
        let prompt = "You are {{.Agent}} in {{.CityName}}.\n{{fragment \"rules\"}}\n";
        fs::write(dir.join("prompts/role.md.tmpl"), prompt).unwrap();
        fs::write(
            dir.join("prompts/shared/rules.md"),
            "Be kind.\n".repeat(100),
        )
        .unwrap();
        includes.push(format!("\"packs/p{pack}\""));
    }
    let city = format!(
        "[workspace]\nname = \"bench\"\nincludes = [{}]\n",
        includes.join(", ")
    );
    fs::write(root.join("city.toml"), city).unwrap();
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
