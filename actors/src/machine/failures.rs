//! How cities fare: their states, stalls, crashes and returns.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ractor::{ActorId, ActorProcessingErr, SpawnErr};

use super::{MachineMsg, MachineState};
use crate::city::{GaveUp, InitFailed};
use crate::model::{CitySpec, CityStatus, EventDraft, millis};
use crate::policy::doubling;

/// Missed patrol intervals after which a city counts as stalled, and the least time for that.
const STALL_INTERVALS: u32 = 3;
const STALL_AT_LEAST: Duration = Duration::from_secs(90);

impl MachineState {
    pub(super) fn on_city_status(&mut self, path: &PathBuf, id: ActorId, status: CityStatus) {
        let now = self.args.ports.clock.now();
        let Some(record) = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id))
        else {
            return;
        };
        record.advance(status, now);
        if status == CityStatus::Running {
            let name = record.entry.name.to_string();
            let draft = EventDraft::new("city.started", &name);
            self.emit(draft.with("path", path.to_string_lossy()));
            self.start_pending();
        }
    }

    /// Remembers the last good config, should the city crash while the one on disk is broken.
    pub(super) fn on_configured(&mut self, path: &PathBuf, id: ActorId, spec: Arc<CitySpec>) {
        let record = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id));
        if let Some(opened) = record.and_then(|record| record.opened.as_mut()) {
            opened.spec = spec;
        }
    }

    /// Sets the alarm that rings when the city stops ticking.
    pub(super) fn on_ticked(&mut self, path: &PathBuf, id: ActorId, interval: Duration) {
        let me = self.me.clone();
        let Some(record) = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id))
        else {
            return;
        };
        let limit = (interval * STALL_INTERVALS).max(STALL_AT_LEAST);
        record.stall = Some(me.send_after(
            limit,
            MachineMsg::Stalled {
                path: path.clone(),
                id,
            },
        ));
    }

    /// The city's loop stands still. It is killed; once its end is seen, a successor adopts its
    /// agents. One whose handler never yields cannot be killed: it stays `stalled`, since one city
    /// never has two supervisors.
    pub(super) fn on_stalled(&mut self, path: &PathBuf, id: ActorId) {
        let Some(record) = self
            .cities
            .get_mut(path)
            .filter(|record| record.is_actor(id))
        else {
            return;
        };
        if record.status == CityStatus::Stopping {
            return; // has its own limit
        }
        let error = "no tick was finished in time".to_owned();
        tracing::error!(city = %record.entry.name, "city stalled");
        record.fail(
            CityStatus::Stalled,
            error.clone(),
            self.args.ports.clock.wall(),
        );
        record.stalled = true;
        let name = record.entry.name.to_string();
        let journal = record
            .opened
            .as_ref()
            .map(|opened| opened.ports.journal.clone());
        if let Some(city) = &record.child {
            city.actor().kill();
        }
        let draft = EventDraft::new("city.stalled", &name)
            .message(error.clone())
            .with("error", error);
        if let Some(journal) = journal {
            journal.append(draft.clone());
        }
        self.emit(draft);
    }

    pub(super) fn on_retry(&mut self, path: &PathBuf, attempt: u64) {
        let Some(record) = self.cities.get_mut(path).filter(|r| r.attempt == attempt) else {
            return;
        };
        record.retry = None;
        if record.wanted && self.stopping.is_none() {
            record.status = CityStatus::Pending;
            self.start_pending();
        }
    }

    /// A CitySupervisor failed. Its agents run on and are adopted by its successor.
    pub(super) fn on_city_failed(&mut self, id: ActorId, error: ActorProcessingErr) {
        let Some(path) = self.path_of(id) else { return };
        let stalled = self.cities.get_mut(&path).is_some_and(|record| {
            record.child = None;
            record.stall = None;
            std::mem::take(&mut record.stalled)
        });
        match error.downcast::<InitFailed>() {
            Ok(failed) => self.init_failed(&path, failed.0),
            Err(_) if stalled => self.come_back(&path),
            Err(error) => {
                let typed = error.is::<GaveUp>() || error.is::<SpawnErr>();
                self.crashed(&path, error.to_string(), !typed);
            }
        }
        self.abandoned(&path);
        self.start_pending();
    }

    pub(super) fn init_failed(&mut self, path: &PathBuf, error: String) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        tracing::warn!(city = %record.entry.name, error, "city failed to start");
        record.init_failures += 1;
        let step = record.init_failures - 1;
        record.fail(
            CityStatus::InitFailed,
            error.clone(),
            self.args.ports.clock.wall(),
        );
        let name = record.entry.name.to_string();
        self.emit(EventDraft::new("city.init_failed", &name).message(error));
        self.retry_later(path, step);
        self.retry_when_mended(path);
    }

    pub(super) fn crashed(&mut self, path: &PathBuf, error: String, panicked: bool) {
        let now = self.args.ports.clock.now();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        tracing::error!(city = %record.entry.name, error, "city crashed");
        let step = record.count_crash(now);
        let count = record.crashes;
        record.fail(
            CityStatus::Crashed,
            error.clone(),
            self.args.ports.clock.wall(),
        );
        let (name, city_log) = (
            record.entry.name.to_string(),
            record
                .opened
                .as_ref()
                .map(|opened| opened.ports.journal.clone()),
        );
        let next = self.retry_later(path, step);
        let draft = EventDraft::new("city.crashed", &name)
            .message(error.clone())
            .with("error", error)
            .with("panic", panicked)
            .with("restart_count", count)
            .maybe("next_retry_at", next.map(|at| millis::format(&at)));
        if let Some(journal) = city_log {
            journal.append(draft.clone());
        }
        self.emit(draft);
    }

    /// The end of a stalled city was seen: its successor may begin, with the delays of a crash.
    pub(super) fn come_back(&mut self, path: &PathBuf) {
        let now = self.args.ports.clock.now();
        if let Some(record) = self.cities.get_mut(path) {
            let step = record.count_crash(now);
            self.retry_later(path, step);
        }
    }

    /// Sets the alarm of a failing city; retries never end.
    pub(super) fn retry_later(&mut self, path: &PathBuf, step: u32) -> Option<DateTime<Utc>> {
        let settings = &self.args.settings;
        let delay = doubling(
            settings.city_restart_delay,
            settings.city_restart_delay_max,
            step,
        );
        let at = self.args.ports.clock.wall() + delay;
        let record = self.cities.get_mut(path)?;
        let attempt = record.attempt;
        let alarm = self.me.send_after(
            delay,
            MachineMsg::Retry {
                path: path.clone(),
                attempt,
            },
        );
        record.retry = Some((at, alarm));
        Some(at)
    }
}
