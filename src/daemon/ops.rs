//! The operations of the control socket, on top of the tree's handles.

mod agent;
mod session;
mod wait;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::control::home::Home;
use crate::control::server::{Handler, Reply};
use crate::control::wire::{Code, VERSION, WireError};
use crate::model::{CityInfo, MachineView, StopSummary, millis};
use crate::ports::PortFuture;
use crate::{AskError, MachineRef, ReloadOutcome, StopMode};
use wait::Waiting;

/// Set in the supervisor's environment to allow fault drills.
const ALLOW_FAULTS: &str = "GC_ALLOW_FAULTS";
const WAIT_DEFAULT: Duration = Duration::from_secs(180);

/// A client asked the process to stop.
pub(super) struct StopWish {
    pub(super) mode: StopMode,
    pub(super) reply: Option<oneshot::Sender<StopSummary>>,
}

/// Answers requests for one process.
#[derive(Clone)]
pub(super) struct Ops {
    door: MachineRef,
    /// Of the machine-wide supervisor; a standalone city has none.
    home: Option<Home>,
    stop: mpsc::Sender<StopWish>,
}

type Answer = Result<Reply, WireError>;

impl Handler for Ops {
    fn call(&self, op: String, params: Value) -> PortFuture<'_, Reply, WireError> {
        Box::pin(async move { self.answer(&op, &params).await })
    }
}

impl Ops {
    pub(super) fn new(door: MachineRef, home: Option<Home>) -> (Self, mpsc::Receiver<StopWish>) {
        let (stop, wishes) = mpsc::channel(8);
        (Self { door, home, stop }, wishes)
    }

    async fn answer(&self, op: &str, params: &Value) -> Answer {
        match op {
            "hello" => Ok(Reply::One(self.hello())),
            "ping" => Ok(Reply::One(json!({ "pid": std::process::id() }))),
            "status" => Ok(Reply::One(self.status())),
            "reload" => self.reload(params).await,
            "poke" => self.poke(params).await,
            "stop" => self.stop(params).await,
            "city.wait" => self.wait(params),
            "city.status" => self.city_status(params).await,
            "city.reload" => self.city_reload(params).await,
            "agent.command" => self.agent_command(params).await,
            "agent.peek" => self.agent_peek(params).await,
            "agent.nudge" => self.agent_nudge(params).await,
            "agent.attach" => self.agent_attach(params).await,
            "actors.tree" => {
                let tree = self.door.tree().await.map_err(unanswered)?;
                Ok(Reply::One(json!(tree)))
            }
            "actors.crash" => self.crash(params).await,
            _ => Err(WireError::unknown_op(op)),
        }
    }

