//! Questions to whoever runs a city.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::json;

use super::context::{Context, Seat, read};
use super::error::{CliError, CliResult, Code};
use super::values::millis;
use crate::control::client::{Client, ClientError, Raw};
use crate::control::wire;
use crate::model::{CityInfo, CityStatus, CityView, StopSummary};

/// What `city.status` answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct CityState {
    /// The city as the machine sees it.
    pub(super) city: CityInfo,
    /// The city as it sees itself, while it runs.
    pub(super) view: Option<CityView>,
}

/// Asks for one city; `None` if the server does not know it.
///
/// # Errors
/// If the server does not answer.
pub(super) fn city_status(client: &mut Client, root: &Path) -> CliResult<Option<CityState>> {
    match client.ask("city.status", json!({"path": root})) {
        Ok(state) => Ok(Some(state)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Asks for the document of one city, which goes to the user as it comes; `None` if the server
/// does not know it.
///
/// # Errors
/// If the server does not answer.
pub(super) fn city_detail(client: &mut Client, root: &Path) -> CliResult<Option<Raw>> {
    match client.call_raw("city.detail", json!({"path": root})) {
        Ok(detail) => Ok(Some(detail)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A connection to whoever runs the city at `root` now.
///
/// # Errors
/// [`Code::NotRunning`] if nobody does.
pub(super) fn running_city(context: &Context, root: &Path) -> CliResult<Client> {
    let mut client = match context.seat(root)? {
        Seat::Standalone(client) | Seat::Supervisor(client) => client,
        Seat::Nobody => return Err(ClientError::NotRunning.into()),
    };
    if city_status(&mut client, root)?.is_some_and(|state| state.city.running) {
        return Ok(client);
    }
    let message = format!("the city at {} is not running", root.display());
    Err(CliError::new(Code::NotRunning, message).hint("gc start"))
}

/// What the supervisor did to follow the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Reconciled {
    /// Cities started, by path.
    pub(super) started: Vec<String>,
    /// Cities stopped, by path.
    pub(super) stopped: Vec<String>,
    /// Cities that could not be started.
    pub(super) failed: Vec<FailedCity>,
}

/// A city that could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FailedCity {
    /// Its root.
    pub(super) path: String,
    /// Why.
    pub(super) error: String,
}

/// How far a city has come; one item of `city.wait`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Phase {
    /// Status word.
    pub(super) status: CityStatus,
    /// Why it does not run.
    pub(super) error: Option<String>,
    /// Start phases passed.
    #[serde(default)]
    pub(super) phases_completed: Vec<String>,
    /// When it is tried again.
    pub(super) next_retry_at: Option<DateTime<Utc>>,
    /// Agents still starting or stopping.
    #[serde(default)]
    pub(super) starting: Vec<String>,
    /// How many agents there are.
    pub(super) agents: Option<AgentCount>,
    /// What the stop did, once it is over.
    pub(super) stopped: Option<StopSummary>,
    /// How long a stop has been waited for.
    #[serde(default)]
    pub(super) waited_sec: u64,
}

/// How many agents a city has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct AgentCount {
    /// Meant to run.
    pub(super) total: usize,
    /// Up.
    pub(super) running: usize,
}

/// What a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// The city runs.
    Running,
    /// The city is stopped.
    Stopped,
}

/// Follows a city until it is where it should be, has failed, or `limit` is over; tells each
/// change. Returns the last one, `None` if the server does not know the city.
///
/// # Errors
/// If the server leaves or does not answer.
pub(super) fn wait(
    client: Client,
    root: &Path,
    want: Want,
    limit: Duration,
    mut tell: impl FnMut(&Phase),
) -> CliResult<Option<Phase>> {
    let want = match want {
        Want::Running => "running",
        Want::Stopped => "stopped",
    };
    let params = json!({"path": root, "want": want, "timeout_ms": millis(limit)});
    // The server keeps the limit; the slack is for a busy machine.
    let slack = Duration::from_secs(10);
    let mut last = None;
    for item in client.stream("city.wait", params, Some(limit + slack))? {
        match item {
            Ok(item) => {
                let phase: Phase = read(item)?;
                tell(&phase);
                last = Some(phase);
            }
            Err(error) if is_not_found(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    match last {
        Some(phase) => Ok(Some(phase)),
        None => Err(CliError::new(
            Code::Failed,
            "the supervisor said nothing about the city",
        )),
    }
}

fn is_not_found(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Remote {
            code: wire::Code::NotFound,
            ..
        }
    )
}
