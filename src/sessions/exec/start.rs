//! Starting a run through the script.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gascity_actors::model::{Command, RunToken, StartFailure};
use gascity_actors::ports::{SessionError, StartError, StartSpec, Started};
use rustix::process::Pid;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::call::{Answer, CallError, Op};
use super::{Inner, lock};
use crate::sessions::environment::Environment;
use crate::sessions::prepare::{agent_failure, provider_failure};
use crate::sessions::processes::Led;

/// With this code a script says that the agent itself is at fault.
const AGENTS_FAULT: i32 = 3;

/// Starts a run in a task of its own, so that one who gives up leaves nothing half done.
pub(super) async fn start(
    inner: Arc<Inner>,
    token: RunToken,
    spec: Arc<StartSpec>,
) -> Result<Started, StartError> {
    inner.watch_exits();
    let (mut asked, answer) = oneshot::channel::<Result<Started, StartError>>();
    tokio::spawn(async move {
        let gate = inner.gate(&spec.session);
        let _gate = gate.lock().await;
        if asked.is_closed() {
            return;
        }
        let begun = tokio::select! {
            begun = begin(&inner, &token, &spec) => Some(begun),
            () = asked.closed() => None,
        };
        match begun {
            Some(Ok(())) => {
                if asked.send(Ok(Started::default())).is_err() {
                    undo(&inner, &token, &spec).await;
                }
            }
            Some(Err(failure)) => {
                undo(&inner, &token, &spec).await;
                let _ = asked.send(Err(failure)); // they may have left
            }
            None => undo(&inner, &token, &spec).await,
        }
    });
    let lost = |_| Err(provider_failure("start", "the runtime is ending").into());
    answer.await.unwrap_or_else(lost)
}

async fn begin(inner: &Inner, token: &RunToken, spec: &StartSpec) -> Result<(), StartError> {
    let name = &spec.session;
    make_room(inner, spec).await?;
    let json = document(inner, token, spec)?;
    let meta = spec
        .notes
        .iter()
        .map(|(note, value)| (note.key().to_owned(), value.clone()));
    let begun = inner
        .records
        .begin(name, token.clone(), spec.agent.clone(), meta.collect());
    begun.map_err(|error| provider_failure("session", error.to_string()))?;
    match inner.call(Op::Start(name, json)).await {
        Ok(Answer::Done(_)) => {}
        Ok(Answer::Unknown) => {
            return Err(provider_failure("start", "the script knows no start").into());
        }
        Err(CallError::Exit(_, text)) if text.to_lowercase().contains("already exists") => {
            // It is somebody else's: forgotten, and not stopped.
            let _ = inner.records.remove(name);
            tracing::warn!(session = %name, %text, "its name is held");
            let (owned, live) = (false, true); // as far as can be told
            return Err(StartError::Exists { owned, live });
        }
        Err(CallError::Exit(AGENTS_FAULT, text)) => return Err(agent_failure("start", text).into()),
        Err(error) => {
            let error = SessionError::from(error).to_string();
            return Err(provider_failure("start", error).into());
        }
    }
    inner.saw(name, token);
    let city = inner.config.city.root.to_string_lossy().into_owned();
    let marks = [
        ("GC_CITY", city),
        ("GC_AGENT", spec.agent.to_string()),
        ("GC_SESSION_ID", token.to_string()),
    ];
    for (key, value) in marks {
        // Who lacks this op has the record instead.
        let _ = inner.ask(Op::SetMeta(name, key, value)).await;
    }
    Ok(())
}

/// Clears away a dead session of that name; a live one stays.
async fn make_room(inner: &Inner, spec: &StartSpec) -> Result<(), StartError> {
    let name = &spec.session;
    let failed = |error: SessionError| provider_failure("session", error.to_string());
    let before = inner.records.read(name);
    let before = before.map_err(|error| provider_failure("session", error.to_string()))?;
    let Some(before) = before else {
        return Ok(());
    };
    if inner.is_running(name).await.map_err(failed)? {
        let (owned, live) = (true, true);
        return Err(StartError::Exists { owned, live });
    }
    inner.ask(Op::Stop(name)).await.map_err(failed)?;
    inner.sweep(&before.token).await.map_err(failed)?;
    lock(&inner.ended).remove(&before.token);
    let removed = inner.records.remove(name);
    removed.map_err(|error| provider_failure("session", error.to_string()))?;
    Ok(())
}

/// Takes back a start that failed or that nobody wants, if it came to anything.
async fn undo(inner: &Inner, token: &RunToken, spec: &StartSpec) {
    let record = inner.records.read(&spec.session).ok().flatten();
    if record.is_none_or(|record| record.token != *token) {
        return;
    }
    let stopped = inner.ask(Op::Stop(&spec.session)).await;
    let swept = inner.sweep(token).await;
    if let Err(error) = stopped.map(drop).and(swept.map(drop)) {
        tracing::warn!(session = %spec.session, %error, "a failed start was not cleared away");
    }
    let _ = inner.records.remove(&spec.session);
}

/// What the script is told of a run; empty fields are left out.
fn document(inner: &Inner, token: &RunToken, spec: &StartSpec) -> Result<Vec<u8>, StartFailure> {
    let launch = &spec.launch;
    let env = inner.preparer.environment(token, spec, &launch.work_dir)?;
    let (env, command) = inner.preparer.prompt_for(spec, env)?;
    let command = match command.as_ref().unwrap_or(&launch.command) {
        Command::Shell(line) => line.clone(),
        words @ Command::Words(_) => words.to_string(),
    };
    let delay = launch.ready_delay.map(|delay| delay.as_millis());
    let script = launch.session_setup_script.as_ref();
    let fields = [
        ("work_dir", json!(launch.work_dir)),
        ("command", json!(command)),
        ("env", json!(texts(&env))),
        ("process_names", json!(spec.process_names)),
        ("ready_prompt_prefix", json!(launch.ready_prompt_prefix)),
        (
            "ready_delay_ms",
            json!(delay.and_then(|ms| u64::try_from(ms).ok())),
        ),
        ("pre_start", json!(launch.pre_start)),
        ("session_setup", json!(launch.session_setup)),
        ("session_setup_script", json!(script)),
        ("session_live", json!(spec.live)),
        ("pack_overlay_dirs", json!(launch.overlays)),
    ];
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    let fields = fields.into_iter().filter(|(_, value)| !is_empty(value));
    let document: Map<String, Value> = fields.map(|(key, value)| (key.to_owned(), value)).collect();
    serde_json::to_vec(&document).map_err(|error| agent_failure("start", error.to_string()))
}

fn texts(env: &Environment) -> BTreeMap<String, String> {
    let text = |text: &std::ffi::OsString| text.to_string_lossy().into_owned();
    env.iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Processes of a run whose leader is known to the script alone.
#[derive(Debug)]
pub(super) struct Strays(pub(super) RunToken);

impl Led for Strays {
    fn token(&self) -> &RunToken {
        &self.0
    }

    fn pid(&self) -> Pid {
        Pid::INIT // never ours, and with another start
    }

    fn start(&self) -> u64 {
        u64::MAX
    }

    fn pidfd(&self) -> Option<&OwnedFd> {
        None
    }

    fn was_seen_ended(&self) -> bool {
        true
    }
}
