//! `gc man`: manual pages, made from the same tree as the help.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde_json::json;

use super::context::Context;
use super::error::{CliError, CliResult, Code, io_hint};
use super::help::{ENVIRONMENT, EXIT_CODES};
use super::output::Mark;
use super::values::count;

/// Arguments of `gc man`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc man | man -l -\n  gc man --dir ~/.local/share/man   # then: man gc-start"
)]
pub(super) struct ManArgs {
    /// Write all pages below this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// One page: `gc-start.1` and its text.
pub(super) struct Page {
    pub(super) name: String,
    pub(super) section: u8,
    pub(super) text: Vec<u8>,
}

impl ManArgs {
    /// Prints the page of gc itself, or writes all.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn run(&self, context: &Context, root: Command) -> CliResult<u8> {
        let out = context.out;
        let pages = pages(root)?;
        let Some(dir) = &self.dir else {
            let text = pages
                .first()
                .map(|page| String::from_utf8_lossy(&page.text));
            let text = text.unwrap_or_default();
            match out.json {
                true => out.document(&json!({"name": "gc", "text": text}))?,
                false => out.line(text.trim_end())?,
            }
            return Ok(0);
        };
        for page in &pages {
            let file = dir
                .join(format!("man{}", page.section))
                .join(format!("{}.{}", page.name, page.section));
            write(&file, &page.text)?;
        }
        if out.json {
            out.document(&json!({"dir": dir, "pages": pages.len()}))?;
        }
        let text = format!(
            "{} written to {}",
            count(pages.len(), "page"),
            dir.display()
        );
        out.report(Mark::Done, text)?;
        Ok(0)
    }
}

fn write(file: &Path, text: &[u8]) -> CliResult {
    let dir = file.parent().unwrap_or(Path::new("."));
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(file, text));
    written.map_err(|error| {
        let mut failure = CliError::new(Code::Failed, format!("{}: {error}", file.display()));
        failure.hint = io_hint(file, &error);
        failure
    })
}

/// A page for each command that is shown, and for the topics.
pub(super) fn pages(mut root: Command) -> CliResult<Vec<Page>> {
    root.build();
    let mut pages = Vec::new();
    commands(&root, "gc", &mut pages)?;
    pages.push(topic(
        "gc-environment",
        "variables that gc reads",
        ENVIRONMENT,
    )?);
    pages.push(topic("gc-exit-codes", "what gc exits with", EXIT_CODES)?);
    Ok(pages)
}

fn commands(command: &Command, name: &str, pages: &mut Vec<Page>) -> CliResult {
    let mut text = Vec::new();
    Man::new(command.clone().display_name(name.to_owned()))
        .title(name.to_uppercase())
        .render(&mut text)?;
    pages.push(Page {
        name: name.to_owned(),
        section: 1,
        text,
    });
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in shown {
        commands(sub, &format!("{name}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

fn topic(name: &str, about: &str, rows: &[(&str, &str)]) -> CliResult<Page> {
    let mut page = Roff::new();
    page.control("TH", [name.to_uppercase().as_str(), "7"])
        .control("SH", ["NAME"])
        .text([roman(format!("{name} - {about}"))])
        .control("SH", ["DESCRIPTION"]);
    for (word, meaning) in rows {
        page.control("TP", [])
            .text([bold(*word)])
            .text([roman(*meaning)]);
    }
    let mut text = Vec::new();
    page.to_writer(&mut text)?;
    Ok(Page {
        name: name.to_owned(),
        section: 7,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_has_a_page_and_hidden_ones_have_none() {
        let pages = pages(crate::cli::tree()).unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in [
            "gc",
            "gc-start",
            "gc-supervisor-stop",
            "gc-environment",
            "gc-exit-codes",
        ] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        assert!(!names.contains(&"gc-demo-agent") && !names.contains(&"gc-actors-crash"));
        for page in &pages {
            let text = String::from_utf8_lossy(&page.text);
            assert!(text.contains(".TH"), "{}: {text}", page.name);
        }
    }
}
