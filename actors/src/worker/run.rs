//! The life of one run as a state machine: what was learnt goes in, effects come out.

use std::time::Duration;

use crate::model::{Began, EndKind, ExitStatus, StartFailure, StopReason};
use crate::ports::{Liveness, SessionError, Stopped};

/// How a Worker comes by its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Starts it.
    Start,
    /// Takes over a run that was announced before.
    Adopt,
    /// Takes over from a Worker lost during the start: it may be up already, or not yet begun.
    Resume,
}

/// How long a run may take to leave after the interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grace {
    /// No interrupt, force at once.
    None,
    /// This long.
    For(Duration),
    /// Until the supervisor says `Force`.
    UntilTold,
}

/// What a Worker reports to its supervisor while it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    /// The session is up.
    Started(Began),
    /// The interrupt of a planned stop was sent.
    Interrupted,
    /// A planned stop failed; the run goes on.
    StopFailed(SessionError),
    /// The live lines were run, because they changed (`update`) or because it was not known
    /// whether the start had come to them.
    LiveApplied { update: bool, warnings: Vec<String> },
}

/// What the Worker has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Start,
    Probe,
    ProbeLater,
    Capture,
    Interrupt(StopReason),
    ArmGrace(Duration),
    /// The final stop: ends what is left of the session. `forced`: its leader still lives.
    Finish {
        reason: StopReason,
        forced: bool,
    },
    /// Ends a session that lost its programs; not a planned stop.
    Destroy,
    Report(Report),
    End {
        how: EndKind,
        tail: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// The start is under way; the exit may be known before its return.
    Starting {
        exited: Option<ExitStatus>,
    },
    /// Not yet known whether the session lives.
    Probing {
        announce: bool,
        /// A stop of it failed: if it is over, then by that stop.
        stopped: Option<StopReason>,
    },
    Running,
    /// Ended on its own; last words are being read.
    Capturing(ExitStatus),
    /// The session lives without its programs: last words are read, then it is destroyed.
    Zombie {
        tail: Option<String>,
    },
    Stopping(Stopping),
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stopping {
    /// It is not known whether it was up when its stop began; if so, whether to announce it.
    unsure: Option<bool>,
    reason: StopReason,
    grace: Grace,
    /// The final stop, which also sweeps up strays, is under way.
    forcing: bool,
    /// The leader did not leave by itself.
    forced: bool,
    exited: Option<ExitStatus>,
}

/// State of one run.
#[derive(Debug)]
pub(crate) struct RunState {
    mode: Mode,
    phase: Phase,
    captures: bool,
    /// Set once the run is known to be up.
    pub(crate) began: Option<Began>,
}

impl RunState {
    pub(crate) fn new(mode: Mode, captures: bool) -> Self {
        let phase = match mode {
            Mode::Start => Phase::Starting { exited: None },
            Mode::Adopt => Phase::Probing {
                announce: false,
                stopped: None,
            },
            Mode::Resume => Phase::Probing {
                announce: true,
                stopped: None,
            },
        };
        Self {
            mode,
            phase,
            captures,
            began: None,
        }
    }

    pub(crate) fn on_begin(&self) -> Vec<Effect> {
        match self.mode {
            Mode::Start => vec![Effect::Start],
            Mode::Adopt | Mode::Resume => vec![Effect::Probe],
        }
    }

    pub(crate) fn on_start_done(&mut self, result: Result<Began, StartFailure>) -> Vec<Effect> {
        let Phase::Starting { exited } = self.phase else {
            return vec![]; // being stopped: that takes care of whatever was started
        };
        match result {
            Ok(began) => {
                self.phase = Phase::Running;
                self.began = Some(began.clone());
                let mut effects = vec![Effect::Report(Report::Started(began))];
                if let Some(status) = exited {
                    effects.extend(self.on_exit(status));
                }
                effects
            }
            Err(mut failure) => {
                let tail = std::mem::take(&mut failure.tail);
                self.end(EndKind::StartFailed(failure), tail)
            }
        }
    }

    pub(crate) fn on_probed(&mut self, result: Result<Liveness, SessionError>) -> Vec<Effect> {
        let (announce, stopped) = match self.phase {
            Phase::Probing { announce, stopped } => (announce, stopped),
            Phase::Running => (false, None),
            _ => return vec![],
        };
        match result {
            Ok(Liveness::Live { pid }) => self.up(announce, pid),
            Ok(Liveness::Dead(status)) => self.dead(announce, stopped, status),
            Ok(Liveness::Absent) if stopped.is_some() => self.stopped_late(stopped, None),
            Ok(Liveness::Absent) if announce => {
                self.phase = Phase::Starting { exited: None };
                vec![Effect::Start]
            }
            Ok(Liveness::Absent) => self.on_exit(ExitStatus::Vanished),
            // Cannot observe is not dead.
            Err(_) => vec![Effect::ProbeLater],
        }
    }

    /// It was up, and is over.
    fn dead(
        &mut self,
        announce: bool,
        stopped: Option<StopReason>,
        status: ExitStatus,
    ) -> Vec<Effect> {
        let mut effects = self.up(announce, None);
        effects.extend(match stopped {
            Some(_) => self.stopped_late(stopped, Some(status)),
            None => self.on_exit(status),
        });
        effects
    }

    /// A stop that was said to have failed did its work.
    fn stopped_late(
        &mut self,
        reason: Option<StopReason>,
        status: Option<ExitStatus>,
    ) -> Vec<Effect> {
        let how = EndKind::Stopped {
            reason: reason.unwrap_or(StopReason::User),
            status,
            forced: status.is_none(),
        };
        self.end(how, String::new())
    }

    fn up(&mut self, announce: bool, pid: Option<u32>) -> Vec<Effect> {
        self.phase = Phase::Running;
        let began = Began {
            pid,
            ..Began::default()
        };
        self.began = Some(began.clone());
        if announce {
            vec![Effect::Report(Report::Started(began))]
        } else {
            vec![]
        }
    }

    pub(crate) fn on_exit(&mut self, status: ExitStatus) -> Vec<Effect> {
        match &mut self.phase {
            Phase::Starting { exited } => {
                exited.get_or_insert(status);
                vec![]
            }
            Phase::Probing { announce, stopped } => {
                let (announce, stopped) = (*announce, *stopped);
                self.dead(announce, stopped, status)
            }
            Phase::Running if self.captures && status != ExitStatus::Code(0) => {
                self.phase = Phase::Capturing(status);
                vec![Effect::Capture]
            }
            Phase::Running => self.end(EndKind::Exited(status), String::new()),
            Phase::Stopping(stopping) => {
                stopping.exited.get_or_insert(status);
                if std::mem::replace(&mut stopping.forcing, true) {
                    return vec![];
                }
                // Sweeps up what the leader left behind.
                vec![Effect::Finish {
                    reason: stopping.reason,
                    forced: false,
                }]
            }
            // A zombie's end is its destruction, which is under way.
            Phase::Capturing(_) | Phase::Zombie { .. } | Phase::Ended => vec![],
        }
    }

    pub(crate) fn on_captured(&mut self, tail: String) -> Vec<Effect> {
        match self.phase {
            Phase::Capturing(status) => self.end(EndKind::Exited(status), tail),
            Phase::Zombie { tail: None } => {
                self.phase = Phase::Zombie { tail: Some(tail) };
                vec![Effect::Destroy]
            }
            _ => vec![],
        }
    }

    /// The session is there, its programs are not.
    pub(crate) fn on_zombie(&mut self) -> Vec<Effect> {
        if self.phase != Phase::Running {
            return vec![];
        }
        self.phase = Phase::Zombie { tail: None };
        vec![Effect::Capture]
    }

    /// The backend died and took the session along.
    pub(crate) fn on_backend_lost(&mut self, why: String) -> Vec<Effect> {
        match self.phase {
            Phase::Stopping(_) | Phase::Starting { .. } => self.on_exit(ExitStatus::Vanished),
            Phase::Ended => vec![],
            _ => self.end(EndKind::ProviderLost(why), String::new()),
        }
    }

    pub(crate) fn on_check(&self) -> Vec<Effect> {
        if self.phase == Phase::Running {
            vec![Effect::Probe]
        } else {
            vec![]
        }
    }

    pub(crate) fn on_stop(&mut self, reason: StopReason, grace: Grace) -> Vec<Effect> {
        let grace = match (&self.phase, grace) {
            (Phase::Running | Phase::Probing { .. }, grace) => grace,
            (Phase::Starting { .. }, _) => Grace::None,
            (Phase::Stopping(_), Grace::None) => return self.on_force(),
            // Ended on its own before the stop arrived: that end stands.
            (Phase::Stopping(_) | Phase::Capturing(_) | Phase::Zombie { .. } | Phase::Ended, _) => {
                return vec![];
            }
        };
        let unsure = match self.phase {
            Phase::Starting { .. } => Some(true),
            Phase::Probing { announce, .. } => Some(announce),
            _ => None,
        };
        let now = grace == Grace::None;
        self.phase = Phase::Stopping(Stopping {
            unsure,
            reason,
            grace,
            forcing: now,
            forced: now,
            exited: None,
        });
        vec![if now {
            Effect::Finish {
                reason,
                forced: true,
            }
        } else {
            Effect::Interrupt(reason)
        }]
    }

    pub(crate) fn on_interrupted(&self) -> Vec<Effect> {
        let mut effects = vec![Effect::Report(Report::Interrupted)];
        if let Phase::Stopping(Stopping {
            grace: Grace::For(grace),
            forcing: false,
            ..
        }) = self.phase
        {
            effects.push(Effect::ArmGrace(grace));
        }
        effects
    }

    pub(crate) fn on_force(&mut self) -> Vec<Effect> {
        let Phase::Stopping(stopping) = &mut self.phase else {
            return vec![];
        };
        if std::mem::replace(&mut stopping.forcing, true) {
            return vec![];
        }
        stopping.forced = true;
        vec![Effect::Finish {
            reason: stopping.reason,
            forced: true,
        }]
    }

    pub(crate) fn on_stop_done(&mut self, result: Result<Stopped, SessionError>) -> Vec<Effect> {
        if let Phase::Zombie { tail: Some(tail) } = &mut self.phase {
            let tail = std::mem::take(tail);
            return match result {
                Ok(_) => self.end(EndKind::Exited(ExitStatus::Unknown), tail),
                Err(error) => {
                    self.phase = Phase::Running;
                    vec![Effect::Report(Report::StopFailed(error))]
                }
            };
        }
        let Phase::Stopping(stopping) = &self.phase else {
            return vec![];
        };
        match result {
            // The leader is known to be gone; a stray that resists is not worth a lost end.
            Err(error) if stopping.exited.is_none() => {
                let failed = Effect::Report(Report::StopFailed(error));
                let Some(announce) = stopping.unsure else {
                    self.phase = Phase::Running;
                    return vec![failed];
                };
                // A start may have been cancelled in time, or not.
                let stopped = Some(stopping.reason);
                self.phase = Phase::Probing { announce, stopped };
                vec![failed, Effect::Probe]
            }
            _ => {
                let how = EndKind::Stopped {
                    reason: stopping.reason,
                    status: stopping.exited,
                    forced: stopping.forced,
                };
                self.end(how, String::new())
            }
        }
    }

    fn end(&mut self, how: EndKind, tail: String) -> Vec<Effect> {
        self.phase = Phase::Ended;
        vec![Effect::End { how, tail }]
    }
}

#[cfg(test)]
mod tests;
