//! Flags that every command takes, and what follows from them and the environment.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::output::Output;

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ColourChoice {
    /// Also into files and pipes.
    Always,
    /// On terminals.
    #[default]
    Auto,
    /// Not at all.
    Never,
}

/// The global flags.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Globals {
    /// The city: a directory, or the name of a registered city
    #[arg(long, global = true, value_name = "PATH|NAME")]
    pub(super) city: Option<String>,
    /// The supervisor's home directory [env: GC_HOME] [default: ~/.gc]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) home: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Print no progress and no notes
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Log to stderr: info, -vv debug, -vvv trace [env: GC_LOG]
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// When to use colour
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        help = "When to use colour: always, auto, never"
    )]
    pub(super) color: ColourChoice,
    /// Same as --color=never
    #[arg(long, global = true)]
    pub(super) no_color: bool,
    /// Print long answers at once
    #[arg(long, global = true)]
    pub(super) no_pager: bool,
    /// Never ask
    #[arg(long, global = true)]
    pub(super) no_input: bool,
    /// Answer questions with yes
    #[arg(short, long, global = true)]
    pub(super) yes: bool,
}

/// The variables that decide about colour.
#[derive(Debug, Clone, Default)]
struct ColourEnv {
    no_color: bool,
    force: bool,
    dumb: bool,
}

impl ColourEnv {
    fn from_process() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            no_color: set("NO_COLOR").is_some(),
            force: set("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            dumb: set("TERM").is_some_and(|term| term == "dumb"),
        }
    }
}

impl Globals {
    /// How commands speak.
    #[must_use]
    pub(super) fn output(&self) -> Output {
        let env = ColourEnv::from_process();
        Output {
            json: self.json,
            quiet: self.quiet,
            colour: self.colour(&env, std::io::stdout().is_terminal()),
            colour_err: self.colour(&env, std::io::stderr().is_terminal()),
            unicode: is_utf8(|name| std::env::var(name).ok()),
            width: width(),
        }
    }

    fn colour(&self, env: &ColourEnv, terminal: bool) -> bool {
        match self.color {
            _ if self.no_color => false,
            ColourChoice::Always => true,
            ColourChoice::Never => false,
            ColourChoice::Auto if env.no_color => false,
            ColourChoice::Auto => env.force || (terminal && !env.dumb),
        }
    }
}

/// Columns of the terminal on stdout.
fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether the locale's characters are UTF-8. No locale at all is a bare environment such as a
/// container's, whose terminals are UTF-8.
fn is_utf8(var: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| var(name).filter(|value| !value.is_empty()));
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_flag_then_no_color_then_force_then_terminal() {
        let globals = |color, no_color| Globals {
            color,
            no_color,
            ..Globals::default()
        };
        let env = |no_color, force, dumb| ColourEnv {
            no_color,
            force,
            dumb,
        };
        use ColourChoice::{Always, Auto, Never};
        let table = [
            (Auto, false, env(false, false, false), true, true),
            (Auto, false, env(false, false, false), false, false),
            (Auto, false, env(false, false, true), true, false),
            (Auto, false, env(true, true, false), true, false),
            (Auto, false, env(false, true, false), false, true),
            (Always, false, env(true, false, true), false, true),
            (Always, true, env(false, true, false), true, false),
            (Never, false, env(false, true, false), true, false),
        ];
        for (choice, no_color, env, terminal, expected) in table {
            let found = globals(choice, no_color).colour(&env, terminal);
            assert_eq!(found, expected, "{choice:?} {no_color} {env:?} {terminal}");
        }
    }

    #[test]
    fn only_a_locale_that_says_otherwise_is_ascii() {
        let check = |set: &[(&str, &str)], expected| {
            let found = is_utf8(|name| {
                let hit = set.iter().find(|(key, _)| *key == name);
                hit.map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(found, expected, "{set:?}");
        };
        check(&[], true);
        check(&[("LANG", "de_DE.UTF-8")], true);
        check(&[("LANG", "C")], false);
        check(&[("LC_ALL", "C.utf8"), ("LANG", "C")], true);
    }
}
