//! What changes during a run: its metadata, and where its shown output begins.
//!
//! The note file is the truth, since agents' own `gc` processes write it too. A copy is kept and
//! read again only when the file is another one than the one seen last, which a stat tells.
//! Writers take turns by a lock file; readers need none, as a note is replaced whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use gascity_actors::model::SessionName;
use gascity_actors::ports::{Fence, Note, SessionError, check_note};

use super::note::{Files, NoteFile, or_create_dir};
use super::run::Run;
use super::{Inner, backend, blocking, check, lock};
use crate::control::lock::{Lock, take_turn};
use crate::sessions::processes::Led as _;

/// How long a writer waits for others.
const TURN: Duration = Duration::from_secs(2);

/// The changing part of a note.
#[derive(Debug, Clone, Default)]
pub(super) struct Meta {
    pub(super) entries: BTreeMap<String, String>,
    /// Size of the log when the run began, or when it was cleared last.
    pub(super) log_offset: u64,
    /// Where in the first old log the run began, once its log was begun anew.
    pub(super) rotated: Option<u64>,
    /// The file this was read from, or written to.
    seen: Option<Stamp>,
}

impl Meta {
    pub(super) fn of(note: &NoteFile) -> Self {
        Self {
            entries: note.meta.clone(),
            log_offset: note.log_offset,
            rotated: note.rotated,
            seen: None,
        }
    }

    /// Sets or removes an entry.
    pub(super) fn set(&mut self, key: &str, value: Option<String>) {
        match value {
            Some(value) => self.entries.insert(key.to_owned(), value),
            None => self.entries.remove(key),
        };
    }
}

/// Tells one version of a note from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(super) fn of(meta: &fs::Metadata) -> Self {
        Self {
            inode: meta.ino(),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

impl Files {
    fn stamp(&self, name: &SessionName) -> io::Result<Stamp> {
        Ok(Stamp::of(&fs::metadata(self.note(name))?))
    }

    /// Excludes other writers of the session's files, in this process and in others. Blocks.
    pub(super) fn turn(&self, name: &SessionName) -> io::Result<Lock> {
        let turn = self.turn_within(name, TURN)?;
        turn.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the session is locked"))
    }

    fn turn_within(&self, name: &SessionName, limit: Duration) -> io::Result<Option<Lock>> {
        let path = self.locks.join(name.as_str());
        or_create_dir(&self.locks, || take_turn(&path, limit))
    }

    /// Whether anybody has ever taken a turn. If not, the start of a session need not make the
    /// file for it.
    fn has_turns(&self, name: &SessionName) -> bool {
        self.locks.join(name.as_str()).exists()
    }
}

impl Run {
    /// The metadata as the note says now; as known last if there is no note of this run.
    pub(super) fn fresh(&self, files: &Files) -> MutexGuard<'_, Meta> {
        let mut meta = lock(&self.meta);
        // Before the content is read: one that is replaced meanwhile is read again next time.
        let stamp = files.stamp(&self.name).ok();
        if stamp.is_some() && stamp != meta.seen {
            match files.read_note(&self.name) {
                Ok(Some(note)) if note.token == self.token => *meta = Meta::of(&note),
                _ => {}
            }
            meta.seen = stamp;
        }
        meta
    }

    /// Changes the metadata, in the note and here. Blocks.
    pub(super) fn change(
        &self,
        files: &Files,
        change: impl FnOnce(&mut Meta),
    ) -> Result<(), SessionError> {
        let _turn = files.turn(&self.name).map_err(backend)?;
        let noted = files.read_note(&self.name).map_err(backend)?;
        // A live run is where it is, whatever a note says. A dead one may have been removed or
        // replaced by another process.
        match noted.map(|note| note.token == self.token) {
            None if !self.is_live() => return Err(SessionError::NotFound),
            Some(false) if !self.is_live() => return Err(SessionError::Fenced),
            _ => {}
        }
        let mut meta = self.fresh(files);
        let mut changed = meta.clone();
        change(&mut changed);
        let note = self.note_with(files, &changed);
        files.write_note(&self.name, &note).map_err(backend)?;
        changed.seen = files.stamp(&self.name).ok();
        *meta = changed;
        Ok(())
    }

    /// Writes the first note of a run. Without it the run is still found, by its processes.
    pub(super) fn write_first_note(self: &Arc<Self>, files: &Arc<Files>) {
        if !files.has_turns(&self.name) {
            return self.first_note(files, Ok(None));
        }
        match files.turn_within(&self.name, Duration::ZERO).transpose() {
            Some(turn) => self.first_note(files, turn.map(Some)),
            None => {
                // Somebody is at the note of the run before: a start does not wait for that.
                let (run, files) = (self.clone(), files.clone());
                tokio::task::spawn_blocking(move || {
                    let turn = files.turn(&run.name).map(Some);
                    if run.is_live() {
                        run.first_note(&files, turn); // else it may be removed already
                    }
                });
            }
        }
    }

    fn first_note(&self, files: &Files, turn: io::Result<Option<Lock>>) {
        let written = turn.and_then(|_turn| {
            let mut meta = lock(&self.meta);
            let note = self.note_with(files, &meta);
            meta.seen = Some(files.write_first_note(&self.name, &note)?);
            Ok(())
        });
        if let Err(error) = written {
            tracing::warn!(session = %self.name, %error, "failed to write the note of a session");
        }
    }
}

impl Inner {
    pub(super) async fn set_note(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
        note: Note,
        value: Option<String>,
    ) -> Result<(), SessionError> {
        self.adopt().await?;
        let slot = self.slot(name);
        let _gate = slot.gate.lock().await;
        let run = self.find(&slot, name)?.ok_or(SessionError::NotFound)?;
        check(fence, &*run)?;
        check_note(value.as_deref())?;
        self.change(run, move |_, meta| meta.set(note.key(), value))
            .await
    }

    /// Changes the metadata of a run.
    async fn change(
        &self,
        run: Arc<Run>,
        change: impl FnOnce(&Files, &mut Meta) + Send + 'static,
    ) -> Result<(), SessionError> {
        let files = self.files.clone();
        blocking(move || Ok(run.change(&files, |meta| change(&files, meta)))).await?
    }

    pub(super) async fn clear_scrollback(
        self: &Arc<Self>,
        name: SessionName,
    ) -> Result<(), SessionError> {
        let run = self.seen(&name).await?;
        let end_of_log = move |files: &Files, meta: &mut Meta| {
            meta.log_offset = fs::metadata(files.log(&name)).map_or(0, |log| log.len());
            meta.rotated = None;
        };
        self.change(run, end_of_log).await
    }
}
