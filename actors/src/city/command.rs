//! What users and agents ask of single agents.

use std::time::Duration;

use super::{CityState, events};
use crate::model::{AgentName, AgentState, StartCause, StopReason};
use crate::policy::{DrainReason, Phase, Want};
use crate::ports::Note;
use crate::session::SessionRef;
use crate::worker::{Grace, WorkerMsg};

/// Something to do with an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentCommand {
    /// Stop it and start it afresh, skipping any delay. Not charged.
    Restart,
    /// End its run at once; its restart type says what follows. Not charged.
    Kill,
    /// Forget its charged ends and start it now.
    Unquarantine,
    /// Ask it to finish.
    Drain {
        /// Force it after this long.
        timeout: Option<Duration>,
    },
    /// Take that wish back.
    Undrain,
    /// The agent says that it has finished.
    DrainAck,
    /// The agent asks for a fresh session.
    RequestRestart,
}

/// A command that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such agent.
    #[error("no agent {0}")]
    NotFound(AgentName),
    /// It has no run to do this with.
    #[error("{0} is not running")]
    NotRunning(AgentName),
    /// It is in quarantine.
    #[error("{0} is quarantined")]
    Quarantined(AgentName),
    /// It is suspended, held or left out by a limit.
    #[error("{agent} is {}", .state.as_str())]
    NotWanted {
        /// The agent.
        agent: AgentName,
        /// Its state.
        state: AgentState,
    },
    /// The city is just starting or stopping.
    #[error("the city is not ready for commands")]
    Busy,
}

impl CityState {
    pub(super) async fn on_command(
        &mut self,
        agent: &AgentName,
        command: AgentCommand,
    ) -> Result<AgentState, CommandError> {
        if self.slots.get(agent).is_none() {
            return Err(CommandError::NotFound(agent.clone()));
        }
        if !self.is_open() {
            return Err(CommandError::Busy);
        }
        match command {
            AgentCommand::Restart => self.restart(agent).await?,
            AgentCommand::Kill => {
                self.need_run(agent)?;
                self.stop_run(agent, StopReason::User, Grace::None);
            }
            AgentCommand::Unquarantine => self.unquarantine(agent).await?,
            AgentCommand::Drain { timeout } => {
                self.need_run(agent)?;
                self.drain(agent, DrainReason::User, timeout);
            }
            AgentCommand::Undrain => {
                self.need_run(agent)?;
                self.undrain(agent);
            }
            AgentCommand::DrainAck => self.mark(agent, Note::DrainAck).await?,
            AgentCommand::RequestRestart => self.mark(agent, Note::RestartRequested).await?,
        }
        let state = self.slots.get(agent).map(|entry| entry.slot.state());
        Ok(state.unwrap_or(AgentState::Stopped)) // a drained member of a pool is gone
    }

    /// A way to the agent's session for whoever asks, so that nobody here waits for it.
    pub(super) fn reach(&self, agent: &AgentName) -> Result<SessionRef, CommandError> {
        let Some(entry) = self.slots.get(agent) else {
            return Err(CommandError::NotFound(agent.clone()));
        };
        let run = entry.slot.run.as_ref().map(|run| run.token.clone());
        let spec = &entry.slot.spec;
        let session = SessionRef::new(
            self.args.ports.sessions.clone(),
            agent.clone(),
            spec.session.clone(),
            run,
        );
        let prompt = spec.launch.ready_prompt_prefix.clone();
        Ok(session.talked_to(prompt, self.args.spec.nudge))
    }

    fn need_run(&self, agent: &AgentName) -> Result<(), CommandError> {
        let up = self
            .slots
            .get(agent)
            .is_some_and(|entry| entry.slot.phase == Phase::Running);
        if up {
            Ok(())
        } else {
            Err(CommandError::NotRunning(agent.clone()))
        }
    }

    fn need_wanted(&self, agent: &AgentName) -> Result<(), CommandError> {
        let Some(entry) = self.slots.get(agent) else {
            return Err(CommandError::NotFound(agent.clone()));
        };
        if entry.slot.want == Want::Yes {
            return Ok(());
        }
        Err(CommandError::NotWanted {
            agent: agent.clone(),
            state: entry.slot.state(),
        })
    }

    async fn restart(&mut self, agent: &AgentName) -> Result<(), CommandError> {
        self.need_wanted(agent)?;
        let now = self.now();
        let Some(entry) = self.slots.get_mut(agent) else {
            return Ok(());
        };
        match entry.slot.phase {
            Phase::Quarantined { .. } => return Err(CommandError::Quarantined(agent.clone())),
            Phase::Running | Phase::Starting => {
                entry.slot.respawn = true;
                let grace = self.grace(StopReason::User);
                self.stop_run(agent, StopReason::User, grace);
            }
            Phase::Stopping(_) => entry.slot.respawn = true,
            Phase::Queued(_) => {}
            Phase::Stopped | Phase::Backoff { .. } | Phase::Done => {
                entry.slot.phase = Phase::Backoff {
                    until: now,
                    cause: StartCause::User,
                };
                entry.alarm = None;
                self.consider(agent).await;
            }
        }
        Ok(())
    }

    async fn unquarantine(&mut self, agent: &AgentName) -> Result<(), CommandError> {
        let now = self.now();
        let Some(entry) = self.slots.get_mut(agent) else {
            return Ok(());
        };
        entry.slot.absolve();
        let was = entry.slot.phase;
        if matches!(was, Phase::Quarantined { .. } | Phase::Backoff { .. }) {
            entry.slot.phase = Phase::Backoff {
                until: now,
                cause: StartCause::User,
            };
            entry.alarm = None;
        }
        if matches!(was, Phase::Quarantined { .. }) {
            self.emit(events::unquarantined(agent, "user"));
        }
        self.save_history();
        self.consider(agent).await;
        Ok(())
    }

    /// The agent's own word, kept with its session and acted on at once.
    async fn mark(&mut self, agent: &AgentName, note: Note) -> Result<(), CommandError> {
        self.need_run(agent)?;
        if let Some(entry) = self.slots.get_mut(agent) {
            entry.tell(WorkerMsg::Note(note, Some("1".into())));
            if let Some(run) = &mut entry.slot.run {
                run.acked |= note == Note::DrainAck;
                run.restart_requested |= note == Note::RestartRequested;
            }
        }
        self.plan_one(agent).await;
        Ok(())
    }
}
