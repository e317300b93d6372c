//! Gets remote packs with the user's `git` and pins them in `pack.lock`. Never part of a load.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gascity_actors::ports::LoadError;
use rustix::fs::FlockOperation;

use super::super::Loader;
use super::super::problem::Problems;
use super::super::sources::{Sources, tree_hash};
use super::Remote;
use super::git::checkout;
use super::lock::{self, Lock, Locked};
use crate::control::files;

/// How often packs that were just fetched may name further ones.
const ROUNDS: usize = 64;

/// What to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// What is pinned and not here; nothing new is pinned.
    Locked,
    /// What is not here; what is not pinned yet is pinned.
    Missing,
    /// The newest commit of this pack, or of all.
    Newest(Option<String>),
}

/// A pack after a fetch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fetched {
    /// Its name.
    pub name: String,
    /// Its address, with directory and ref.
    pub source: String,
    /// The commit it is pinned to.
    pub commit: String,
    /// The commit it was pinned to before, if another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// It was not here before.
    pub fetched: bool,
}

/// A remote pack that the files name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its address, with its directory.
    pub source: String,
    /// Branch, tag or commit that is asked for.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The commit it is pinned to, if it is.
    pub commit: Option<String>,
    /// How its checkout is.
    pub state: PackState,
}

/// How the checkout of a remote pack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PackState {
    /// Here, as it was fetched.
    Locked,
    /// Pinned and not here.
    Missing,
    /// Here, and changed since.
    Altered,
    /// Not pinned yet.
    Unpinned,
}

impl PackState {
    /// The state as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Missing => "missing",
            Self::Altered => "altered",
            Self::Unpinned => "not pinned",
        }
    }
}

