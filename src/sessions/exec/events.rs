//! Exits: told by the script's `watch`, else found by looking.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gascity_actors::model::{ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{SessionEvent, SessionEventKind};
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::{Inner, lock};
use crate::shell::Lines;

/// A `watch` that ends sooner than this is none.
const AT_LEAST: Duration = Duration::from_secs(1);

/// How long to wait before one that ended is run again.
const AGAIN: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];

/// The task that learns of exits.
#[derive(Debug, Default)]
pub(super) struct Watching {
    task: Option<JoinHandle<()>>,
    /// The script's `watch` was seen to work.
    works: bool,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// One line of `watch`.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    event: String,
    code: Option<i32>,
    signal: Option<i32>,
}

impl Inner {
    /// Whether exits come with how they came about.
    pub(super) fn watches(&self) -> bool {
        lock(&self.watching).works
    }

    /// Begins to learn of exits, once.
    pub(super) fn watch_exits(self: &Arc<Self>) {
        let mut watching = lock(&self.watching);
        if watching.task.is_none() {
            let inner = Arc::downgrade(self);
            watching.task = Some(tokio::spawn(follow(inner)));
        }
    }

    /// Reports the end of a run, once, and says how it is known to have ended.
    pub(super) fn tell_end(
        &self,
        name: &SessionName,
        token: &RunToken,
        status: ExitStatus,
    ) -> ExitStatus {
        let mut seen = lock(&self.seen);
        if seen.get(name) == Some(token) {
            seen.remove(name);
        }
        drop(seen);
        let mut ended = lock(&self.ended);
        if let Some(known) = ended.get(token) {
            return *known;
        }
        ended.insert(token.clone(), status);
        self.subscribers.send(&SessionEvent {
            session: name.clone(),
            token: token.clone(),
            kind: SessionEventKind::Exited(status),
        });
        status
    }

    fn on_line(&self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line>(line) else {
            return; // nothing that could be understood
        };
        let status = match (line.code, line.signal) {
            (Some(code), _) => ExitStatus::Code(code),
            (_, Some(signal)) => ExitStatus::Signal(signal),
            _ => ExitStatus::Unknown,
        };
        let Ok(name) = SessionName::new(line.name) else {
            return;
        };
        let Ok(Some(record)) = self.records.read(&name) else {
            return;
        };
        match line.event.as_str() {
            "exited" => drop(self.tell_end(&name, &record.token, status)),
            "activity" => self.subscribers.send(&SessionEvent {
                session: name,
                token: record.token,
                kind: SessionEventKind::Activity,
            }),
            _ => {}
        }
    }

    /// A run that is seen to be there. Its end is told, whoever brings it about.
    pub(super) fn saw(&self, name: &SessionName, token: &RunToken) {
        lock(&self.seen).insert(name.clone(), token.clone());
    }

    /// Looks whose session was taken away, or over, by another process.
    fn look_at_records(&self) {
        let seen: Vec<_> = lock(&self.seen).clone().into_iter().collect();
        for (name, token) in seen {
            let gate = self.gate(&name);
            let Ok(_gate) = gate.try_lock() else { continue };
            let Ok(record) = self.records.read(&name) else {
                continue;
            };
            if record.is_none_or(|record| record.token != token) {
                self.tell_end(&name, &token, ExitStatus::Unknown);
            }
        }
    }

    /// Looks who has ended.
    async fn look(&self) {
        let Ok(all) = self.records.all() else { return };
        let told = |token: &RunToken| lock(&self.ended).contains_key(token);
        let open: Vec<_> = all.into_iter().filter(|(_, r)| !told(&r.token)).collect();
        if open.is_empty() {
            return;
        }
        let Ok(listed) = self.list().await else {
            return;
        };
        for (name, record) in open {
            let live = match &listed {
                Some(names) => names.contains(name.as_str()),
                None => self.is_running(&name).await.unwrap_or(true),
            };
            // A start under way is not in the listing yet, nor is its end worth telling.
            let gate = self.gate(&name);
            if !live && let Ok(_gate) = gate.try_lock() {
                let still = self.records.read(&name).ok().flatten();
                if still.is_some_and(|still| still.token == record.token)
                    && !self.is_running(&name).await.unwrap_or(true)
                {
                    self.tell_end(&name, &record.token, ExitStatus::Unknown);
                }
            }
        }
    }
}

/// Learns of exits for as long as somebody holds the provider.
async fn follow(inner: Weak<Inner>) {
    let listening = listen(inner.clone());
    tokio::pin!(listening);
    let mut heard = true;
    loop {
        let Some(poll) = inner.upgrade().map(|inner| inner.config.poll) else {
            return;
        };
        tokio::select! {
            () = &mut listening, if heard => heard = false,
            () = tokio::time::sleep(poll) => {
                let Some(inner) = inner.upgrade() else { return };
                inner.look_at_records();
                if !heard {
                    inner.look().await;
                }
            }
        }
    }
}

/// Listens to the script's `watch`; returns if it has none.
async fn listen(inner: Weak<Inner>) {
    let mut ends = 0;
    loop {
        let every = vec![String::new()];
        let Some(program) = inner.upgrade().map(|inner| inner.program("watch", every)) else {
            return;
        };
        let began = Instant::now();
        if let Ok(lines) = Lines::of(program) {
            hear(&inner, lines, began).await;
        }
        let Some(here) = inner.upgrade() else { return };
        if began.elapsed() < AT_LEAST && !here.watches() {
            return;
        }
        here.look().await; // what ended meanwhile
        drop(here);
        tokio::time::sleep(AGAIN[ends.min(AGAIN.len() - 1)]).await;
        ends += 1;
    }
}

/// Reads what `watch` says, to its end.
async fn hear(inner: &Weak<Inner>, mut lines: Lines, began: Instant) {
    loop {
        let line = tokio::time::timeout(AT_LEAST, lines.next()).await;
        let Some(inner) = inner.upgrade() else { return };
        match line {
            Ok(Some(line)) => inner.on_line(&line),
            Ok(None) => return,
            Err(_) => {}
        }
        if began.elapsed() >= AT_LEAST {
            lock(&inner.watching).works = true;
        }
    }
}
