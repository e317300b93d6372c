mod behaviour;
mod faults;
mod port;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;

pub use behaviour::{Behaviour, Call};
pub use faults::{Fault, Times};

use self::faults::{Faults, matches};
use super::MemoryClock;
use crate::mailbox::lock;
use crate::model::{AgentName, ExitStatus, Launch, RunToken, SessionName};
use crate::ports::{Clock, Fence, Key, Note, SessionError, SessionEvent, SessionEventKind};

/// Sessions that exist in memory only, with scripted behaviour, faults and a call log.
#[derive(Debug)]
pub struct MemorySessions {
    clock: Arc<MemoryClock>,
    world: Arc<Mutex<World>>,
}

#[derive(Debug, Default)]
struct World {
    sessions: BTreeMap<SessionName, Held>,
    scripts: HashMap<String, Behaviour>,
    /// Those for many, by patterns of names, the latest last.
    patterns: Vec<(String, Behaviour)>,
    foreign: Vec<String>,
    calls: Vec<Call>,
    /// How many there were, forgotten ones included.
    called: u64,
    subscribers: Vec<mpsc::UnboundedSender<SessionEvent>>,
    pids: u32,
    /// How often each agent was started.
    starts: HashMap<AgentName, usize>,
    listing_takes: Duration,
    listing_fails: Option<SessionError>,
    listing_panics: bool,
    stops_fail: Option<SessionError>,
    faults: Faults,
    degraded: Option<String>,
}

#[derive(Debug)]
struct Held {
    agent: AgentName,
    launch: Arc<Launch>,
    token: RunToken,
    pid: u32,
    started_at: DateTime<Utc>,
    exit: Option<ExitStatus>,
    notes: BTreeMap<Note, String>,
    behaviour: Behaviour,
    last_activity: Option<DateTime<Utc>>,
    attached: bool,
    nudges: Vec<String>,
    keys: Vec<Key>,
}

impl MemorySessions {
    /// No sessions, no scripts.
    #[must_use]
    pub fn new(clock: Arc<MemoryClock>) -> Self {
        Self {
            clock,
            world: Arc::default(),
        }
    }

    /// What the agents of these names do from their next start on; `*` in the pattern is anything.
    /// A script for a whole name counts more than others, else the latest that fits.
    pub fn script(&self, pattern: &str, behaviour: Behaviour) {
        let mut world = self.world();
        if pattern.contains('*') {
            world.patterns.push((pattern.to_owned(), behaviour));
        } else {
            world.scripts.insert(pattern.to_owned(), behaviour);
        }
    }

    /// Ends the agent's current run. `false`: it has none.
    pub fn exit(&self, agent: &str, status: ExitStatus) -> bool {
        let mut world = self.world();
        let run = world
            .sessions
            .values()
            .find(|held| held.agent.as_str() == agent && held.exit.is_none());
        let Some(token) = run.map(|held| held.token.clone()) else {
            return false;
        };
        world.end(&token, status);
        true
    }

    /// The agent's session is gone, and nobody can say how. `false`: it has no live one.
    pub fn vanish(&self, agent: &str) -> bool {
        let gone = self.exit(agent, ExitStatus::Vanished);
        let mut world = self.world();
        world.sessions.retain(|_, held| {
            held.agent.as_str() != agent || held.exit != Some(ExitStatus::Vanished)
        });
        gone
    }

    /// Ends the agent's current run without telling anybody: a lost notification.
    pub fn exit_unnoticed(&self, agent: &str, status: ExitStatus) {
        let mut world = self.world();
        for held in world
            .sessions
            .values_mut()
            .filter(|held| held.agent.as_str() == agent)
        {
            held.exit = Some(status);
        }
    }

    /// The agent does something visible.
    pub fn touch(&self, agent: &str) {
        let now = self.clock.wall();
        self.each(agent, |held| held.last_activity = Some(now));
    }

    /// The agent prints something.
    pub fn say(&self, agent: &str, text: &str) {
        let now = self.clock.wall();
        self.each(agent, |held| {
            held.behaviour.output.push_str(text);
            held.last_activity = Some(now);
        });
    }

    /// Nobody can tell any more when the agent did something.
    pub fn hide_activity(&self, agent: &str) {
        self.each(agent, |held| held.last_activity = None);
    }

    /// Somebody attaches a terminal to the agent, or leaves.
    pub fn set_attached(&self, agent: &str, attached: bool) {
        let mut world = self.world();
        let mut told = Vec::new();
        for (session, held) in &mut world.sessions {
            if held.agent.as_str() == agent && held.attached != attached {
                held.attached = attached;
                told.push(SessionEvent {
                    session: session.clone(),
                    token: held.token.clone(),
                    kind: SessionEventKind::Attached(attached),
                });
            }
        }
        for event in told {
            world.tell(&event);
        }
    }

    /// The agent, or a gc process in its session, writes metadata.
    pub fn note(&self, agent: &str, note: Note, value: Option<&str>) {
        self.each(agent, |held| {
            match value {
                Some(value) => held.notes.insert(note, value.to_owned()),
                None => held.notes.remove(&note),
            };
        });
    }

    /// Metadata of the agent's session.
    #[must_use]
    pub fn noted(&self, agent: &str, note: Note) -> Option<String> {
        let world = self.world();
        let held = world
            .sessions
            .values()
            .find(|held| held.agent.as_str() == agent)?;
        held.notes.get(&note).cloned()
    }

