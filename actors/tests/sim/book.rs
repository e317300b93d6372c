//! What a city said and did, checked as it happens against a model of its own.
//!
//! The model is told of tokens, starts and events in the order of the calls. It holds what patrol.md
//! says follows from them: who is up, which ends are charged, which runs still owe a terminal event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{
    AgentName, AgentSpec, CitySpec, EventDraft, RestartLimit, RestartType, RunToken,
};
use tokio::time::Instant;

/// A requested restart after less than this is charged.
const TOO_SOON_MS: u64 = 60_000;
/// What a ledger without a limit keeps.
const UNLIMITED_KEPT: usize = 100;
/// Listings at one instant: one per thing that happens, and few things happen at once.
const MOST_LOOKS: u32 = 1000;

/// One city's record.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Every config this city was ever given, by revision.
    pub(crate) specs: BTreeMap<String, Arc<CitySpec>>,
    /// The config in force, as far as the events tell.
    pub(crate) in_force: Option<Arc<CitySpec>>,
    /// The last config that was read without an error.
    pub(crate) loaded: Option<Arc<CitySpec>>,
    pub(crate) runs: BTreeMap<RunToken, RunRecord>,
    pub(crate) violations: Vec<String>,
    pub(crate) starts: usize,
    /// The city stopped for good: nothing may start.
    pub(crate) stopped: bool,
    launches: BTreeMap<RunToken, Launch>,
    /// Runs of which this supervisor said that they are up, and not yet that they ended.
    alive: BTreeSet<RunToken>,
    ledgers: BTreeMap<AgentName, Vec<Instant>>,
    in_flight: BTreeSet<RunToken>,
    /// The supervisor has not seen the sessions yet.
    adopting: bool,
    /// Count of supervisors this city has had.
    supervisor: u32,
    quarantines: BTreeSet<(String, String)>,
    /// The order of stops is that of the plan: none failed, none was slow.
    pub(crate) orderly: bool,
    /// A graceful stop is under way: who does not leave in time is forced, dependents first.
    pub(crate) graceful: bool,
    /// Runs stopped in waves so far: template and when it was told.
    stopped_in_waves: Vec<(AgentName, u64)>,
    /// Counts events.
    now: u64,
    /// Slots this supervisor has shown last.
    slots: BTreeSet<AgentName>,
    /// Listings asked for at this instant.
    last_look: Option<Instant>,
    looks: u32,
}

/// What is known of one run.
#[derive(Debug)]
pub(crate) struct RunRecord {
    pub(crate) agent: AgentName,
    template: AgentName,
    /// When its ledger entry would say it began.
    started: Instant,
    /// When the provider brought it up.
    up_at: Option<Instant>,
    announced: bool,
    /// When it was, in events.
    announced_at: u64,
    ends: u32,
    /// The supervisor that told of its end.
    ended_under: u32,
    supervisor: u32,
    /// Its session vanished while nobody supervised it, so nobody can tell of its end.
    pub(crate) excused: bool,
}

impl RunRecord {
    /// It was announced, and its end is still to be told.
    pub(crate) fn is_open(&self) -> bool {
        self.announced && self.ends == 0 && !self.excused
    }
}

/// How things were when a run was decided upon.
#[derive(Debug)]
struct Launch {
    up: BTreeSet<AgentName>,
    spec: Option<Arc<CitySpec>>,
    at: Instant,
}

impl Book {
    fn fail(&mut self, what: String) {
        self.violations.push(what);
    }

    /// The supervisor decided upon a run.
    pub(crate) fn on_launch(&mut self, token: &RunToken) {
        let up = self.alive.iter().filter_map(|token| self.runs.get(token));
        let launch = Launch {
            up: up.map(|run| run.template.clone()).collect(),
            spec: self.in_force.clone(),
            at: Instant::now(),
        };
        self.launches.insert(token.clone(), launch);
    }

