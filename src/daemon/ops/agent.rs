//! Commands to single agents.

use std::time::Duration;

use gascity_actors::{AgentCommand, CommandError};
use serde_json::{Value, json};

use super::{Answer, Ops, unanswered};
use crate::CityRef;
use crate::control::server::Reply;
use crate::control::wire::{Code, WireError};
use crate::model::AgentName;

impl Ops {
    /// `agent.command`: `{path, agent, command, timeout_ms?, session_id?}` to `{state}`.
    ///
    /// With a `session_id` only that run is meant: what an agent says late must not be taken for
    /// the word of its successor.
    pub(super) async fn agent_command(&self, params: &Value) -> Answer {
        let city = self.door.city(self.city(params)?.path);
        let agent = agent_param(params)?;
        let command = command_param(params)?;
        if let Some(token) = params["session_id"].as_str() {
            check_run(&city, &agent, token).await?;
        }
        match city.command(&agent, command).await.map_err(unanswered)? {
            Ok(state) => Ok(Reply::One(json!({ "state": state }))),
            Err(error) => Err(refused(&error)),
        }
    }
}

async fn check_run(city: &CityRef, agent: &AgentName, token: &str) -> Result<(), WireError> {
    let view = city.view().await.map_err(unanswered)?;
    let mut runs = view.instances.iter();
    let run = runs.find(|instance| instance.qualified_name == *agent);
    let current = run.and_then(|instance| instance.session_id.as_ref());
    match current {
        Some(current) if current.as_str() != token => Err(WireError::new(
            Code::Conflict,
            format!("{agent} has a newer run by now"),
        )),
        _ => Ok(()),
    }
}

pub(super) fn agent_param(params: &Value) -> Result<AgentName, WireError> {
    let name = params["agent"].as_str();
    let name = name.ok_or_else(|| bad("the parameter `agent` is missing"))?;
    AgentName::new(name).map_err(|error| bad(error.to_string()))
}

fn command_param(params: &Value) -> Result<AgentCommand, WireError> {
    let timeout = params["timeout_ms"].as_u64().map(Duration::from_millis);
    Ok(match params["command"].as_str().unwrap_or_default() {
        "restart" => AgentCommand::Restart,
        "kill" => AgentCommand::Kill,
        "unquarantine" => AgentCommand::Unquarantine,
        "drain" => AgentCommand::Drain { timeout },
        "undrain" => AgentCommand::Undrain,
        "drain_ack" => AgentCommand::DrainAck,
        "request_restart" => AgentCommand::RequestRestart,
        other => return Err(bad(format!("unknown command {other:?}"))),
    })
}

pub(super) fn refused(error: &CommandError) -> WireError {
    let code = match error {
        CommandError::NotFound(_) => Code::NotFound,
        _ => Code::Conflict,
    };
    WireError::new(code, error.to_string())
}

pub(super) fn bad(message: impl Into<String>) -> WireError {
    WireError::new(Code::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_by_their_words() {
        let drain = command_param(&json!({"command": "drain", "timeout_ms": 1500}));
        let timeout = Some(Duration::from_millis(1500));
        assert_eq!(drain.unwrap(), AgentCommand::Drain { timeout });
        for word in ["restart", "kill", "unquarantine", "drain", "undrain"] {
            assert!(command_param(&json!({ "command": word })).is_ok(), "{word}");
        }
        for word in ["drain_ack", "request_restart"] {
            assert!(command_param(&json!({ "command": word })).is_ok(), "{word}");
        }
        let unknown = command_param(&json!({"command": "dance"})).unwrap_err();
        assert_eq!(unknown.code, Code::BadRequest);
    }

    #[test]
    fn refusals_have_their_codes() {
        let agent = AgentName::new("a").unwrap();
        let missing = refused(&CommandError::NotFound(agent.clone()));
        assert_eq!(
            (missing.code, missing.message.as_str()),
            (Code::NotFound, "no agent a")
        );
        let held = refused(&CommandError::Quarantined(agent));
        assert_eq!(
            (held.code, held.message.as_str()),
            (Code::Conflict, "a is quarantined")
        );
        assert_eq!(refused(&CommandError::Busy).code, Code::Conflict);
    }
}
