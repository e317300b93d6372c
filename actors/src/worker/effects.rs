//! What a Worker does: launched here, told to it as a message when it is done.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ractor::ActorProcessingErr;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::messages::WorkerMsg;
use super::ready::Rising;
use super::run::Effect;
use super::{WorkerShared, WorkerState, setup};
use crate::city::CityMsg;
use crate::mailbox::Timer;
use crate::model::{
    AgentEnd, Began, EndKind, FailureClass, RunToken, SessionName, StartFailure, StopReason,
};
use crate::policy::{fit_first_message, without_terminal};
use crate::ports::{
    CityPorts, Fence, Note, PortFuture, SessionError, Sessions, StartError, StartSpec, Started,
    Stopped,
};

const NOTE_LIMIT: Duration = Duration::from_secs(2);
const INTERRUPT_LIMIT: Duration = Duration::from_secs(2);
pub(super) const PROBE_LIMIT: Duration = Duration::from_secs(2);
const CAPTURE_LIMIT: Duration = Duration::from_secs(2);
/// The provider's own limit is 5 s; past this it does not answer any more.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const PROBE_RETRY: Duration = Duration::from_secs(1);

impl WorkerState {
    /// A run that is up needs nothing of its start any more: thousands of Workers wait for days.
    pub(super) fn forget_start(&mut self) {
        self.starting = None;
        self.args.start = None;
    }

    /// Launches work and returns at once; results come back as messages.
    pub(super) fn perform(&mut self, effects: Vec<Effect>) -> Result<(), ActorProcessingErr> {
        for effect in effects {
            match effect {
                Effect::Start => {
                    if let Some(result) = self.start() {
                        let effects = self.on_start_done(result);
                        self.perform(effects)?;
                    }
                }
                Effect::Probe => self.probe(Duration::ZERO),
                Effect::ProbeLater => self.probe(PROBE_RETRY),
                Effect::Capture => {
                    if let Some(tail) = self.capture() {
                        let effects = self.run.on_captured(tail);
                        self.perform(effects)?;
                    }
                }
                Effect::Interrupt(reason) => self.interrupt(reason),
                Effect::ArmGrace(grace) => {
                    self.grace = Some(self.me.send_after(grace, WorkerMsg::Force));
                }
                Effect::Finish { reason, forced } => self.finish_stop(reason, forced),
                Effect::Destroy => self.destroy(),
                Effect::Report(report) => self.args.shared.city.send(CityMsg::Report {
                    agent: self.args.agent.clone(),
                    token: self.args.token.clone(),
                    report,
                }),
                Effect::End { how, tail } => return self.finish(how, tail),
            }
        }
        Ok(())
    }

    /// Ends the actor: planned ends stop it normally, all others fail it.
    fn finish(&mut self, how: EndKind, tail: String) -> Result<(), ActorProcessingErr> {
        let end = AgentEnd {
            token: self.args.token.clone(),
            how,
            uptime: self
                .args
                .shared
                .ports
                .clock
                .now()
                .saturating_duration_since(self.args.started),
            tail,
            began: self.run.began.clone(),
        };
        if matches!(end.how, EndKind::Stopped { .. }) {
            self.end = Some(end);
            self.me.actor().stop(None);
            return Ok(());
        }
        Err(Box::new(end))
    }

