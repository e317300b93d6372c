//! Stopping: one city, or all of them.

use std::path::PathBuf;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use ractor::{ActorId, RpcReplyPort};
use tokio::time::timeout;

use super::{MachineMsg, MachineState, Reconciled, Stopping, stop_sessions};
use crate::city::{CityMsg, StopMode};
use crate::model::{CityStatus, EventDraft, StopSummary};

/// Beyond its own grace, how long a city may take to stop before it is killed.
const STOP_OVERTIME: Duration = Duration::from_secs(30);

impl MachineState {
    /// Takes a city out of service.
    pub(super) fn retire(&mut self, path: &PathBuf, outcome: &mut Reconciled) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if !std::mem::replace(&mut record.wanted, false) {
            if record.status == CityStatus::Stopped {
                self.cities.remove(path); // kept until here for whoever watched it stop
            }
            return;
        }
        record.retry = None;
        outcome.stopped.push(path.clone());
        self.stop_city(path, StopMode::Graceful);
    }

    pub(super) fn stop_city(&mut self, path: &PathBuf, mode: StopMode) {
        let me = self.me.clone();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        let opened = record.opened.clone();
        let limit = opened.as_ref().map_or(Duration::ZERO, |opened| {
            opened.spec.daemon.shutdown_timeout + STOP_OVERTIME
        });
        let path = path.clone();
        match (record.child.clone(), opened) {
            (Some(city), _) => {
                record.status = CityStatus::Stopping;
                tokio::spawn(async move {
                    let stop = |reply| CityMsg::Stop {
                        mode,
                        reply: Some(reply),
                    };
                    let summary = city.ask(limit, stop).await;
                    me.send(MachineMsg::CityStopped { path, summary });
                });
            }
            // Crashed, and its agents run on: stop them without it.
            (None, Some(opened)) if mode != StopMode::Detach => {
                record.status = CityStatus::Stopping;
                tokio::spawn(async move {
                    let stopped = timeout(limit, stop_sessions(&*opened.ports.sessions)).await;
                    let summary = stopped.ok().and_then(Result::ok);
                    me.send(MachineMsg::CityStopped { path, summary });
                });
            }
            _ => record.retired(StopSummary::default()),
        }
    }

    /// The city answered its stop, or its time is up.
    pub(super) fn on_city_stopped(&mut self, path: &PathBuf, summary: Option<StopSummary>) {
        let me = self.me.clone();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if let (None, Some(city), Some(opened)) = (&summary, &record.child, record.opened.clone()) {
            tracing::error!(city = %record.entry.name, "city ignores its stop and is killed");
            city.actor().kill();
            let path = path.clone();
            tokio::spawn(async move {
                let stopped = stop_sessions(&*opened.ports.sessions).await;
                let summary = Some(stopped.unwrap_or_default());
                me.send(MachineMsg::CityStopped { path, summary });
            });
            return;
        }
        record.retired(summary.unwrap_or_default());
        self.city_done(path);
    }

    /// The CitySupervisor ended as asked.
    pub(super) fn on_city_ended(&mut self, id: ActorId) {
        let Some(path) = self.path_of(id) else { return };
        if let Some(record) = self.cities.get_mut(&path) {
            record.child = None;
        }
        self.city_done(&path);
    }

    /// A city that was to stop crashed instead: the machine must not wait for its answer.
    pub(super) fn abandoned(&mut self, path: &PathBuf) {
        let unwanted = self.cities.get(path).is_some_and(|r| !r.wanted) || self.stopping.is_some();
        if unwanted {
            let mode = self
                .stopping
                .as_ref()
                .map_or(StopMode::Force, |stopping| stopping.mode);
            if let Some(record) = self.cities.get_mut(path) {
                record.retry = None;
            }
            self.stop_city(path, mode);
        }
    }

    /// Both halves of a stop are in: the answer and the actor's end.
    pub(super) fn city_done(&mut self, path: &PathBuf) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if record.child.is_some() || record.status != CityStatus::Stopped {
            return;
        }
        record.opened = None; // and with it the lock
        let (name, summary) = (record.entry.name.to_string(), record.summary.clone());
        self.emit(EventDraft::new("city.stopped", &name).with("path", path.to_string_lossy()));
        if let (Some(stopping), Some(summary)) = (&mut self.stopping, summary) {
            stopping.summary.interrupted += summary.interrupted;
            stopping.summary.killed.extend(summary.killed);
        }
        self.come_back_renamed(path);
        self.finish_if_done();
    }

    pub(super) fn on_stop(&mut self, mode: StopMode, reply: RpcReplyPort<StopSummary>) {
        let again = self.stopping.is_some();
        let stopping = self.stopping.get_or_insert_with(|| Stopping {
            mode,
            replies: Vec::new(),
            summary: StopSummary::default(),
        });
        stopping.replies.push(reply);
        if again && mode != StopMode::Force {
            return;
        }
        stopping.mode = mode;
        (self.patrol, self.watching) = (None, None);
        let paths: Vec<PathBuf> = self.cities.keys().cloned().collect();
        for path in paths {
            let status = self.cities.get(&path).map(|record| record.status);
            match status {
                Some(CityStatus::Stopped) => {}
                Some(CityStatus::LoadingConfig) => self.give_up_opening(&path),
                Some(CityStatus::Stopping) if !again => {}
                _ => self.stop_city(&path, mode),
            }
        }
        self.finish_if_done();
    }

    pub(super) fn finish_if_done(&mut self) {
        let done = self
            .cities
            .values()
            .all(|r| r.child.is_none() && r.status == CityStatus::Stopped);
        let Some(stopping) = self.stopping.as_mut().filter(|_| done) else {
            return;
        };
        let (replies, summary) = (
            std::mem::take(&mut stopping.replies),
            stopping.summary.clone(),
        );
        self.emit(EventDraft::new("supervisor.stopped", ""));
        self.args.clean.store(true, Release);
        let (journal, me) = (self.args.ports.journal.clone(), self.me.actor().clone());
        tokio::spawn(async move {
            let _ = timeout(STOP_OVERTIME, journal.flush()).await;
            for reply in replies {
                let _ = reply.send(summary.clone()); // the caller may have timed out
            }
            me.stop(None);
        });
    }
}
