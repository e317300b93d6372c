//! Files copied into a working directory, without ever touching what the user changed.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use gascity_actors::model::sha256_hex;

use crate::control::files;

/// Files by their path in the working directory, with where they come from.
type Plan = BTreeMap<PathBuf, PathBuf>;

/// What gc wrote last, by path, as hashes.
type Record = BTreeMap<PathBuf, String>;

/// Copies `sources` into `dir`, later ones over earlier ones. Files that are not as gc wrote them
/// last are the user's: they are kept, and returned. Blocks.
pub(super) fn stage(sources: &[PathBuf], dir: &Path, record: &Path) -> io::Result<Vec<PathBuf>> {
    let mut plan = Plan::new();
    for source in sources {
        collect(source, Path::new(""), dir, &mut plan)?;
    }
    let before: Record = match fs::read(record) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Record::new(),
        Err(error) => return Err(about(record, &error)),
    };
    let mut after = before.clone();
    let mut kept = Vec::new();
    for (path, source) in plan {
        let target = dir.join(&path);
        let wanted = Content::of(&source).map_err(|error| about(&source, &error))?;
        let present = Content::of(&target).ok();
        let hash = wanted.hash();
        match present {
            Some(present) if present == wanted => {}
            Some(present) if before.get(&path) != Some(&present.hash()) => {
                kept.push(path);
                continue;
            }
            _ => wanted
                .write(&target, dir)
                .map_err(|error| about(&target, &error))?,
        }
        after.insert(path, hash);
    }
    if after != before {
        if let Some(parent) = record.parent() {
            files::create_private_dir(parent)?;
        }
        files::replace(record, &serde_json::to_vec(&after)?)?;
    }
    Ok(kept)
}

/// Copies a file, or what is in a directory, to `to` in `dir`, over whatever is there. Answers how
/// many files that were. Blocks.
pub(in crate::sessions) fn copy_files(from: &Path, dir: &Path, to: &Path) -> io::Result<usize> {
    let source = match from.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        source => source.map_err(|error| about(from, &error))?,
    };
    let mut plan = Plan::new();
    if source.is_dir() {
        collect(&source, Path::new(""), dir, &mut plan)?;
    } else {
        // A file goes into a directory under its own name.
        let name = from.file_name().filter(|_| dir.join(to).is_dir());
        plan.insert(name.map(PathBuf::from).unwrap_or_default(), source);
    }
    for (path, source) in &plan {
        let target: PathBuf = dir.join(to).join(path).components().collect();
        let content = Content::of(source).map_err(|error| about(source, &error))?;
        let written = content.write(&target, dir);
        written.map_err(|error| about(&target, &error))?;
    }
    Ok(plan.len())
}

/// How many files [`copy_files`] would copy. Blocks.
pub(in crate::sessions) fn count_files(from: &Path) -> io::Result<usize> {
    let found = match fs::metadata(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found.map_err(|error| about(from, &error))?,
    };
    if !found.is_dir() {
        return Ok(1);
    }
    let mut plan = Plan::new();
    collect(from, Path::new(""), Path::new(""), &mut plan)?;
    Ok(plan.len())
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Adds the files below `source`. What is neither a regular file nor a link into `source` itself
/// stays out, and so does git's own directory.
fn collect(source: &Path, below: &Path, dir: &Path, plan: &mut Plan) -> io::Result<()> {
    let here = source.join(below);
    if here.canonicalize().map_err(|error| about(&here, &error))? == dir {
        return Ok(()); // onto itself
    }
    for entry in fs::read_dir(&here).map_err(|error| about(&here, &error))? {
        let entry = entry?;
        let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
        if entry.file_name() == ".git" {
            continue;
        }
        if kind.is_dir() {
            collect(source, &path, dir, plan)?;
        } else if kind.is_file() || (kind.is_symlink() && points_inside(source, &entry.path())) {
            plan.insert(path, entry.path());
        }
    }
    Ok(())
}

fn points_inside(source: &Path, link: &Path) -> bool {
    let (Ok(source), Ok(target)) = (source.canonicalize(), link.canonicalize()) else {
        return false;
    };
    let relative = fs::read_link(link).is_ok_and(|to| to.is_relative());
    relative && target.starts_with(source)
}

/// What a path holds.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    File(Vec<u8>, u32),
    Link(PathBuf),
}

