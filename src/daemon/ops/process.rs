//! Requests about the process itself: its program, its log, its events.

use std::path::PathBuf;

use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::{mpsc, oneshot};

use super::{Answer, Ops, Upgrade, Wish};
use crate::control::handoff;
use crate::control::home::CityDir;
use crate::control::server::Reply;
use crate::control::wire::{Code, WireError};
use crate::events::{EventLog, append_one};
use crate::model::EventDraft;

impl Ops {
    /// `upgrade`: `{exe?}` to `{accepted}`; then the connection closes without a last word, or an
    /// item says why this program goes on.
    pub(super) async fn upgrade(&self, params: &Value) -> Answer {
        if self.live.home().is_none() {
            let message = "a standalone city is not upgraded; stop it and start it again";
            return Err(WireError::new(Code::BadRequest, message));
        }
        let exe = match params["exe"].as_str() {
            Some(exe) => PathBuf::from(exe),
            None => std::env::current_exe()
                .map_err(|error| WireError::new(Code::Internal, error.to_string()))?,
        };
        let version = handoff::version_of(&exe).await.map_err(|error| {
            WireError::new(Code::Conflict, format!("{}: {error}", exe.display()))
        })?;
        let (failed, failure) = oneshot::channel();
        let accepted =
            json!({ "accepted": true, "from": env!("CARGO_PKG_VERSION"), "to": version });
        self.leaving.store(true, Relaxed);
        self.wish(Wish::Upgrade(Upgrade {
            exe,
            version,
            failed,
        }))
        .await?;
        let (items, stream) = mpsc::channel(2);
        tokio::spawn(async move {
            let _ = items.send(accepted).await;
            // Dropped by a stop that came in between: then there is no more to say.
            if let Ok(error) = failure.await {
                let _ = items.send(json!({ "error": error })).await;
            }
        });
        Ok(Reply::Stream(stream))
    }

    /// `log`: `{level}`.
    pub(super) fn log(&self, params: &Value) -> Answer {
        let level = params["level"].as_str().unwrap_or_default();
        let changed = self.live.log().level(level);
        changed.map_err(|error| WireError::new(Code::BadRequest, error))?;
        tracing::info!(level, "log level changed");
        Ok(Reply::One(json!({ "level": level })))
    }

    /// `event`: `{city?, event{type, subject?, message?, actor?, payload?}}` to `{seq}`. Without a
    /// city it is an event of the machine.
    pub(super) async fn event(&self, params: &Value) -> Answer {
        let bad = |message: &str| WireError::new(Code::BadRequest, message);
        let dir = match params["city"].as_str() {
            Some(name) => {
                let view = self.door.view();
                let mut cities = view.cities.iter();
                let city = cities.find(|city| city.name.as_str() == name);
                let missing = || WireError::new(Code::NotFound, format!("no city {name:?}"));
                CityDir::new(&city.ok_or_else(missing)?.path).state_dir()
            }
            None => match self.live.home() {
                Some(home) => home.dir().to_owned(),
                None => return Err(bad("the parameter `city` is missing")),
            },
        };
        let draft = draft(&params["event"]).ok_or_else(|| bad("the event has no `type`"))?;
        let append = move || append_one(EventLog::new(dir), draft);
        let written = tokio::task::spawn_blocking(append).await;
        let failed = |error: String| WireError::new(Code::Internal, error);
        let event = written
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        Ok(Reply::One(json!({ "seq": event.seq })))
    }
}

/// An event as a client describes it.
fn draft(event: &Value) -> Option<EventDraft> {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let kind = event["type"].as_str().filter(|kind| !kind.is_empty())?;
    let mut draft = EventDraft::new(kind, text("subject")).message(text("message"));
    if let Some(actor) = event["actor"].as_str() {
        draft.actor = actor.to_owned();
    }
    for (key, value) in event["payload"].as_object().into_iter().flatten() {
        draft = draft.with(key, value.clone());
    }
    Some(draft)
}
