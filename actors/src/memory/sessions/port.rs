//! The port itself: what agents do is what was scripted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Behaviour, Held, MemorySessions, World};
use crate::mailbox::lock;
use crate::memory::MemoryClock;
use crate::model::{ExitStatus, FailureClass, RunToken, SessionName, StartFailure};
use crate::ports::{
    AttachPlan, Caps, Clock, Delivery, Facts, Fence, Key, Listing, Liveness, Note, PortFuture,
    SessionError, SessionEvents, Sessions, StartError, StartSpec, Started, Stopped, check_note,
    inside, nudge_text,
};

/// Ends a run after a delay, for scripted exits and reactions to interrupts.
fn end_later(world: Arc<Mutex<World>>, token: RunToken, delay: Duration, status: ExitStatus) {
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        lock(&world).end(&token, status);
    });
}

/// The run that a call is for, if it is for one alone.
fn meant(fence: &Fence) -> Option<&RunToken> {
    match fence {
        Fence::Token(token) => Some(token),
        Fence::Any => None,
    }
}

/// One start, as scripted.
async fn begin(
    world: Arc<Mutex<World>>,
    clock: Arc<MemoryClock>,
    token: RunToken,
    spec: Arc<StartSpec>,
    behaviour: Behaviour,
) -> Result<Started, StartError> {
    if !behaviour.start_after.is_zero() {
        tokio::time::sleep(behaviour.start_after).await;
    }
    #[allow(clippy::panic)] // the whole point
    if behaviour.start_panics {
        panic!("fault drill: the start of {} panics", spec.agent);
    }
    if let Some(failure) = &behaviour.start_fails {
        return Err(failure.clone().into());
    }
    let ends = world.clone();
    let mut world = lock(&world);
    let held = world.sessions.get(&spec.session);
    let foreign = world
        .foreign
        .iter()
        .any(|name| name == spec.session.as_str());
    if foreign || held.is_some_and(|held| held.exit.is_none()) {
        return Err(StartError::Exists {
            owned: !foreign,
            live: true,
        });
    }
    let run = world.starts.entry(spec.agent.clone()).or_default();
    *run += 1;
    let exits = behaviour.exits_in_turn.get(*run - 1).copied();
    if let Some((after, status)) = exits.or(behaviour.exits) {
        end_later(ends.clone(), token.clone(), after, status);
    }
    let prompt = spec.launch.ready_prompt_prefix.clone();
    let ready = behaviour.ready_after.map(|after| {
        let prompt = prompt.unwrap_or_else(|| "ready".to_owned());
        (after, prompt)
    });
    for (after, text) in behaviour.says.iter().cloned().chain(ready) {
        let (world, clock, token) = (ends.clone(), clock.clone(), token.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            lock(&world).say(&token, &text, clock.wall());
        });
    }
    world.pids += 1;
    let pid = world.pids;
    let held = Held {
        agent: spec.agent.clone(),
        launch: spec.launch.clone(),
        token,
        pid,
        started_at: clock.wall(),
        exit: None,
        notes: spec.notes.clone(),
        attached: behaviour.attached,
        behaviour,
        last_activity: Some(clock.wall()),
        nudges: Vec::new(),
        keys: Vec::new(),
    };
    world.sessions.insert(spec.session.clone(), held);
    Ok(Started {
        pid: Some(pid),
        ..Started::default()
    })
}

