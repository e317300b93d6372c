//! What every case needs: a provider, agents with behaviours, and patience.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::{Act, Backend};
use crate::model::{AgentName, ExitStatus, Launch, RunToken, SessionName};
use crate::ports::{
    Caps, Facts, Fence, Liveness, SessionEventKind, SessionEvents, Sessions, StartError, StartSpec,
    Started,
};

/// Upper bound of every wait; reached only where the contract is broken.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(5);

/// A backend with one provider on it.
pub struct Stage {
    backend: Arc<dyn Backend>,
    /// The provider under test.
    pub sessions: Arc<dyn Sessions>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stage({})", self.sessions.provider())
    }
}

impl Stage {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            sessions: backend.provider(),
            backend,
        }
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(super) fn caps(&self) -> Caps {
        self.sessions.caps()
    }

    pub(super) fn runs_commands(&self) -> bool {
        self.backend.runs_commands()
    }

    /// A file agents may write to.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.backend.dir().join(name)
    }

    /// Another provider on the same backend.
    pub(super) fn another(&self) -> Arc<dyn Sessions> {
        self.backend.provider()
    }

    pub(super) fn spec(&self, name: &str, act: &Act) -> anyhow::Result<StartSpec> {
        let agent = AgentName::new(name)?;
        let command = self.backend.prepare(&agent, act);
        Ok(StartSpec {
            session: session(name)?,
            template: agent.clone(),
            agent,
            generation: 1,
            launch: Arc::new(Launch {
                command,
                work_dir: self.backend.dir().to_owned(),
                ..Launch::default()
            }),
            setup_timeout: Duration::from_secs(10),
            process_names: Vec::new(),
            live: Vec::new(),
            notes: BTreeMap::new(),
        })
    }

    /// One attempt to start an agent.
    pub(super) async fn attempt(
        &self,
        spec: StartSpec,
    ) -> anyhow::Result<Result<(RunToken, Started), StartError>> {
        let token = fresh_token()?;
        let started = self.sessions.start(token.clone(), Arc::new(spec)).await;
        Ok(started.map(|started| (token, started)))
    }

    /// Starts an agent that must come up.
    pub(super) async fn start(&self, name: &str, act: Act) -> anyhow::Result<RunToken> {
        let started = self.attempt(self.spec(name, &act)?).await?;
        let (token, _) = started.with_context(|| format!("start of {name} ({act:?})"))?;
        Ok(token)
    }

    /// The same, once it has printed `ready`; at once where nobody can tell.
    pub(super) async fn start_ready(&self, name: &str, act: Act) -> anyhow::Result<RunToken> {
        let token = self.start(name, act).await?;
        if self.caps().log || self.caps().screen {
            self.until("the agent is ready", async || {
                Ok(self.peek(name, 5).await?.contains("ready"))
            })
            .await?;
        }
        Ok(token)
    }

    pub(super) async fn peek(&self, name: &str, lines: u32) -> anyhow::Result<String> {
        Ok(self.sessions.peek(session(name)?, lines).await?)
    }

    pub(super) async fn is_live(&self, name: &str, token: &RunToken) -> anyhow::Result<bool> {
        let look = self.sessions.liveness(session(name)?, token.clone());
        Ok(matches!(look.await?, Liveness::Live { .. }))
    }

    pub(super) async fn facts(&self, name: &str) -> anyhow::Result<Option<Facts>> {
        let listing = self.sessions.snapshot().await?;
        let mut owned = listing.owned.into_iter();
        Ok(owned.find(|facts| facts.session.as_str() == name))
    }

    /// Waits until a condition holds.
    pub(super) async fn until<F: Future<Output = anyhow::Result<bool>>>(
        &self,
        what: &str,
        mut holds: impl FnMut() -> F,
    ) -> anyhow::Result<()> {
        let wait = async {
            while !holds().await? {
                tokio::time::sleep(STEP).await;
            }
            anyhow::Ok(())
        };
        let done = tokio::time::timeout(PATIENCE, wait).await;
        done.map_err(|_| anyhow!("never happened: {what}"))?
    }

    /// Waits for the contents of a file an agent writes.
    pub(super) async fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = self.file(name);
        self.until(name, async || Ok(path.exists())).await?;
        Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
    }

    /// The next exit among `events`.
    pub(super) async fn next_exit(
        &self,
        events: &mut SessionEvents,
    ) -> anyhow::Result<(RunToken, ExitStatus)> {
        let wait = async {
            loop {
                let event = events.recv().await.context("the stream ended")?;
                if let SessionEventKind::Exited(status) = event.kind {
                    return Ok((event.token, status));
                }
            }
        };
        let done = tokio::time::timeout(PATIENCE, wait).await;
        done.map_err(|_| anyhow!("no exit was reported"))?
    }

    /// Whether `got` is how a run ended that ended like `want`, as far as the provider can tell.
    pub(super) fn is_status(&self, got: ExitStatus, want: ExitStatus) -> bool {
        got == want || (!self.caps().exit_status && got == ExitStatus::Unknown)
    }

    /// Ends every session, whatever the case came to.
    pub(super) async fn clear(&self) {
        let listing = tokio::time::timeout(PATIENCE, self.sessions.snapshot()).await;
        for facts in listing.ok().and_then(Result::ok).unwrap_or_default().owned {
            let stop = self.sessions.stop(facts.session, Fence::Any);
            let _ = tokio::time::timeout(PATIENCE, stop).await;
        }
        self.backend.clean_up();
    }
}

pub(super) fn session(name: &str) -> anyhow::Result<SessionName> {
    Ok(SessionName::new(name.replace('/', "--"))?)
}

pub(super) fn fresh_token() -> anyhow::Result<RunToken> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let token = format!("conformance-{}-{count}", std::process::id());
    Ok(RunToken::new(token)?)
}

/// Whether a process of this machine runs.
pub(super) fn is_process_alive(pid: i32) -> bool {
    #[cfg(target_os = "linux")]
    return crate::sessions::is_alive(pid);
    #[cfg(not(target_os = "linux"))]
    rustix::process::Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
