//! `gc agent peek` and `gc agent logs`: what an agent printed.

mod follow;
mod screen;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chrono::Utc;
use clap::Args;
use serde_json::json;

use super::offline::Offline;
use super::roster::{Roster, Source};
use crate::cli::context::{Context, read};
use crate::cli::discover::Access;
use crate::cli::error::{CliError, CliResult, Code};
use crate::model::{AgentName, InstanceView, SessionName, millis};
use crate::sessions::{log_file, tail_across};

/// Arguments of `gc agent peek`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent peek worker-1 --log\n  gc agent peek worker-1 -n 20 -f"
)]
pub(super) struct PeekArgs {
    /// The agent
    agent: String,
    /// How many lines
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
    lines: u32,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// What it printed, where there is no screen
    #[arg(long)]
    log: bool,
}

/// Arguments of `gc agent logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc agent logs worker-1 -f\n  gc agent logs worker-1 -n 200\n  gc agent logs worker-1 --crash       # last words before the latest crash\n  gc agent logs worker-1 --crash 2     # before the one before"
)]
pub(super) struct LogsArgs {
    /// The agent
    agent: String,
    /// How many lines; 0 for all
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
    lines: u32,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// What was kept of the Nth last crash
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "follow"
    )]
    crash: Option<u32>,
}

/// The last words of a crashed run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Capture {
    /// The file.
    pub(super) path: PathBuf,
}

/// The captures of a session, newest first.
///
/// # Errors
/// If the directory is there and cannot be read.
pub(super) fn captures(root: &Path, session: &SessionName) -> io::Result<Vec<Capture>> {
    let entries = match fs::read_dir(root.join(".gc/runtime/captures")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if is_capture_of(&entry.file_name().to_string_lossy(), session) {
            let path = entry.path();
            found.push(Capture { path });
        }
    }
    // Names hold the time and sort like it.
    found.sort_by(|a, b| b.path.cmp(&a.path));
    Ok(found)
}

/// `<session>-<stamp>.txt`. Stamps have no dash, but names of longer sessions do.
fn is_capture_of(file: &str, session: &SessionName) -> bool {
    let rest = file.strip_prefix(session.as_str());
    let stamp = rest.and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".txt"));
    stamp.is_some_and(|stamp| !stamp.is_empty() && !stamp.contains('-'))
}

impl PeekArgs {
    /// Shows the screen.
    ///
    /// # Errors
    /// [`Code::Unsupported`] where sessions have none.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let mut roster = Roster::load(context, Access::Read)?;
        let agent = roster.find(&self.agent)?.clone();
        let name = agent.qualified_name.as_str();
        match seen(context, &mut roster, &agent, self.lines, true) {
            Ok(text) if self.follow => follow_screen(context, &mut roster, &agent, &text),
            Ok(text) => show(context, name, &text),
            Err(error) if self.log && self.follow && is_without_screen(&error) => {
                let log = log_file(&roster.root, &agent.session);
                follow::follow(context, name, &log, self.lines)
            }
            Err(error) if self.log && is_without_screen(&error) => {
                let text = printed(context, &mut roster, &agent, self.lines)?;
                show(context, name, &text)
            }
            Err(error) if error.code == Code::Unsupported => {
                Err(error.hint(format!("gc agent peek {name} --log")))
            }
            Err(error) => Err(error.hint(format!("gc agent show {name}"))),
        }
    }
}

/// What an agent without a screen printed: as its log says, else as its session does.
fn printed(
    context: &Context,
    roster: &mut Roster,
    agent: &InstanceView,
    lines: u32,
) -> CliResult<String> {
    let log = log_file(&roster.root, &agent.session);
    if log.exists() {
        return Ok(tail_across(&log, 0, Some(0), lines)?);
    }
    match seen(context, roster, agent, lines, false) {
        Err(error) if error.code == Code::Conflict => Ok(String::new()), // it never ran
        text => text,
    }
}

/// The last lines on the screen of an agent, or of what it printed.
fn seen(
    context: &Context,
    roster: &mut Roster,
    agent: &InstanceView,
    lines: u32,
    screen: bool,
) -> CliResult<String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        text: String,
    }
    let name = &agent.qualified_name;
    match &mut roster.source {
        Source::Live(client) => {
            let params = json!({
                "path": roster.root, "agent": name, "lines": lines, "screen": screen
            });
            Ok(read::<Answer>(client.call("agent.peek", params)?)?.text)
        }
        Source::Files => {
            let offline = Offline::open(context, &roster.root)?;
            offline.reach(
                agent,
                |session| async move { session.peek(lines, screen).await },
            )
        }
    }
}

