//! `stop`: the process is asked to end, and tells how far it is.

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{Answer, Ops, StopWish, Wish};
use crate::control::server::Reply;
use crate::control::wire::{Code, WireError};
use crate::model::{CityStatus, StopSummary};
use crate::{MachineRef, StopMode};

impl Ops {
    pub(super) async fn stop(&self, params: &Value) -> Answer {
        let mode = match params["mode"].as_str().unwrap_or("graceful") {
            "graceful" => StopMode::Graceful,
            "force" => StopMode::Force,
            "detach" => StopMode::Detach,
            other => {
                return Err(WireError::new(
                    Code::BadRequest,
                    format!("unknown stop mode {other:?}"),
                ));
            }
        };
        let stopping = json!({ "stopping": true });
        if params["wait"] != Value::Bool(true) {
            self.wish(Wish::Stop(StopWish { mode, reply: None }))
                .await?;
            return Ok(Reply::One(stopping));
        }
        let (reply, summary) = oneshot::channel();
        let wish = StopWish {
            mode,
            reply: Some(reply),
        };
        self.wish(Wish::Stop(wish)).await?;
        let (items, stream) = mpsc::channel(2);
        tokio::spawn(tell_stop(self.door.clone(), summary, items));
        Ok(Reply::Stream(stream))
    }
}

/// Tells which cities still stop, and at last what was done.
async fn tell_stop(
    door: MachineRef,
    mut summary: oneshot::Receiver<StopSummary>,
    items: mpsc::Sender<Value>,
) {
    let mut views = door.views();
    let mut told = Value::Null;
    loop {
        let view = views.borrow_and_update().clone();
        let left = view
            .cities
            .iter()
            .filter(|c| c.status == CityStatus::Stopping);
        let left: Vec<&str> = left.map(|city| city.name.as_str()).collect();
        let item = json!({ "stopping": true, "cities": left });
        if item != told && items.send(item.clone()).await.is_err() {
            return; // the client is gone
        }
        told = item;
        tokio::select! {
            done = &mut summary => {
                if let Ok(summary) = done {
                    let _ = items.send(json!(summary)).await;
                }
                return;
            }
            changed = views.changed() => if changed.is_err() {
                if let Ok(summary) = summary.await {
                    let _ = items.send(json!(summary)).await;
                }
                return;
            },
        }
    }
}
