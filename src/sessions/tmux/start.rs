//! Starting a run in a session of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use chrono::Utc;
use gascity_actors::model::{Command, ExitStatus, RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    Fence, SessionError, SessionEventKind, StartError, StartSpec, Started,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::OwnedMutexGuard;

use super::line::{Line, encode};
use super::listing::option;
use super::parser::Block;
use super::run::{Identity, Pane, Run, Seat};
use super::server::{SIZE, Server};
use super::{Inner, Slot};
use crate::sessions::environment::Environment;
use crate::sessions::prepare::{Prepared, agent_failure, provider_failure};
use crate::sessions::proc;
use crate::sessions::processes::Led as _;
use crate::sessions::subprocess::look_up;

/// What tmux sets by itself, for programs to know their terminal.
const TERMINAL: [&str; 1] = ["TERM"];

/// Variables every pane gets, unless they are taken away.
const SET_BY_TMUX: [&str; 1] = ["SHELL"];

/// A start is under way.
const STARTING: u8 = 0;
/// It is done, and its caller not told yet.
const DONE: u8 = 1;
/// Its caller was told.
const TOLD: u8 = 2;
/// Its caller went away before.
const ABANDONED: u8 = 3;

/// The caller of a start: takes it back if it goes away too early.
struct Caller {
    state: Arc<AtomicU8>,
    inner: Arc<Inner>,
    name: SessionName,
    token: RunToken,
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.state.swap(ABANDONED, Ordering::AcqRel) != DONE {
            return; // told, or the start itself sees it
        }
        let (inner, name) = (self.inner.clone(), self.name.clone());
        let fence = Fence::Token(self.token.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { inner.stop(&name, &fence).await.map(drop) });
        }
    }
}

/// Everything a session is created with.
struct Plan {
    dir: PathBuf,
    env: Environment,
    words: Vec<OsString>,
    warnings: Vec<String>,
}

impl Inner {
    pub(super) async fn start(
        self: &Arc<Self>,
        token: RunToken,
        spec: Arc<StartSpec>,
    ) -> Result<Started, StartError> {
        let state = Arc::new(AtomicU8::new(STARTING));
        let caller = Caller {
            state: state.clone(),
            inner: self.clone(),
            name: spec.session.clone(),
            token: token.clone(),
        };
        let me = self.clone();
        // A session that is being created cannot be called back. So this goes on when the caller
        // leaves, and takes back what came of it.
        let task = tokio::spawn(async move {
            let name = spec.session.clone();
            let slot = me.slot(&name);
            let gate = slot.gate.clone().lock_owned().await;
            let started = me.start_in(&slot, gate, token.clone(), &spec).await;
            drop(slot);
            if state.swap(DONE, Ordering::AcqRel) == ABANDONED && started.is_ok() {
                let _ = me.stop(&name, &Fence::Token(token)).await;
            }
            started
        });
        let done = task.await;
        caller.state.store(TOLD, Ordering::Release);
        done.unwrap_or_else(|error| Err(provider_failure("session", error.to_string()).into()))
    }

    async fn start_in(
        self: &Arc<Self>,
        slot: &Slot,
        _gate: OwnedMutexGuard<()>,
        token: RunToken,
        spec: &StartSpec,
    ) -> Result<Started, StartError> {
        let unseen = |error: SessionError| provider_failure("session", error.to_string());
        let server = self.connected(true).await.map_err(unseen)?;
        if let Some(run) = slot.run() {
            self.make_room(slot, &run).await?;
            if run.seat.server == server.pid {
                let old = run.seat.session.as_str();
                drop(server.link.send(Line::new(["kill-session", "-t", old])));
            }
            *super::lock(&slot.held) = None;
        }
        let plan = self.plan(&token, spec).await?;
        let line = self.line(&server, &plan, &token, spec);
        let lost = |lost: super::link::Lost| provider_failure("session", lost.to_string());
        let mut blocks = server.link.ask(line.clone()).await.map_err(lost)?;
        if is_taken(&blocks) {
            self.clear_name(slot, &server, spec).await?;
            blocks = server.link.ask(line).await.map_err(lost)?;
        }
        let seat = self.seat(&server, &blocks)?;
        let pid = self
            .take_over(slot, &server, seat, token, spec, plan.dir)
            .await?;
        Ok(Started {
            pid: Some(pid),
            warnings: plan.warnings,
        })
    }