    /// A start that takes no time is over when this returns; else its result comes as a message.
    fn start(&mut self) -> Option<Result<Began, StartFailure>> {
        let (me, ports) = (self.me.clone(), self.args.shared.ports.clone());
        let (token, session) = (self.args.token.clone(), self.args.session.clone());
        let limit = self.args.startup_timeout;
        let Some(spec) = self.args.start.clone() else {
            // Adopted runs are never started by this Worker; see `Mode`.
            return Some(Err(provider_failure("nothing to start".into())));
        };
        let (spec, warning) = fitted(&*ports.sessions, spec);
        let clears = self.args.clears_scrollback;
        let rising = Rising {
            ports: ports.clone(),
            token: token.clone(),
            spec: spec.clone(),
            process_names: self.args.process_names.clone(),
            live: self.args.live.clone(),
            deadline: Instant::now() + limit,
            capture_lines: self.args.capture_lines,
            warning,
        };
        let start = at_once(async move {
            let start = caught(ports.sessions.start(token.clone(), spec));
            let (result, in_vain) = match timeout(limit, start).await {
                Err(_) => {
                    let detail = format!("no answer within {limit:?}");
                    (Err(provider_failure(detail)), true)
                }
                Ok(Ok(started)) => {
                    if clears {
                        let clear = ports.sessions.clear_scrollback(session.clone());
                        let _ = timeout(NOTE_LIMIT, clear).await;
                    }
                    let risen = rising.rise(started).await;
                    let in_vain = risen.is_err();
                    (risen, in_vain)
                }
                Ok(Err(error)) => (Err(error.into()), false),
            };
            if in_vain {
                // Whatever came of it so far must not outlive the report of its failure.
                let stop = ports.sessions.stop(session, Fence::Token(token));
                let _ = timeout(STOP_LIMIT, stop).await;
            }
            result
        });
        match start {
            Ok(result) => Some(result),
            Err(start) => {
                let told = async move { me.send(WorkerMsg::StartDone(start.await)) };
                self.starting = Some(Timer::spawn(told));
                None
            }
        }
    }

    pub(super) fn on_start_done(&mut self, result: Result<Began, StartFailure>) -> Vec<Effect> {
        self.forget_start();
        self.run.on_start_done(result)
    }

    fn probe(&self, delay: Duration) {
        let (me, ports) = (self.me.clone(), self.args.shared.ports.clone());
        let (session, token) = (self.args.session.clone(), self.args.token.clone());
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let look = ports.sessions.liveness(session, token);
            let result = timeout(PROBE_LIMIT, look)
                .await
                .unwrap_or(Err(SessionError::Timeout));
            me.send(WorkerMsg::Probed(result));
        });
    }

    /// The last words, if they are at hand; else they come as a message.
    fn capture(&self) -> Option<String> {
        let (me, ports) = (self.me.clone(), self.args.shared.ports.clone());
        let (session, lines) = (self.args.session.clone(), self.args.capture_lines);
        let capture = at_once(async move {
            let peek = timeout(CAPTURE_LIMIT, ports.sessions.peek(session, lines)).await;
            // Last words are a courtesy; without them the end is reported all the same.
            peek.ok().and_then(Result::ok).unwrap_or_default()
        });
        match capture {
            Ok(tail) => Some(tail),
            Err(capture) => {
                tokio::spawn(async move { me.send(WorkerMsg::Captured(capture.await)) });
                None
            }
        }
    }

    /// Metadata is written in the order it is asked for.
    pub(super) fn note(&mut self, note: Note, value: Option<String>) {
        let ports = self.args.shared.ports.clone();
        let (session, fence) = (
            self.args.session.clone(),
            Fence::Token(self.args.token.clone()),
        );
        let before = self.noting.take();
        self.noting = Some(tokio::spawn(async move {
            settled(before).await;
            let set = ports.sessions.set_note(session, fence, note, value);
            let _ = timeout(NOTE_LIMIT, set).await;
        }));
    }

    /// Runs live lines of an agent that is up, and notes which those were.
    pub(super) fn apply_live(&self, lines: Vec<String>, spec: Arc<StartSpec>, update: bool) {
        let (me, ports) = (self.me.clone(), self.args.shared.ports.clone());
        let token = self.args.token.clone();
        tokio::spawn(async move {
            let warnings = setup::run(&ports, "session_live", lines, &token, &spec).await;
            let (name, fence) = (spec.session.clone(), Fence::Token(token));
            let hash = spec.notes.get(&Note::LiveHash).cloned();
            let set = ports.sessions.set_note(name, fence, Note::LiveHash, hash);
            let _ = timeout(NOTE_LIMIT, set).await;
            me.send(WorkerMsg::LiveApplied { update, warnings });
        });
    }

    fn destroy(&self) {
        let (me, ports) = (self.me.clone(), self.args.shared.ports.clone());
        let (session, token) = (self.args.session.clone(), self.args.token.clone());
        tokio::spawn(async move {
            me.send(WorkerMsg::StopDone(stop(&ports, session, token).await));
        });
    }

    fn interrupt(&mut self, reason: StopReason) {
        let (me, shared) = (self.me.clone(), self.args.shared.clone());
        let (session, token) = (self.args.session.clone(), self.args.token.clone());
        let noting = self.noting.take();
        tokio::spawn(async move {
            settled(noting).await;
            let _permit = shared.interrupts.acquire().await;
            record_intent(&shared, &session, &token, reason).await;
            let fence = Fence::Token(token);
            let _ = timeout(
                INTERRUPT_LIMIT,
                shared.ports.sessions.interrupt(session, fence),
            )
            .await;
            me.send(WorkerMsg::Interrupted);
        });
    }

    fn finish_stop(&mut self, reason: StopReason, forced: bool) {
        self.grace = None;
        let (starting, noting) = (self.starting.take(), self.noting.take());
        let (me, shared) = (self.me.clone(), self.args.shared.clone());
        let (session, token) = (self.args.session.clone(), self.args.token.clone());
        tokio::spawn(async move {
            if let Some(starting) = starting {
                starting.cancelled().await;
            }
            settled(noting).await;
            let permits = if forced {
                &shared.forces
            } else {
                &shared.sweeps
            };
            let _permit = permits.acquire().await;
            record_intent(&shared, &session, &token, reason).await;
            me.send(WorkerMsg::StopDone(
                stop(&shared.ports, session, token).await,
            ));
        });
    }
}

