//! Archives of an event log: `events.jsonl.1` is the newest, higher numbers are older.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// When a log is put away, and how many archives are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Size that is not exceeded (`events.rotate_bytes`).
    pub bytes: u64,
    /// Archives kept (`events.rotate_keep`).
    pub keep: u32,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            keep: 5,
        }
    }
}

/// Device and inode: what a file is, whatever it is called.
pub(super) type Id = (u64, u64);

/// One file of a log, open: it can be read to its end whatever becomes of its name.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) file: File,
    pub(super) id: Id,
}

impl Part {
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => {
                let meta = file.metadata()?;
                let id = (meta.dev(), meta.ino());
                Ok(Some(Self { file, id }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The archive with this number.
pub(super) fn archive(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// All files of the log at `path`, oldest first, or only those after the file `since`.
///
/// They are opened from the newest on: a rotation meanwhile shows a file twice, which is noticed,
/// and hides none.
pub(super) fn parts(path: &Path, since: Option<Id>) -> io::Result<Vec<Part>> {
    let mut found: Vec<Part> = Vec::new();
    let names = std::iter::once(path.to_owned()).chain((1..).map(|n| archive(path, n)));
    for (number, name) in names.enumerate() {
        match Part::open(&name)? {
            Some(part) if Some(part.id) == since => break,
            Some(part) if found.iter().all(|other| other.id != part.id) => found.push(part),
            Some(_) => {}
            // The log itself may be missing for a moment, between two files.
            None if number == 0 => {}
            None => break,
        }
    }
    found.reverse();
    Ok(found)
}

/// Puts the log at `path` away. The caller holds the lock of the log.
pub(super) fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    if keep == 0 {
        return fs::remove_file(path);
    }
    // Also those beyond a limit that was lowered.
    let mut last = keep;
    while archive(path, last).exists() {
        fs::remove_file(archive(path, last))?;
        last += 1;
    }
    for number in (1..keep).rev() {
        match fs::rename(archive(path, number), archive(path, number + 1)) {
            Err(error) if !is_missing(&error) => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, archive(path, 1))
}