    /// The provider was asked to start it.
    pub(crate) fn on_start(&mut self, token: &RunToken, agent: &AgentName, template: &AgentName) {
        self.starts += 1;
        if self.stopped {
            self.fail(format!("I31: {agent} was started after the stop"));
        }
        self.in_flight.insert(token.clone());
        let Some(launch) = self.launches.remove(token) else {
            return; // tried again by the successor of a lost Worker
        };
        let bound = launch.spec.as_ref().map(|s| s.daemon.start_parallelism);
        if bound.is_some_and(|bound| self.in_flight.len() > bound) {
            let flight = self.in_flight.len();
            self.fail(format!("I28: {flight} starts in flight, bound {bound:?}"));
        }
        let spec = launch.spec.as_ref().and_then(|spec| spec.agent(template));
        if let (Some(spec), Some(city)) = (spec, &launch.spec) {
            for on in &spec.depends_on {
                if !launch.up.contains(on) && !may_be_empty(city, on) {
                    self.violations.push(format!(
                        "I28: {agent} was started before its dependency {on}"
                    ));
                }
            }
            if spec.suspended || city.suspended {
                self.violations
                    .push(format!("{agent} was started though suspended"));
            }
            let charged = self.charged(agent, spec.limit, launch.at);
            let max = spec.limit.max_restarts as usize;
            if max > 0 && charged >= max {
                self.violations.push(format!(
                    "I5: {agent} was started with {charged} of {max} charged ends in {:?}",
                    spec.limit.window
                ));
            }
        }
        let record = RunRecord {
            agent: agent.clone(),
            template: template.clone(),
            started: launch.at,
            up_at: None,
            announced: false,
            announced_at: 0,
            ends: 0,
            ended_under: 0,
            supervisor: self.supervisor,
            excused: false,
        };
        self.runs.insert(token.clone(), record);
    }

    /// The start is over, or was given up.
    pub(crate) fn on_start_over(&mut self, token: &RunToken) {
        self.in_flight.remove(token);
    }

    pub(crate) fn on_up(&mut self, token: &RunToken) {
        if let Some(run) = self.runs.get_mut(token) {
            run.up_at = Some(Instant::now());
        }
    }

    /// A start met a live session of the same agent.
    pub(crate) fn on_second_start(&mut self, agent: &AgentName) {
        self.fail(format!("{agent} was started while a session of it lives"));
    }

    /// An event is about to be recorded.
    pub(crate) fn on_event(&mut self, event: &EventDraft) {
        let text = |key: &str| event.payload.get(key).and_then(|value| value.as_str());
        self.now += 1;
        match event.kind.as_str() {
            "controller.started" => self.on_supervisor(),
            "controller.stopped" => self.stopped = true,
            "config.reloaded" => {
                self.ledgers.clear();
                self.stopped_in_waves.clear();
                let spec = text("revision").and_then(|revision| self.specs.get(revision));
                self.in_force = spec.cloned();
            }
            "agent.started" => self.on_announced(event, false),
            "agent.adopted" => self.on_announced(event, true),
            "agent.stopped" | "agent.crashed" | "agent.idle_killed" | "agent.suspended"
            | "agent.start_failed" => self.on_terminal(event),
            "agent.quarantined" => self.on_quarantined(event),
            "agent.unquarantined" => self.on_unquarantined(event),
            _ => {}
        }
    }

    /// A fresh supervisor: what only its predecessor knew is gone.
    fn on_supervisor(&mut self) {
        self.supervisor += 1;
        self.stopped = false;
        self.alive.clear();
        self.launches.clear();
        self.quarantines.clear();
        self.stopped_in_waves.clear();
        self.graceful = false;
        self.slots.clear();
        if let Some(spec) = self.loaded.clone() {
            self.in_force = Some(spec);
        }
        let persistent = self
            .in_force
            .as_ref()
            .is_some_and(|spec| spec.daemon.persist_crash_history);
        if !persistent {
            self.ledgers.clear();
        }
        self.adopting = true;
    }

    /// The sessions are asked for. Over and over without any time passing is a loop; then there is
    /// no answer, or the history would not end.
    pub(crate) fn on_look(&mut self) -> bool {
        let now = Instant::now();
        if self.last_look != Some(now) {
            (self.last_look, self.looks) = (Some(now), 0);
        }
        self.looks += 1;
        if self.looks == MOST_LOOKS {
            self.fail(format!("{MOST_LOOKS} listings in no time"));
        }
        self.looks < MOST_LOOKS
    }

    /// The sessions were listed. The first look of a supervisor shows all that it can know of the
    /// runs before it.
    pub(crate) fn on_listing(&mut self, present: &BTreeSet<RunToken>) {
        if !std::mem::take(&mut self.adopting) {
            return;
        }
        for (token, run) in &mut self.runs {
            if !present.contains(token) {
                run.excused |= run.ends == 0;
            } else if let Some(up_at) = run.up_at {
                run.started = up_at;
            }
        }
    }

