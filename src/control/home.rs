//! Where the supervisor and its cities keep their files.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use gascity_actors::model::sha256_hex;
use serde::{Deserialize, Serialize};

use super::files;

/// Longest socket path that is used as it is; `sun_path` ends at 104 or 108 bytes.
const SOCKET_PATH_MAX: usize = 100;

/// Directories that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Neither `--home`, `GC_HOME` nor `HOME` says where to look.
    #[error("no home directory: set HOME or GC_HOME")]
    NoHome,
    /// Others could plant files in the runtime directory.
    #[error("runtime dir {} is not private", .0.display())]
    NotPrivate(PathBuf),
    /// The directory of shortened socket paths belongs to someone else or is open to others.
    #[error("socket dir {} is not private", .0.display())]
    SocketDir(PathBuf),
    /// A file or directory could not be made or read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl HomeError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// The environment variables that place the directories; empty values count as unset.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// `GC_HOME`.
    pub gc_home: Option<OsString>,
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
}

impl Env {
    /// Reads the variables of this process.
    #[must_use]
    pub fn from_process() -> Self {
        Self {
            gc_home: std::env::var_os("GC_HOME"),
            xdg_runtime_dir: std::env::var_os("XDG_RUNTIME_DIR"),
            home: std::env::var_os("HOME"),
        }
    }
}

/// The supervisor's directories: home (lasting files) and runtime (lock and socket).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
    runtime: PathBuf,
}

impl Home {
    /// Finds the directories. `flag` is `--home` and acts like `GC_HOME`. Creates nothing.
    ///
    /// # Errors
    /// [`HomeError::NoHome`] when nothing says where, [`HomeError::Io`] when a relative path
    /// cannot be made absolute.
    pub fn resolve(flag: Option<&Path>, env: &Env) -> Result<Self, HomeError> {
        let explicit = flag.map(Path::to_owned).or_else(|| set(&env.gc_home));
        if let Some(dir) = explicit {
            let dir = std::path::absolute(&dir).map_err(HomeError::io(&dir))?;
            return Ok(Self {
                runtime: dir.clone(),
                dir,
            });
        }
        let dir = set(&env.home).ok_or(HomeError::NoHome)?.join(".gc");
        let dir = std::path::absolute(&dir).map_err(HomeError::io(&dir))?;
        let runtime = set(&env.xdg_runtime_dir)
            .filter(|p| p.is_absolute()) // the XDG rules say to ignore others
            .map_or_else(|| dir.clone(), |p| p.join("gc"));
        Ok(Self { dir, runtime })
    }

    /// Creates both directories, 0700, and checks that the runtime directory is private. Also
    /// makes the directory of the shortened socket path, if one is used.
    ///
    /// # Errors
    /// [`HomeError::NotPrivate`] when others own or can write the runtime directory.
    pub fn create(&self) -> Result<(), HomeError> {
        for dir in [&self.dir, &self.runtime] {
            files::create_private_dir(dir).map_err(HomeError::io(dir))?;
        }
        let meta = fs::metadata(&self.runtime).map_err(HomeError::io(&self.runtime))?;
        if !is_private(&meta, 0o022) {
            return Err(HomeError::NotPrivate(self.runtime.clone()));
        }
        ensure_socket_dir(&self.socket())
    }

    /// The home directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of lock and socket.
    #[must_use]
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime
    }

    /// `supervisor.toml`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.dir.join("supervisor.toml")
    }

    /// `cities.toml`.
    #[must_use]
    pub fn registry(&self) -> PathBuf {
        self.dir.join("cities.toml")
    }

    /// `supervisor.log`.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("supervisor.log")
    }

    /// `supervisor.out`: stdout and stderr of a detached supervisor.
    #[must_use]
    pub fn out(&self) -> PathBuf {
        self.dir.join("supervisor.out")
    }

    /// `events.jsonl`: the machine's own events.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.dir.join("events.jsonl")
    }

    /// `handoff.json`: passes from one program of the supervisor to the next.
    #[must_use]
    pub fn handoff(&self) -> PathBuf {
        self.runtime.join("handoff.json")
    }

    /// `supervisor.addr`.
    #[must_use]
    pub fn addr(&self) -> PathBuf {
        self.dir.join("supervisor.addr")
    }

    /// The lock that makes the supervisor single in its runtime directory.
    #[must_use]
    pub fn runtime_lock(&self) -> PathBuf {
        self.runtime.join("supervisor.lock")
    }

    /// The lock that keeps two runtime directories from sharing this home.
    #[must_use]
    pub fn home_lock(&self) -> PathBuf {
        self.dir.join("supervisor.lock")
    }

    /// The control socket, shortened when its path is too long to bind.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket_path(&self.runtime.join("supervisor.sock"))
    }

    /// Where a client looks for the supervisor, in order: `supervisor.addr`, then the standard
    /// places, so that shells with and without `XDG_RUNTIME_DIR` agree.
    #[must_use]
    pub fn client_sockets(&self) -> Vec<PathBuf> {
        let mut places = Vec::with_capacity(3);
        places.extend(Addr::read(&self.addr()).map(|addr| addr.socket));
        places.push(self.socket());
        places.push(socket_path(&self.dir.join("supervisor.sock")));
        let mut seen = Vec::with_capacity(places.len());
        places.retain(|p| {
            !seen.contains(p) && {
                seen.push(p.clone());
                true
            }
        });
        places
    }
}

