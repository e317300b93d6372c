//! The operations of the control socket, on top of the tree's handles.

mod actors;
mod agent;
mod process;
mod session;
mod stop;
mod wait;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::actors::Drill;
use super::live::Live;
use crate::config::Running;
use crate::control::detail::{CityDetail, Controller};
use crate::control::server::{Handler, Reply};
use crate::control::wire::{Code, VERSION, WireError};
use crate::model::{CityInfo, CityStatus, CityView, MachineView, StopSummary, millis};
use crate::ports::PortFuture;
use crate::{AskError, MachineRef, ReloadOutcome, StopMode};
use wait::Waiting;

const WAIT_DEFAULT: Duration = Duration::from_secs(180);
/// A request that takes longer is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);
/// What may be asked while the process is being upgraded.
const LOOKS: [&str; 8] = [
    "hello",
    "ping",
    "status",
    "city.status",
    "city.config",
    "city.detail",
    "actors.tree",
    "actors.show",
];

/// What a client asked the process for.
pub(super) enum Wish {
    /// To stop.
    Stop(StopWish),
    /// To become another program.
    Upgrade(Upgrade),
}

/// A client asked the process to stop.
pub(super) struct StopWish {
    pub(super) mode: StopMode,
    pub(super) reply: Option<oneshot::Sender<StopSummary>>,
}

/// A client asked the process to become another program.
pub(super) struct Upgrade {
    pub(super) exe: PathBuf,
    pub(super) version: String,
    /// Told why it did not; success closes every connection.
    pub(super) failed: oneshot::Sender<String>,
}

/// Answers requests for one process.
#[derive(Clone)]
pub(super) struct Ops {
    door: MachineRef,
    live: Live,
    wishes: mpsc::Sender<Wish>,
    /// The tree is letting go of everything: nothing may be changed any more.
    leaving: Arc<AtomicBool>,
}

type Answer = Result<Reply, WireError>;

impl Handler for Ops {
    fn call(&self, op: String, params: Value) -> PortFuture<'_, Reply, WireError> {
        Box::pin(async move {
            if self.leaving.load(Relaxed) && !LOOKS.contains(&op.as_str()) {
                return Err(ending());
            }
            let began = Instant::now();
            let answer = self.answer(&op, &params).await;
            let took = began.elapsed();
            match took > SLOW {
                true => tracing::warn!(op, ?took, "slow request"),
                false => tracing::debug!(op, ?took, ok = answer.is_ok(), "request"),
            }
            answer
        })
    }
}

impl Ops {
    pub(super) fn new(door: MachineRef, live: Live) -> (Self, mpsc::Receiver<Wish>) {
        let (sender, wishes) = mpsc::channel(8);
        let ops = Self {
            door,
            live,
            wishes: sender,
            leaving: Arc::default(),
        };
        (ops, wishes)
    }

    async fn answer(&self, op: &str, params: &Value) -> Answer {
        match op {
            "hello" => Ok(Reply::One(self.hello())),
            "ping" => Ok(Reply::One(json!({ "pid": std::process::id() }))),
            "status" => Ok(Reply::One(self.status())),
            "reload" => self.reload(params).await,
            "poke" => self.poke(params).await,
            "stop" => self.stop(params).await,
            "upgrade" => self.upgrade(params).await,
            "log" => self.log(params),
            "event" => self.event(params).await,
            "city.wait" => self.wait(params),
            "city.status" => self.city_status(params).await,
            "city.config" => self.city_config(params).await,
            "city.detail" => self.city_detail(params).await,
            "city.reload" => self.city_reload(params).await,
            "agent.command" => self.agent_command(params).await,
            "agent.peek" => self.agent_peek(params).await,
            "agent.nudge" => self.agent_nudge(params).await,
            "agent.attach" => self.agent_attach(params).await,
            "actors.tree" => self.tree(params).await,
            "actors.show" => self.show(params).await,
            "actors.crash" => self.drill(params, Drill::Crash).await,
            "actors.hang" => self.drill(params, Drill::Hang).await,
            "actors.flood" => self.drill(params, Drill::Flood).await,
            _ => Err(WireError::unknown_op(op)),
        }
    }