    fn hello(&self) -> Value {
        let mut hello = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build_id": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "mode": if self.home.is_some() { "supervisor" } else { "standalone" },
            "protocol": [VERSION],
        });
        if let (None, Some(city)) = (&self.home, self.door.view().cities.first()) {
            hello["city"] = json!(city.name);
        }
        hello
    }

    fn status(&self) -> Value {
        let view = self.door.view();
        let uptime = (chrono::Utc::now() - view.started_at).num_seconds().max(0);
        let mut status = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build_id": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "started_at": millis::format(&view.started_at),
            "uptime_sec": uptime,
            "ready": view.ready,
            "api": { "listening": false },
            "registry": { "ok": view.registry_error.is_none() },
            "cities": view.cities,
            "degraded": degraded(&view),
        });
        if let Some(error) = &view.registry_error {
            status["registry"]["error"] = json!(error);
        }
        if let Some(home) = &self.home {
            status["home"] = json!(home.dir());
            status["runtime_dir"] = json!(home.runtime_dir());
        }
        status
    }

    async fn reload(&self, params: &Value) -> Answer {
        let done = self
            .door
            .reconcile()
            .await
            .map_err(|e| WireError::new(Code::Internal, e))?;
        // Cities that were just unregistered in a hurry.
        let hurried = params["force"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for path in hurried.filter(|path| {
            done.stopped
                .iter()
                .any(|stopped| stopped.as_os_str() == *path)
        }) {
            let _ = self.door.city(path).force_stop().await; // it may be gone already
        }
        let failed: Vec<_> = done
            .failed
            .iter()
            .map(|(path, error)| json!({ "path": path, "error": error }))
            .collect();
        Ok(Reply::One(
            json!({ "started": done.started, "stopped": done.stopped, "failed": failed }),
        ))
    }

    async fn poke(&self, params: &Value) -> Answer {
        for city in &self.door.view().cities {
            let meant = params["city"]
                .as_str()
                .is_none_or(|name| name == city.name.as_str());
            if meant && city.running {
                let _ = self.door.city(&city.path).poke().await; // it may have just gone
            }
        }
        Ok(Reply::One(json!({})))
    }

    async fn stop(&self, params: &Value) -> Answer {
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
            self.wish(StopWish { mode, reply: None }).await?;
            return Ok(Reply::One(stopping));
        }
        let (reply, summary) = oneshot::channel();
        self.wish(StopWish {
            mode,
            reply: Some(reply),
        })
        .await?;
        let (items, stream) = mpsc::channel(2);
        tokio::spawn(async move {
            let _ = items.send(stopping).await;
            if let Ok(summary) = summary.await {
                let _ = items.send(json!(summary)).await;
            }
        });
        Ok(Reply::Stream(stream))
    }

    async fn wish(&self, wish: StopWish) -> Result<(), WireError> {
        let ending = |_| WireError::new(Code::ShuttingDown, "the supervisor is ending");
        self.stop.send(wish).await.map_err(ending)
    }

    async fn city_status(&self, params: &Value) -> Answer {
        let info = self.city(params)?;
        let mut status = json!({ "city": info });
        if let Ok(view) = self.door.city(&info.path).view().await {
            status["view"] = json!(view);
        }
        Ok(Reply::One(status))
    }

    async fn city_reload(&self, params: &Value) -> Answer {
        let city = self.door.city(self.city(params)?.path);
        let outcome = city.reload().await.map_err(unanswered)?;
        let revision = city.view().await.map_err(unanswered)?.config.revision;
        let (status, error) = match outcome {
            ReloadOutcome::Reloaded => ("reloaded", None),
            ReloadOutcome::Unchanged => ("unchanged", None),
            ReloadOutcome::Failed(error) => ("failed", Some(error.summary)),
            ReloadOutcome::Refused(error) => ("refused", Some(error)),
        };
        let mut result = json!({ "status": status, "revision": revision });
        if let Some(error) = error {
            result["error"] = json!(error);
        }
        Ok(Reply::One(result))
    }

    async fn crash(&self, params: &Value) -> Answer {
        if std::env::var_os(ALLOW_FAULTS).is_none_or(|value| value != "1") {
            let message = format!("denied: the supervisor does not run with {ALLOW_FAULTS}=1");
            return Err(WireError::new(Code::Denied, message));
        }
        let path = params["path"].as_str().unwrap_or_default();
        if self.door.crash(path).await {
            Ok(Reply::One(json!({ "crashed": true })))
        } else {
            Err(WireError::new(Code::NotFound, format!("no actor {path:?}")))
        }
    }

    fn city(&self, params: &Value) -> Result<CityInfo, WireError> {
        let path = path_param(params)?;
        let view = self.door.view();
        let found = view.cities.iter().find(|city| city.path == path).cloned();
        found
            .ok_or_else(|| WireError::new(Code::NotFound, format!("no city at {}", path.display())))
    }

    fn wait(&self, params: &Value) -> Answer {
        let path = path_param(params)?;
        let want_stopped = params["want"].as_str() == Some("stopped");
        let limit = params["timeout_ms"]
            .as_u64()
            .map_or(WAIT_DEFAULT, Duration::from_millis);
        let (items, stream) = mpsc::channel(16);
        let waiting = Waiting {
            door: self.door.clone(),
            path,
            want_stopped,
            items,
        };
        tokio::spawn(waiting.run(Instant::now() + limit));
        Ok(Reply::Stream(stream))
    }
}

fn degraded(view: &MachineView) -> Vec<String> {
    let registry = view
        .registry_error
        .iter()
        .map(|error| format!("registry: {error}"));
    let down = view.cities.iter().filter_map(|city| {
        let error = city.error.as_ref()?.lines().next()?;
        Some(format!("{}: {error}", city.name))
    });
    registry.chain(down).collect()
}

fn path_param(params: &Value) -> Result<PathBuf, WireError> {
    let path = params["path"].as_str().map(PathBuf::from);
    path.ok_or_else(|| WireError::new(Code::BadRequest, "the parameter `path` is missing"))
}

fn unanswered(error: AskError) -> WireError {
    let code = match error {
        AskError::NotRunning => Code::NotFound,
        _ => Code::Timeout,
    };
    WireError::new(code, error.to_string())
}
