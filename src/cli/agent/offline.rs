//! Agents of a city that nobody runs: what is configured, and what still lives.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use chrono::Utc;
use gascity_actors::policy::{Want, desired};
use gascity_actors::{ReachError, SessionRef};
use tokio::runtime::Runtime;

use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::values::millis;
use crate::control::home::CityDir;
use crate::control::lock::Lock;
use crate::host::Opener;
use crate::model::{
    AgentName, AgentSpec, AgentState, CityName, CitySpec, InstanceView, PoolView, RunToken,
    SessionName,
};
use crate::ports::{Facts, Fence, Note, Sessions};

use super::Deed;

/// Why nothing happens to agents by itself.
const NOBODY: &str = "nobody runs the city";

/// The sessions of a city, without a supervisor.
pub(super) struct Offline {
    runtime: Runtime,
    sessions: Arc<dyn Sessions>,
}

impl Offline {
    /// The sessions of the city at `root`. Nothing is touched.
    ///
    /// # Errors
    /// If the system refuses to say which processes there are.
    pub(super) fn open(context: &Context, root: &Path) -> CliResult<Self> {
        // Any name will do: sessions are found by the root.
        let name = CityName::new("offline").map_err(failed)?;
        let opener = Opener::new(Some(context.home()?.dir().to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let sessions = opener.left(root, name).map_err(failed)?;
        Ok(Self { runtime, sessions })
    }

    /// Word for what they run on.
    pub(super) fn provider(&self) -> &str {
        self.sessions.provider()
    }

    /// Every session of the city, live or dead.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(super) fn listing(&self) -> CliResult<Vec<Facts>> {
        let listing = self.runtime.block_on(self.sessions.snapshot());
        Ok(listing.map_err(failed)?.owned)
    }

    /// Does to the session itself what needs no supervisor. The next one goes on from there.
    ///
    /// # Errors
    /// [`Code::NotRunning`] for what needs one, [`Code::Conflict`] if the agent does not run or
    /// somebody is just taking the city over.
    pub(super) fn perform(
        &self,
        root: &Path,
        agent: &InstanceView,
        deed: Deed,
    ) -> CliResult<AgentState> {
        if matches!(deed, Deed::Restart | Deed::Unquarantine) {
            return Err(CliError::new(Code::NotRunning, NOBODY).hint("gc start"));
        }
        let Some(token) = agent.session_id.clone() else {
            let message = format!("{} is not running", agent.qualified_name);
            return Err(CliError::new(Code::Conflict, message));
        };
        let _lock = Lock::city(&CityDir::new(root))?;
        let now = || Some(Utc::now().timestamp().to_string());
        let set = |note, value| self.set(agent, &token, note, value);
        match deed {
            Deed::Kill => {
                let stop = (self.sessions).stop(agent.session.clone(), Fence::Token(token));
                self.runtime.block_on(stop).map_err(failed)?;
                return Ok(AgentState::Stopped);
            }
            Deed::Drain { timeout } => {
                // The first wish stands, with its time.
                if agent.state != AgentState::Draining {
                    set(Note::DrainReason, Some("user".to_owned()))?;
                    let limit = timeout.map(|limit| limit.as_secs().to_string());
                    set(Note::DrainTimeout, limit)?;
                    set(Note::Drain, now())?;
                }
                return Ok(AgentState::Draining);
            }
            Deed::Undrain => {
                for note in [Note::Drain, Note::DrainReason, Note::DrainTimeout] {
                    set(note, None)?;
                }
                return Ok(AgentState::Running);
            }
            Deed::DrainAck => set(Note::DrainAck, Some("1".to_owned()))?,
            Deed::RequestRestart => set(Note::RestartRequested, Some("1".to_owned()))?,
            Deed::Restart | Deed::Unquarantine => {}
        }
        Ok(agent.state)
    }

    /// Does something with the session of an agent.
    ///
    /// # Errors
    /// [`Code::Unsupported`] if such sessions cannot do it, [`Code::Conflict`] if there is none.
    pub(super) fn reach<T, F>(
        &self,
        agent: &InstanceView,
        what: impl FnOnce(SessionRef) -> F,
    ) -> CliResult<T>
    where
        F: Future<Output = Result<T, ReachError>>,
    {
        let session = SessionRef::new(
            self.sessions.clone(),
            agent.qualified_name.clone(),
            agent.session.clone(),
            agent.session_id.clone(),
        );
        self.runtime.block_on(what(session)).map_err(|error| {
            let code = match error {
                ReachError::NotRunning(_) => Code::Conflict,
                ReachError::Unsupported { .. } => Code::Unsupported,
                _ => Code::Failed,
            };
            CliError::new(code, error.to_string())
        })
    }

    fn set(
        &self,
        agent: &InstanceView,
        token: &RunToken,
        note: Note,
        value: Option<String>,
    ) -> CliResult {
        let fence = Fence::Token(token.clone());
        let session = agent.session.clone();
        let set = self.sessions.set_note(session, fence, note, value);
        self.runtime.block_on(set).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::new(Code::Failed, error.to_string())
}

/// What config and sessions together say. Without a config only sessions are known.
pub(super) fn instances(spec: Option<&CitySpec>, sessions: &[Facts]) -> Vec<InstanceView> {
    let live: HashMap<_, &Facts> = sessions
        .iter()
        .filter(|facts| facts.live)
        .map(|facts| (&facts.agent, facts))
        .collect();
    let runs = |name: &_| live.contains_key(name);
    let wanted = spec.map(|spec| desired(spec, &HashMap::new(), runs));
    let mut agents: Vec<InstanceView> = Vec::new();
    for (agent, want) in wanted.iter().flatten() {
        let facts = live.get(&agent.name).copied();
        agents.push(configured(spec, agent, want, facts));
    }
    let is_known = |facts: &Facts, all: &[InstanceView]| {
        all.iter().any(|agent| agent.qualified_name == facts.agent)
    };
    for facts in sessions.iter().filter(|facts| facts.live) {
        if !is_known(facts, &agents) {
            agents.push(run_only(facts));
        }
    }
    agents
}

fn configured(
    spec: Option<&CitySpec>,
    agent: &AgentSpec,
    want: &Want,
    facts: Option<&Facts>,
) -> InstanceView {
    let mut view = blank(&agent.name, &agent.session);
    (view.state, view.reason) = match want {
        Want::Suspended if spec.is_some_and(|spec| spec.suspended) => {
            (AgentState::Suspended, Some("the city is suspended".into()))
        }
        Want::Suspended => (
            AgentState::Suspended,
            Some("suspended in the config".into()),
        ),
        Want::Held(why) => (AgentState::Held, Some(why.clone())),
        Want::Limited => (AgentState::Limited, Some("left out by max_agents".into())),
        _ => (AgentState::Stopped, Some(NOBODY.into())),
    };
    view.suspended = *want == Want::Suspended;
    view.provider.clone_from(&agent.launch.session);
    view.depends_on.clone_from(&agent.depends_on);
    view.config_hash.clone_from(&agent.fingerprint.hash);
    view.max_restarts = agent.limit.max_restarts;
    view.restart_window_ms = millis(agent.limit.window);
    if let (Some(pool), Some(_)) = (&agent.pool, agent.pool_slot) {
        view.pool = Some(PoolView {
            template: agent.template.clone(),
            min: pool.min,
            max: pool.max,
            count: None,
        });
    }
    if let Some(facts) = facts {
        add_run(&mut view, facts);
    }
    view
}

fn run_only(facts: &Facts) -> InstanceView {
    let mut view = blank(&facts.agent, &facts.session);
    add_run(&mut view, facts);
    view
}

fn blank(name: &AgentName, session: &SessionName) -> InstanceView {
    let last = name.as_str().rsplit('/').next();
    InstanceView {
        provider: None,
        name: last.unwrap_or_default().to_owned(),
        qualified_name: name.clone(),
        state: AgentState::Stopped,
        reason: None,
        running: false,
        suspended: false,
        pool: None,
        depends_on: Vec::new(),
        last_activity: None,
        config_hash: String::new(),
        drifted_from: None,
        session: session.clone(),
        session_id: None,
        generation: 0,
        pid: None,
        uptime_ms: None,
        restarts_in_window: 0,
        max_restarts: 0,
        restart_window_ms: 0,
        quarantined_until: None,
        retry_at: None,
        warnings: Vec::new(),
        last_error: None,
    }
}

fn add_run(view: &mut InstanceView, facts: &Facts) {
    let note = |note| facts.notes.get(&note);
    let drain = note(Note::DrainReason).map(|why| format!("asked to finish: {why}"));
    (view.state, view.reason) = match note(Note::Drain) {
        Some(_) => (AgentState::Draining, drain),
        None => (AgentState::Running, Some(format!("unwatched: {NOBODY}"))),
    };
    view.running = true;
    view.session = facts.session.clone();
    view.session_id = Some(facts.token.clone());
    view.pid = facts.pid;
    view.last_activity = facts.last_activity;
    view.generation = note(Note::Generation)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let uptime = (Utc::now() - facts.started_at).to_std().unwrap_or_default();
    view.uptime_ms = Some(millis(uptime));
    view.drifted_from = note(Note::ConfigHash)
        .filter(|hash| !view.config_hash.is_empty() && **hash != view.config_hash)
        .cloned();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn facts(agent: &str, live: bool, notes: &[(Note, &str)]) -> Facts {
        let agent = AgentName::new(agent).unwrap();
        Facts {
            session: SessionName::of(&agent),
            agent,
            token: RunToken::new("0123456789abcdef0123456789abcdef").unwrap(),
            live,
            pid: Some(7),
            started_at: Utc::now(),
            last_activity: None,
            attached: false,
            notes: notes
                .iter()
                .map(|(note, value)| (*note, (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
        }
    }

    fn states(spec: Option<&CitySpec>, sessions: &[Facts]) -> Vec<(String, &'static str)> {
        instances(spec, sessions)
            .iter()
            .map(|agent| (agent.qualified_name.to_string(), agent.state.as_str()))
            .collect()
    }

    #[test]
    fn config_and_live_sessions_make_the_list() {
        let spec = CitySpec::builder("town")
            .root("/town")
            .agent(AgentSpec::command("a", ["x"]))
            .agent(AgentSpec::command("b", ["x"]))
            .agent(AgentSpec::command("c", ["x"]))
            .build()
            .unwrap();
        let sessions = [
            facts("a", true, &[(Note::Generation, "3")]),
            facts(
                "b",
                true,
                &[(Note::Drain, "1"), (Note::DrainReason, "user")],
            ),
            facts("c", false, &[]),
            facts("gone", true, &[]),
        ];
        let found = states(Some(&spec), &sessions);
        let expected = [
            ("a", "running"),
            ("b", "draining"),
            ("c", "stopped"),
            ("gone", "running"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, state)| (name.to_owned(), state))
        );
        assert_eq!(instances(Some(&spec), &sessions)[0].generation, 3);
        assert_eq!(states(None, &sessions[..1]), [("a".to_owned(), "running")]);
    }
}