    fn on_announced(&mut self, event: &EventDraft, adopted: bool) {
        let now = self.now;
        let Some((token, run)) = run_of(&mut self.runs, event) else {
            return self.fail(format!("I29: {} of an unknown run", event.kind));
        };
        let (again, over) = (run.announced && !adopted, run.ends > 0 || run.excused);
        let unborn = run.up_at.is_none();
        run.announced = true;
        run.announced_at = now;
        if adopted && let Some(up_at) = run.up_at {
            run.started = up_at;
        }
        self.alive.insert(token.clone());
        if again || over || unborn {
            let what = match () {
                () if again => "twice",
                () if over => "after its end",
                () => "before the provider brought it up",
            };
            self.fail(format!(
                "I29: {} {token} of {} {what}",
                event.kind, event.subject
            ));
        }
    }

    fn on_terminal(&mut self, event: &EventDraft) {
        let (supervisor, failed) = (self.supervisor, event.kind == "agent.start_failed");
        let Some((token, run)) = run_of(&mut self.runs, event) else {
            return self.fail(format!("I29: {} of an unknown run", event.kind));
        };
        // A successor finds only remains and cannot know what its predecessor said of them.
        let told = run.ends > 0 && run.ended_under == supervisor;
        let inherited = run.up_at.is_some() && run.supervisor != supervisor;
        let unannounced = !failed && !run.announced && !inherited;
        let contradicts = failed && run.announced;
        run.ends += 1;
        run.ended_under = supervisor;
        let what = match () {
            () if told => "second terminal event",
            () if unannounced => "terminal event of a run that was never announced",
            () if contradicts => "failed start of a run that was announced",
            () => "",
        };
        let (started, template) = (run.started, run.template.clone());
        let announced_at = run.announced_at;
        self.alive.remove(&token);
        if !what.is_empty() {
            let (kind, agent) = (&event.kind, &event.subject);
            self.fail(format!("I29: {what}: {kind} {agent} {token}"));
        }
        self.check_order(event, &template, announced_at);
        self.charge(event, &template, started);
    }

    /// I28: of those stopped in waves, dependents go first.
    fn check_order(&mut self, event: &EventDraft, template: &AgentName, announced_at: u64) {
        let reason = event
            .payload
            .get("reason")
            .and_then(|reason| reason.as_str());
        let forced = event.payload.contains_key("forced");
        let in_waves = match reason {
            Some("cascade") => true,
            Some("shutdown") => self.graceful && forced,
            _ => false,
        };
        if !self.orderly || !in_waves {
            return;
        }
        let needs = needs(self.in_force.as_deref(), template);
        // Whoever it needs was stopped while it was up.
        let early = |(on, at): &&(AgentName, u64)| *at > announced_at && needs.contains(on);
        if let Some((on, _)) = self.stopped_in_waves.iter().find(early) {
            let agent = &event.subject;
            self.violations.push(format!(
                "I28: {agent} was stopped after {on}, which it needs"
            ));
        }
        self.stopped_in_waves.push((template.clone(), self.now));
    }

    /// Keeps a ledger of its own, from the events alone (patrol.md 5).
    fn charge(&mut self, event: &EventDraft, template: &AgentName, started: Instant) {
        let Some(city) = self.in_force.clone() else {
            return;
        };
        let Some(spec) = city.agent(template) else {
            return; // on its way out
        };
        let text = |key: &str| event.payload.get(key).and_then(|value| value.as_str());
        let uptime = event.payload.get("uptime_ms").and_then(|v| v.as_u64());
        let uptime = uptime.unwrap_or_default();
        let stable = city.daemon.restart_delay_max.max(Duration::from_secs(1));
        let charged = match text("class").unwrap_or_default() {
            "planned" => text("reason") == Some("requested") && uptime < TOO_SOON_MS,
            "crash" | "spawn_failure" => spec.restart != RestartType::Temporary,
            "clean" => {
                spec.restart == RestartType::Permanent && Duration::from_millis(uptime) < stable
            }
            _ => false,
        };
        let Ok(agent) = AgentName::new(&event.subject) else {
            return;
        };
        if charged {
            let now = Instant::now();
            let ledger = self.ledgers.entry(agent).or_default();
            ledger.push(started);
            ledger.retain(|start| counts(*start, spec.limit, now));
            let over = ledger.len().saturating_sub(kept(spec.limit));
            ledger.drain(..over);
        }
    }

