//! Starting a run: what must be over before, and what must be in place after.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use gascity_actors::model::{RunToken, SessionName, Stdin};
use gascity_actors::ports::{SessionError, StartError, StartSpec, Started};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open};

use super::adopt::{self, Found};
use super::note::NoteFile;
use super::run::Run;
use super::spawn::{self, Streams};
use super::{Inner, Slot, blocking};
use crate::sessions::prepare::{Prepared, provider_failure};
use crate::sessions::proc;
use crate::sessions::processes::{Led as _, sweep};

impl Inner {
    pub(super) async fn start(
        self: &Arc<Self>,
        token: RunToken,
        spec: &StartSpec,
    ) -> Result<Started, StartError> {
        let unseen = |error: SessionError| provider_failure("session", error.to_string());
        self.adopt().await.map_err(unseen)?;
        let slot = self.slot(&spec.session);
        let _gate = slot.gate.lock().await;
        match slot.run() {
            Some(run) => self.make_room(run).await?,
            None => match adopt::look(&self.files, &spec.session) {
                Ok(Found::Nothing) => {}
                Ok(Found::Foreign) => {
                    let (owned, live) = (false, true);
                    return Err(StartError::Exists { owned, live });
                }
                Ok(found) => {
                    if let Some(run) = self.take_in(&slot, &spec.session, found).map_err(unseen)? {
                        self.make_room(run).await?;
                    }
                }
                Err(error) => return Err(provider_failure("session", error.to_string()).into()),
            },
        }
        let prepared = self.preparer.prepare(&token, spec).await?;
        // Nothing is awaited from here on, so a start cannot be abandoned half-way.
        let started = self.launch(&slot, token, spec, prepared)?;
        self.watch_log(&spec.session, Duration::from_secs(1));
        Ok(started)
    }

    /// Makes sure that the run before is over, with nothing of it left.
    async fn make_room(&self, run: Arc<Run>) -> Result<(), StartError> {
        if run.is_live() {
            let (owned, live) = (true, true);
            return Err(StartError::Exists { owned, live });
        }
        run.ended().await;
        if run.was_found_dead() {
            let (files, census) = (self.files.clone(), self.census.clone());
            let swept = blocking(move || sweep::end_all(&files.mark, &census, &*run)).await;
            swept.map_err(|error| provider_failure("session", error.to_string()))?;
        }
        Ok(())
    }

    fn launch(
        &self,
        slot: &Slot,
        token: RunToken,
        spec: &StartSpec,
        prepared: Prepared,
    ) -> Result<Started, StartError> {
        let name = &spec.session;
        let Prepared {
            dir,
            env,
            command,
            warnings,
        } = prepared;
        let broken = |stage| move |error: io::Error| provider_failure(stage, error.to_string());
        let (log, log_offset) = self.files.open_log(name).map_err(broken("log"))?;
        let input = match spec.launch.stdin {
            Stdin::Fifo => Some(self.files.open_fifo(name).map_err(broken("stdin"))?),
            Stdin::Null => None,
        };
        let started_at = Utc::now();
        let streams = Streams { input, log };
        let command = command.as_ref().unwrap_or(&spec.launch.command);
        let mut child = spawn::spawn(command, &dir, &env, streams)?;
        let note = NoteFile {
            token,
            pid: child.id().cast_signed(),
            start: 0,
            boot: self.files.boot.clone(),
            agent: spec.agent.clone(),
            city: self.files.city(),
            started_at,
            log_offset,
            rotated: None,
            meta: spec
                .notes
                .iter()
                .map(|(note, value)| (note.key().to_owned(), value.clone()))
                .collect(),
        };
        match self.watch_child(slot, name, note, &child) {
            Ok(run) => {
                run.write_first_note(&self.files);
                Ok(Started {
                    pid: Some(child.id()),
                    warnings,
                })
            }
            Err(error) => {
                abandon(&mut child);
                Err(provider_failure("spawn", error.to_string()).into())
            }
        }
    }

    fn watch_child(
        &self,
        slot: &Slot,
        name: &SessionName,
        mut note: NoteFile,
        child: &Child,
    ) -> io::Result<Arc<Run>> {
        let lost = || io::Error::other("the process is gone, reaped by somebody else");
        let pid = Pid::from_child(child);
        // Nobody but us reaps it, so the number means our child.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        note.start = proc::stat(note.pid)?.ok_or_else(lost)?.start;
        self.hold(slot, name, note, Some(pidfd))?.ok_or_else(lost)
    }
}

/// Takes back a spawn that cannot be watched.
fn abandon(child: &mut Child) {
    let pid = Pid::from_child(child);
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
}
