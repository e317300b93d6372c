//! Reading an event log. Needs no writer and takes no lock: only whole lines are looked at.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gascity_actors::model::Event;

use super::follow::Follower;
use super::line::{decode, decode_seq};
use super::rotation::{self, Rotation};

/// Ranges below this are read through, not bisected; also the first look at a file's end.
const WINDOW: u64 = 64 << 10;

/// An event log on disk. It need not exist: then it has no events.
#[derive(Debug, Clone)]
pub struct EventLog {
    dir: PathBuf,
    path: PathBuf,
    /// Shared by all clones, since it may change while they are in use.
    rotation: Arc<Mutex<Rotation>>,
}

/// Events that were read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// In order.
    pub events: Vec<Event>,
    /// Lines that are no events, e.g. torn ones.
    pub skipped: u64,
}

impl Batch {
    pub(super) fn take(&mut self, line: &[u8]) {
        match decode(line) {
            Some(event) => self.events.push(event),
            None if line.iter().all(u8::is_ascii_whitespace) => {}
            None => self.skipped += 1,
        }
    }
}

impl EventLog {
    /// The log in `dir`: `<city>/.gc`, or the home of the machine supervisor.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let path = dir.join("events.jsonl");
        let rotation = Arc::default();
        Self {
            dir,
            path,
            rotation,
        }
    }

    /// Sets when whoever appends puts the file away.
    #[must_use]
    pub fn rotating(self, rotation: Rotation) -> Self {
        self.rotate_at(rotation);
        self
    }

    /// The same for a log that is in use.
    pub fn rotate_at(&self, rotation: Rotation) {
        *self.rotation.lock().unwrap_or_else(PoisonError::into_inner) = rotation;
    }

    pub(super) fn rotation(&self) -> Rotation {
        *self.rotation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory it is in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Up to `limit` events with `seq > after`, oldest first.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn read_after(&self, after: u64, limit: usize) -> io::Result<Batch> {
        let mut batch = Batch::default();
        for part in rotation::parts(&self.path, None)? {
            let mut file = part.file;
            let begin = offset_after(&mut file, after)?;
            file.seek(SeekFrom::Start(begin))?;
            let mut lines = BufReader::new(file);
            let mut line = Vec::new();
            while batch.events.len() < limit {
                line.clear();
                lines.read_until(b'\n', &mut line)?;
                if !line.ends_with(b"\n") {
                    break; // the end, or a line still being written
                }
                batch.take(&line);
                if batch.events.last().is_some_and(|event| event.seq <= after) {
                    batch.events.pop();
                }
            }
        }
        Ok(batch)
    }

    /// The newest `count` events, oldest first.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn last(&self, count: usize) -> io::Result<Batch> {
        let mut batch = Batch::default();
        for mut part in rotation::parts(&self.path, None)?.into_iter().rev() {
            let missing = count - batch.events.len();
            if missing == 0 {
                break;
            }
            let mut older = last_of(&mut part.file, missing)?;
            older.events.append(&mut batch.events);
            older.skipped += batch.skipped;
            batch = older;
        }
        Ok(batch)
    }

    /// The number of the newest event, 0 if there is none.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn last_seq(&self) -> io::Result<u64> {
        Ok(self.last(1)?.events.last().map_or(0, |event| event.seq))
    }

    /// Events with `seq > after`, and then those to come.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn follow(&self, after: u64) -> io::Result<Follower> {
        Follower::new(self.clone(), after)
    }
}

/// The newest `count` events of one file, oldest first.
fn last_of(file: &mut File, count: usize) -> io::Result<Batch> {
    let mut window = WINDOW;
    loop {
        let (bytes, whole) = end_of(file, window)?;
        let mut batch = Batch::default();
        let complete = bytes.iter().rposition(|byte| *byte == b'\n');
        let lines = complete.map_or(&[][..], |end| &bytes[..end]);
        lines
            .split(|byte| *byte == b'\n')
            .for_each(|line| batch.take(line));
        if whole || batch.events.len() >= count {
            let surplus = batch.events.len().saturating_sub(count);
            batch.events.drain(..surplus);
            return Ok(batch);
        }
        window *= 4;
    }
}

/// The number of the first event of a file.
pub(super) fn first_seq(file: &mut File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if let Some(seq) = decode_seq(&line) {
            return Ok(Some(seq));
        }
    }
}

/// The last `window` bytes from a line's start on, and whether that is the whole file.
fn end_of(file: &mut File, window: u64) -> io::Result<(Vec<u8>, bool)> {
    let size = file.metadata()?.len();
    let from = size.saturating_sub(window);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(size - from).read_to_end(&mut bytes)?;
    if from > 0 {
        let first = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..first.map_or(bytes.len(), |end| end + 1));
    }
    Ok((bytes, from == 0))
}

/// What an appender needs to know of the end of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tail {
    /// Number of the last event.
    pub(super) seq: u64,
    /// The last line has no end.
    pub(super) torn: bool,
}

/// Looks at the end of a log. An unfinished last line counts if it is a whole event: it becomes
/// one with the newline that the next append puts first.
pub(super) fn tail(file: &mut File) -> io::Result<Tail> {
    let mut window = WINDOW;
    loop {
        let (bytes, whole) = end_of(file, window)?;
        let last = bytes.rsplit(|byte| *byte == b'\n').find_map(decode_seq);
        if last.is_some() || whole {
            return Ok(Tail {
                seq: last.unwrap_or(0),
                torn: bytes.last().is_some_and(|byte| *byte != b'\n'),
            });
        }
        window *= 4;
    }
}

/// Start of a line before which there is no event with `seq > after`: numbers only grow, so the
/// file can be bisected.
pub(super) fn offset_after(file: &mut File, after: u64) -> io::Result<u64> {
    let (mut low, mut high) = (0, file.metadata()?.len());
    if after == 0 {
        return Ok(0);
    }
    while high - low > WINDOW {
        let middle = low + (high - low) / 2;
        match first_event(file, middle, high)? {
            Some((start, seq)) if seq <= after => low = start,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The first event on a line that begins after `from` and before `until`.
fn first_event(file: &mut File, from: u64, until: u64) -> io::Result<Option<(u64, u64)>> {
    file.seek(SeekFrom::Start(from))?;
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    let mut start = from + lines.read_until(b'\n', &mut line)? as u64;
    while start < until {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)? as u64;
        if let Some(seq) = decode_seq(&line) {
            return Ok(Some((start, seq)));
        }
        if length == 0 {
            break;
        }
        start += length;
    }
    Ok(None)
}