    fn on_quarantined(&mut self, event: &EventDraft) {
        let (agent, now) = (event.subject.clone(), Instant::now());
        let until = event.payload.get("until").map(ToString::to_string);
        if !self
            .quarantines
            .insert((agent.clone(), until.unwrap_or_default()))
        {
            self.fail(format!("I8: the quarantine of {agent} was told twice"));
        }
        if let Some((name, limit)) = self.limit_of(&agent) {
            let charged = self.charged(&name, limit, now);
            if charged < limit.max_restarts as usize || limit.max_restarts == 0 {
                self.fail(format!("{agent} quarantined after {charged} charged ends"));
            }
        }
    }

    fn on_unquarantined(&mut self, event: &EventDraft) {
        let agent = event.subject.clone();
        self.quarantines.retain(|(name, _)| *name != agent);
        let cause = event.payload.get("cause").and_then(|cause| cause.as_str());
        if cause != Some("expired") {
            return;
        }
        if let Some((name, limit)) = self.limit_of(&agent) {
            let charged = self.charged(&name, limit, Instant::now());
            if charged >= limit.max_restarts as usize {
                self.fail(format!(
                    "I6: {agent} left quarantine with {charged} charged ends"
                ));
            }
        }
    }

    fn limit_of(&self, agent: &str) -> Option<(AgentName, RestartLimit)> {
        let run = self
            .runs
            .values()
            .rev()
            .find(|run| run.agent.as_str() == agent)?;
        let spec = self.in_force.as_ref()?.agent(&run.template)?;
        Some((run.agent.clone(), spec.limit))
    }

    /// Charged ends that still count.
    pub(crate) fn charged(&self, agent: &AgentName, limit: RestartLimit, now: Instant) -> usize {
        let charged = self.ledgers.get(agent).map_or(0, |ledger| {
            ledger.iter().filter(|s| counts(**s, limit, now)).count()
        });
        charged.min(kept(limit))
    }

    /// The ledger of one agent is cleared; gives back what it held.
    pub(crate) fn forgive(&mut self, agent: &AgentName) -> Vec<Instant> {
        self.ledgers.remove(agent).unwrap_or_default()
    }

    /// Undoes [`Self::forgive`], if the command was refused.
    pub(crate) fn blame(&mut self, agent: &AgentName, ledger: Vec<Instant>) {
        self.ledgers.insert(agent.clone(), ledger);
    }

    /// Slots that are gone took their ledgers along. A supervisor that just began may not have
    /// them yet.
    pub(crate) fn on_slots(&mut self, slots: BTreeSet<AgentName>) {
        for gone in self.slots.difference(&slots) {
            self.ledgers.remove(gone);
        }
        self.slots = slots;
    }
}

fn run_of<'a>(
    runs: &'a mut BTreeMap<RunToken, RunRecord>,
    event: &EventDraft,
) -> Option<(RunToken, &'a mut RunRecord)> {
    let token = event.payload.get("session_id")?.as_str()?;
    let token = RunToken::new(token).ok()?;
    let run = runs.get_mut(&token)?;
    Some((token, run))
}

/// Everything a template depends on, directly or not.
fn needs(city: Option<&CitySpec>, template: &AgentName) -> BTreeSet<AgentName> {
    let (mut all, mut queue) = (BTreeSet::new(), vec![template.clone()]);
    while let Some(at) = queue.pop() {
        let spec = city.and_then(|city| city.agent(&at));
        for on in spec.iter().flat_map(|spec| &spec.depends_on) {
            if all.insert(on.clone()) {
                queue.push(on.clone());
            }
        }
    }
    all
}

/// A ledger holds no more than it takes for a quarantine.
fn kept(limit: RestartLimit) -> usize {
    match limit.max_restarts {
        0 => UNLIMITED_KEPT,
        max => max as usize,
    }
}

/// An entry exactly as old as the window still counts.
fn counts(start: Instant, limit: RestartLimit, now: Instant) -> bool {
    now.saturating_duration_since(start) <= limit.window
}

/// A pool that may want nobody holds nobody up; whether it does is only known inside.
fn may_be_empty(city: &CitySpec, template: &AgentName) -> bool {
    let pool = |agent: &Arc<AgentSpec>| agent.pool.clone();
    city.agent(template)
        .and_then(pool)
        .is_some_and(|pool| pool.min == 0 || pool.max == Some(0))
}