impl Sessions for MemorySessions {
    fn provider(&self) -> &'static str {
        "fake"
    }

    fn caps(&self) -> Caps {
        self.world().faults.mask.unwrap_or(Caps {
            log: true,
            screen: true,
            nudge: true,
            keys: true,
            attach: true,
            attached: true,
            activity: true,
            exit_push: true,
            exit_status: true,
            process_tree: true,
            meta: true,
            ..Caps::default()
        })
    }

    fn degraded(&self, named: Option<&str>) -> Option<String> {
        let why = self.world().degraded.clone();
        why.filter(|_| matches!(named, None | Some("auto")))
    }

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        let entered = self.enter(
            "start",
            spec.session.as_str(),
            Some(&token),
            spec.agent.as_str(),
        );
        let behaviour = self.world().scripted(&spec.agent);
        let lingers = behaviour.start_lingers;
        let begin = begin(
            self.world.clone(),
            self.clock.clone(),
            token,
            spec,
            behaviour,
        );
        let failed = |why: String| StartFailure::new("start", FailureClass::Provider, why);
        let start = entered.run_as(move |error| failed(error.to_string()).into(), begin);
        if !lingers {
            return Box::pin(start);
        }
        let start = tokio::spawn(start);
        Box::pin(async move {
            let done = start.await;
            done.unwrap_or_else(|_| Err(failed("the start was lost".into()).into()))
        })
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        let entered = self.enter("stop", name.as_str(), meant(&fence), "");
        Box::pin(entered.run(async move {
            let mut world = self.world();
            if let Some(error) = world.stops_fail.clone() {
                return Err(error);
            }
            let Some(held) = world.fenced(&name, &fence)? else {
                return Ok(Stopped::Absent);
            };
            let (token, dead) = (held.token.clone(), held.exit.is_some());
            world.end(&token, ExitStatus::Signal(9));
            world.sessions.remove(&name);
            Ok(if dead {
                Stopped::Clean
            } else {
                Stopped::Forced
            })
        }))
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        let entered = self.enter("interrupt", name.as_str(), meant(&fence), "");
        Box::pin(entered.run(async move {
            let mut world = self.world();
            let Some(held) = world.fenced(&name, &fence)? else {
                return Ok(false);
            };
            if !held.behaviour.ignores_interrupt {
                let token = held.token.clone();
                let status = held.behaviour.interrupted.unwrap_or(ExitStatus::Code(0));
                end_later(self.world.clone(), token, Duration::ZERO, status);
            }
            Ok(true)
        }))
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        let entered = self.enter("snapshot", "", None, "");
        Box::pin(entered.run(async move {
            let takes = self.world().listing_takes;
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            let world = self.world();
            #[allow(clippy::panic)] // the whole point
            if world.listing_panics {
                panic!("fault drill: the listing panics");
            }
            if let Some(error) = world.listing_fails.clone() {
                return Err(error);
            }
            let facts = |(session, held): (&SessionName, &Held)| Facts {
                session: session.clone(),
                agent: held.agent.clone(),
                token: held.token.clone(),
                live: held.exit.is_none(),
                pid: Some(held.pid),
                started_at: held.started_at,
                last_activity: held.last_activity,
                attached: held.attached,
                notes: held.notes.clone(),
            };
            let shown = world.sessions.iter();
            let shown = shown.filter(|(session, _)| !world.faults.hides(session));
            let mut owned: Vec<_> = shown.map(facts).collect();
            owned.sort_by(|a, b| a.session.cmp(&b.session));
            Ok(Listing {
                owned,
                foreign: world.foreign.clone(),
                errors: world.faults.listing_errors(),
            })
        }))
    }

    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError> {
        let entered = self.enter("liveness", name.as_str(), Some(&token), "");
        Box::pin(entered.run(async move {
            let world = self.world();
            let held = world.sessions.get(&name).filter(|held| held.token == token);
            Ok(match held.map(|held| (held.pid, held.exit)) {
                None => Liveness::Absent,
                Some((pid, None)) => Liveness::Live { pid: Some(pid) },
                Some((_, Some(status))) => Liveness::Dead(status),
            })
        }))
    }

    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError> {
        let entered = self.enter("process_alive", name.as_str(), None, names.join(" "));
        Box::pin(entered.run(async move {
            let world = self.world();
            let held = world.sessions.get(&name).filter(|held| held.exit.is_none());
            Ok(held.is_some_and(|held| {
                names.is_empty() || held.behaviour.processes.iter().any(|p| names.contains(p))
            }))
        }))
    }

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        let entered = self.enter("clear_scrollback", name.as_str(), None, "");
        Box::pin(entered.run(async move {
            let mut world = self.world();
            let held = world.sessions.get_mut(&name);
            held.ok_or(SessionError::NotFound)?.behaviour.output.clear();
            Ok(())
        }))
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        let entered = self.enter("peek", name.as_str(), None, lines.to_string());
        Box::pin(entered.run(async move {
            let world = self.world();
            let held = world.sessions.get(&name).ok_or(SessionError::NotFound)?;
            let all: Vec<_> = held.behaviour.output.trim_end().lines().collect();
            let shown = if lines == 0 {
                all.len()
            } else {
                lines as usize
            };
            Ok(all[all.len().saturating_sub(shown)..].join("\n"))
        }))
    }

    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        let args = match &value {
            Some(value) => format!("{}={value}", note.key()),
            None => note.key().to_owned(),
        };
        let entered = self.enter("set_note", name.as_str(), meant(&fence), args);
        Box::pin(entered.run(async move {
            let mut world = self.world();
            let held = world.fenced(&name, &fence)?.ok_or(SessionError::NotFound)?;
            check_note(value.as_deref())?;
            match value {
                Some(value) => held.notes.insert(note, value),
                None => held.notes.remove(&note),
            };
            Ok(())
        }))
    }

    fn nudge(
        &self,
        name: SessionName,
        fence: Fence,
        text: String,
    ) -> PortFuture<'_, Delivery, SessionError> {
        let entered = self.enter("nudge", name.as_str(), meant(&fence), text.as_str());
        if !self.caps().nudge {
            return Box::pin(async { Err(SessionError::Unsupported("nudge")) });
        }
        Box::pin(entered.run(async move {
            let mut world = self.world();
            let held = world.fenced(&name, &fence)?;
            let Some(held) = held.filter(|held| held.exit.is_none()) else {
                return Ok(Delivery::NoSession);
            };
            let text = nudge_text(&text)?;
            if !text.is_empty() {
                if held.behaviour.echoes {
                    let heard: String = text.lines().map(|l| format!("got {l}\n")).collect();
                    held.behaviour.output.push_str(&heard);
                }
                held.nudges.push(text);
                held.last_activity = Some(self.clock.wall());
            }
            Ok(Delivery::Delivered { confirmed: true })
        }))
    }

    fn send_keys(
        &self,
        name: SessionName,
        fence: Fence,
        keys: Vec<Key>,
    ) -> PortFuture<'_, bool, SessionError> {
        let entered = self.enter(
            "send_keys",
            name.as_str(),
            meant(&fence),
            format!("{keys:?}"),
        );
        Box::pin(entered.run(async move {
            let mut world = self.world();
            let held = world.fenced(&name, &fence)?;
            let Some(held) = held.filter(|held| held.exit.is_none()) else {
                return Ok(false);
            };
            Key::check(&keys)?;
            if held.behaviour.echoes_keys {
                let bytes = keys.iter().flat_map(Key::bytes);
                let seen: String = bytes.map(|byte| format!("{byte:02x}\n")).collect();
                held.behaviour.output.push_str(&seen);
            }
            held.keys.extend(keys);
            held.last_activity = Some(self.clock.wall());
            Ok(true)
        }))
    }

    /// There is no terminal to have: the plan only says what it is for.
    fn attach(
        &self,
        name: SessionName,
        read_only: bool,
    ) -> PortFuture<'_, AttachPlan, SessionError> {
        let args = if read_only { "read only" } else { "" };
        let entered = self.enter("attach", name.as_str(), None, args);
        Box::pin(entered.run(async move {
            if !self.caps().attach {
                return Err(SessionError::Unsupported("attach"));
            }
            let world = self.world();
            let held = world.sessions.get(&name).filter(|held| held.exit.is_none());
            held.ok_or(SessionError::NotFound)?;
            let said = format!("{name}: a session in memory has no terminal");
            Ok(AttachPlan {
                argv: vec!["echo".to_owned(), said],
                unset: Vec::new(),
            })
        }))
    }

    /// Files are beyond it: this only says what a session would.
    fn copy_to(
        &self,
        name: SessionName,
        from: PathBuf,
        to: String,
    ) -> PortFuture<'_, usize, SessionError> {
        let _ = from;
        let entered = self.enter("copy_to", name.as_str(), None, to.as_str());
        Box::pin(entered.run(async move {
            inside(&to)?;
            let world = self.world();
            let held = world.sessions.get(&name).filter(|held| held.exit.is_none());
            held.map(|_| 1).ok_or(SessionError::NotFound)
        }))
    }

    fn subscribe(&self) -> SessionEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.world().subscribers.push(sender);
        receiver
    }
}