/// Why packs could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The config cannot be read, so nobody knows what to fetch.
    #[error("the config has errors\n{0}")]
    Invalid(#[source] LoadError),
    /// No pack has this name.
    #[error("there is no remote pack `{0}`")]
    Unknown(String),
    /// `git` did not get it.
    #[error("cannot fetch {what}: {why}")]
    Git {
        /// The pack.
        what: String,
        /// What git said.
        why: String,
    },
    /// What was fetched is no pack, or not the pinned one.
    #[error("{what}: {why}")]
    Refused {
        /// The pack.
        what: String,
        /// Why.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Where checkouts of packs lie.
pub(super) fn cache_of(root: &Path) -> PathBuf {
    root.join(".gc/cache/packs")
}

/// The remote packs of a city with their pins, whether they are here, and the same of those they
/// include as far as they are here.
///
/// # Errors
/// [`FetchError::Invalid`] if the config cannot be read.
pub fn list(root: &Path) -> Result<Vec<Listed>, FetchError> {
    let root = fs::canonicalize(root)?;
    let lock = read_lock(&root);
    let cache = cache_of(&root);
    Ok(remotes(&root)?
        .into_iter()
        .map(|remote| {
            let locked = lock.find(&remote);
            let state = match locked.map(|locked| (locked, locked.checkout(&cache))) {
                None => PackState::Unpinned,
                Some((_, dir)) if !dir.is_dir() => PackState::Missing,
                Some((locked, dir)) => match tree_hash(&dir) {
                    Ok(hash) if format!("sha256:{hash}") == locked.hash => PackState::Locked,
                    _ => PackState::Altered,
                },
            };
            Listed {
                name: remote.name.clone(),
                source: remote.address(),
                reference: remote.reference.clone(),
                commit: locked.map(|locked| locked.commit.clone()),
                state,
            }
        })
        .collect())
}

/// How long a start waits for one `git`.
const AT_START: Duration = Duration::from_secs(60);

/// What a start does about a load that failed: packs that are pinned and not here are fetched.
/// `false` if that is not what it failed for. Blocks on the network and the file system.
///
/// # Errors
/// [`FetchError`] as for [`fetch`].
pub fn fetch_for_start(root: &Path, failed: &LoadError) -> Result<bool, FetchError> {
    let missing = failed
        .diagnostics
        .iter()
        .any(|found| found.code == "pack-missing");
    if !missing || !root.join(lock::FILE).exists() {
        return Ok(false);
    }
    let got = fetch(root, &Wanted::Locked, AT_START)?;
    Ok(got.iter().any(|pack| pack.fetched))
}

/// Gets packs and pins them. Blocks on the network and the file system, each `git` for at most
/// `limit`.
///
/// # Errors
/// [`FetchError`]; what was fetched before stays.
pub fn fetch(root: &Path, wanted: &Wanted, limit: Duration) -> Result<Vec<Fetched>, FetchError> {
    let root = fs::canonicalize(root)?;
    let cache = cache_of(&root);
    fs::create_dir_all(&cache)?;
    let guard = File::open(&cache)?;
    // Two fetches at once would take each other's work away.
    rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    let mut done: Vec<Fetched> = Vec::new();
    let mut seen: BTreeSet<Remote> = BTreeSet::new();
    for _ in 0..ROUNDS {
        let found = remotes(&root)?;
        let new: Vec<Remote> = found
            .into_iter()
            .filter(|remote| seen.insert(remote.clone()))
            .collect();
        if new.is_empty() {
            break;
        }
        for remote in new {
            let mut lock = read_lock(&root);
            if let Some(fetched) = get(&remote, wanted, &cache, &mut lock, limit)? {
                write_lock(&root, &lock)?;
                done.push(fetched);
            }
        }
    }
    match wanted {
        Wanted::Newest(Some(name)) if !seen.iter().any(|remote| remote.name == *name) => {
            Err(FetchError::Unknown(name.clone()))
        }
        Wanted::Newest(None) => {
            let mut lock = read_lock(&root);
            lock.packs
                .retain(|locked| seen.iter().any(|remote| lock_matches(locked, remote)));
            write_lock(&root, &lock)?;
            Ok(done)
        }
        _ => Ok(done),
    }
}

fn lock_matches(locked: &Locked, remote: &Remote) -> bool {
    Lock {
        packs: vec![locked.clone()],
    }
    .find(remote)
    .is_some()
}

/// All remote packs that the files of a city name, as far as they can be read.
fn remotes(root: &Path) -> Result<BTreeSet<Remote>, FetchError> {
    let attempt = Loader::new(root).attempt();
    match (attempt.composed, attempt.result) {
        (Some(composed), _) => Ok(composed.packs.remotes.into_iter().collect()),
        (None, Err(error)) => Err(FetchError::Invalid(error)),
        (None, Ok(_)) => Ok(BTreeSet::new()),
    }
}

fn read_lock(root: &Path) -> Lock {
    let files = super::super::files::Files::of(root);
    Lock::read(root, &mut Sources::default(), &mut Problems::of(files))
}

fn write_lock(root: &Path, lock: &Lock) -> io::Result<()> {
    let path = root.join(lock::FILE);
    let text = lock.to_text();
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if !path.exists() {
        File::create(&path)?; // to be committed, so it is as open as other files of the user
    }
    files::replace_keeping_mode(&path, text.as_bytes())
}

/// Gets one pack, if it is asked for and not here.
fn get(
    remote: &Remote,
    wanted: &Wanted,
    cache: &Path,
    lock: &mut Lock,
    limit: Duration,
) -> Result<Option<Fetched>, FetchError> {
    let pinned = lock.find(remote).cloned();
    let newest = match wanted {
        Wanted::Newest(None) => true,
        Wanted::Newest(Some(name)) => *name == remote.name,
        _ => false,
    };
    let report = |commit: &str, from: Option<String>, fetched| Fetched {
        name: remote.name.clone(),
        source: remote.to_string(),
        commit: commit.to_owned(),
        from,
        fetched,
    };
    if let Some(locked) = pinned.as_ref().filter(|_| !newest) {
        if locked.checkout(cache).is_dir() {
            return Ok(Some(report(&locked.commit, None, false)));
        }
        let (commit, hash, dir) = checkout(remote, &locked.commit, cache, limit)?;
        if hash != locked.hash {
            return Err(FetchError::Refused {
                what: remote.to_string(),
                why: format!("commit {commit} is not what pack.lock pins: {hash}"),
            });
        }
        place(dir, &locked.checkout(cache))?;
        return Ok(Some(report(&locked.commit, None, true)));
    }
    if *wanted == Wanted::Locked {
        return Ok(None);
    }
    let reference = match remote.reference.as_str() {
        "" => "HEAD",
        reference => reference,
    };
    let (commit, hash, dir) = checkout(remote, reference, cache, limit)?;
    let locked = Locked {
        remote: Remote {
            name: pinned
                .as_ref()
                .map_or_else(|| remote.name.clone(), |old| old.remote.name.clone()),
            ..remote.clone()
        },
        commit: commit.clone(),
        hash,
    };
    let target = locked.checkout(cache);
    let fetched = !target.is_dir();
    place(dir, &target)?;
    lock.packs.retain(|old| !lock_matches(old, remote));
    lock.packs.push(locked);
    lock.packs.sort_by(|a, b| a.remote.cmp(&b.remote));
    let from = pinned.map(|old| old.commit).filter(|old| *old != commit);
    Ok(Some(report(&commit, from, fetched)))
}

/// Puts a finished checkout into its place.
fn place(from: tempfile::TempDir, to: &Path) -> io::Result<()> {
    if to.is_dir() {
        fs::remove_dir_all(to)?;
    }
    fs::rename(from.keep(), to)
}