/// The files of one city that matter to whoever runs or reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CityDir(PathBuf);

impl CityDir {
    /// The city rooted at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The city's root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// `city.toml`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.0.join("city.toml")
    }

    /// `.gc`.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.0.join(".gc")
    }

    /// `.gc/runtime`.
    #[must_use]
    pub fn runtime_dir(&self) -> PathBuf {
        self.state_dir().join("runtime")
    }

    /// `.gc/controller.lock`, held by whoever runs the city.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.state_dir().join("controller.lock")
    }

    /// `.gc/controller.sock`, the socket of a standalone city, shortened when needed.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket_path(&self.state_dir().join("controller.sock"))
    }

    /// `.gc/controller.log`, the log of a standalone city.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.state_dir().join("controller.log")
    }

    /// Creates `.gc`, 0700, and the directory of the shortened socket path, if one is used.
    ///
    /// # Errors
    /// [`HomeError::SocketDir`] when that directory is not ours alone.
    pub fn create(&self) -> Result<(), HomeError> {
        let dir = self.state_dir();
        files::create_private_dir(&dir).map_err(HomeError::io(&dir))?;
        ensure_socket_dir(&self.socket())
    }
}

/// `supervisor.addr`: where the running supervisor listens. A hint, never proof of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addr {
    /// Its control socket.
    pub socket: PathBuf,
    /// Its process id.
    pub pid: u32,
    /// Base URL of its HTTP API, while that listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
}

impl Addr {
    /// Reads the file; `None` when it is missing or makes no sense.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes the file atomically, 0600.
    ///
    /// # Errors
    /// Whatever the file system said.
    pub fn write(&self, path: &Path) -> Result<(), HomeError> {
        let mut text = serde_json::to_vec(self).map_err(|e| HomeError::io(path)(e.into()))?;
        text.push(b'\n');
        files::replace(path, &text).map_err(HomeError::io(path))
    }

    /// Removes the file on a clean stop, unless another supervisor has written it since.
    pub fn remove(&self, path: &Path) {
        if Self::read(path).is_some_and(|found| found.pid == self.pid) {
            let _ = fs::remove_file(path); // a leftover hint misleads nobody
        }
    }
}

/// The path that is bound in place of `path`: itself, or a short one under `/tmp/gc-<uid>` when it
/// is longer than a socket address can hold.
#[must_use]
pub fn socket_path(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() <= SOCKET_PATH_MAX {
        return path.to_owned();
    }
    short_socket_dir().join(format!("{}.sock", &sha256_hex(bytes)[..16]))
}

fn short_socket_dir() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/gc-{uid}"))
}

/// Anyone may write to /tmp, so the directory is taken only if it is ours alone.
fn ensure_socket_dir(socket: &Path) -> Result<(), HomeError> {
    let dir = short_socket_dir();
    if socket.parent() != Some(&dir) {
        return Ok(());
    }
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(HomeError::io(&dir)(e)),
        _ => {}
    }
    let meta = fs::symlink_metadata(&dir).map_err(HomeError::io(&dir))?;
    if meta.is_dir() && is_private(&meta, 0o077) {
        Ok(())
    } else {
        Err(HomeError::SocketDir(dir))
    }
}

fn is_private(meta: &fs::Metadata, forbidden: u32) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & forbidden == 0
}

fn set(value: &Option<OsString>) -> Option<PathBuf> {
    value.as_ref().filter(|v| !v.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests;