    fn hello(&self) -> Value {
        let mut hello = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "build_id": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "mode": self.mode(),
            "protocol": [VERSION],
        });
        if let (None, Some(city)) = (self.live.home(), self.door.view().cities.first()) {
            hello["city"] = json!(city.name);
        }
        hello
    }

    fn mode(&self) -> &'static str {
        match self.live.home() {
            Some(_) => "supervisor",
            None => "standalone",
        }
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
            "degraded": self.degraded(&view),
        });
        if let Some(error) = &view.registry_error {
            status["registry"]["error"] = json!(error);
        }
        if let Some(home) = self.live.home() {
            status["home"] = json!(home.dir());
            status["runtime_dir"] = json!(home.runtime_dir());
        }
        status
    }

    fn degraded(&self, view: &MachineView) -> Vec<String> {
        let mut all = self.live.degraded();
        all.extend(degraded(view));
        all
    }

    async fn reload(&self, params: &Value) -> Answer {
        self.live.reload(&self.door);
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

    async fn wish(&self, wish: Wish) -> Result<(), WireError> {
        self.wishes.send(wish).await.map_err(|_| ending())
    }

    async fn city_status(&self, params: &Value) -> Answer {
        #[derive(Serialize)]
        struct Status<'a> {
            city: &'a CityInfo,
            #[serde(skip_serializing_if = "Option::is_none")]
            view: Option<&'a CityView>,
        }
        let city = &self.city(params)?;
        let detail = self.door.city(&city.path).detail().await.ok();
        let (view, agents) = detail.unzip();
        let view = view.as_ref();
        with_agents(&Status { city, view }, agents)
    }

    /// The same as one object, ready to be shown to programs.
    async fn city_detail(&self, params: &Value) -> Answer {
        let info = self.city(params)?;
        let detail = self.door.city(&info.path).detail().await.ok();
        // A city that is down has no controller, whoever would run it.
        let controller = match info.status {
            CityStatus::Stopped => Controller::default(),
            _ => Controller {
                running: true,
                pid: Some(std::process::id()),
                mode: Some(self.mode().to_owned()),
            },
        };
        let (view, agents) = detail.unzip();
        let whole = CityDetail::live(&info, view.as_ref(), &controller);
        with_agents(&whole, agents)
    }

    /// The config in force.
    async fn city_config(&self, params: &Value) -> Answer {
        let city = self.door.city(self.city(params)?.path);
        let spec = city.spec().await.map_err(unanswered)?;
        let view = city.view().await.map_err(unanswered)?;
        Ok(Reply::One(json!(Running::of(&spec, &view))))
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

fn ending() -> WireError {
    WireError::new(Code::ShuttingDown, "the supervisor is ending")
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

/// A document with an empty list of agents, and the text of them in its place. Quotes within values
/// are escaped, so there is one such place only.
fn with_agents(document: &impl Serialize, agents: Option<String>) -> Answer {
    const NONE: &str = "\"instances\":[]";
    let whole = serde_json::to_string(document)
        .map_err(|e| WireError::new(Code::Internal, e.to_string()))?;
    let (Some(agents), Some(at)) = (agents, whole.find(NONE)) else {
        return Ok(Reply::Text(vec![whole]));
    };
    let (before, behind) = whole.split_at(at + NONE.len() - 2);
    let pieces = vec![before.to_owned(), agents, behind[2..].to_owned()];
    Ok(Reply::Text(pieces))
}

/// Large answers are written at once: a [`Value`] in between costs many times as much.
fn text(answer: &impl Serialize) -> Answer {
    let text = serde_json::to_string(answer);
    text.map(|text| Reply::Text(vec![text]))
        .map_err(|e| WireError::new(Code::Internal, e.to_string()))
}

fn unanswered(error: AskError) -> WireError {
    let code = match error {
        AskError::NotRunning => Code::NotFound,
        _ => Code::Timeout,
    };
    WireError::new(code, error.to_string())
}
