//! Config files to specs: loading, checks with labelled diagnostics, revision, watching.
//!
//! [`load`] reads the `city.toml` of a directory once. [`ConfigFiles`] is the port
//! [`Desired`](gascity_actors::ports::Desired): it loads on request and tells when the file
//! changed. What keys there are is in [`keys`]; changes that gc itself makes to a file are in
//! [`edit`].
//!
//! A load reports every problem it finds, not just the first, and either gives a whole city or
//! none.

mod agent;
mod city;
mod command;
mod depends;
pub(crate) mod duration;
pub mod edit;
mod fields;
pub mod keys;
mod mask;
mod pool;
mod problem;
mod render;
mod rigs;
mod source;
mod syntax;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gascity_actors::model::CitySpec;
use gascity_actors::ports::{Diagnostic, LoadError};

pub use city::SessionSettings;
pub use watch::ConfigFiles;

use problem::{Problem, Problems};
use source::{Bytes, FILE, LARGEST, Sources, Text};

/// A city as its file describes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadedCity {
    /// What the supervision tree runs.
    pub spec: Arc<CitySpec>,
    /// What the session provider needs beyond that.
    pub session: SessionSettings,
    /// Problems that did not stop the load.
    pub warnings: Vec<Diagnostic>,
    /// The same for a person, with labelled source lines; empty if there are none.
    pub report: String,
}

/// Loads the city whose root is `root`; see [`Loader`].
///
/// # Errors
/// [`LoadError`] with all problems of the file.
pub fn load(root: &Path) -> Result<LoadedCity, LoadError> {
    Loader::new(root).load()
}

/// Loads the city of one directory, as often as asked.
#[derive(Debug, Clone)]
pub struct Loader {
    root: PathBuf,
    gc_exe: PathBuf,
}

impl Loader {
    /// A loader for the city whose root is `root`. Preset agents run the current program.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            // Asked once: after an upgrade in place the system's answer names a deleted file.
            gc_exe: std::env::current_exe().unwrap_or_else(|_| "gc".into()),
        }
    }

    /// Sets the `gc` program that preset agents run.
    #[must_use]
    pub fn gc_exe(mut self, path: impl Into<PathBuf>) -> Self {
        self.gc_exe = path.into();
        self
    }

    /// The root of the city, as given.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads and checks the file. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] with all problems of the file.
    pub fn load(&self) -> Result<LoadedCity, LoadError> {
        self.attempt().result
    }

    /// [`Loader::load`], also telling what was looked at when it fails.
    fn attempt(&self) -> Attempt {
        let read = || {
            let root = std::fs::canonicalize(&self.root)?;
            let bytes = Bytes::read(&source::file_of(&root))?;
            Ok((root, bytes))
        };
        match read() {
            Ok((root, bytes)) => self.check(&root, &bytes),
            Err(error) => Attempt {
                result: Err(unreadable(&self.root, &error)),
                sources: BTreeSet::new(),
            },
        }
    }

    /// Checks `bytes` as the config of the city at `root`, which is canonical.
    fn check(&self, root: &Path, bytes: &Bytes) -> Attempt {
        let mut sources = Sources::default();
        sources.read(source::file_of(root), bytes);
        let result = decode(&bytes.bytes).and_then(|text| {
            let mut problems = Problems::default();
            let parsed = syntax::parse(text, &mut problems);
            let around = city::Surroundings {
                root,
                gc_exe: &self.gc_exe,
                home: std::env::var_os("HOME").map(PathBuf::from),
            };
            let built = parsed
                .table
                .and_then(|table| city::build(&table, &around, &mut sources, &mut problems));
            let report = problems.report(&parsed.text);
            match built {
                Some(built) => Ok(LoadedCity {
                    spec: Arc::new(built.spec),
                    session: built.session,
                    warnings: report.diagnostics,
                    report: report.text,
                }),
                None => Err(report.into()),
            }
        });
        Attempt {
            result,
            sources: sources.paths(),
        }
    }
}

/// One load, be it a success or not.
struct Attempt {
    result: Result<LoadedCity, LoadError>,
    /// What the outcome depends on, as far as it is known.
    sources: BTreeSet<PathBuf>,
}

fn unreadable(root: &Path, error: &io::Error) -> LoadError {
    let message = if error.kind() == io::ErrorKind::NotFound {
        format!("there is no {FILE} in {}", root.display())
    } else {
        format!("cannot read {}: {error}", source::file_of(root).display())
    };
    whole_file("file-missing", message)
}

/// A problem of a file that has no text to show.
fn whole_file(code: &'static str, message: String) -> LoadError {
    let mut problems = Problems::default();
    problems.push(Problem::error(code, 0..0, "", &message));
    LoadError {
        summary: format!("error[{code}]: {message}"),
        ..problems.report(&Text::new("", Vec::new())).into()
    }
}

fn decode(bytes: &[u8]) -> Result<&str, LoadError> {
    if bytes.len() as u64 > LARGEST {
        return Err(whole_file(
            "limit",
            format!("{FILE} is larger than {LARGEST} bytes"),
        ));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
            + 1;
        let mut problem = whole_file(
            "syntax",
            format!("{FILE} is not UTF-8, first in line {line}"),
        );
        for diagnostic in &mut problem.diagnostics {
            (diagnostic.line, diagnostic.end_line) = (line, line);
        }
        problem
    })
}

#[cfg(test)]
mod tests;
