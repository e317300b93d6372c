//! The questions of `gc init`, for a person at a terminal.

use std::io::{self, BufRead, IsTerminal as _, Write};

use super::InitArgs;
use super::template::TEMPLATES;
use crate::cli::context::Context;
use crate::cli::{CliError, CliResult, Code};
use crate::config::installed_providers;

/// The built-in program.
const DEMO: &str = "demo";

/// The arguments with what a person answers, if there is one to ask and something to ask.
///
/// # Errors
/// If the answers end.
pub(super) fn complete(args: &InitArgs, context: &Context) -> CliResult<InitArgs> {
    let answered = args.template.is_some()
        || args.provider.is_some()
        || args.command.is_some()
        || args.from.is_some()
        || args.file.is_some()
        || args.force;
    let globals = &context.globals;
    let silent = globals.no_input || globals.yes || globals.quiet || globals.json;
    let person =
        io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    if answered || silent || !person {
        return Ok(args.clone());
    }
    let (stdin, stderr) = (io::stdin().lock(), io::stderr().lock());
    let mut talk = Talk { stdin, stderr };
    ask(args, &installed_providers(), &mut talk)
}

struct Talk<I, O> {
    stdin: I,
    stderr: O,
}

fn ask<I: BufRead, O: Write>(
    args: &InitArgs,
    installed: &[&str],
    talk: &mut Talk<I, O>,
) -> CliResult<InitArgs> {
    let mut args = args.clone();
    let templates: Vec<(&str, &str)> = TEMPLATES.iter().map(|t| (t.name, t.about)).collect();
    let template = talk.choose("What to start from?", &templates)?;
    args.template = Some(template.to_owned());
    // The demo is about the built-in program, and an empty city has nothing to run.
    if [DEMO, "empty"].contains(&template) {
        return Ok(args);
    }
    let mut providers = vec![(DEMO, "the program built into gc; needs no account")];
    let found = installed.iter().filter(|name| **name != DEMO);
    providers.extend(found.map(|name| (*name, "installed here")));
    providers.push(("command", "a command of your own"));
    match talk.choose("What do its agents run?", &providers)? {
        "command" => args.command = Some(talk.text("The command: ")?),
        provider => args.provider = Some(provider.to_owned()),
    }
    Ok(args)
}

impl<I: BufRead, O: Write> Talk<I, O> {
    /// One of the choices, by number or name; the first on Enter.
    fn choose<'a>(&mut self, question: &str, choices: &[(&'a str, &str)]) -> CliResult<&'a str> {
        writeln!(self.stderr, "{question}")?;
        for (i, (name, about)) in choices.iter().enumerate() {
            writeln!(self.stderr, "  {}  {name:9} {about}", i + 1)?;
        }
        let default = choices.first().map_or("", |(name, _)| name);
        loop {
            let answer = self.line(&format!("[{default}] "))?;
            let number = answer.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let chosen = match (answer.as_str(), number) {
                ("", _) => choices.first(),
                (_, Some(at)) => choices.get(at),
                (name, None) => choices.iter().find(|(known, _)| *known == name),
            };
            match chosen {
                Some((name, _)) => return Ok(name),
                None => writeln!(
                    self.stderr,
                    "a number from 1 to {}, or a name",
                    choices.len()
                )?,
            }
        }
    }

    /// Some text.
    fn text(&mut self, question: &str) -> CliResult<String> {
        loop {
            let answer = self.line(question)?;
            if !answer.is_empty() {
                return Ok(answer);
            }
        }
    }

    fn line(&mut self, question: &str) -> CliResult<String> {
        write!(self.stderr, "{question}")?;
        self.stderr.flush()?;
        let mut answer = String::new();
        if self.stdin.read_line(&mut answer)? == 0 {
            return Err(CliError::new(Code::Failed, "no answer; nothing was done"));
        }
        Ok(answer.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> CliResult<InitArgs> {
        let mut talk = Talk {
            stdin: text.as_bytes(),
            stderr: Vec::new(),
        };
        ask(&InitArgs::default(), &["codex", "demo"], &mut talk)
    }

    fn chosen(text: &str) -> [Option<String>; 3] {
        let args = answered(text).unwrap();
        [args.template, args.provider, args.command]
    }

    #[test]
    fn answers_are_numbers_names_or_the_default() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(chosen("\n"), [some("demo"), None, None]);
        assert_eq!(chosen("empty\n"), [some("empty"), None, None]);
        assert_eq!(chosen("solo\n\n"), [some("solo"), some("demo"), None]);
        assert_eq!(chosen("9\nteam\n2\n"), [some("team"), some("codex"), None]);
        let own = chosen("what\nsolo\n3\n\nmy-agent --go\n");
        assert_eq!(own, [some("solo"), None, some("my-agent --go")]);
    }

    #[test]
    fn whoever_leaves_gets_no_city() {
        for text in ["", "solo\n", "solo\ncommand\n"] {
            let error = answered(text).unwrap_err();
            assert_eq!(error.message, "no answer; nothing was done");
        }
    }
}