impl Content {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        if meta.is_symlink() {
            return Ok(Self::Link(fs::read_link(path)?));
        }
        Ok(Self::File(
            fs::read(path)?,
            meta.permissions().mode() & 0o777,
        ))
    }

    fn hash(&self) -> String {
        match self {
            Self::File(bytes, _) => sha256_hex(bytes),
            Self::Link(to) => format!("link:{}", to.display()),
        }
    }

    /// Puts it at `target`, whole or not at all, and nowhere outside `dir`.
    fn write(&self, target: &Path, dir: &Path) -> io::Result<()> {
        let parent = target.parent().unwrap_or(dir);
        fs::create_dir_all(parent)?;
        if !parent.canonicalize()?.starts_with(dir) {
            return Err(io::Error::other("it leads out of the working directory"));
        }
        let mut name = std::ffi::OsString::from(".gc-");
        name.push(target.file_name().unwrap_or_default());
        let temp = parent.join(name);
        let _ = fs::remove_file(&temp);
        match self {
            Self::File(bytes, mode) => {
                fs::write(&temp, bytes)?;
                fs::set_permissions(&temp, Permissions::from_mode(*mode))?;
            }
            Self::Link(to) => symlink(to, &temp)?,
        }
        fs::rename(&temp, target).inspect_err(|_| drop(fs::remove_file(&temp)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        base: PathBuf,
        _dir: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path().canonicalize().unwrap();
            fs::create_dir_all(base.join("work")).unwrap();
            Self { base, _dir: dir }
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.base.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn read(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.base.join("work").join(path)).ok()
        }

        fn stage(&self, sources: &[&str]) -> io::Result<Vec<PathBuf>> {
            let sources: Vec<PathBuf> = sources.iter().map(|s| self.base.join(s)).collect();
            stage(
                &sources,
                &self.base.join("work"),
                &self.base.join("state/a.json"),
            )
        }
    }

    #[test]
    fn files_are_copied_with_their_modes_and_later_sources_win() {
        let place = Place::new();
        place.put("one/a", "1");
        place.put("one/deep/b", "1");
        place.put("two/deep/b", "2");
        place.put("one/.git/config", "no");
        let script = place.base.join("one/a");
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        symlink("deep/b", place.base.join("one/inside")).unwrap();
        symlink("/etc/hostname", place.base.join("one/outside")).unwrap();
        assert_eq!(
            place.stage(&["one", "two"]).unwrap(),
            [""; 0].map(PathBuf::from)
        );
        assert_eq!(place.read("a").as_deref(), Some("1"));
        assert_eq!(place.read("deep/b").as_deref(), Some("2"));
        assert_eq!(place.read("inside").as_deref(), Some("2"));
        assert!(!place.base.join("work/.git").exists());
        assert!(fs::symlink_metadata(place.base.join("work/outside")).is_err());
        let mode = fs::metadata(place.base.join("work/a"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn files_gc_wrote_are_updated_and_those_of_the_user_are_kept() {
        let place = Place::new();
        place.put("one/ours", "1");
        place.put("one/theirs", "1");
        place.put("one/before", "1");
        place.put("work/before", "user");
        assert_eq!(place.stage(&["one"]).unwrap(), [PathBuf::from("before")]);
        place.put("work/theirs", "edited");
        place.put("one/ours", "2");
        place.put("one/theirs", "2");
        let kept = place.stage(&["one"]).unwrap();
        assert_eq!(kept, ["before", "theirs"].map(PathBuf::from));
        assert_eq!(place.read("ours").as_deref(), Some("2"));
        assert_eq!(place.read("theirs").as_deref(), Some("edited"));
        assert_eq!(place.read("before").as_deref(), Some("user"));
        // Put back as it was, it is gc's again.
        place.put("work/theirs", "1");
        assert_eq!(place.stage(&["one"]).unwrap(), [PathBuf::from("before")]);
        assert_eq!(place.read("theirs").as_deref(), Some("2"));
    }

    #[test]
    fn nothing_is_written_outside_or_onto_itself() {
        let place = Place::new();
        place.put("one/out/file", "1");
        fs::create_dir(place.base.join("elsewhere")).unwrap();
        symlink(place.base.join("elsewhere"), place.base.join("work/out")).unwrap();
        let error = place.stage(&["one"]).unwrap_err();
        assert!(error.to_string().contains("leads out"), "{error}");
        assert_eq!(
            fs::read_dir(place.base.join("elsewhere")).unwrap().count(),
            0
        );
        place.put("work/x", "1");
        assert!(place.stage(&["work"]).unwrap().is_empty());
        let error = place.stage(&["missing"]).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
    }
}
