//! Agents run by a script of the user's own (sessions.md 2.3): `<script> <op> <name> [args]`.
//!
//! What the script does not say, a file beside the city remembers: which run holds a name, since
//! when, and its metadata. An op that answers exit 2 is unknown to the script and not asked again.

mod call;
mod events;
mod record;
mod start;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, ExitStatus, RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    AttachPlan, Caps, Delivery, Facts, Fence, Key, Listing, Liveness, Note, PortFuture,
    SessionError, SessionEvents, Sessions, StartSpec, Started, Stopped, check_note, nudge_text,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use call::{Answer, Op};
use record::{Record, Records};

use super::environment::Environment;
use super::prepare::Preparer;
use super::processes::Subscribers;
use super::processes::census::Census;
use super::processes::{Mark, sweep};
use super::{SubprocessConfig, output};

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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn backend(error: impl std::fmt::Display) -> SessionError {
    SessionError::Backend(error.to_string())
}

impl Exec {
    /// A provider for one city. Runs nothing until the first call.
    ///
    /// # Errors
    /// If there is no such script, or it cannot be run.
    pub fn new(config: ExecConfig) -> io::Result<Self> {
        Self::with_runner_env(config, std::env::vars_os())
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

    async fn stop(&self, name: &SessionName, fence: &Fence) -> Result<Stopped, SessionError> {
        let gate = self.gate(name);
        let _gate = gate.lock().await;
        let Some(record) = self.fenced(name, fence)? else {
            return Ok(Stopped::Absent);
        };
        let forced = match self.ask(Op::Stop(name)).await? {
            Answer::Unknown => return Err(backend("the script knows no stop")),
            Answer::Done(text) => text.trim() == "forced",
        };
        let swept = self.sweep(&record.token).await?;
        if self.is_running(name).await? {
            return Err(backend("the session still runs after its stop"));
        }
        self.tell_end(name, &record.token, ExitStatus::Unknown);
        self.records.remove(name).map_err(backend)?;
        lock(&self.ended).remove(&record.token);
        Ok(match forced || swept {
            true => Stopped::Forced,
            false => Stopped::Clean,
        })
    }

    /// Ends what the script left of a run on this machine. Whether something had to be killed.
    async fn sweep(&self, token: &RunToken) -> Result<bool, SessionError> {
        let (mark, census) = (self.mark.clone(), self.census.clone());
        let strays = start::Strays(token.clone());
        let swept = tokio::task::spawn_blocking(move || sweep::end_all(&mark, &census, &strays));
        let swept = swept.await.map_err(backend)?.map_err(backend)?;
        Ok(swept.forced)
    }

    async fn liveness(
        &self,
        name: &SessionName,
        token: &RunToken,
    ) -> Result<Liveness, SessionError> {
        let record = self.records.read(name).map_err(backend)?;
        if record.is_none_or(|record| record.token != *token) {
            return Ok(Liveness::Absent);
        }
        if self.is_running(name).await? {
            self.saw(name, token);
            return Ok(Liveness::Live { pid: None });
        }
        Ok(Liveness::Dead(self.tell_end(
            name,
            token,
            ExitStatus::Unknown,
        )))
    }

    async fn snapshot(self: Arc<Self>) -> Result<Listing, SessionError> {
        let mut listing = Listing::default();
        let mut listed = self.list().await?;
        if let Some(names) = &listed {
            self.recover(names).await;
        }
        let mut lookups = JoinSet::new();
        for (name, record) in self.records.all().map_err(backend)? {
            let live = listed.as_mut().map(|names| names.remove(name.as_str()));
            lookups.spawn(self.clone().facts(name, record, live));
        }
        while let Some(facts) = lookups.join_next().await {
            listing.owned.push(facts.map_err(backend)??);
        }
        listing.owned.sort_by(|a, b| a.session.cmp(&b.session));
        listing.foreign = listed.into_iter().flatten().collect();
        listing.foreign.sort();
        Ok(listing)
    }

    /// What a listing says of a session; `live` as far as it is known.
    async fn facts(
        self: Arc<Self>,
        name: SessionName,
        record: Record,
        live: Option<bool>,
    ) -> Result<Facts, SessionError> {
        let live = match live {
            Some(live) => live,
            None => self.is_running(&name).await?,
        };
        let mut active = None;
        if live {
            self.saw(&name, &record.token);
            active = self.last_activity(&name).await;
        } else if let Ok(_gate) = self.gate(&name).try_lock() {
            // Else it is just being started or stopped, and somebody knows better.
            self.tell_end(&name, &record.token, ExitStatus::Unknown);
        }
        Ok(Facts {
            session: name,
            agent: record.agent,
            token: record.token,
            live,
            pid: None,
            started_at: record.started_at,
            last_activity: active.map(|at| at.max(record.started_at)),
            attached: false,
            notes: known(record.meta),
        })
    }

    /// Writes anew the records of our own sessions that lost them, going by the script's metadata.
    async fn recover(&self, names: &HashSet<String>) {
        let strange = |name: &&String| !lock(&self.strangers).contains(*name);
        let unknown: Vec<&String> = names.iter().filter(strange).collect();
        for text in unknown {
            let Ok(name) = SessionName::new(text.as_str()) else {
                continue;
            };
            let gate = self.gate(&name);
            let Ok(_gate) = gate.try_lock() else { continue };
            if !matches!(self.records.read(&name), Ok(None)) {
                continue;
            }
            let mut found = BTreeMap::new();
            for key in ["GC_CITY", "GC_SESSION_ID", "GC_AGENT"] {
                match self.ask(Op::GetMeta(&name, key)).await {
                    Ok(Answer::Done(value)) => found.insert(key, value),
                    _ => None,
                };
            }
            let value = |key: &str| found.get(key).cloned().unwrap_or_default();
            let ours = value("GC_CITY") == self.config.city.root.to_string_lossy();
            match (
                RunToken::new(value("GC_SESSION_ID")),
                AgentName::new(value("GC_AGENT")),
            ) {
                (Ok(token), Ok(agent)) if ours => {
                    let _ = self.records.begin(&name, token, agent, BTreeMap::new());
                }
                _ => drop(lock(&self.strangers).insert(text.clone())),
            }
        }
    }

    /// A time the script cannot say, or not so that it can be read, is not known.
    async fn last_activity(&self, name: &SessionName) -> Option<DateTime<Utc>> {
        match self.ask(Op::LastActivity(name)).await {
            Ok(Answer::Done(text)) => {
                let time = DateTime::parse_from_rfc3339(text.trim()).ok()?;
                Some(time.to_utc())
            }
            _ => None,
        }
    }

    async fn set_note(
        &self,
        name: &SessionName,
        fence: &Fence,
        note: Note,
        value: Option<String>,
    ) -> Result<(), SessionError> {
        let gate = self.gate(name);
        let _gate = gate.lock().await;
        self.fenced(name, fence)?.ok_or(SessionError::NotFound)?;
        check_note(value.as_deref())?;
        self.records
            .change(name, note, value.clone())
            .map_err(backend)?;
        // For whoever asks the backend itself; ours is the file.
        let _ = match value {
            Some(value) => self.ask(Op::SetMeta(name, note.key(), value)).await,
            None => self.ask(Op::RemoveMeta(name, note.key())).await,
        };
        Ok(())
    }

    /// An op about one session: `None` if there is no session, an error if there is no such op.
    async fn about(
        &self,
        name: &SessionName,
        cap: &'static str,
        op: Op<'_>,
    ) -> Result<Option<String>, SessionError> {
        if !self.knows(op.word()) {
            return Err(SessionError::Unsupported(cap));
        }
        if self.records.read(name).map_err(backend)?.is_none() {
            return Ok(None);
        }
        match self.ask(op).await? {
            Answer::Done(text) => Ok(Some(text)),
            Answer::Unknown => Err(SessionError::Unsupported(cap)),
        }
    }
}

fn known(meta: BTreeMap<String, String>) -> BTreeMap<Note, String> {
    let entries = meta.into_iter();
    let known = entries.filter_map(|(key, value)| Some((Note::from_key(&key)?, value)));
    known.collect()
}

impl Sessions for Exec {
    fn provider(&self) -> &str {
        &self.0.word
    }