/// Prints `first`, then what comes, until the process is ended or the session is gone.
fn follow_screen(
    context: &Context,
    roster: &mut Roster,
    agent: &InstanceView,
    first: &str,
) -> CliResult<u8> {
    let name = agent.qualified_name.as_str();
    let say = |line: &str| match context.out.json {
        true => context.out.document(&json!({"agent": name, "line": line})),
        false => context.out.line(line),
    };
    let mut shown = screen::Seen::default();
    for line in shown.begin(first) {
        say(&line)?;
    }
    loop {
        std::thread::sleep(screen::PACE);
        let text = match seen(context, roster, agent, screen::WINDOW, true) {
            // Between two runs.
            Err(error) if error.code == Code::Conflict => continue,
            text => text?,
        };
        for line in shown.news(&text) {
            say(&line)?;
        }
    }
}

/// Its sessions have no screen, or there is none of it: what it printed is in a file, if anywhere.
fn is_without_screen(error: &CliError) -> bool {
    matches!(error.code, Code::Unsupported | Code::Conflict)
}

impl LogsArgs {
    /// Shows what was printed.
    ///
    /// # Errors
    /// If there is no such agent, or no such crash.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let mut roster = Roster::load(context, Access::Read)?;
        let (name, session) = self.session(&roster)?;
        if let Some(nth) = self.crash {
            return crash(context, &roster.root, &name, &session, nth);
        }
        let log = log_file(&roster.root, &session);
        // Where there is a screen, what was printed is above it, and in no file.
        if let Ok(agent) = roster.find(&name).cloned() {
            match seen(context, &mut roster, &agent, self.lines, true) {
                Ok(text) if self.follow => {
                    return follow_screen(context, &mut roster, &agent, &text);
                }
                Ok(text) => return show(context, &name, &text),
                Err(error) if is_without_screen(&error) && self.follow => {}
                Err(error) if is_without_screen(&error) => {
                    let text = printed(context, &mut roster, &agent, self.lines)?;
                    return show(context, &name, &text);
                }
                Err(error) => return Err(error),
            }
        }
        if self.follow {
            return follow::follow(context, &name, &log, self.lines);
        }
        show(context, &name, &tail_across(&log, 0, Some(0), self.lines)?)
    }

    /// Also of agents that are gone: their output stays.
    fn session(&self, roster: &Roster) -> CliResult<(String, SessionName)> {
        let error = match roster.find(&self.agent) {
            Ok(agent) => return Ok((agent.qualified_name.to_string(), agent.session.clone())),
            Err(error) => error,
        };
        let gone = AgentName::new(&self.agent).ok().map(|name| {
            let city = crate::config::load(&roster.root);
            city.map_or_else(|_| SessionName::of(&name), |city| city.session_of(&name))
        });
        match gone.filter(|session| log_file(&roster.root, session).exists()) {
            Some(session) => Ok((self.agent.clone(), session)),
            None => Err(error),
        }
    }
}

fn crash(
    context: &Context,
    root: &Path,
    name: &str,
    session: &SessionName,
    nth: u32,
) -> CliResult<u8> {
    let captures = captures(root, session)?;
    let Some(capture) = captures.get(nth as usize - 1) else {
        let message = match captures.len() {
            0 => format!("nothing was kept of crashes of {name}"),
            n => format!("only {n} crashes of {name} were kept"),
        };
        let hint = format!("gc events --subject {name} --type agent.crashed");
        return Err(CliError::new(Code::NotFound, message).hint(hint));
    };
    let text = tail_across(&capture.path, 0, None, 0)?;
    show(context, name, &text)
}

fn show(context: &Context, name: &str, text: &str) -> CliResult<u8> {
    if context.out.json {
        let document = json!({
            "agent": name,
            "lines": text.lines().count(),
            "text": text,
            "captured_at": millis::format(&Utc::now()),
        });
        context.out.document(&document)?;
    } else if text.is_empty() {
        context.out.note("no output");
    } else {
        context.out.line(text)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_belong_to_their_session_and_come_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let captures_dir = dir.path().join(".gc/runtime/captures");
        let session = SessionName::new("w").unwrap();
        assert_eq!(captures(dir.path(), &session).unwrap(), []);
        fs::create_dir_all(&captures_dir).unwrap();
        for file in [
            "w-20260318T100000.000Z.txt",
            "w-20260318T110000.000Z.txt",
            "w-2-20260318T120000.000Z.txt",
            "w-.txt",
            "w.txt",
        ] {
            fs::write(captures_dir.join(file), "x").unwrap();
        }
        let found = captures(dir.path(), &session).unwrap();
        let names: Vec<_> = found.iter().filter_map(|c| c.path.file_name()).collect();
        let expected = ["w-20260318T110000.000Z.txt", "w-20260318T100000.000Z.txt"];
        assert_eq!(names, expected);
    }
}
