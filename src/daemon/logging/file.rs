//! A log file that rotates, says an error that repeats once a minute, and survives a full disk.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::control::files;

/// The file is put away at this size, and so many old ones are kept.
const ROTATE_AT: u64 = 10 << 20;
const KEEP: u32 = 5;
/// A repeated warning is written once in this time.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Different warnings remembered at a time.
const REMEMBERED: usize = 1000;

/// One line per write, as the formatter makes them.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    state: Mutex<State>,
    rotate_at: u64,
}

#[derive(Debug)]
struct State {
    file: File,
    size: u64,
    repeats: Repeats,
    /// Lines lost since a write last worked, and why.
    lost: Option<(u64, String)>,
}

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::rotating_at(path, ROTATE_AT)
    }

    fn rotating_at(path: &Path, rotate_at: u64) -> io::Result<Self> {
        let (file, size) = append_to(path)?;
        let state = Mutex::new(State {
            file,
            size,
            repeats: Repeats::default(),
            lost: None,
        });
        let path = path.to_owned();
        Ok(Self {
            path,
            state,
            rotate_at,
        })
    }

    pub(super) fn reopen(&self) {
        let mut state = self.state();
        match append_to(&self.path) {
            Ok((file, size)) => (state.file, state.size) = (file, size),
            Err(error) => state.lose(&error), // the old one is better than none
        }
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let state = self.state();
        let (count, why) = state.lost.as_ref()?;
        Some(format!("log: {count} lines lost: {why}"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &[u8], now: Instant) {
        let mut state = self.state();
        let Some(line) = state.repeats.pass(line, now) else {
            return;
        };
        if state.size > 0 && state.size + line.len() as u64 > self.rotate_at {
            match rotate(&self.path).and_then(|()| append_to(&self.path)) {
                Ok((file, size)) => (state.file, state.size) = (file, size),
                Err(error) => state.lose(&error),
            }
        }
        match state.file.write_all(&line) {
            Ok(()) => {
                state.size += line.len() as u64;
                state.lost = None;
            }
            Err(error) => state.lose(&error),
        }
    }
}

impl State {
    fn lose(&mut self, error: &io::Error) {
        let count = self.lost.as_ref().map_or(0, |(count, _)| *count);
        self.lost = Some((count + 1, error.to_string()));
    }
}

impl Write for &LogFile {
    /// Never fails: a log must not stop what it tells of.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line, Instant::now());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let file = files::private().append(true).create(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// `log` becomes `log.1`, `log.1` becomes `log.2`, and so on; the oldest goes.
fn rotate(path: &Path) -> io::Result<()> {
    for number in (1..KEEP).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, numbered(path, 1))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Warnings and errors said lately.
#[derive(Debug, Default)]
struct Repeats {
    said: HashMap<Vec<u8>, (Instant, u64)>,
}

impl Repeats {
    /// What to write for `line`: nothing for a repetition, its count after a while.
    fn pass(&mut self, line: &[u8], now: Instant) -> Option<Vec<u8>> {
        let Some(said) = trouble(line) else {
            return Some(line.to_vec());
        };
        if let Some((since, count)) = self.said.get_mut(said) {
            if now.duration_since(*since) < REPEAT_AFTER {
                *count += 1;
                return None;
            }
            let repeated = std::mem::take(count);
            *since = now;
            return Some(match repeated {
                0 => line.to_vec(),
                n => counted(line, n),
            });
        }
        if self.said.len() >= REMEMBERED {
            self.said
                .retain(|_, (since, _)| now.duration_since(*since) < REPEAT_AFTER);
        }
        if self.said.len() < REMEMBERED {
            self.said.insert(said.to_vec(), (now, 0));
        }
        Some(line.to_vec())
    }
}

/// The part of a warning's or error's line behind its time.
fn trouble(line: &[u8]) -> Option<&[u8]> {
    let separator = if line.starts_with(b"{") { b',' } else { b' ' };
    let end = line.iter().position(|byte| *byte == separator)?;
    let rest = &line[end..];
    let starts = |word: &[u8]| rest.trim_ascii_start().starts_with(word);
    let is_trouble = starts(b"WARN")
        || starts(b"ERROR")
        || starts(b",\"level\":\"WARN\"")
        || starts(b",\"level\":\"ERROR\"");
    is_trouble.then_some(rest)
}

fn counted(line: &[u8], repeated: u64) -> Vec<u8> {
    let text = line.trim_ascii_end();
    let mut counted = match text.strip_suffix(b"}") {
        Some(open) if text.starts_with(b"{") => {
            [open, format!(",\"repeated\":{repeated}}}").as_bytes()].concat()
        }
        _ => [text, format!(" ({repeated} more in between)").as_bytes()].concat(),
    };
    counted.push(b'\n');
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_put_away_and_five_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let log = LogFile::rotating_at(&path, 20).unwrap();
        for n in 0..9 {
            let line = format!("line {n} is long enough\n");
            (&log).write_all(line.as_bytes()).unwrap();
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "line 8 is long enough\n");
        assert_eq!(read(&numbered(&path, 1)), "line 7 is long enough\n");
        assert_eq!(read(&numbered(&path, 5)), "line 3 is long enough\n");
        assert!(!numbered(&path, 6).exists());
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let log = LogFile::open(&path).unwrap();
        (&log).write_all(b"one\n").unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        log.reopen();
        (&log).write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
    }

    #[test]
    fn one_error_over_and_over_is_one_line_a_minute_with_a_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let log = LogFile::open(&path).unwrap();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..50 {
            log.put(format!("{second}  WARN disk\n").as_bytes(), at(second));
            log.put(format!("{second}  INFO fine\n").as_bytes(), at(second));
        }
        log.put(b"70  WARN disk\n", at(70));
        log.put(b"71 ERROR other\n", at(71));
        let text = fs::read_to_string(&path).unwrap();
        let warnings: Vec<&str> = text.lines().filter(|line| !line.contains("INFO")).collect();
        let expected = [
            "0  WARN disk",
            "70  WARN disk (49 more in between)",
            "71 ERROR other",
        ];
        assert_eq!(warnings, expected);
        assert_eq!(text.matches("INFO").count(), 50);
    }

    #[test]
    fn repetitions_are_counted_in_json_too() {
        let line = br#"{"timestamp":"t","level":"WARN","fields":{}}"#;
        assert!(trouble(line).is_some());
        let said = counted(line, 3);
        let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
        assert_eq!(said["repeated"], 3);
    }

    #[test]
    fn a_full_disk_costs_lines_and_says_so() {
        let Ok(log) = LogFile::open(Path::new("/dev/full")) else {
            println!("skipped: no /dev/full");
            return;
        };
        (&log).write_all(b"lost\n").unwrap();
        let trouble = log.trouble().unwrap();
        assert!(trouble.starts_with("log: 1 lines lost"), "{trouble}");
    }
}
