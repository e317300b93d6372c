//! Files of a session: its note, its input, its log.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use gascity_actors::model::millis;
use gascity_actors::model::{AgentName, RunToken, SessionName};
use gascity_actors::ports::Note;
use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::meta::Stamp;
use crate::sessions::processes::Mark;

/// What is known of a run beyond the life of the supervisor. For liveness only a hint: the
/// process itself is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoteFile {
    pub(super) token: RunToken,
    pub(super) pid: i32,
    /// Start of the leader in ticks since boot.
    pub(super) start: u64,
    pub(super) boot: String,
    pub(super) agent: AgentName,
    pub(super) city: String,
    #[serde(with = "millis")]
    pub(super) started_at: DateTime<Utc>,
    /// Size of the log when the run began, or when it was cleared last.
    pub(super) log_offset: u64,
    /// Where in the first old log the run began, once its log was begun anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rotated: Option<u64>,
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
}

/// The metadata of a session as it stands on disk, for its own processes to look at: costs one
/// file. `None` if nothing is noted.
pub(crate) fn metadata(
    root: &Path,
    name: &SessionName,
) -> io::Result<Option<BTreeMap<Note, String>>> {
    let files = Files::new(root.to_owned(), String::new());
    let known = |(key, value): (String, String)| Some((Note::from_key(&key)?, value));
    let note = files.read_note(name)?;
    Ok(note.map(|note| note.meta.into_iter().filter_map(known).collect()))
}

/// The places of one city's sessions, and the mark they carry.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    pub(super) mark: Mark,
    pub(super) boot: String,
    sessions: PathBuf,
    logs: PathBuf,
    pub(super) locks: PathBuf,
}

impl Files {
    pub(super) fn new(root: PathBuf, boot: String) -> Self {
        let runtime = root.join(".gc/runtime");
        Self {
            sessions: runtime.join("sessions"),
            logs: runtime.join("logs"),
            locks: runtime.join("locks"),
            mark: Mark(root.clone()),
            root,
            boot,
        }
    }

    /// The city as written into notes.
    pub(super) fn city(&self) -> String {
        self.root.to_string_lossy().into_owned()
    }

    pub(super) fn note(&self, name: &SessionName) -> PathBuf {
        self.sessions.join(format!("{name}.json"))
    }

    pub(super) fn fifo(&self, name: &SessionName) -> PathBuf {
        self.sessions.join(format!("{name}.in"))
    }

    pub(super) fn log(&self, name: &SessionName) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Opens the log for an agent to append to; also its present size.
    pub(super) fn open_log(&self, name: &SessionName) -> io::Result<(File, u64)> {
        let path = self.log(name);
        let open = || {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600).open(&path)
        };
        let file = or_create_dir(&self.logs, open)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }

    /// Opens the input of an agent. Both ends, so that the agent never sees it end.
    pub(super) fn open_fifo(&self, name: &SessionName) -> io::Result<File> {
        let path = self.fifo(name);
        let open = || {
            let mut options = OpenOptions::new();
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            options
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(&path)
        };
        match open() {
            Ok(file) if file.metadata()?.file_type().is_fifo() => return Ok(file),
            Ok(_) => fs::remove_file(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let make = || Ok(rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?);
        or_create_dir(&self.sessions, make)?;
        open()
    }

    /// Writes the note of a new run over that of a dead one before it. Who looks in between
    /// finds no note, as if there were none yet, and a run without one is found by its
    /// processes. In exchange no file is made, removed or renamed: ext4 starts to write to the
    /// disk when a file is renamed onto another, and to make a file it has to pass by every one
    /// that was removed in the last minutes, which soon costs more than the spawn.
    pub(super) fn write_first_note(
        &self,
        name: &SessionName,
        note: &NoteFile,
    ) -> io::Result<Stamp> {
        let path = self.note(name);
        let open = || {
            let mut options = OpenOptions::new();
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
            options
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(flags)
                .open(&path)
        };
        let mut file = or_create_dir(&self.sessions, open)?;
        let text = serde_json::to_vec(note)?;
        file.write_all(&text)?;
        // Not to nothing at first: that too makes ext4 write to the disk.
        let length = text.len() as u64;
        let mut meta = file.metadata()?;
        if meta.len() > length {
            file.set_len(length)?;
            meta = file.metadata()?;
        }
        Ok(Stamp::of(&meta))
    }

    /// Replaces the note of a session as a whole.
    pub(super) fn write_note(&self, name: &SessionName, note: &NoteFile) -> io::Result<()> {
        let text = serde_json::to_vec(note)?;
        let temp = self
            .sessions
            .join(format!(".{name}.{}", std::process::id()));
        let write = || {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&temp)?.write_all(&text)
        };
        or_create_dir(&self.sessions, write)?;
        fs::rename(&temp, self.note(name))
    }

    /// The note of a session; `None` if there is none that can be read as one.
    pub(super) fn read_note(&self, name: &SessionName) -> io::Result<Option<NoteFile>> {
        match fs::read(self.note(name)) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes everything of a session but its log.
    pub(super) fn remove(&self, name: &SessionName) -> io::Result<()> {
        for path in [self.fifo(name), self.note(name)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Names of the sessions that have a note.
    pub(super) fn noted(&self) -> io::Result<Vec<SessionName>> {
        let entries = match fs::read_dir(&self.sessions) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(session_of(&entry?.file_name()));
        }
        Ok(names)
    }
}

fn session_of(file: &OsStr) -> Option<SessionName> {
    SessionName::new(file.to_str()?.strip_suffix(".json")?).ok()
}

/// Runs `act` and, if a directory is missing, again once `dir` exists: the usual case costs no
/// extra call.
pub(super) fn or_create_dir<T>(dir: &Path, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match act() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            act()
        }
        done => done,
    }
}
