//! Following an event log as it grows.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::Event;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use super::log::{Batch, EventLog, offset_after};
use super::rotation::{self, Id, Part};

/// Most that is read at once. Far above the longest line.
const CHUNK: u64 = 1 << 20;

/// How often is looked where the directory cannot be watched.
const POLL: Duration = Duration::from_secs(1);

/// Yields the events of a log, those there are and those to come; see [`EventLog::follow`].
#[derive(Debug)]
pub struct Follower {
    log: EventLog,
    after: u64,
    /// The file being read, and those to be read after it.
    file: Option<Part>,
    newer: VecDeque<Part>,
    offset: u64,
    skipped: u64,
    woken: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
}

impl Follower {
    pub(super) fn new(log: EventLog, after: u64) -> io::Result<Self> {
        let woken = Arc::new(Notify::new());
        let mut follower = Self {
            watcher: watch(&log, woken.clone()),
            log,
            after,
            file: None,
            newer: VecDeque::new(),
            offset: 0,
            skipped: 0,
            woken,
        };
        follower.open_next(None)?;
        Ok(follower)
    }

    /// The next events, at least one, as soon as their lines are complete. Nothing is lost if
    /// the future is dropped.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub async fn next(&mut self) -> io::Result<Vec<Event>> {
        loop {
            let events = self.poll_now()?;
            if !events.is_empty() {
                return Ok(events);
            }
            match self.watcher {
                Some(_) => self.woken.notified().await,
                None => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// Complete lines so far that were no events.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Events that are there now and were not yielded before.
    pub(super) fn poll_now(&mut self) -> io::Result<Vec<Event>> {
        loop {
            if self.file.is_none() && !self.open_next(None)? {
                return Ok(Vec::new());
            }
            let (lines, at_end) = self.read_lines()?;
            let mut batch = Batch::default();
            lines
                .split(|byte| *byte == b'\n')
                .for_each(|line| batch.take(line));
            self.skipped += batch.skipped;
            batch.events.retain(|event| event.seq > self.after);
            if let Some(last) = batch.events.last() {
                self.after = last.seq;
                return Ok(batch.events);
            }
            if at_end && !self.turn_over()? {
                return Ok(Vec::new());
            }
        }
    }

    /// Reads on up to the last complete line; also whether nothing complete is left.
    fn read_lines(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let Some(part) = &mut self.file else {
            return Ok((Vec::new(), true));
        };
        part.file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        (&part.file).take(CHUNK).read_to_end(&mut bytes)?;
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => bytes.truncate(end + 1),
            None if bytes.len() as u64 == CHUNK => {} // no event is that long
            None => bytes.clear(),
        }
        self.offset += bytes.len() as u64;
        let at_end = bytes.is_empty();
        Ok((bytes, at_end))
    }

    /// Once a file is read to its end: goes on with the one that took its place, or with its
    /// beginning if it was emptied.
    fn turn_over(&mut self) -> io::Result<bool> {
        let Some(part) = &self.file else {
            return Ok(false);
        };
        if part.file.metadata()?.len() < self.offset {
            self.offset = 0;
            return Ok(true);
        }
        let id = part.id;
        let replaced = match fs::metadata(self.log.path()) {
            Ok(meta) => (meta.dev(), meta.ino()) != id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !replaced && self.newer.is_empty() {
            return Ok(false);
        }
        // Its last lines may have come after they were looked for.
        let (lines, at_end) = self.read_lines()?;
        if !at_end {
            self.offset -= lines.len() as u64;
            return Ok(true);
        }
        self.open_next(Some(id))
    }

    /// Goes on with the file after `since`, or with the oldest that matters.
    fn open_next(&mut self, since: Option<Id>) -> io::Result<bool> {
        if self.newer.is_empty() {
            self.newer = rotation::parts(self.log.path(), since)?.into();
        }
        let Some(mut part) = self.newer.pop_front() else {
            return Ok(false);
        };
        self.offset = offset_after(&mut part.file, self.after)?;
        self.file = Some(part);
        Ok(true)
    }
}

/// Watches the directory, so that a file that does not exist yet is noticed too.
fn watch(log: &EventLog, woken: Arc<Notify>) -> Option<RecommendedWatcher> {
    let name = log.path().file_name()?.to_owned();
    let on_event = move |event: notify::Result<notify::Event>| {
        let matters = match event {
            // Our own opening and reading is no news.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
            Ok(event) => {
                event.need_rescan()
                    || event
                        .paths
                        .iter()
                        .any(|path| path.file_name() == Some(&name))
            }
            Err(_) => true,
        };
        if matters {
            woken.notify_one();
        }
    };
    let watched = notify::recommended_watcher(on_event).and_then(|mut watcher| {
        watcher.watch(log.dir(), RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watched {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::debug!(%error, dir = %log.dir().display(), "following by polling");
            None
        }
    }
}
