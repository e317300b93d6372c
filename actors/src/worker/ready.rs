//! From a run that was launched to one that is ready (sessions.md 3, steps 5 to 10).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::effects::{LIVE_LIMIT, PROBE_LIMIT};
use crate::model::{FailureClass, RunToken, StartFailure};
use crate::ports::{CityPorts, Fence, Liveness, SessionError, ShellJob, StartSpec};

/// How often is looked whether it is ready.
const LOOK: Duration = Duration::from_millis(200);

/// How many lines of its screen are looked at.
const LINES: u32 = 120;

/// How long its first message may take.
const NUDGE_LIMIT: Duration = Duration::from_secs(60);

/// A run on its way up.
pub(super) struct Rising {
    pub(super) ports: Arc<CityPorts>,
    pub(super) token: RunToken,
    pub(super) spec: Arc<StartSpec>,
    /// It counts as up once one of these programs runs; empty: at once.
    pub(super) process_names: Vec<String>,
    pub(super) deadline: Instant,
}

impl Rising {
    /// Whether there is anything to wait for or to do. Most agents ask for nothing.
    pub(super) fn has_steps(&self) -> bool {
        let launch = &self.spec.launch;
        !self.process_names.is_empty()
            || launch.ready_delay.is_some()
            || launch.ready_prompt_prefix.is_some()
            || !launch.session_setup.is_empty()
            || launch.session_setup_script.is_some()
            || !launch.nudge.is_empty()
    }

    /// Waits until the run is ready, sets it up and tells it its first message. An error means
    /// that it died, or that its programs never came up.
    pub(super) async fn rise(&self) -> Result<(), StartFailure> {
        self.programs().await?;
        self.readiness().await?;
        self.set_up().await;
        self.first_message().await;
        Ok(())
    }

    async fn programs(&self) -> Result<(), StartFailure> {
        let caps = self.ports.sessions.caps_of(&self.spec.session);
        if self.process_names.is_empty() || !caps.process_tree {
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
                return Err(failure(format!("none of its programs came up: {names}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn readiness(&self) -> Result<(), StartFailure> {
        let (launch, name) = (&self.spec.launch, &self.spec.session);
        let has_screen = self.ports.sessions.caps_of(name).screen;
        let prefix = launch.ready_prompt_prefix.as_deref().filter(|_| has_screen);
        let until = match (prefix, launch.ready_delay) {
            (Some(_), _) => self.deadline,
            (None, Some(delay)) => (Instant::now() + delay).min(self.deadline),
            (None, None) => return Ok(()),
        };
        loop {
            if let Some(prefix) = prefix
                && self.shows(prefix).await
            {
                return Ok(());
            }
            self.still_alive().await?;
            let now = Instant::now();
            if now >= until {
                if prefix.is_some() {
                    // A changed prompt is no crash loop.
                    let agent = &self.spec.agent;
                    tracing::warn!(%agent, "its prompt was not seen; taken as ready");
                }
                return Ok(());
            }
            tokio::time::sleep(LOOK.min(until - now)).await;
        }
    }

    async fn shows(&self, prefix: &str) -> bool {
        let look = self.ports.sessions.peek(self.spec.session.clone(), LINES);
        let Ok(Ok(screen)) = timeout(PROBE_LIMIT, look).await else {
            return false;
        };
        let plain = |text: &str| text.replace('\u{a0}', " ");
        let prefix = plain(prefix);
        screen.lines().any(|line| {
            let line = plain(line);
            // A screen cuts the blanks at the end of a line.
            line.starts_with(&prefix) || line == prefix.trim_end()
        })
    }

    /// An error if the run is known to be over. Cannot observe is not dead.
    async fn still_alive(&self) -> Result<(), StartFailure> {
        let name = self.spec.session.clone();
        let look = self
            .ports
            .sessions
            .liveness(name.clone(), self.token.clone());
        let how = match timeout(PROBE_LIMIT, look).await {
            Ok(Ok(Liveness::Dead(status))) => status.to_string(),
            Ok(Ok(Liveness::Absent)) => "session vanished".to_owned(),
            _ => return Ok(()),
        };
        let words = timeout(PROBE_LIMIT, self.ports.sessions.peek(name, 1)).await;
        let words = words.ok().and_then(Result::ok).unwrap_or_default();
        let hint = match how.as_str() {
            "exit 126" => " (a program cannot be run)",
            "exit 127" => " (a program was not found)",
            _ => "",
        };
        let mut detail = format!("died before it was ready: {how}{hint}");
        if !words.trim().is_empty() {
            detail.push_str(&format!(": {}", words.trim()));
        }
        Err(failure(detail))
    }

    /// Failing lines are a warning: the agent runs all the same.
    async fn set_up(&self) {
        let (launch, agent) = (&self.spec.launch, &self.spec.agent);
        if self.ports.sessions.caps_of(&self.spec.session).stages {
            return; // the provider did, on its own side
        }
        let script = launch.session_setup_script.as_deref().map(quoted);
        for line in launch.session_setup.iter().cloned().chain(script) {
            let job = ShellJob {
                line,
                dir: launch.work_dir.clone(),
                env: self.env(),
                limit: LIVE_LIMIT,
            };
            if let Err(error) = self.ports.shell.run(job).await {
                tracing::warn!(%agent, %error, "session_setup failed");
            }
        }
    }

    fn env(&self) -> BTreeMap<String, String> {
        let (spec, launch) = (&self.spec, &self.spec.launch);
        let mut env = launch.env.clone();
        let dir = launch.work_dir.to_string_lossy();
        for (name, value) in [
            ("GC_AGENT", spec.agent.as_str()),
            ("GC_TEMPLATE", spec.template.as_str()),
            ("GC_SESSION_NAME", spec.session.as_str()),
            ("GC_SESSION_ID", self.token.as_str()),
            ("GC_DIR", &dir),
        ] {
            env.insert(name.to_owned(), value.replace('$', "$$"));
        }
        env
    }

    async fn first_message(&self) {
        let (launch, agent) = (&self.spec.launch, &self.spec.agent);
        if launch.nudge.is_empty() {
            return;
        }
        let fence = Fence::Token(self.token.clone());
        let name = self.spec.session.clone();
        let nudge = self.ports.sessions.nudge(name, fence, launch.nudge.clone());
        let told = timeout(NUDGE_LIMIT, nudge).await;
        if let Err(error) = told.unwrap_or(Err(SessionError::Timeout)) {
            tracing::warn!(%agent, %error, "its first message was not delivered");
        }
    }
}

fn quoted(path: &Path) -> String {
    crate::model::Command::Words(vec![path.to_string_lossy().into_owned()]).to_string()
}

fn failure(detail: String) -> StartFailure {
    StartFailure {
        stage: "ready",
        class: FailureClass::Agent,
        detail,
    }
}
