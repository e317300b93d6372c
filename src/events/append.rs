//! Appending to an event log that other processes append to as well.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

use chrono::Utc;
use gascity_actors::model::{Event, EventDraft};

use super::line::encode;
use super::log::{EventLog, Tail, first_seq, tail};
use super::rotation::{Part, archive, rotate};

/// How long an append waits for other processes.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Steps of that wait. There is no lock call with a time limit.
const LOCK_STEP_MIN: Duration = Duration::from_micros(100);
const LOCK_STEP_MAX: Duration = Duration::from_millis(5);

/// Appends events. What it remembers of the file spares it from reading it while nobody else
/// writes.
#[derive(Debug)]
pub(super) struct Appender {
    log: EventLog,
    lock: File,
    file: Option<Open>,
    tail: Tail,
}

/// Appends one event, for a process that has no more to say.
///
/// # Errors
/// If the log cannot be written, or others keep it locked.
pub fn append_one(log: EventLog, draft: EventDraft) -> io::Result<Event> {
    let mut appender = Appender::open(log)?;
    let written = appender.append(vec![draft])?;
    appender.sync()?;
    let missing = || io::Error::other("the event was not written");
    written.into_iter().next_back().ok_or_else(missing)
}

/// The file as it was last seen.
#[derive(Debug)]
struct Open {
    file: File,
    id: (u64, u64),
    size: u64,
}

impl Appender {
    /// Opens the log, and creates what is missing of its directory.
    pub(super) fn open(log: EventLog) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(log.dir())?;
        let lock = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(log.dir().join("events.lock"))?;
        Ok(Self {
            log,
            lock,
            file: None,
            tail: Tail::default(),
        })
    }

    /// Numbers and writes events, with one write for all of them.
    pub(super) fn append(&mut self, drafts: Vec<EventDraft>) -> io::Result<Vec<Event>> {
        self.lock()?;
        let written = self.append_locked(drafts);
        if written.is_err() {
            self.file = None; // look again at what is really there
        }
        self.lock.unlock()?;
        written
    }

    /// Brings what was written to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file
            .as_ref()
            .map_or(Ok(()), |open| open.file.sync_data())
    }

    fn lock(&self) -> io::Result<()> {
        let deadline = Instant::now() + LOCK_WAIT;
        let mut step = LOCK_STEP_MIN;
        loop {
            match self.lock.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the event log is locked by another process",
                    ));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(step),
            }
            step = (step * 2).min(LOCK_STEP_MAX);
        }
    }

    fn append_locked(&mut self, mut drafts: Vec<EventDraft>) -> io::Result<Vec<Event>> {
        let mut open = self.current()?;
        if open.size >= self.log.rotation().bytes {
            let (fresh, note) = self.put_away(open)?;
            open = fresh;
            drafts.insert(0, note);
        }
        let mut bytes = Vec::new();
        if self.tail.torn {
            bytes.push(b'\n');
        }
        let now = Utc::now();
        let mut events = Vec::with_capacity(drafts.len());
        for (draft, seq) in drafts.into_iter().zip(self.tail.seq + 1..) {
            let mut event = draft.record(seq, now);
            encode(&mut event, &mut bytes)?;
            events.push(event);
        }
        open.file.write_all(&bytes)?;
        open.size += bytes.len() as u64;
        self.tail = Tail {
            seq: self.tail.seq + events.len() as u64,
            torn: false,
        };
        self.file = Some(open);
        Ok(events)
    }

    /// Makes an archive of the file and begins another, whose first event tells of it.
    fn put_away(&mut self, mut open: Open) -> io::Result<(Open, EventDraft)> {
        if self.tail.torn {
            open.file.write_all(b"\n")?;
        }
        let first = first_seq(&mut open.file)?.unwrap_or(self.tail.seq);
        open.file.sync_data()?;
        rotate(self.log.path(), self.log.rotation().keep)?;
        let archive = format!("{}.1", self.log.path().display());
        let note = EventDraft::new("events.rotated", "")
            .with("archive", archive)
            .with("first_seq", first)
            .with("last_seq", self.tail.seq);
        Ok((self.current()?, note))
    }

    /// The file as it is now; its end is read only if somebody else changed it.
    fn current(&mut self) -> io::Result<Open> {
        let seen = fs::metadata(self.log.path()).ok();
        if let Some(open) = self.file.take()
            && seen
                .is_some_and(|meta| (meta.dev(), meta.ino()) == open.id && meta.len() == open.size)
        {
            return Ok(open);
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.log.path())?;
        let meta = file.metadata()?;
        let mut found = tail(&mut file)?;
        // Whoever put the last one away may not have come to the first event of this one.
        if found.seq == 0
            && let Some(mut last) = Part::open(&archive(self.log.path(), 1))?
        {
            found.seq = tail(&mut last.file)?.seq;
        }
        // Numbers go on, also in a file that somebody emptied.
        self.tail = Tail {
            seq: found.seq.max(self.tail.seq),
            ..found
        };
        Ok(Open {
            file,
            id: (meta.dev(), meta.ino()),
            size: meta.len(),
        })
    }
}