    fn caps(&self) -> Caps {
        let inner = &self.0;
        Caps {
            log: inner.knows("peek"),
            nudge: inner.knows("nudge"),
            keys: inner.knows("send-keys"),
            attach: inner.knows("attach"),
            activity: inner.knows("get-last-activity"),
            exit_push: true,
            exit_status: inner.watches(),
            process_tree: inner.knows("process-alive"),
            meta: inner.knows("set-meta"),
            stages: true,
            survives: true,
            ..Caps::default()
        }
    }

    fn start(
        &self,
        token: RunToken,
        spec: Arc<StartSpec>,
    ) -> PortFuture<'_, Started, StartFailure> {
        Box::pin(start::start(self.0.clone(), token, spec))
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        Box::pin(async move { self.0.stop(&name, &fence).await })
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move {
            if self.0.fenced(&name, &fence)?.is_none() {
                return Ok(false);
            }
            // A script that cannot do it is left alone: the stop that follows needs no leave.
            self.0.ask(Op::Interrupt(&name)).await.map(|_| true)
        })
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(async move {
            self.0.watch_exits();
            self.0.clone().snapshot().await
        })
    }

    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError> {
        Box::pin(async move { self.0.liveness(&name, &token).await })
    }

    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move {
            if self.0.records.read(&name).map_err(backend)?.is_none() {
                return Ok(false);
            }
            let asks = !names.is_empty() && self.0.knows("process-alive");
            match asks {
                true => match self.0.ask(Op::ProcessAlive(&name, names)).await? {
                    Answer::Done(text) => Ok(text.trim() == "true"),
                    Answer::Unknown => self.0.is_running(&name).await,
                },
                false => self.0.is_running(&name).await,
            }
        })
    }

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move {
            let record = self.0.records.read(&name).map_err(backend)?;
            record.ok_or(SessionError::NotFound)?;
            self.0.ask(Op::ClearScrollback(&name)).await.map(drop)
        })
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        Box::pin(async move {
            let text = self.0.about(&name, "peek", Op::Peek(&name, lines)).await?;
            let text = text.ok_or(SessionError::NotFound)?;
            Ok(output::last(text.as_bytes(), lines))
        })
    }

    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move { self.0.set_note(&name, &fence, note, value).await })
    }

    fn nudge(
        &self,
        name: SessionName,
        fence: Fence,
        text: String,
    ) -> PortFuture<'_, Delivery, SessionError> {
        Box::pin(async move {
            if !self.0.knows("nudge") {
                return Err(SessionError::Unsupported("nudge"));
            }
            if self.0.fenced(&name, &fence)?.is_none() {
                return Ok(Delivery::NoSession);
            }
            let text = nudge_text(&text)?;
            if text.is_empty() {
                return Ok(Delivery::Delivered { confirmed: true });
            }
            let gate = self.0.gate(&name);
            let _gate = gate.lock().await; // one message at a time
            if !self.0.is_running(&name).await? {
                return Ok(Delivery::NoSession);
            }
            let sent = self.0.about(&name, "nudge", Op::Nudge(&name, text)).await?;
            Ok(match sent {
                Some(_) => Delivery::Delivered { confirmed: true },
                None => Delivery::NoSession,
            })
        })
    }

    fn send_keys(
        &self,
        name: SessionName,
        fence: Fence,
        keys: Vec<Key>,
    ) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move {
            if !self.0.knows("send-keys") {
                return Err(SessionError::Unsupported("keys"));
            }
            Key::check(&keys)?;
            if self.0.fenced(&name, &fence)?.is_none() {
                return Ok(false);
            }
            let gate = self.0.gate(&name);
            let _gate = gate.lock().await; // not into a message
            if !self.0.is_running(&name).await? {
                return Ok(false);
            }
            let op = Op::SendKeys(&name, &keys);
            Ok(self.0.about(&name, "keys", op).await?.is_some())
        })
    }

    fn attach(
        &self,
        name: SessionName,
        read_only: bool,
    ) -> PortFuture<'_, AttachPlan, SessionError> {
        Box::pin(async move {
            if !self.0.knows("attach")
                || read_only && self.0.records.read(&name).is_ok_and(|r| r.is_some())
            {
                return Err(SessionError::Unsupported("attach"));
            }
            let record = self.0.records.read(&name).map_err(backend)?;
            record.ok_or(SessionError::NotFound)?;
            Ok(self.0.attach_plan(&name))
        })
    }

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribers.add()
    }
}

#[cfg(test)]
mod tests;