/// The start as it is possible here, and what will be missing.
fn fitted(sessions: &dyn Sessions, spec: Arc<StartSpec>) -> (Arc<StartSpec>, Option<String>) {
    let mut launch = spec.launch.clone();
    if sessions.degraded(launch.session.as_deref()).is_some() {
        launch = Arc::new(without_terminal(&launch));
    }
    let mut warning = None;
    if !launch.nudge.is_empty() {
        let caps = sessions.caps_for(&launch);
        (launch, warning) = fit_first_message(launch, caps);
    }
    if Arc::ptr_eq(&launch, &spec.launch) {
        return (spec, warning);
    }
    let spec = StartSpec {
        launch,
        ..(*spec).clone()
    };
    (Arc::new(spec), warning)
}

/// What is ready already, or the rest of the way to it. A restart is a chain of such steps, and to
/// hand them from task to task, and so from one processor to another, takes longer than most do.
fn at_once<F: Future>(future: F) -> Result<F::Output, Pin<Box<F>>> {
    let mut future = Box::pin(future);
    let look = &mut Context::from_waker(Waker::noop());
    match future.as_mut().poll(look) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(future),
    }
}

/// Ends the session of this run. One that belongs to another run proves that this one has none.
async fn stop(
    ports: &CityPorts,
    session: SessionName,
    token: RunToken,
) -> Result<Stopped, SessionError> {
    let stop = ports.sessions.stop(session, Fence::Token(token));
    match timeout(STOP_LIMIT, stop).await {
        Ok(Err(SessionError::Fenced)) => Ok(Stopped::Absent),
        Ok(result) => result,
        Err(_) => Err(SessionError::Timeout),
    }
}

/// Waits until metadata asked for before is written: what follows may depend on it.
async fn settled(noting: Option<JoinHandle<()>>) {
    if let Some(noting) = noting {
        let _ = noting.await;
    }
}

/// A provider that panics has failed to start the agent; nobody must wait for its answer.
async fn caught(mut start: PortFuture<'_, Started, StartError>) -> Result<Started, StartError> {
    let polled = |cx: &mut Context<'_>| {
        let poll = std::panic::AssertUnwindSafe(|| start.as_mut().poll(cx));
        std::panic::catch_unwind(poll).unwrap_or_else(|_| {
            let failure = StartFailure::new("start", FailureClass::Agent, "the start panicked");
            Poll::Ready(Err(failure.into()))
        })
    };
    std::future::poll_fn(polled).await
}

/// Marks the session, so that its end counts as planned even if this process does not see it.
async fn record_intent(
    shared: &WorkerShared,
    session: &SessionName,
    token: &RunToken,
    reason: StopReason,
) {
    let set = shared.ports.sessions.set_note(
        session.clone(),
        Fence::Token(token.clone()),
        Note::StopIntent,
        Some(reason.as_str().to_owned()),
    );
    let _ = timeout(NOTE_LIMIT, set).await;
}

fn provider_failure(detail: String) -> StartFailure {
    StartFailure::new("start", FailureClass::Provider, detail)
}
