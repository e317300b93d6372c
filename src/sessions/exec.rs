//! Agents run by a script of the user's own (sessions.md 2.3): `<script> <op> <name> [args]`.
//!
//! What the script does not say, a file beside the city remembers: which run holds a name, since
//! when, and its metadata. An op that answers exit 2 is unknown to the script and not asked again.

mod acts;
mod call;
mod events;
mod listing;
mod port;
mod record;
mod start;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gascity_actors::model::{ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{Fence, SessionError};
use tokio::sync::Semaphore;

use call::{Answer, Op};
use record::{Record, Records};

use super::SubprocessConfig;
use super::environment::Environment;
use super::prepare::Preparer;
use super::processes::census::Census;
use super::processes::{Mark, Subscribers, backend, lock};

/// Calls of the script at once.
const CALLS: usize = 8;

/// Settings of [`Exec`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExecConfig {
    /// The script: a path with `/` is relative to the city, any other is looked for on `PATH`.
    pub script: String,
    /// City, environment and limits, as for processes.
    pub city: SubprocessConfig,
    /// How long one call may take.
    pub timeout: Duration,
    /// How long `start` may take.
    pub start_timeout: Duration,
    /// How often is looked for exits, where the script has no `watch`.
    pub poll: Duration,
}

impl ExecConfig {
    /// Settings with everything optional at its default.
    #[must_use]
    pub fn new(script: impl Into<String>, city: SubprocessConfig) -> Self {
        Self {
            script: script.into(),
            city,
            timeout: Duration::from_secs(30),
            start_timeout: Duration::from_secs(120),
            poll: Duration::from_secs(5),
        }
    }
}

/// The provider `exec:<script>`.
///
/// Its calls need a tokio runtime with I/O and time enabled. Dropping it never ends a session.
#[derive(Debug)]
pub struct Exec(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    word: String,
    config: ExecConfig,
    /// Of any call, and of `start`.
    timeouts: Mutex<(Duration, Duration)>,
    program: PathBuf,
    /// What the script itself sees.
    env: Environment,
    preparer: Preparer,
    records: Records,
    mark: Mark,
    census: Arc<Census>,
    permits: Semaphore,
    /// Ops the script does not know.
    unknown: Mutex<HashSet<&'static str>>,
    /// Names that are not ours, so that they are asked about once.
    strangers: Mutex<HashSet<String>>,
    /// Runs that were seen to be there and whose end was not told.
    seen: Mutex<HashMap<SessionName, RunToken>>,
    /// Ends that were told, by run.
    ended: Mutex<HashMap<RunToken, ExitStatus>>,
    gates: Mutex<HashMap<SessionName, Arc<tokio::sync::Mutex<()>>>>,
    subscribers: Subscribers,
    watching: Mutex<events::Watching>,
}

impl Exec {
    /// A provider for one city. Runs nothing until the first call.
    ///
    /// # Errors
    /// If there is no such script, or it cannot be run.
    pub fn new(config: ExecConfig) -> io::Result<Self> {
        Self::with_runner_env(config, std::env::vars_os())
    }

    /// How long calls may take, from the next one on: any, and `start`.
    pub fn set_timeouts(&self, any: Duration, start: Duration) {
        *lock(&self.0.timeouts) = (any, start);
    }

    /// Globs over the names of variables that agents inherit, from the next start on.
    pub fn set_passthrough(&self, globs: &[String]) {
        self.0.preparer.set_passthrough(globs);
    }

    /// Words of the scripts that sessions of the city at `root` were started by.
    pub(crate) fn left(root: &Path) -> BTreeSet<String> {
        record::providers(root)
    }

    fn with_runner_env(
        config: ExecConfig,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        let mut env: Environment = vars.into_iter().collect();
        let program = call::find(&config, &env)?;
        let preparer = Preparer::new(config.city.clone(), env.clone());
        let state = config.city.root.join(".gc/runtime/exec");
        crate::control::files::create_private_dir(&state)?;
        env.insert("GC_CITY".into(), config.city.root.clone().into());
        env.insert("GC_CITY_NAME".into(), config.city.city_name.as_str().into());
        env.insert("GC_EXEC_STATE_DIR".into(), state.into());
        let word = format!("exec:{}", config.script);
        Ok(Self(Arc::new(Inner {
            records: Records::new(&config.city.root, word.clone()),
            mark: Mark(config.city.root.clone()),
            census: Arc::default(),
            word,
            program,
            env,
            preparer,
            timeouts: Mutex::new((config.timeout, config.start_timeout)),
            permits: Semaphore::new(CALLS),
            unknown: Mutex::default(),
            strangers: Mutex::default(),
            seen: Mutex::default(),
            ended: Mutex::default(),
            gates: Mutex::default(),
            subscribers: Subscribers::default(),
            watching: Mutex::default(),
            config,
        })))
    }
}

impl Inner {
    fn gate(&self, name: &SessionName) -> Arc<tokio::sync::Mutex<()>> {
        lock(&self.gates).entry(name.clone()).or_default().clone()
    }

    fn knows(&self, op: &str) -> bool {
        !lock(&self.unknown).contains(op)
    }

    /// The record of a session that the fence lets through; `None` if there is none.
    fn fenced(&self, name: &SessionName, fence: &Fence) -> Result<Option<Record>, SessionError> {
        let record = self.records.read(name).map_err(backend)?;
        match (&record, fence) {
            (Some(record), Fence::Token(token)) if record.token != *token => {
                Err(SessionError::Fenced)
            }
            _ => Ok(record),
        }
    }

    /// Whether the session runs, as the script says. Cannot tell is an error.
    async fn is_running(&self, name: &SessionName) -> Result<bool, SessionError> {
        match self.ask(Op::IsRunning(name)).await? {
            Answer::Done(text) => match text.trim() {
                "true" => Ok(true),
                "false" | "" => Ok(false),
                other => Err(backend(format!("is-running printed {other:?}"))),
            },
            Answer::Unknown => match self.list().await? {
                Some(names) => Ok(names.contains(name.as_str())),
                None => Err(backend(
                    "the script knows neither is-running nor list-running",
                )),
            },
        }
    }

    /// Names of all running sessions; `None` if the script does not list.
    async fn list(&self) -> Result<Option<HashSet<String>>, SessionError> {
        Ok(match self.ask(Op::ListRunning).await? {
            Answer::Unknown => None,
            Answer::Done(text) => {
                let names = text.lines().map(str::trim).filter(|name| !name.is_empty());
                Some(names.map(str::to_owned).collect())
            }
        })
    }
}

#[cfg(test)]
mod tests;
