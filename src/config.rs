//! Config files to specs: loading, checks with labelled diagnostics, revision, watching.
//!
//! [`load`] reads the files of a city once. [`ConfigFiles`] is the port
//! [`Desired`](gascity_actors::ports::Desired): it loads on request and tells when a file
//! changed. What keys there are is in [`keys`]; changes that gc itself makes to a file are in
//! [`edit`].
//!
//! A load goes through these steps: `syntax` (text to tables that know their place), `fields`
//! (every key known, every value of its kind), `compose` (fragments, packs, overrides and patches
//! over each other), `city` (specs). It reports every problem it finds, not just the first, and
//! either gives a whole city or none.

mod agent;
mod city;
mod command;
mod compose;
mod depends;
mod diff;
pub(crate) mod duration;
pub mod edit;
mod fields;
mod files;
pub(crate) mod hooks;
pub mod keys;
mod machine;
mod mask;
mod orders;
mod overlays;
pub mod packs;
mod pool;
mod problem;
mod prompts;
mod providers;
mod render;
mod resolved;
mod rigs;
mod running;
pub mod schema;
mod source;
mod sources;
mod syntax;
mod tree;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::events::Rotation;
use gascity_actors::model::{AgentName, CitySpec, SessionName, Template};
use gascity_actors::ports::{Diagnostic, LoadError};

pub use city::SessionSettings;
pub use diff::{Changed, Diff, Drifted};
pub use machine::{SupervisorFile, Tenant};
pub(crate) use mask::masked;
pub use providers::installed_providers;
pub use resolved::{Explained, Overridden, Place, Resolved, to_toml};
pub use running::{Running, RunningAgent};
pub use watch::ConfigFiles;

use compose::Composed;
use files::Files;
use problem::{Problem, Problems};
use source::{Bytes, FILE};
use sources::Sources;

/// How often a load starts again because a file changed while it was read.
const TRIES: usize = 3;

/// A city as its files describe it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadedCity {
    /// What the supervision tree runs.
    pub spec: Arc<CitySpec>,
    /// What the session provider needs beyond that.
    pub session: SessionSettings,
    /// The rigs, in order.
    pub rigs: Vec<RigInfo>,
    /// Begins the ids of work that belongs to no rig.
    pub prefix: String,
    /// When the event log is put away (`[events]`).
    pub rotation: Rotation,
    /// The port of the city's own API (`[api]`).
    pub api_port: Option<u16>,
    /// How sessions are named; see [`Self::session_of`].
    session_template: Template,
    /// Problems that did not stop the load: warnings, and errors of single orders.
    pub warnings: Vec<Diagnostic>,
    /// The same for a person, with labelled source lines; empty if there are none.
    pub report: String,
}

impl LoadedCity {
    /// The session of an agent, also of one that the files do not name.
    #[must_use]
    pub fn session_of(&self, agent: &AgentName) -> SessionName {
        SessionName::made(&self.session_template, self.spec.name.as_str(), agent)
    }
}

/// A directory that agents work in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RigInfo {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Begins the ids of its work.
    pub prefix: String,
    /// Its agents do not run.
    pub suspended: bool,
    /// Why they cannot.
    pub held: Option<String>,
}

impl RigInfo {
    /// One word for how it is.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.suspended, &self.held) {
            (true, _) => "suspended",
            (false, Some(_)) => "missing",
            (false, None) => "active",
        }
    }
}

/// Loads the city whose root is `root`; see [`Loader`].
///
/// # Errors
/// [`LoadError`] with all problems of the files.
pub fn load(root: &Path) -> Result<LoadedCity, LoadError> {
    Loader::new(root).load()
}

/// Loads the city of one directory, as often as asked.
#[derive(Debug, Clone)]
pub struct Loader {
    root: PathBuf,
    gc_exe: PathBuf,
    more: Vec<PathBuf>,
    providers: BTreeMap<String, String>,
}

