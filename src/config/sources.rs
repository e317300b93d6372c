//! Everything a load depends on: what stands for it in the revision, and how to tell at a glance
//! that it changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gascity_actors::model::{canonical_hash, sha256_hex};

use super::source::{Bytes, LARGEST};

/// Most files of a directory that counts as a whole.
pub(super) const MOST_FILES: usize = 10_000;
/// Most bytes of such a directory.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// What tells that a file is not the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    size: u64,
    inode: u64,
}

/// The sources of one load.
#[derive(Debug, Default, Clone)]
pub(super) struct Sources {
    entries: BTreeMap<PathBuf, String>,
    dirs: BTreeSet<PathBuf>,
    /// `None`: it was not there.
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    trees: HashMap<PathBuf, Arc<Tree>>,
    texts: HashMap<PathBuf, Arc<str>>,
    /// Where agents after agents look for the same files.
    looked_up: HashMap<PathBuf, bool>,
}

/// A directory and all that is in it.
#[derive(Debug)]
pub(super) struct Tree {
    /// Hex SHA-256 of its content (config.md 5).
    pub(super) hash: String,
    /// Its regular files, relative.
    pub(super) files: Vec<PathBuf>,
}

/// Why something cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) code: &'static str,
    pub(super) why: String,
}

impl Unreadable {
    fn io(error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "does not exist".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        Self {
            code: "file-missing",
            why,
        }
    }

    fn limit(why: String) -> Self {
        Self { code: "limit", why }
    }
}

impl Sources {
    /// Adds a file that was read.
    pub(super) fn read(&mut self, path: &Path, bytes: &Bytes) {
        self.entries.insert(path.to_owned(), bytes.entry());
        self.mark(path);
    }

    /// Adds a file or directory that is not there, so that its coming is a change.
    pub(super) fn absent(&mut self, path: &Path) {
        self.entries.insert(path.to_owned(), "absent".into());
        self.mark(path);
    }

    /// Notes something that may come and that nothing refers to yet: no part of the revision.
    pub(super) fn awaited(&mut self, path: &Path) {
        self.mark(path);
    }

    /// Whether there is such a file, as seen first.
    pub(super) fn has_file(&mut self, path: PathBuf) -> bool {
        let seen = self.looked_up.entry(path);
        *seen.or_insert_with_key(|path| path.is_file())
    }

    fn mark(&mut self, path: &Path) {
        self.stamps
            .insert(path.to_owned(), fs::metadata(path).ok().map(|m| stamp(&m)));
    }

    /// The text of a file that is referred to.
    pub(super) fn text(&mut self, path: &Path) -> Result<Arc<str>, Unreadable> {
        if let Some(text) = self.texts.get(path) {
            return Ok(text.clone());
        }
        let bytes = self.bytes(path)?;
        let text: Arc<str> = String::from_utf8(bytes.bytes)
            .map_err(|_| Unreadable {
                code: "invalid-value",
                why: "is not UTF-8".into(),
            })?
            .into();
        self.texts.insert(path.to_owned(), text.clone());
        Ok(text)
    }

    /// The bytes of a file that is referred to.
    pub(super) fn bytes(&mut self, path: &Path) -> Result<Bytes, Unreadable> {
        let bytes = Bytes::read(path).map_err(|error| {
            self.absent(path);
            Unreadable::io(&error)
        })?;
        self.read(path, &bytes);
        if bytes.bytes.len() as u64 > LARGEST {
            return Err(Unreadable::limit(format!("is larger than {LARGEST} bytes")));
        }
        Ok(bytes)
    }

    /// All of a directory. One that is not there is a source too.
    pub(super) fn tree(&mut self, dir: &Path) -> Result<Arc<Tree>, Unreadable> {
        if let Some(tree) = self.trees.get(dir) {
            return Ok(tree.clone());
        }
        if !dir.is_dir() {
            self.absent(dir);
            return Err(Unreadable {
                code: "file-missing",
                why: match dir.exists() {
                    true => "is not a directory".into(),
                    false => "does not exist".into(),
                },
            });
        }
        let mut walk = Walk::default();
        walk.run(dir)?;
        let entries = walk.entries.iter();
        let hash = canonical_hash(
            "gc-tree-v1",
            entries.map(|(path, entry)| (path.as_str(), entry.as_str())),
        );
        for (path, entry) in &walk.entries {
            self.entries.insert(dir.join(path), entry.clone());
        }
        self.stamps.extend(walk.stamps);
        self.dirs.extend(walk.dirs);
        let tree = Arc::new(Tree {
            hash,
            files: walk.files,
        });
        self.trees.insert(dir.to_owned(), tree.clone());
        Ok(tree)
    }

    /// The files, for whoever watches them.
    pub(super) fn paths(&self) -> BTreeSet<PathBuf> {
        self.stamps.keys().cloned().collect()
    }

    /// The directories in which anything counts.
    pub(super) fn dirs(&self) -> &BTreeSet<PathBuf> {
        &self.dirs
    }

    /// Whether one of them is not what it was.
    pub(super) fn changed(&self) -> bool {
        self.stamps.iter().any(|(path, before)| {
            let now = match self.dirs.contains(path) || before.is_none() {
                true => fs::metadata(path),
                // A link in a directory counts by itself.
                false => fs::metadata(path).or_else(|_| fs::symlink_metadata(path)),
            };
            now.ok().map(|m| stamp(&m)) != *before
        })
    }

