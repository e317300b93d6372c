//! The documentation is true: its command lines are understood, its pages are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command};
use gascity::cli::Code;
use gascity::config::keys::FILES;
use gascity::config::schema::markdown;

use crate::util::{Place, repository};

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(repository().join("docs")).unwrap().flatten();
    let docs = docs.map(|entry| entry.path());
    let docs = docs.filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    std::iter::once(repository().join("README.md"))
        .chain(docs)
        .collect()
}

/// The lines of fenced blocks, without comments, split where a shell would.
fn commands_in_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| block.lines().skip(1));
    let bare = lines.map(|line| line.split(" #").next().unwrap_or(line).trim());
    let parts = bare.flat_map(|line| line.split(" && "));
    parts
        .map(|part| part.trim().trim_start_matches("$ ").to_owned())
        .collect()
}

/// Code inside lines of prose.
fn commands_in_prose(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    let code = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The arguments of a `gc` command line that names no placeholder.
fn arguments(line: &str) -> Option<Vec<String>> {
    let rest = line
        .strip_prefix("gc ")
        .or_else(|| line.strip_prefix("cargo run --release -- "))?;
    if rest.contains(['<', '[', '|', '…']) {
        return None;
    }
    let rest = rest.split(" > ").next().unwrap_or(rest);
    shlex::split(rest)
}

#[test]
fn every_command_line_in_the_documentation_is_understood() {
    let place = Place::new();
    let mut seen = BTreeSet::new();
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        let lines = [commands_in_blocks(&text), commands_in_prose(&text)].concat();
        seen.extend(lines.iter().filter_map(|line| arguments(line)));
    }
    assert!(seen.len() > 20, "{seen:?}");
    for args in seen {
        let args = [args, vec!["--help".to_owned()]].concat();
        let said = place.gc(&place.path(""), &args);
        assert_eq!(said.code, Some(0), "gc {}: {said:?}", args.join(" "));
    }
}

/// Pages whose blocks are not a story to be lived through: they have examples of their own cities,
/// or take over the terminal. That their commands are understood is checked above.
const NO_STORIES: [&str; 3] = ["cli.md", "contributing.md", "sessions.md"];

#[test]
fn the_commands_of_every_page_work_one_after_the_other() {
    let mut ran = 0;
    for path in pages() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if NO_STORIES.contains(&name) {
            continue;
        }
        let place = Place::new();
        let mut dir = place.path("");
        for line in commands_in_blocks(&fs::read_to_string(&path).unwrap()) {
            if let Some(to) = line.strip_prefix("cd ") {
                dir = dir.join(to);
            }
            let args = arguments(&line).filter(|args| args[0] != "demo"); // has tests of its own
            if let Some(args) = args {
                let said = place.gc(&dir, &args);
                assert_eq!(said.code, Some(0), "{name}: {line}: {said:?}");
                ran += 1;
            }
        }
        place.gc(&dir, &["supervisor", "stop"]);
        assert_eq!(place.processes(), [0_i32; 0], "{name}");
    }
    assert!(ran >= 20, "{ran}");
}

/// `docs/config-reference.md`, made from the tables of keys.
fn config_page() -> String {
    let mut text = String::from(
        "# Config reference\n\nMade from the program itself: `GC_BLESS=1 cargo test --test it \
         config_page` writes this page anew. [configuration.md](configuration.md) explains how \
         the files work together.\n\nThe last column says what a change means for a running \
         city: **hot** takes effect and restarts nothing; **live** is applied to running agents; \
         **restart** restarts the agents it touches and no others; **swap** moves all agents to \
         another session provider; **city** is refused until the city restarts.\n",
    );
    for file in FILES {
        text.push('\n');
        for line in markdown(&file).lines() {
            let deeper = if line.starts_with('#') { "#" } else { "" };
            text.push_str(&format!("{deeper}{line}\n"));
        }
    }
    text
}

#[test]
fn the_config_page_is_the_table_of_keys() {
    kept_as("docs/config-reference.md", &config_page(), "config_page");
}

/// The file is what was made, or becomes it when asked to.
#[track_caller]
fn kept_as(name: &str, made: &str, test: &str) {
    let file = repository().join(name);
    if std::env::var_os("GC_BLESS").is_some() {
        fs::write(&file, made).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "{name} is old: GC_BLESS=1 cargo test --test it {test}"
    );
}

/// `docs/cli.md`, made from the command line itself.
fn cli_page() -> String {
    let place = Place::new();
    let mut command = gascity::cli::tree().term_width(100);
    command.build();
    let mut text = String::from(
        "# Command line\n\nMade from the program itself: `GC_BLESS=1 cargo test --test it cli_page` \
         writes this page anew.\n\n## Options of every command\n\n",
    );
    text.push_str(&options(
        command.get_arguments().filter(|arg| arg.is_global_set()),
    ));
    for sub in command.get_subcommands() {
        describe(sub, &mut text);
    }
    for (title, topic) in [("Exit codes", "exit-codes"), ("Environment", "environment")] {
        let said = place.gc(&place.path(""), &["help", topic]).ok();
        text.push_str(&format!("\n## {title}\n\n```\n{}```\n", said.out));
    }
    text
}

fn describe(command: &Command, text: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or_default();
    let about = command.get_about().map(ToString::to_string);
    text.push_str(&format!("\n## {name}\n\n{}.\n", about.unwrap_or_default()));
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    let own: Vec<&Arg> = own.filter(|arg| arg.get_id() != "help").collect();
    if !own.is_empty() {
        text.push_str(&format!("\n{}", options(own.into_iter())));
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let examples = examples.trim_start_matches("Examples:\n");
        let lines: Vec<&str> = examples.lines().map(str::trim_start).collect();
        text.push_str(&format!("\n```\n{}\n```\n", lines.join("\n")));
    }
    for sub in command.get_subcommands() {
        describe(sub, text);
    }
}

fn options<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = String::from("| Argument | Meaning |\n|---|---|\n");
    for arg in args.filter(|arg| !arg.is_hide_set()) {
        let mut form = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (Some(short), None) => format!("-{short}"),
            (None, Some(long)) => format!("--{long}"),
            (None, None) => String::new(),
        };
        if arg.get_action().takes_values() {
            let values: Vec<String> = arg
                .get_value_names()
                .map(|names| names.iter().map(|name| format!("<{name}>")).collect())
                .unwrap_or_default();
            form = format!("{form} {}", values.join(" ")).trim().to_owned();
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let default: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|v| v.to_string_lossy())
            .collect();
        let default = match arg.get_action().takes_values() && !default.is_empty() {
            true => format!(" (default `{}`)", default.join(" ")),
            false => String::new(),
        };
        let line = format!("| `{form}` | {help}{default} |\n");
        text.push_str(
            &line
                .replace("PATH|NAME", "PATH or NAME")
                .replace("stop|detach", "MODE"),
        );
    }
    text
}

#[test]
fn the_cli_page_is_the_command_line() {
    let made = cli_page();
    for code in Code::ALL {
        assert!(made.contains(&format!("\n{} ", code.exit())), "{code:?}");
    }
    kept_as("docs/cli.md", &made, "cli_page");
}
