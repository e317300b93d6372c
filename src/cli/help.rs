//! `gc help`: a command's page, or a topic that is no command.

use clap::{Args, Command};
use serde_json::json;

use super::context::Context;
use super::error::{CliError, CliResult, Code};
use super::values::{did_you_mean, table};

pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "GC_CITY",
        "the city's directory, unless --city says otherwise",
    ),
    (
        "GC_HOME",
        "the supervisor's home, unless --home says otherwise; ~/.gc",
    ),
    ("GC_LOG", "what is logged, e.g. debug or gascity=trace"),
    (
        "GC_ALLOW_FAULTS",
        "1 lets a supervisor take part in fault drills (actors crash)",
    ),
    (
        "GC_FAKE_SCRIPT",
        "what agents of the session provider fake do (docs/sessions.md)",
    ),
    (
        "GC_PAGER",
        "shows long answers on a terminal, else PAGER, else less -FRX; empty for none",
    ),
    ("PAGER", "the same, unless GC_PAGER is set"),
    ("NO_COLOR", "no colour, if set"),
    (
        "CLICOLOR_FORCE",
        "colour into files and pipes as well, if set",
    ),
    (
        "XDG_RUNTIME_DIR",
        "where lock and socket are, unless GC_HOME is set",
    ),
];

pub(super) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done, or so already"),
    (
        "1",
        "failed, or the \"no\" of a question (status --check, supervisor status, events --watch)",
    ),
    ("2", "bad arguments"),
    ("8", "not supported here"),
    ("10", "checked, and something needs attention (doctor)"),
    ("70", "internal error"),
    ("130", "ended by Ctrl-C; work in the background goes on"),
    ("143", "ended by SIGTERM"),
];

const QUICKSTART: &str = "\
A city is a directory with a city.toml that says which agents should run.

  gc init my-city && cd my-city     # a demo city; needs no other program
  gc start                          # the supervisor starts with it
  gc status
  gc agent list
  gc actors tree                    # who watches whom
  gc events -n 10
  gc agent logs planner
  gc stop

Edit city.toml while it runs: changes are taken live, mistakes are told and change nothing.
gc supervisor install has your system run the supervisor from now on.";

/// Arguments of `gc help`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc help start\n  gc help quickstart\n  gc help environment\n  gc help exit-codes"
)]
pub(super) struct HelpArgs {
    /// A command, or one of: quickstart, environment, exit-codes
    topic: Vec<String>,
}

impl HelpArgs {
    /// Prints the page; `root` is the whole command line.
    ///
    /// # Errors
    /// [`Code::Usage`] when there is no such command or topic.
    pub(super) fn run(&self, context: &Context, mut root: Command) -> CliResult<u8> {
        root.build();
        let text = match self.topic.as_slice() {
            [topic] if topic == "environment" => list(["VARIABLE", "EFFECT"], ENVIRONMENT),
            [topic] if topic == "exit-codes" => list(["EXIT", "MEANING"], EXIT_CODES),
            [topic] if topic == "quickstart" => QUICKSTART.to_owned(),
            words => find(&mut root, words)?.render_help().to_string(),
        };
        let text = text.trim_end();
        match context.out.json {
            true => context
                .out
                .document(&json!({"topic": self.topic.join(" "), "text": text}))?,
            false => context.page(text)?,
        }
        Ok(0)
    }
}

fn find<'a>(root: &'a mut Command, words: &[String]) -> CliResult<&'a mut Command> {
    let mut level = root;
    for word in words {
        if level.find_subcommand(word).is_none() {
            let mut error = CliError::new(Code::Usage, format!("no command or topic {word:?}"));
            let shown = level.get_subcommands().filter(|sub| !sub.is_hide_set());
            let names: Vec<&str> = shown.map(Command::get_name).collect();
            error.hint = did_you_mean(word, &names);
            return Err(error);
        }
        level = match level.find_subcommand_mut(word) {
            Some(below) => below,
            None => unreachable!("looked up just now"),
        };
    }
    Ok(level)
}

fn list(header: [&str; 2], lines: &[(&str, &str)]) -> String {
    let row = |(a, b): &(&str, &str)| vec![(*a).to_owned(), (*b).to_owned()];
    table(&header, &lines.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_explained() {
        for code in Code::ALL {
            let exit = code.exit().to_string();
            let known = EXIT_CODES.iter().any(|(text, _)| *text == exit);
            assert!(known, "{code:?}");
        }
    }

    #[test]
    fn unknown_topics_get_a_hint() {
        let mut root = crate::cli::tree();
        let error = find(&mut root, &["statsu".to_owned()]).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("did you mean `status`?"));
        let words = ["supervisor".to_owned(), "stop".to_owned()];
        assert_eq!(find(&mut root, &words).unwrap().get_name(), "stop");
    }
}
