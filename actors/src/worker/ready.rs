//! From a run that was launched to one that is ready (sessions.md 3, steps 5 to 11).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::effects::PROBE_LIMIT;
use super::{dialogs, setup};
use crate::model::{Began, ExitStatus, FailureClass, RunToken, StartFailure};
use crate::policy::shows_prompt;
use crate::ports::{Caps, CityPorts, Fence, Liveness, SessionError, StartSpec, Started};

/// How often is looked whether it is ready.
const LOOK: Duration = Duration::from_millis(200);

/// How many lines of its screen are looked at.
pub(super) const LINES: u32 = 120;

/// How long its first message may take.
const NUDGE_LIMIT: Duration = Duration::from_secs(60);

/// A run on its way up.
pub(super) struct Rising {
    pub(super) ports: Arc<CityPorts>,
    pub(super) token: RunToken,
    pub(super) spec: Arc<StartSpec>,
    /// It counts as up once one of these programs runs; empty: at once.
    pub(super) process_names: Vec<String>,
    /// Lines run last.
    pub(super) live: Vec<String>,
    pub(super) deadline: Instant,
    /// Lines of last output kept if it fails.
    pub(super) capture_lines: u32,
    /// What is known to be missing.
    pub(super) warning: Option<String>,
}

impl Rising {
    /// Waits until the run is ready, sets it up and tells it its first message. An error means
    /// that it died, or that its programs never came up.
    pub(super) async fn rise(&self, started: Started) -> Result<Began, StartFailure> {
        let mut began = Began {
            pid: started.pid,
            warnings: started.warnings,
            set_up: true,
            ..Began::default()
        };
        began.assumed = !self.ready().await?;
        began.warnings.extend(self.warning.clone());
        began.warnings.extend(self.set_up().await);
        began.warnings.extend(self.first_message().await);
        began.warnings.extend(self.go_live().await);
        Ok(began)
    }

    /// Waits until it is ready, and answers what it asks meanwhile. `false`: its prompt was not
    /// seen, but it lives.
    async fn ready(&self) -> Result<bool, StartFailure> {
        let ready = async {
            self.programs().await?;
            self.readiness().await
        };
        if self.spec.launch.dismiss.is_empty() {
            return ready.await;
        }
        tokio::select! {
            biased;
            ready = ready => ready,
            never = dialogs::answer(&self.ports, &self.token, &self.spec) => match never {},
        }
    }

    async fn programs(&self) -> Result<(), StartFailure> {
        if self.process_names.is_empty() || !self.caps().process_tree {
            return Ok(());
        }
        loop {
            let (name, names) = (self.spec.session.clone(), self.process_names.clone());
            let look = self.ports.sessions.process_alive(name, names);
            if let Ok(Ok(true)) = timeout(PROBE_LIMIT, look).await {
                return Ok(());
            }
            self.still_alive().await?;
            if Instant::now() + LOOK >= self.deadline {
                let names = self.process_names.join(", ");
                let detail = format!("none of its programs came up: {names}");
                return Err(self.in_vain(detail).await);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn readiness(&self) -> Result<bool, StartFailure> {
        let launch = &self.spec.launch;
        let prefix = launch.ready_prompt_prefix.as_deref();
        let prefix = prefix.filter(|_| self.caps().screen);
        let until = match (prefix, launch.ready_delay) {
            (Some(_), _) => self.deadline,
            (None, Some(delay)) => (Instant::now() + delay).min(self.deadline),
            (None, None) => return Ok(true),
        };
        loop {
            if let Some(prefix) = prefix
                && self.shows(prefix).await
            {
                return Ok(true);
            }
            self.still_alive().await?;
            let now = Instant::now();
            if now >= until {
                // A changed prompt is no crash loop.
                return Ok(prefix.is_none());
            }
            tokio::time::sleep(LOOK.min(until - now)).await;
        }
    }

    async fn shows(&self, prefix: &str) -> bool {
        let look = self.ports.sessions.peek(self.spec.session.clone(), LINES);
        let Ok(Ok(screen)) = timeout(PROBE_LIMIT, look).await else {
            return false;
        };
        shows_prompt(&screen, prefix)
    }

    /// An error if the run is known to be over. Cannot observe is not dead.
    async fn still_alive(&self) -> Result<(), StartFailure> {
        let name = self.spec.session.clone();
        let look = self.ports.sessions.liveness(name, self.token.clone());
        let exit = match timeout(PROBE_LIMIT, look).await {
            Ok(Ok(Liveness::Dead(status))) => status,
            Ok(Ok(Liveness::Absent)) => ExitStatus::Vanished,
            _ => return Ok(()),
        };
        let hint = match exit {
            ExitStatus::Code(126) => " (a program cannot be run)",
            ExitStatus::Code(127) => " (a program was not found)",
            _ => "",
        };
        let detail = format!("died before it was ready: {exit}{hint}");
        Err(StartFailure {
            exit: Some(exit),
            ..self.in_vain(detail).await
        })
    }

    /// A failed start, with the last words of what was started.
    async fn in_vain(&self, detail: String) -> StartFailure {
        let mut tail = String::new();
        if self.capture_lines > 0 {
            let (name, lines) = (self.spec.session.clone(), self.capture_lines);
            let peek = timeout(PROBE_LIMIT, self.ports.sessions.peek(name, lines)).await;
            tail = peek.ok().and_then(Result::ok).unwrap_or_default();
        }
        StartFailure {
            tail,
            ..StartFailure::new("ready", FailureClass::Agent, detail)
        }
    }

    async fn set_up(&self) -> Vec<String> {
        let launch = &self.spec.launch;
        let none = launch.session_setup.is_empty() && launch.session_setup_script.is_none();
        if none || self.caps().stages {
            return Vec::new(); // there is nothing, or the provider did on its own side
        }
        let lines = launch.session_setup.iter().cloned();
        let mut warnings = self.run("session_setup", lines).await;
        let script = launch.session_setup_script.as_deref().map(quoted);
        warnings.extend(self.run("session_setup_script", script).await);
        warnings
    }

    async fn first_message(&self) -> Option<String> {
        let (launch, agent) = (&self.spec.launch, &self.spec.agent);
        if launch.nudge.is_empty() {
            return None;
        }
        let fence = Fence::Token(self.token.clone());
        let name = self.spec.session.clone();
        let nudge = self.ports.sessions.nudge(name, fence, launch.nudge.clone());
        let told = timeout(NUDGE_LIMIT, nudge).await;
        let error = told.unwrap_or(Err(SessionError::Timeout)).err()?;
        tracing::warn!(%agent, %error, "its first message was not delivered");
        Some(format!("its first message was not delivered: {error}"))
    }

    async fn go_live(&self) -> Vec<String> {
        if self.live.is_empty() || self.caps().stages {
            return Vec::new();
        }
        self.run("session_live", self.live.iter().cloned()).await
    }

    async fn run(&self, key: &str, lines: impl IntoIterator<Item = String>) -> Vec<String> {
        setup::run(&self.ports, key, lines, &self.token, &self.spec).await
    }

    fn caps(&self) -> Caps {
        self.ports.sessions.caps_of(&self.spec.session)
    }
}

fn quoted(path: &Path) -> String {
    crate::model::Command::Words(vec![path.to_string_lossy().into_owned()]).to_string()
}
