//! From the registry to cities that run.

use std::path::PathBuf;
use std::sync::Arc;

use ractor::{Actor, RpcReplyPort};

use super::record::Record;
use super::{MachineMsg, MachineState, Reconciled};
use crate::city::{CityArgs, CityMsg, CitySupervisor};
use crate::mailbox::{Addr, Gauge, Timer};
use crate::model::CityStatus;
use crate::policy::Trigger;
use crate::ports::{CityEntry, OpenError, Opened, Registered};

impl MachineState {
    pub(super) fn watch_registry(&mut self) {
        let (me, mut changes) = (self.me.clone(), self.args.ports.cities.changes());
        self.watching = Some(Timer::spawn(async move {
            while changes.changed().await.is_ok() {
                me.send(MachineMsg::Reconcile(None));
            }
        }));
    }

    pub(super) fn read_registry(
        &mut self,
        reply: Option<RpcReplyPort<Result<Reconciled, String>>>,
    ) {
        self.patrol = None;
        let (me, cities) = (self.me.clone(), self.args.ports.cities.clone());
        tokio::spawn(async move {
            let registered = cities.registered().await;
            me.send(MachineMsg::Registry(registered, reply));
        });
    }

    pub(super) fn on_registry(
        &mut self,
        result: Result<Registered, String>,
        reply: Option<RpcReplyPort<Result<Reconciled, String>>>,
    ) {
        let interval = self.args.settings.patrol_interval;
        self.patrol = Some(self.me.send_after(interval, MachineMsg::Reconcile(None)));
        self.registry_read = true;
        let outcome = match result {
            Ok(_) if self.stopping.is_some() => Err("shutting down".to_owned()),
            Ok(registered) => {
                self.registry_error = None;
                Ok(self.reconcile(registered, reply.is_some()))
            }
            Err(error) => {
                // What ran before keeps running.
                tracing::warn!(error, "registry cannot be read");
                self.registry_error = Some(error.clone());
                Err(error)
            }
        };
        if let Some(reply) = reply {
            let _ = reply.send(outcome); // the caller may have timed out
        }
    }

    /// Stops what is no longer registered, starts what is new, and pokes the rest if asked to.
    pub(super) fn reconcile(&mut self, registered: Registered, on_request: bool) -> Reconciled {
        let mut outcome = Reconciled::default();
        let gone: Vec<PathBuf> = self
            .cities
            .iter()
            .filter(|(path, _)| !registered.cities.iter().any(|entry| entry.path == **path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            self.retire(&path, &mut outcome);
        }
        for (entry, why) in registered.refused {
            outcome.failed.push((entry.path.clone(), why.clone()));
            let record = self
                .cities
                .entry(entry.path.clone())
                .or_insert_with(|| Record::new(entry));
            record.fail(CityStatus::InitFailed, why, self.args.ports.clock.wall());
        }
        for entry in registered.cities {
            self.admit(entry, on_request, &mut outcome);
        }
        self.start_pending();
        outcome
    }

    pub(super) fn admit(&mut self, entry: CityEntry, on_request: bool, outcome: &mut Reconciled) {
        let path = entry.path.clone();
        let record = self
            .cities
            .entry(path.clone())
            .or_insert_with(|| Record::new(entry.clone()));
        record.wanted = true;
        if record.entry.name != entry.name {
            return self.rename(entry, outcome);
        }
        match record.status {
            CityStatus::Pending => outcome.started.push(path),
            CityStatus::Stopped => {
                *record = Record::new(entry);
                outcome.started.push(path);
            }
            CityStatus::InitFailed | CityStatus::Crashed | CityStatus::Stalled
                if record.child.is_none() && (on_request || record.retry.is_none()) =>
            {
                record.retry = None;
                record.status = CityStatus::Pending;
                outcome.started.push(path);
            }
            _ if on_request => {
                if let Some(city) = &record.child {
                    city.send(CityMsg::Tick(Trigger::Poke));
                }
            }
            _ => {}
        }
    }

    /// Opens pending cities while start slots are free.
    pub(super) fn start_pending(&mut self) {
        let busy = self
            .cities
            .values()
            .filter(|record| record.takes_slot())
            .count();
        let free = self
            .args
            .settings
            .city_start_parallelism
            .saturating_sub(busy);
        let pending: Vec<PathBuf> = self
            .cities
            .iter()
            .filter(|(_, record)| record.wanted && record.status == CityStatus::Pending)
            .take(free)
            .map(|(path, _)| path.clone())
            .collect();
        for path in pending {
            self.open(&path);
        }
    }

    pub(super) fn open(&mut self, path: &PathBuf) {
        let (me, cities) = (self.me.clone(), self.args.ports.cities.clone());
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        record.status = CityStatus::LoadingConfig;
        record.error = None;
        record.mended = None;
        record.attempt += 1;
        self.allow_time(path);
        let Some(record) = self.cities.get_mut(path) else {
            return;
        };
        let (path, attempt, entry) = (path.clone(), record.attempt, record.entry.clone());
        let kept = record.opened.clone();
        tokio::spawn(async move {
            let result = match kept {
                // Its lock and ports are still held; only the config may be newer.
                Some(kept) => Ok(reload(kept).await),
                None => cities.open(entry).await,
            };
            me.send(MachineMsg::Opened {
                path,
                attempt,
                result,
            });
        });
    }

    pub(super) async fn on_opened(
        &mut self,
        path: &PathBuf,
        attempt: u64,
        result: Result<Opened, OpenError>,
    ) {
        let Some(record) = self.cities.get_mut(path).filter(|r| r.attempt == attempt) else {
            return;
        };
        if !record.wanted || self.stopping.is_some() {
            self.cities.remove(path);
            return self.finish_if_done();
        }
        match result {
            Err(error) => self.init_failed(path, error.message),
            Ok(opened) => {
                record.opened = Some(opened.clone());
                record.phases.push("loading_config".into());
                if let Err(error) = self.spawn_city(path, opened).await {
                    self.init_failed(path, error);
                }
            }
        }
        self.start_pending();
    }

    pub(super) async fn spawn_city(
        &mut self,
        path: &PathBuf,
        opened: Opened,
    ) -> Result<(), String> {
        let gauge = Arc::new(Gauge::default());
        let args = CityArgs {
            machine: self.me.clone(),
            gauge: gauge.clone(),
            path: path.clone(),
            spec: opened.spec,
            ports: Arc::new(opened.ports),
            version: self.args.settings.version.as_str().into(),
            mode: self.args.settings.mode.as_str().into(),
        };
        let interval = args.spec.daemon.patrol_interval;
        let parent = self.me.actor().get_cell();
        let (city, _) = Actor::spawn_linked(None, CitySupervisor, args, parent)
            .await
            .map_err(|error| error.to_string())?;
        if let Some(record) = self.cities.get_mut(path) {
            record.status = CityStatus::AdoptingSessions;
            let id = city.get_id();
            record.child = Some(Addr::new(city, gauge));
            self.on_ticked(path, id, interval); // its first tick has a deadline, too
        }
        Ok(())
    }
}

/// A crashed city comes back with the config on disk, or, if that is broken, with the last good one.
async fn reload(kept: Opened) -> Opened {
    match kept.ports.desired.load().await {
        Ok(spec) if spec.name == kept.spec.name => Opened { spec, ..kept },
        _ => kept,
    }
}
