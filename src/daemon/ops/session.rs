//! What is done with the session of one agent: peek, nudge, attach.

use gascity_actors::{Nudged, ReachError, SessionRef, When};
use serde_json::{Value, json};

use super::agent::{agent_param, bad, refused};
use super::{Answer, Ops, unanswered};
use crate::control::server::Reply;
use crate::control::wire::{Code, WireError};

impl Ops {
    /// `agent.peek`: `{path, agent, lines, screen?}` to `{text}`. With `screen` only a screen will
    /// do.
    pub(super) async fn agent_peek(&self, params: &Value) -> Answer {
        let lines = params["lines"].as_u64().unwrap_or(50);
        let lines = u32::try_from(lines).map_err(|_| bad("`lines` is too large"))?;
        let screen = params["screen"] == Value::Bool(true);
        let text = self.reach(params).await?.peek(lines, screen).await;
        Ok(Reply::One(json!({ "text": text.map_err(unreached)? })))
    }

    /// `agent.nudge`: `{path, agent, text, delivery?}` to `{status, confirmed}`; the status is
    /// `delivered` or `not_ready`.
    pub(super) async fn agent_nudge(&self, params: &Value) -> Answer {
        let text = params["text"].as_str();
        let text = text.ok_or_else(|| bad("the parameter `text` is missing"))?;
        let when = match params["delivery"].as_str() {
            None | Some("wait-idle") => When::Idle,
            Some("immediate") => When::Now,
            Some(_) => return Err(bad("`delivery` is `wait-idle` or `immediate`")),
        };
        let nudged = self.reach(params).await?.nudge(text.to_owned(), when).await;
        let (status, confirmed) = match nudged.map_err(unreached)? {
            Nudged::Delivered { confirmed } => ("delivered", confirmed),
            Nudged::NotReady => ("not_ready", false),
        };
        Ok(Reply::One(
            json!({ "status": status, "confirmed": confirmed }),
        ))
    }

    /// `agent.attach`: `{path, agent, read_only?}` to `{argv, unset}`, for the caller to run.
    pub(super) async fn agent_attach(&self, params: &Value) -> Answer {
        let read_only = params["read_only"] == Value::Bool(true);
        let plan = self.reach(params).await?.attach(read_only).await;
        let plan = plan.map_err(unreached)?;
        Ok(Reply::One(
            json!({ "argv": plan.argv, "unset": plan.unset }),
        ))
    }

    async fn reach(&self, params: &Value) -> Result<SessionRef, WireError> {
        let city = self.door.city(self.city(params)?.path);
        let session = city.session(&agent_param(params)?).await;
        session
            .map_err(unanswered)?
            .map_err(|error| refused(&error))
    }
}

fn unreached(error: ReachError) -> WireError {
    let code = match error {
        ReachError::NotRunning(_) => Code::Conflict,
        ReachError::Unsupported { .. } => Code::Unsupported,
        _ => Code::Internal,
    };
    WireError::new(code, error.to_string())
}