    /// What the agent's current session was told.
    #[must_use]
    pub fn nudges(&self, agent: &str) -> Vec<String> {
        let world = self.world();
        let mut held = world.sessions.values();
        let held = held.find(|held| held.agent.as_str() == agent);
        held.map(|held| held.nudges.clone()).unwrap_or_default()
    }

    /// Keys that were sent to the agent's current session.
    #[must_use]
    pub fn keys(&self, agent: &str) -> Vec<Key> {
        let world = self.world();
        let mut held = world.sessions.values();
        let held = held.find(|held| held.agent.as_str() == agent);
        held.map(|held| held.keys.clone()).unwrap_or_default()
    }

    /// Where a live session was started.
    #[must_use]
    pub fn work_dir(&self, session: &SessionName) -> Option<PathBuf> {
        let world = self.world();
        let held = world.sessions.get(session);
        let held = held.filter(|held| held.exit.is_none())?;
        Some(held.launch.work_dir.clone())
    }

    /// Programs in the agent's session from now on.
    pub fn set_processes(&self, agent: &str, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.each(agent, |held| held.behaviour.processes.clone_from(&names));
    }

    /// Tells everybody who listens, whether it is true or not: late and repeated news.
    pub fn announce(&self, event: &SessionEvent) {
        self.world().tell(event);
    }

    fn each(&self, agent: &str, change: impl Fn(&mut Held)) {
        let mut world = self.world();
        for held in world
            .sessions
            .values_mut()
            .filter(|held| held.agent.as_str() == agent)
        {
            change(held);
        }
    }

    /// Adds a session that is not ours.
    pub fn add_foreign(&self, name: &str) {
        self.world().foreign.push(name.to_owned());
    }

    /// From now on a listing takes this long.
    pub fn delay_listing(&self, takes: Duration) {
        self.world().listing_takes = takes;
    }

    /// From now on a listing fails (or works again).
    pub fn fail_listing(&self, error: Option<SessionError>) {
        self.world().listing_fails = error;
    }

    /// From now on a listing panics, and whoever waits for it waits in vain (or works again).
    pub fn break_listing(&self, broken: bool) {
        self.world().listing_panics = broken;
    }

    /// From now on stops fail (or work again).
    pub fn fail_stops(&self, error: Option<SessionError>) {
        self.world().stops_fail = error;
    }

    /// From now on sessions lack their terminals, for this reason (or have them again).
    pub fn degrade(&self, why: Option<&str>) {
        self.world().degraded = why.map(str::to_owned);
    }

    /// What the agent's current session was launched with.
    #[must_use]
    pub fn launched(&self, agent: &str) -> Option<Arc<Launch>> {
        let world = self.world();
        let mut held = world.sessions.values();
        let held = held.find(|held| held.agent.as_str() == agent);
        held.map(|held| held.launch.clone())
    }

    /// Live agents with their tokens, sorted by name.
    #[must_use]
    pub fn running(&self) -> Vec<(String, RunToken)> {
        let mut live: Vec<_> = self
            .world()
            .sessions
            .values()
            .filter(|held| held.exit.is_none())
            .map(|held| (held.agent.to_string(), held.token.clone()))
            .collect();
        live.sort();
        live
    }

    /// Runs whose sessions exist, live or dead, sorted.
    #[must_use]
    pub fn present(&self) -> Vec<RunToken> {
        let world = self.world();
        let mut tokens: Vec<_> = world.sessions.values().map(|h| h.token.clone()).collect();
        tokens.sort();
        tokens
    }

    /// All calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.world().calls.clone()
    }

    /// Calls of one method on one session, or on any.
    #[must_use]
    pub fn count(&self, op: &str, session: Option<&str>) -> usize {
        let about = |call: &&Call| session.is_none_or(|session| call.session == session);
        self.world()
            .calls
            .iter()
            .filter(|call| call.op == op)
            .filter(about)
            .count()
    }

    /// Calls so far that change something.
    #[must_use]
    pub fn mutating(&self) -> Vec<Call> {
        self.world()
            .calls
            .iter()
            .filter(|call| call.is_mutating())
            .cloned()
            .collect()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.world().calls.clear();
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }
}

impl World {
    /// A run says something; one that is over does not.
    fn say(&mut self, token: &RunToken, text: &str, at: DateTime<Utc>) {
        let mut held = self.sessions.values_mut();
        let held = held.find(|held| held.token == *token && held.exit.is_none());
        if let Some(held) = held {
            held.behaviour.output.push_str(text);
            held.behaviour.output.push('\n');
            held.last_activity = Some(at);
        }
    }

    fn end(&mut self, token: &RunToken, status: ExitStatus) {
        let held = self
            .sessions
            .iter_mut()
            .find(|(_, held)| held.token == *token && held.exit.is_none());
        let Some((session, held)) = held else { return };
        held.exit = Some(status);
        let kind = SessionEventKind::Exited(status);
        let event = SessionEvent {
            session: session.clone(),
            token: token.clone(),
            kind,
        };
        self.tell(&event);
    }

    fn scripted(&self, agent: &AgentName) -> Behaviour {
        let fits = |(pattern, _): &&(String, Behaviour)| matches(pattern, agent.as_str());
        let script = self.scripts.get(agent.as_str());
        let script = script.or_else(|| Some(&self.patterns.iter().rev().find(fits)?.1));
        script.cloned().unwrap_or_default()
    }

    fn fenced(
        &mut self,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<Option<&mut Held>, SessionError> {
        match (self.sessions.get_mut(name), fence) {
            (Some(held), Fence::Token(token)) if held.token != *token => Err(SessionError::Fenced),
            (found, _) => Ok(found),
        }
    }
}
