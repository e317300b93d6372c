//! Starts that must not keep others waiting: slow ones, broken ones, and those under a new name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ractor::ActorId;

use super::{MachineMsg, MachineState, Reconciled};
use crate::city::StopMode;
use crate::mailbox::Timer;
use crate::model::{CityName, CityStatus, EventDraft, StopSummary};
use crate::ports::CityEntry;

/// A start that takes longer than this no longer counts against `city_start_parallelism`: a few
/// cities that hang must not hold up all others.
const START_PATIENCE: Duration = Duration::from_secs(5);

impl MachineState {
    /// Sets the alarm that gives the start slot of a slow city to the next one.
    pub(super) fn allow_time(&mut self, path: &Path) {
        let me = self.me.clone();
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        record.slow = false;
        let (path, attempt) = (path.to_owned(), record.attempt);
        record.patience = Some(me.send_after(START_PATIENCE, MachineMsg::Slow { path, attempt }));
    }

    pub(super) fn on_slow(&mut self, path: &Path, attempt: u64) {
        let Some(record) = self.cities.get_mut(path).filter(|r| r.attempt == attempt) else {
            return;
        };
        record.patience = None;
        if record.is_starting() {
            tracing::warn!(city = %record.entry.name, status = record.status.as_str(), "city is slow to start; others go ahead");
            record.slow = true;
            self.start_pending();
        }
    }

    /// A city that failed to open is tried again as soon as its config changes.
    pub(super) fn retry_when_mended(&mut self, path: &Path) {
        let (me, cities) = (self.me.clone(), self.args.ports.cities.clone());
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        let Some(mut changes) = cities.mended(&record.entry) else {
            return;
        };
        let (path, attempt) = (path.to_owned(), record.attempt);
        record.mended = Some(Timer::spawn(async move {
            if changes.changed().await.is_ok() {
                me.send(MachineMsg::Retry { path, attempt });
            }
        }));
    }

    /// The machine stops while a city is being opened, which may take for ever. Whatever the open
    /// returns is dropped.
    pub(super) fn give_up_opening(&mut self, path: &Path) {
        if let Some(record) = self.cities.get_mut(path) {
            record.attempt += 1;
            record.retired(StopSummary::default());
        }
    }

    /// The registry has another name for a city: one that runs stops first.
    pub(super) fn rename(&mut self, entry: CityEntry, outcome: &mut Reconciled) {
        let path: PathBuf = entry.path.clone();
        let Some(record) = self.cities.get_mut(&path) else {
            return;
        };
        if record.child.is_none() && record.opened.is_none() {
            let from = std::mem::replace(&mut record.entry, entry).name;
            self.emit_renamed(&path, &from);
            return self.admit_again(&path, outcome);
        }
        if record.renamed.replace(entry).is_none() && record.status != CityStatus::Stopping {
            outcome.stopped.push(path.clone());
            self.stop_city(&path, StopMode::Graceful);
        }
    }

    fn admit_again(&mut self, path: &Path, outcome: &mut Reconciled) {
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        if !record.is_starting() {
            record.retry = None;
            record.status = CityStatus::Pending;
            outcome.started.push(path.to_owned());
        }
    }

    /// The city has stopped under its old name: it starts under the new one.
    pub(super) fn come_back_renamed(&mut self, path: &Path) {
        let Some(record) = self.cities.get_mut(path).filter(|record| record.wanted) else {
            return;
        };
        let Some(entry) = record.renamed.take() else {
            return;
        };
        if self.stopping.is_some() {
            return;
        }
        let from = record.entry.name.clone();
        *record = super::Record::new(entry);
        self.emit_renamed(path, &from);
        self.start_pending();
    }

    fn emit_renamed(&self, path: &Path, from: &CityName) {
        let Some(record) = self.cities.get(path) else {
            return;
        };
        let to = record.entry.name.as_str();
        let draft = EventDraft::new("city.renamed", to);
        self.emit(draft.with("from", from.as_str()).with("to", to));
    }

    pub(super) fn on_pending_name(&mut self, path: &Path, id: ActorId, name: Option<CityName>) {
        let record = self.cities.get_mut(path);
        if let Some(record) = record.filter(|record| record.is_actor(id)) {
            record.pending_name = name;
        }
    }
}
