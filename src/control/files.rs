//! Private files that are replaced whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A point of [`replace`] at which a crash must leave the old or the new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The temporary file exists and is empty.
    Created,
    /// It holds the new content, perhaps only in memory.
    Written,
    /// Its content is on disk.
    Synced,
    /// It carries the final name.
    Renamed,
}

/// Replaces `path` atomically: temporary file beside it (0600), fsync, rename, fsync of the
/// directory. A symlink is kept and its target is replaced. Writers of one file must exclude each
/// other: the temporary name is fixed, so that what a crash left behind is reused, not collected.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_in_steps(path, content, &mut |_| {})
}

/// [`replace`] for a file that belongs to the user: it exists and keeps its mode.
pub(crate) fn replace_keeping_mode(path: &Path, content: &[u8]) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions();
    write_and_rename(path, content, Some(mode), &mut |_| {})
}

/// [`replace`], telling `reached` after each step.
pub(crate) fn replace_in_steps(
    path: &Path,
    content: &[u8],
    reached: &mut dyn FnMut(Step),
) -> io::Result<()> {
    write_and_rename(path, content, None, reached)
}

fn write_and_rename(
    path: &Path,
    content: &[u8],
    mode: Option<Permissions>,
    reached: &mut dyn FnMut(Step),
) -> io::Result<()> {
    let path = link_target(path)?;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a file path",
        ));
    };
    let mut temp_name = std::ffi::OsString::from(".");
    temp_name.push(name);
    temp_name.push(".tmp");
    let temp = dir.join(temp_name);

    match fs::remove_file(&temp) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = private().write(true).create_new(true).open(&temp)?;
    reached(Step::Created);
    let written = file.write_all(content).and_then(|()| {
        reached(Step::Written);
        if let Some(mode) = mode {
            file.set_permissions(mode)?;
        }
        file.sync_all()
    });
    if let Err(e) = written {
        let _ = fs::remove_file(&temp); // the write failed; its error is the one to report
        return Err(e);
    }
    reached(Step::Synced);
    fs::rename(&temp, &path)?;
    reached(Step::Renamed);
    File::open(dir)?.sync_all()
}

/// Follows symlinks to the file that is to be written, which need not exist yet.
pub(crate) fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..16 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            // Not a link, or not there: this is the place.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// Open options whose files only the owner can read. Descriptors are close-on-exec, as all of std.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates `dir` and its missing parents, 0700. An existing directory keeps its mode.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn replaced_files_are_private_and_leave_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_symlink_stays_and_its_target_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        let link = dir.path().join("link");
        symlink("real", &link).unwrap();
        replace(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }

    #[test]
    fn leftovers_of_a_crash_do_not_stop_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".a.tmp"), "half").unwrap();
        replace(&dir.path().join("a"), b"whole").unwrap();
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"whole");
    }
}
