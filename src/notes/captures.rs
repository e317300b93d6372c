//! Last words of crashed runs, as files, as many as are worth keeping.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use chrono::{DateTime, Utc};

use crate::control::files;
use crate::model::SessionName;

/// No file is larger.
const FILE: usize = 256 << 10;

/// The header of a text that must be cut stays if it is no longer than this.
const HEADER: usize = 4 << 10;

/// What is kept: files of one session, files of the city, bytes of the city.
const PER_SESSION: usize = 10;
const PER_CITY: usize = 200;
const BYTES: u64 = 64 << 20;

/// `yyyymmddThhmmss.mmmZ`: sorts like the time it stands for.
const STAMP: &str = "%Y%m%dT%H%M%S%.3fZ";
const STAMP_LEN: usize = "20260101T000000.000Z".len();

/// The captures of one city.
#[derive(Debug)]
pub(super) struct Captures {
    dir: PathBuf,
}

impl Captures {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where the capture of that time goes. Touches nothing.
    pub(super) fn path(&self, session: &SessionName, at: DateTime<Utc>) -> PathBuf {
        self.dir.join(format!("{session}-{}.txt", at.format(STAMP)))
    }

    /// Keeps a text and forgets what is too old. Callers exclude each other.
    pub(super) fn save(&self, path: &PathBuf, text: &str) -> io::Result<()> {
        files::create_private_dir(&self.dir)?;
        let mut file = files::private()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let (head, tail) = bounded(text);
        file.write_all(head.as_bytes())?;
        file.write_all(tail.as_bytes())?;
        // The new one is safe; what cannot be removed now is tried again next time.
        if let Err(error) = self.prune(path) {
            tracing::warn!(%error, "failed to remove old captures");
        }
        Ok(())
    }

    /// Removes what is beyond the limits, oldest first. `fresh` counts as newest even if the
    /// clock was set back; files of other names are none of ours.
    fn prune(&self, fresh: &PathBuf) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            kept.extend(Capture::of(&entry?)?);
        }
        kept.sort_by(|a, b| {
            let newness = |capture: &Capture| (capture.path == *fresh, capture.stamp.clone());
            newness(b).cmp(&newness(a))
        });
        let mut sessions: HashMap<&str, usize> = HashMap::new();
        let (mut count, mut bytes) = (0, 0);
        for capture in &kept {
            let of_session = sessions.entry(&capture.session).or_default();
            if *of_session < PER_SESSION && count < PER_CITY && bytes + capture.size <= BYTES {
                *of_session += 1;
                count += 1;
                bytes += capture.size;
            } else {
                fs::remove_file(&capture.path)?;
            }
        }
        Ok(())
    }
}

/// A file there is.
#[derive(Debug)]
struct Capture {
    path: PathBuf,
    session: String,
    stamp: String,
    size: u64,
}

impl Capture {
    fn of(entry: &fs::DirEntry) -> io::Result<Option<Self>> {
        let name = entry.file_name();
        let Some((session, stamp)) = name.to_str().and_then(split) else {
            return Ok(None);
        };
        let meta = entry.metadata()?;
        Ok(meta.is_file().then(|| Self {
            path: entry.path(),
            session: session.to_owned(),
            stamp: stamp.to_owned(),
            size: meta.len(),
        }))
    }
}

/// Session and time in the name of a file.
fn split(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_suffix(".txt")?;
    let at = name.len().checked_sub(STAMP_LEN)?;
    let (session, stamp) = (name.get(..at)?, name.get(at..)?);
    let is_stamp = stamp.ends_with('Z') && stamp.as_bytes().get(8) == Some(&b'T');
    Some((session.strip_suffix('-')?, stamp)).filter(|_| is_stamp)
}

/// The parts of a text that are kept: its header (up to the first blank line) and its end.
fn bounded(text: &str) -> (&str, &str) {
    if text.len() <= FILE {
        return ("", text);
    }
    let header = text.find("\n\n").map(|end| end + 2);
    let head = &text[..header.filter(|end| *end <= HEADER).unwrap_or(0)];
    let mut from = text.len() - (FILE - head.len());
    while !text.is_char_boundary(from) {
        from += 1;
    }
    (head, &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures() -> (tempfile::TempDir, Captures) {
        let dir = tempfile::tempdir().unwrap();
        let captures = Captures::new(dir.path().join("captures"));
        (dir, captures)
    }

    fn time(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_767_225_600 + seconds, 7_000_000).unwrap()
    }

    fn save(captures: &Captures, session: &str, text: &str, at: DateTime<Utc>) -> PathBuf {
        let path = captures.path(&SessionName::new(session).unwrap(), at);
        captures.save(&path, text).unwrap();
        path
    }

    fn names(captures: &Captures) -> Vec<String> {
        let entries = fs::read_dir(&captures.dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn names_carry_session_and_time() {
        let (_dir, captures) = captures();
        save(&captures, "a-b", "1", time(0));
        let want = ["a-b-20260101T000000.007Z.txt"];
        assert_eq!(names(&captures), want);
        assert_eq!(split(want[0]), Some(("a-b", "20260101T000000.007Z")));
        for other in [
            "x.txt",
            "20260101T000000.007Z.txt",
            "é-0101T000000.007Z.txt",
        ] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_ten_of_a_session_are_kept() {
        let (_dir, captures) = captures();
        save(&captures, "b", "x", time(0));
        fs::write(captures.dir.join("mine.txt"), "x").unwrap();
        for second in 1..=15 {
            save(&captures, "a", "x", time(second));
        }
        let names = names(&captures);
        assert_eq!(names.len(), 12);
        assert_eq!(names[0], "a-20260101T000006.007Z.txt");
    }

    #[test]
    fn the_newest_two_hundred_of_a_city_are_kept() {
        let (_dir, captures) = captures();
        for second in 0..210 {
            let session = format!("s{}", second % 30);
            save(&captures, &session, "x", time(second));
        }
        assert_eq!(names(&captures).len(), PER_CITY);
    }

    #[test]
    fn the_size_of_a_city_is_bounded() {
        let (_dir, captures) = captures();
        fs::create_dir_all(&captures.dir).unwrap();
        // Sparse: only their length counts here.
        for (name, size) in [("old", BYTES), ("new", BYTES / 2)] {
            let day = if name == "old" { "01" } else { "02" };
            let path = captures
                .dir
                .join(format!("{name}-202601{day}T000000.000Z.txt"));
            fs::File::create(path).unwrap().set_len(size).unwrap();
        }
        save(&captures, "a", "x", time(86_400 * 2));
        let want = ["a-20260103T000000.007Z.txt", "new-20260102T000000.000Z.txt"];
        assert_eq!(names(&captures), want);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_cost_the_newest() {
        let (_dir, captures) = captures();
        for second in 100..110 {
            save(&captures, "a", "x", time(second));
        }
        let path = save(&captures, "a", "late", time(0));
        assert!(path.exists());
        assert_eq!(names(&captures).len(), PER_SESSION);
    }

    #[test]
    fn of_a_long_text_the_header_and_the_end_are_kept() {
        let text = format!("agent a\nexit 1\n\n{}end", "ä".repeat(FILE));
        let (head, tail) = bounded(&text);
        assert_eq!(head, "agent a\nexit 1\n\n");
        assert!(tail.ends_with("äend"));
        assert!((FILE - 3..=FILE).contains(&(head.len() + tail.len())));
        let (head, tail) = bounded(&text[16..]);
        assert!(head.is_empty() && tail.len() >= FILE - 3);
        assert_eq!(bounded("short\n\ntext"), ("", "short\n\ntext"));
    }
}
