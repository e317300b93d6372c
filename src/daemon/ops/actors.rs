//! The actor tree, and drills on it.

use std::time::Duration;

use gascity_actors::{Kind, Node};
use serde_json::{Value, json};

use super::{Answer, Ops, text, unanswered};
use crate::control::server::Reply;
use crate::control::wire::{Code, VERSION, WireError};

/// Set in the supervisor's environment to allow fault drills.
const ALLOW_FAULTS: &str = "GC_ALLOW_FAULTS";
/// Most messages of one drill.
const FLOOD_MAX: usize = 1_000_000;

/// What a fault drill does to an actor.
#[derive(Debug, Clone, Copy)]
pub(super) enum Drill {
    Crash,
    Hang,
    Flood,
}

impl Ops {
    /// The actor tree; the whole one has what works behind the ports, and what answers this.
    pub(super) async fn tree(&self, params: &Value) -> Answer {
        if params["internals"] != Value::Bool(true) {
            return text(&self.door.tree().await.map_err(unanswered)?);
        }
        let mut tree = self.door.whole_tree().await.map_err(unanswered)?;
        let began = self.door.view().started_at;
        let age = (tree.taken_at - began).to_std().unwrap_or_default();
        let control = Node::new(Kind::Control, "control", "control", "running")
            .since(began, age)
            .with("pid", std::process::id())
            .with("protocol", VERSION);
        tree.root.children.insert(0, control);
        text(&tree)
    }

    pub(super) async fn show(&self, params: &Value) -> Answer {
        let path = params["path"].as_str().unwrap_or_default();
        let shown = self.door.show(path).await.map_err(unanswered)?;
        let missing = || WireError::new(Code::NotFound, format!("no actor {path:?}"));
        text(&shown.ok_or_else(missing)?)
    }

    pub(super) async fn drill(&self, params: &Value, drill: Drill) -> Answer {
        if std::env::var_os(ALLOW_FAULTS).is_none_or(|value| value != "1") {
            let message = format!("denied: the supervisor does not run with {ALLOW_FAULTS}=1");
            return Err(WireError::new(Code::Denied, message));
        }
        let path = params["path"].as_str().unwrap_or_default();
        let hit = match drill {
            Drill::Crash => self.door.crash(path).await,
            Drill::Hang => self.door.hang(path).await,
            Drill::Flood => {
                let messages = params["messages"].as_u64().unwrap_or_default();
                let held = Duration::from_millis(params["held_ms"].as_u64().unwrap_or_default());
                let messages = usize::try_from(messages)
                    .unwrap_or(usize::MAX)
                    .min(FLOOD_MAX);
                self.door.flood(path, messages, held).await
            }
        };
        match (hit, drill) {
            (true, Drill::Crash) => Ok(Reply::One(json!({ "crashed": true }))),
            (true, Drill::Hang) => Ok(Reply::One(json!({ "hanging": true }))),
            (true, Drill::Flood) => Ok(Reply::One(json!({ "flooded": true }))),
            (false, _) => Err(WireError::new(Code::NotFound, format!("no actor {path:?}"))),
        }
    }
}