impl Loader {
    /// A loader for the city whose root is `root`. Preset agents run the current program;
    /// `GC_SESSION`, `GC_BEADS`, `GC_EVENTS` and `GC_MAIL` say other providers than the files.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            // Asked once: after an upgrade in place the system's answer names a deleted file.
            gc_exe: std::env::current_exe().unwrap_or_else(|_| "gc".into()),
            more: Vec::new(),
            providers: environment_providers(),
        }
    }

    /// Sets the `gc` program that preset agents run.
    #[must_use]
    pub fn gc_exe(mut self, path: impl Into<PathBuf>) -> Self {
        self.gc_exe = path.into();
        self
    }

    /// Lays another file over the city's own.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.more.push(path.into());
        self
    }

    /// Takes this provider for a section such as `session`, whatever the files say.
    #[must_use]
    pub fn provider(mut self, section: impl Into<String>, word: impl Into<String>) -> Self {
        self.providers.insert(section.into(), word.into());
        self
    }

    /// Takes these providers, by section, in place of what the environment says.
    #[must_use]
    pub fn environment(mut self, providers: BTreeMap<String, String>) -> Self {
        self.providers = providers;
        self
    }

    /// The root of the city, as given.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads and checks the files. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] with all problems of the files.
    pub fn load(&self) -> Result<LoadedCity, LoadError> {
        self.attempt().result
    }

    /// [`Loader::load`], also telling what was looked at when it fails.
    fn attempt(&self) -> Attempt {
        let mut attempt = self.once();
        for _ in 1..TRIES {
            if !attempt.sources.changed() {
                break;
            }
            attempt = self.once();
        }
        attempt
    }

    fn once(&self) -> Attempt {
        let read = || {
            let root = std::fs::canonicalize(&self.root)?;
            let bytes = Bytes::read(&source::file_of(&root))?;
            Ok((root, bytes))
        };
        match read() {
            Ok((root, bytes)) => self.check(&root, &bytes),
            Err(error) => Attempt::unreadable(&self.root, &error),
        }
    }

    /// Checks `bytes` as the config of the city at `root`, which is canonical.
    fn check(&self, root: &Path, bytes: &Bytes) -> Attempt {
        let mut sources = Sources::default();
        sources.read(&source::file_of(root), bytes);
        let mut problems = Problems::of(Files::of(root));
        let mut composed = compose::compose(bytes, &self.more, &mut sources, &mut problems);
        let around = city::Surroundings {
            root,
            gc_exe: &self.gc_exe,
            home: std::env::var_os("HOME").map(PathBuf::from),
            providers: &self.providers,
        };
        let built = composed
            .as_mut()
            .and_then(|composed| city::build(composed, &around, &mut sources, &mut problems));
        let report = problems.report();
        let result = match built {
            Some(built) => Ok(LoadedCity {
                spec: Arc::new(built.spec),
                session: built.session,
                rigs: built.rigs,
                prefix: built.prefix,
                rotation: built.rotation,
                api_port: built.api_port,
                session_template: built.session_template,
                warnings: report.diagnostics,
                report: report.text,
            }),
            None => Err(report.into()),
        };
        Attempt {
            result,
            sources,
            files: problems.files,
            composed,
        }
    }
}

/// Providers that the environment of this process asks for, by section.
fn environment_providers() -> BTreeMap<String, String> {
    let sections = ["session", "beads", "events", "mail"].into_iter();
    let asked = sections.filter_map(|section| {
        let value = std::env::var(format!("GC_{}", section.to_uppercase())).ok()?;
        (!value.is_empty()).then(|| (section.to_owned(), value))
    });
    asked.collect()
}

/// One load, be it a success or not.
struct Attempt {
    result: Result<LoadedCity, LoadError>,
    /// What the outcome depends on, as far as it is known.
    sources: Sources,
    files: Files,
    composed: Option<Composed>,
}

impl Attempt {
    fn unreadable(root: &Path, error: &io::Error) -> Self {
        let message = if error.kind() == io::ErrorKind::NotFound {
            format!("there is no {FILE} in {}", root.display())
        } else {
            format!("cannot read {}: {error}", source::file_of(root).display())
        };
        let mut problems = Problems::of(Files::of(root));
        problems
            .files
            .add(&source::file_of(root), source::Text::default());
        problems.push(Problem::error("file-missing", 0..0, "", &message));
        let diagnostics = problems.report().diagnostics;
        Self {
            result: Err(LoadError {
                summary: format!("error[file-missing]: {message}"),
                diagnostics,
            }),
            sources: Sources::default(),
            files: problems.files,
            composed: None,
        }
    }
}

#[cfg(test)]
mod tests;