    /// Makes sure that the run before is over, with nothing of it left.
    async fn make_room(self: &Arc<Self>, slot: &Slot, run: &Arc<Run>) -> Result<(), StartError> {
        if run.is_live() {
            let (owned, live) = (true, true);
            return Err(StartError::Exists { owned, live });
        }
        run.ended().await;
        run.cleared().await;
        if run.was_found_dead() {
            let swept = self.sweep(slot, run).await;
            swept.map_err(|error| provider_failure("session", error.to_string()))?;
        }
        Ok(())
    }

    /// The name is held by a session that was not known: one of ours that is over is removed.
    async fn clear_name(
        self: &Arc<Self>,
        slot: &Slot,
        server: &Arc<Server>,
        spec: &StartSpec,
    ) -> Result<(), StartError> {
        let unseen = |error: SessionError| provider_failure("session", error.to_string());
        let name = &spec.session;
        let found = self.look_for(server, name).await.map_err(unseen)?;
        let Some(found) = found else {
            let (owned, live) = (false, true); // as far as can be told
            return Err(StartError::Exists { owned, live });
        };
        let run = self.hold(slot, found).map_err(unseen)?;
        self.make_room(slot, &run).await?;
        let old = run.seat.session.as_str();
        drop(server.link.send(Line::new(["kill-session", "-t", old])));
        *super::lock(&slot.held) = None;
        Ok(())
    }

    async fn plan(&self, token: &RunToken, spec: &StartSpec) -> Result<Plan, StartFailure> {
        let prepared = self.preparer.prepare(token, spec).await?;
        let Prepared {
            dir,
            mut env,
            command,
            warnings,
        } = prepared;
        for name in TERMINAL {
            env.remove(OsStr::new(name));
        }
        let words = match command.as_ref().unwrap_or(&spec.launch.command) {
            Command::Shell(line) => vec!["/bin/sh".into(), "-c".into(), line.into()],
            Command::Words(words) => {
                let first = words.first().map_or("", String::as_str);
                let program = look_up(first, &dir, &env)?.into_os_string();
                let rest = words.iter().skip(1).map(OsString::from);
                std::iter::once(program).chain(rest).collect()
            }
        };
        let values = env.values().chain(&words);
        if values.into_iter().any(|text| text.as_bytes().contains(&0)) {
            return Err(agent_failure("spawn", "a NUL byte in command or env"));
        }
        Ok(Plan {
            dir,
            env,
            words,
            warnings,
        })
    }

    /// The session, its settings and its metadata in one line: a command that ends at once would
    /// otherwise be gone before it can be looked at.
    fn line(&self, server: &Server, plan: &Plan, token: &RunToken, spec: &StartSpec) -> Line {
        let name = spec.session.as_str();
        let target = format!("={name}:");
        let mut words: Vec<OsString> = vec!["new-session".into(), "-d".into(), "-P".into()];
        words.extend(["-F", "#{session_id} #{pane_id} #{pane_pid}"].map(Into::into));
        words.extend(["-s", name, "-x", SIZE.0, "-y", SIZE.1, "-c"].map(Into::into));
        words.push(plan.dir.clone().into());
        let socket = self.socket_name(server);
        let extra = [("GC_TMUX_SOCKET".into(), socket)];
        for (key, value) in plan.env.iter().chain(extra.iter().map(|(k, v)| (k, v))) {
            let mut pair: OsString = key.clone();
            pair.push("=");
            pair.push(value);
            words.extend(["-e".into(), pair]);
        }
        words.push("--".into());
        words.extend(unset(server, plan));
        words.extend(plan.words.iter().cloned());
        let set = |line: Line, key: &str, value: &str| {
            line.and(["set-option", "-t", &target, &option(key), &encode(value)])
        };
        let mut line = Line::new(words.iter().map(|word| word.as_bytes()));
        let window = |line: Line, key: &str, value: &str| {
            line.and(["set-option", "-w", "-t", &target, key, value])
        };
        line = window(line, "remain-on-exit", "on");
        if self.version.blank_on_exit {
            line = window(line, "remain-on-exit-format", "");
        }
        for key in ["automatic-rename", "allow-rename", "monitor-activity"] {
            line = window(line, key, "off");
        }
        line = line.and(["set-option", "-t", &target, "mouse", "off"]);
        line = line.and(["set-option", "-F", "-t", &target, "@gc_pane", "#{pane_id}"]);
        line = set(line, "token", token.as_str());
        line = set(line, "agent", spec.agent.as_str());
        line = set(line, "started", &Utc::now().timestamp_millis().to_string());
        for (note, value) in &spec.notes {
            line = set(line, note.key(), value);
        }
        line
    }

