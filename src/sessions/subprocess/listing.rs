//! What a listing says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use gascity_actors::model::SessionName;
use gascity_actors::ports::{Facts, Listing, Note, SessionError};

use super::adopt::{self, Found};
use super::run::Run;
use super::{Inner, Slot, blocking};
use crate::sessions::processes::Led as _;

impl Inner {
    pub(super) async fn snapshot(self: Arc<Self>) -> Result<Listing, SessionError> {
        self.adopt().await?;
        blocking(move || {
            let mut listing = Listing::default();
            for name in self.files.noted()? {
                self.notice(name, &mut listing)?;
            }
            let slots: Vec<Arc<Slot>> = self.slots.all();
            let runs = slots.iter().filter_map(|slot| slot.run());
            listing.owned = runs.map(|run| self.facts(&run)).collect();
            listing.owned.sort_by(|a, b| a.session.cmp(&b.session));
            Ok(listing)
        })
        .await
    }

    /// Takes in a session that another process has started.
    fn notice(&self, name: SessionName, listing: &mut Listing) -> io::Result<()> {
        let slot = self.slot(&name);
        // A gate that is held: someone is at work on it and knows better.
        if slot.run().is_none()
            && let Ok(_gate) = slot.gate.try_lock()
        {
            match adopt::look(&self.files, &name)? {
                Found::Foreign => listing.foreign.push(name.as_str().to_owned()),
                found => {
                    self.take_in(&slot, &name, found)
                        .map_err(io::Error::other)?;
                }
            }
        }
        drop(slot);
        self.forget(&name);
        Ok(())
    }

    fn facts(self: &Arc<Self>, run: &Run) -> Facts {
        let log = fs::metadata(self.files.log(&run.name));
        if let Ok(log) = &log {
            self.saw_log(run, log.len());
        }
        let written = log.and_then(|meta| meta.modified());
        let written = written.map_or(run.started_at, DateTime::<Utc>::from);
        let meta = run.fresh(&self.files);
        let notes: BTreeMap<Note, String> = meta
            .entries
            .iter()
            .filter_map(|(key, value)| Some((Note::from_key(key)?, value.clone())))
            .collect();
        Facts {
            session: run.name.clone(),
            agent: run.agent.clone(),
            token: run.token.clone(),
            live: run.is_live(),
            pid: Some(run.pid.as_raw_nonzero().get().cast_unsigned()),
            started_at: run.started_at,
            last_activity: Some(written.max(run.started_at)),
            attached: false,
            notes,
        }
    }
}