    /// The revision of a city with these sources (config.md 5).
    pub(super) fn revision(&self, root: &Path) -> String {
        let by_name: BTreeMap<String, &str> = self
            .entries
            .iter()
            .map(|(path, entry)| {
                let shown = path.strip_prefix(root).unwrap_or(path);
                (shown.to_string_lossy().into_owned(), entry.as_str())
            })
            .collect();
        canonical_hash(
            "gc-revision-v1",
            by_name.iter().map(|(path, entry)| (path.as_str(), *entry)),
        )
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    Stamp {
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        size: metadata.size(),
        inode: metadata.ino(),
    }
}

/// The hash of a directory by itself (config.md 5).
pub(super) fn tree_hash(dir: &Path) -> Result<String, Unreadable> {
    Sources::default().tree(dir).map(|tree| tree.hash.clone())
}

/// A walk over a directory, which stays within it.
#[derive(Default)]
struct Walk {
    /// By relative path, as it is written in a hash.
    entries: BTreeMap<String, String>,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    bytes: u64,
}

impl Walk {
    fn run(&mut self, top: &Path) -> Result<(), Unreadable> {
        let mut open = vec![PathBuf::new()];
        while let Some(relative) = open.pop() {
            let dir = top.join(&relative);
            let metadata = fs::metadata(&dir).map_err(|error| Unreadable::io(&error))?;
            self.stamps.push((dir.clone(), Some(stamp(&metadata))));
            self.dirs.push(dir.clone());
            let listing = fs::read_dir(&dir).map_err(|error| Unreadable::io(&error))?;
            for entry in listing {
                let entry = entry.map_err(|error| Unreadable::io(&error))?;
                // State of git and of gc itself is no source.
                if [".git", ".gc"].contains(&entry.file_name().to_string_lossy().as_ref()) {
                    continue;
                }
                let kind = entry.file_type().map_err(|error| Unreadable::io(&error))?;
                let relative = relative.join(entry.file_name());
                if kind.is_dir() {
                    open.push(relative);
                } else {
                    self.add(top, relative, kind.is_symlink())?;
                }
            }
        }
        self.files.sort();
        Ok(())
    }

    fn add(&mut self, top: &Path, relative: PathBuf, link: bool) -> Result<(), Unreadable> {
        if self.entries.len() >= MOST_FILES {
            let why = format!("{} has more than {MOST_FILES} files", top.display());
            return Err(Unreadable::limit(why));
        }
        let path = top.join(&relative);
        let metadata = fs::symlink_metadata(&path).map_err(|error| Unreadable::io(&error))?;
        let entry = if link {
            let target = fs::read_link(&path).map_err(|error| Unreadable::io(&error))?;
            if leaves(top, &path) {
                return Err(Unreadable {
                    code: "invalid-value",
                    why: format!("has a link that leads out of it: {}", path.display()),
                });
            }
            format!("link:{}", target.to_string_lossy())
        } else if metadata.is_file() {
            let bytes = self.content(top, &path)?;
            self.files.push(relative.clone());
            let mode = match metadata.permissions().mode() & 0o100 {
                0 => "644",
                _ => "755",
            };
            format!("{mode}:{}", sha256_hex(&bytes))
        } else {
            return Ok(()); // a pipe or socket cannot be a source
        };
        let metadata = fs::metadata(&path).unwrap_or(metadata);
        self.stamps.push((path, Some(stamp(&metadata))));
        self.entries
            .insert(relative.to_string_lossy().into_owned(), entry);
        Ok(())
    }

    fn content(&mut self, top: &Path, path: &Path) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(|error| Unreadable::io(&error))?;
        file.take(MOST_BYTES - self.bytes + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Unreadable::io(&error))?;
        self.bytes += bytes.len() as u64;
        if self.bytes > MOST_BYTES {
            let why = format!("{} has more than {MOST_BYTES} bytes", top.display());
            return Err(Unreadable::limit(why));
        }
        Ok(bytes)
    }
}

/// Whether a link leads out of `top`; one that leads nowhere does not.
fn leaves(top: &Path, link: &Path) -> bool {
    let Ok(top) = fs::canonicalize(top) else {
        return false;
    };
    match fs::canonicalize(link) {
        Ok(target) => !target.starts_with(&top),
        Err(_) => fs::read_link(link).is_ok_and(|target| target.is_absolute()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_hashed_by_what_is_in_it_and_not_by_its_order_or_age() {
        let dir = tempfile::tempdir().unwrap();
        let write = |root: &Path, names: &[&str]| {
            for name in names {
                let path = root.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, name).unwrap();
            }
        };
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        write(&one, &["a", "b/c", ".git/x"]);
        write(&two, &["b/c", "a"]);
        assert_eq!(tree_hash(&one).unwrap(), tree_hash(&two).unwrap());
        fs::set_permissions(two.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(tree_hash(&one).unwrap(), tree_hash(&two).unwrap());
    }

    #[test]
    fn a_link_out_of_a_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("pack");
        fs::create_dir(&top).unwrap();
        fs::write(top.join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", top.join("inside")).unwrap();
        assert!(tree_hash(&top).is_ok());
        std::os::unix::fs::symlink("../..", top.join("outside")).unwrap();
        assert_eq!(tree_hash(&top).unwrap_err().code, "invalid-value");
    }

    #[test]
    fn a_change_is_seen_without_reading() {
        let dir = tempfile::tempdir().unwrap();
        let mut sources = Sources::default();
        sources.absent(&dir.path().join("later"));
        fs::create_dir(dir.path().join("tree")).unwrap();
        sources.tree(&dir.path().join("tree")).unwrap();
        assert!(!sources.changed());
        fs::write(dir.path().join("tree/new"), "").unwrap();
        assert!(sources.changed());
    }
}