    fn seat(&self, server: &Server, blocks: &[Block]) -> Result<(Seat, Pid), StartFailure> {
        let failed = |detail: String| Err(provider_failure("session", detail));
        if let Some(error) = blocks.iter().find(|block| !block.ok) {
            return failed(format!("tmux: {}", error.text()));
        }
        let text = blocks.first().map(Block::text).unwrap_or_default();
        let fields: Vec<&str> = text.split(' ').collect();
        let [session, pane, pid] = fields.as_slice() else {
            return failed(format!("tmux says {text:?} about a new session"));
        };
        let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) else {
            return failed(format!("tmux says {text:?} about a new session"));
        };
        let seat = Seat {
            server: server.pid,
            session: (*session).to_owned(),
            pane: (*pane).to_owned(),
        };
        Ok((seat, pid))
    }

    /// Watches the leader of a session that was just created.
    async fn take_over(
        self: &Arc<Self>,
        slot: &Slot,
        server: &Server,
        (seat, pid): (Seat, Pid),
        token: RunToken,
        spec: &StartSpec,
        dir: PathBuf,
    ) -> Result<u32, StartFailure> {
        let pane = seat.pane.clone();
        let identity = Identity {
            dir: Some(dir),
            name: spec.session.clone(),
            token,
            agent: spec.agent.clone(),
            seat,
            pid,
            started_at: Utc::now(),
            attached: false,
            notes: spec.notes.clone(),
        };
        let run = match leader(pid, server.pid) {
            Some((pidfd, start)) => Run::live(identity, pidfd, start),
            // It has ended and been reaped already.
            None => {
                let status = match server.pane(&pane).await {
                    Ok(Pane::Dead(Some(status))) => status,
                    _ => ExitStatus::Unknown,
                };
                let run = Run::dead(identity, status);
                let exited = SessionEventKind::Exited(status);
                self.subscribers.send(&run.event(exited));
                run
            }
        };
        let held = self.hold(slot, run);
        held.map_err(|error| provider_failure("spawn", error.to_string()))?;
        Ok(pid.as_raw_nonzero().get().cast_unsigned())
    }
}

/// The name is held by somebody.
fn is_taken(blocks: &[Block]) -> bool {
    let first = blocks.first();
    first.is_some_and(|block| !block.ok && block.text().starts_with("duplicate session"))
}

/// The leader of a pane, pinned, with its start. `None`: it is gone.
pub(super) fn leader(pid: Pid, server: i32) -> Option<(std::os::fd::OwnedFd, u64)> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // From here on `pidfd` pins whoever it is: a child of the server, or a stranger with the
    // number of one.
    let stat = proc::stat(pid.as_raw_nonzero().get()).ok().flatten()?;
    (stat.ppid == server).then_some((pidfd, stat.start))
}

/// Words that run a command without the variables it should not see. None if there are none, and
/// the command is more than a single word, which tmux would give to a shell.
fn unset(server: &Server, plan: &Plan) -> Vec<OsString> {
    let inherited = server.environment.iter().map(String::as_str);
    let unwanted = inherited.chain(SET_BY_TMUX).filter(|name| {
        let known = plan.env.contains_key(OsStr::new(name)) || TERMINAL.contains(name);
        !known && *name != "PWD"
    });
    let mut words: Vec<OsString> = Vec::new();
    for name in unwanted {
        words.extend(["-u".into(), name.into()]);
    }
    if !words.is_empty() || plan.words.len() == 1 {
        words.insert(0, "/usr/bin/env".into());
    }
    words
}
