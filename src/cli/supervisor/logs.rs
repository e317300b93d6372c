//! `gc supervisor logs`: what the supervisor itself has to say.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::changes::Changes;
use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::values::moment;

/// Levels, from the least to the most serious.
const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// Arguments of `gc supervisor logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc supervisor logs\n  gc supervisor logs -f --level warn\n  gc supervisor logs --since 1h --city bright-lights"
)]
pub(super) struct LogsArgs {
    /// How many lines; 0 for all
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
    lines: usize,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only what came after: a time, or how long ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<DateTime<Utc>>,
    /// Only this level and worse: trace, debug, info, warn, error
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(LEVELS), hide_possible_values = true)]
    level: Option<String>,
}

/// One line of the log, in either form.
struct Line<'a> {
    text: &'a str,
    at: Option<DateTime<Utc>>,
    level: Option<usize>,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Self {
        let level_of = |word: &str| {
            let word = word.to_ascii_lowercase();
            LEVELS.iter().position(|level| *level == word)
        };
        if let Ok(object) = serde_json::from_str::<Value>(text) {
            let word = |key: &str| object[key].as_str();
            return Self {
                text,
                at: word("timestamp").and_then(|at| at.parse().ok()),
                level: word("level").and_then(level_of),
            };
        }
        let mut words = text.split_whitespace();
        Self {
            text,
            at: words.next().and_then(|word| word.parse().ok()),
            level: words.next().and_then(level_of),
        }
    }
}

impl LogsArgs {
    /// Prints the end of the log.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is none.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let log = context.home()?.log();
        if !log.exists() {
            let message = format!("there is no log yet at {}", log.display());
            return Err(CliError::new(Code::NotFound, message).hint("gc supervisor start"));
        }
        // By its name alone: its directory may be gone.
        let mut filter = Filter::new(self, context.globals.city.clone());
        let mut growing = Growing::open(&log)?;
        let mut kept = VecDeque::new();
        let mut keep = |line: &str| {
            if filter.wants(line) {
                kept.push_back(line.to_owned());
                if self.lines > 0 && kept.len() > self.lines {
                    kept.pop_front();
                }
            }
        };
        for old in (1..=5).rev().map(|n| numbered(&log, n)) {
            if let Ok(file) = File::open(old) {
                for line in BufReader::new(file).lines() {
                    keep(&line?);
                }
            }
        }
        for line in growing.lines()? {
            keep(&line);
        }
        for line in kept {
            say(context, &line)?;
        }
        if !self.follow {
            return Ok(0);
        }
        let changes = Changes::around(&log);
        loop {
            for line in growing.lines()? {
                if filter.wants(&line) {
                    say(context, &line)?;
                }
            }
            changes.wait();
        }
    }
}

fn say(context: &Context, text: &str) -> CliResult {
    if !context.out.json {
        return context.out.line(text);
    }
    match serde_json::from_str::<Value>(text) {
        Ok(object) if object.is_object() => context.out.document(&object),
        _ => {
            let line = Line::read(text);
            let level = line.level.map(|level| LEVELS[level]);
            context
                .out
                .document(&json!({"time": line.at, "level": level, "text": line.text}))
        }
    }
}

/// Which lines are meant. Lines that belong to the one before share its fate.
struct Filter<'a> {
    args: &'a LogsArgs,
    least: usize,
    city: Option<String>,
    last: bool,
}

impl<'a> Filter<'a> {
    fn new(args: &'a LogsArgs, city: Option<String>) -> Self {
        let least = args.level.as_deref();
        let least = least.and_then(|level| LEVELS.iter().position(|known| *known == level));
        Self {
            args,
            least: least.unwrap_or(0),
            city,
            last: true,
        }
    }

    fn wants(&mut self, text: &str) -> bool {
        let line = Line::read(text);
        if line.level.is_none() {
            return self.last;
        }
        let in_time = self
            .args
            .since
            .is_none_or(|since| line.at.is_some_and(|at| at >= since));
        let about = self.city.as_ref().is_none_or(|city| {
            let names = [
                format!("city={city}"),
                format!("city '{city}'"),
                format!("\"city\":\"{city}\""),
            ];
            names.iter().any(|name| mentions(text, name))
        });
        self.last = line.level >= Some(self.least) && in_time && about;
        self.last
    }
}

/// Whether `text` has `name` as a whole word.
fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let next = text[at + name.len()..].chars().next();
        next.is_none_or(|c| !(c.is_alphanumeric() || "-_.".contains(c)))
    })
}

/// A file that grows and is put away from time to time.
struct Growing {
    path: PathBuf,
    file: File,
    offset: u64,
}

impl Growing {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            path: path.to_owned(),
            offset: 0,
        })
    }

    /// Complete lines that came since the last look, from an old file to its end and then from its
    /// successor.
    fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut found = self.rest()?;
        let replaced = match self.path.metadata() {
            Ok(now) => {
                let old = self.file.metadata()?;
                (now.dev(), now.ino()) != (old.dev(), old.ino())
            }
            Err(_) => false, // between two files
        };
        if replaced {
            found.extend(self.rest()?); // what came before it was put away
            *self = Self::open(&self.path)?;
            found.extend(self.rest()?);
        }
        Ok(found)
    }

    fn rest(&mut self) -> io::Result<Vec<String>> {
        if self.file.metadata()?.len() < self.offset {
            self.offset = 0; // emptied
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |end| end + 1);
        self.offset += end as u64;
        let text = String::from_utf8_lossy(&bytes[..end]);
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn wanted(args: &LogsArgs, city: Option<&str>, lines: &[&str]) -> Vec<usize> {
        let mut filter = Filter::new(args, city.map(str::to_owned));
        let hits = lines.iter().enumerate();
        hits.filter(|(_, line)| filter.wants(line))
            .map(|(n, _)| n)
            .collect()
    }

    #[test]
    fn lines_are_chosen_by_level_time_and_city() {
        let args = |since: Option<&str>, level: Option<&str>| LogsArgs {
            lines: 0,
            follow: false,
            since: since.map(|at| at.parse().unwrap()),
            level: level.map(str::to_owned),
        };
        let lines = [
            "2026-03-18T10:00:00.000000Z  INFO supervisor ready",
            "2026-03-18T11:00:00.000000Z  WARN city failed to start city=town",
            "  | with a second line",
            "2026-03-18T12:00:00.000000Z ERROR city crashed city=town-2",
            r#"{"timestamp":"2026-03-18T13:00:00Z","level":"WARN","fields":{"city":"town"}}"#,
        ];
        assert_eq!(wanted(&args(None, None), None, &lines), [0, 1, 2, 3, 4]);
        assert_eq!(
            wanted(&args(None, Some("warn")), None, &lines),
            [1, 2, 3, 4]
        );
        assert_eq!(wanted(&args(None, None), Some("town"), &lines), [1, 2, 4]);
        let late = args(Some("2026-03-18T11:30:00Z"), Some("error"));
        assert_eq!(wanted(&late, None, &lines), [3]);
    }

    #[test]
    fn a_file_that_is_put_away_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "one\n").unwrap();
        let mut growing = Growing::open(&path).unwrap();
        assert_eq!(growing.lines().unwrap(), ["one"]);
        fs::write(&path, "one\ntwo\nthr").unwrap();
        fs::rename(&path, numbered(&path, 1)).unwrap();
        fs::write(&path, "four\n").unwrap();
        assert_eq!(growing.lines().unwrap(), ["two", "four"]);
        assert_eq!(growing.lines().unwrap(), [""; 0]);
    }
}
