//! Read-outs, answered from memory.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;
use tokio::time::Instant;

use super::slots::Entry;
use super::{CityState, Stage};
use crate::mailbox::Addr;
use crate::model::{AgentSpec, AgentState, CityMode, CityStatus, CityView, InstanceView, PoolView};
use crate::policy::{Phase, Want};
use crate::tree::{Kind, LastError, Node, Past};

impl CityState {
    pub(super) fn view(&self) -> CityView {
        let now = self.now();
        let slots = self.slots.all().iter();
        CityView {
            instances: slots.map(|entry| self.instance(entry, now)).collect(),
            ..self.view_without_agents()
        }
    }

    pub(super) fn view_without_agents(&self) -> CityView {
        let now = self.now();
        let degraded = self.args.ports.sessions.degraded(None);
        CityView {
            name: self.args.spec.name.clone(),
            path: self.args.spec.root.clone(),
            provider: self.args.ports.sessions.provider().to_owned(),
            provider_why: self.args.ports.sessions.why(),
            mode: match degraded {
                Some(_) => CityMode::Degraded,
                None => CityMode::Normal,
            },
            mode_reason: degraded,
            suspended: self.args.spec.suspended,
            uptime_sec: now.saturating_duration_since(self.began).as_secs(),
            last_tick_at: self.last_tick.map(|(at, _)| at),
            last_tick_ms: self.last_tick.map(|(_, took)| millis(took)),
            ticks_missed: self.gate.missed(),
            config: self.config.view(&self.args.spec.revision),
            instances: Vec::new(),
            foreign_sessions: self.foreign.clone(),
            degraded: self.blind.iter().cloned().chain(self.late()).collect(),
        }
    }

    fn late(&self) -> Option<String> {
        let why = self.unwatched.as_ref()?;
        let often = short(self.args.spec.daemon.patrol_interval);
        Some(format!(
            "config files are not watched: {why}; edits are seen within {often}"
        ))
    }

    fn own_provider(&self, agent: &AgentSpec) -> Option<String> {
        let sessions = &self.args.ports.sessions;
        let own = agent.launch.session.as_ref();
        own.map(|_| sessions.provider_of(&agent.session))
    }

    pub(super) fn instance(&self, entry: &Entry, now: Instant) -> InstanceView {
        let slot = &entry.slot;
        let name = slot.spec.name.as_str();
        let run = slot.run.as_ref();
        InstanceView {
            name: name.rsplit('/').next().unwrap_or(name).to_owned(),
            qualified_name: slot.spec.name.clone(),
            state: slot.state(),
            reason: self.reason(entry, now),
            running: run.is_some_and(|run| run.announced),
            suspended: slot.want == Want::Suspended,
            provider: self.own_provider(&slot.spec),
            pool: self.pool_view(entry),
            depends_on: slot.spec.depends_on.clone(),
            last_activity: run
                .and_then(|run| run.last_activity)
                .map(|at| self.wall_at(at)),
            config_hash: slot.spec.fingerprint.hash.clone(),
            drifted_from: run
                .and_then(|run| run.fingerprint.as_ref())
                .filter(|then| then.hash != slot.spec.fingerprint.hash)
                .map(|then| then.hash.clone()),
            session: slot.spec.session.clone(),
            session_id: run.map(|run| run.token.clone()),
            generation: slot.generation,
            pid: run.and_then(|run| run.pid),
            uptime_ms: run.map(|run| millis(now.saturating_duration_since(run.started))),
            restarts_in_window: slot.ledger.count(slot.spec.limit.window, now),
            max_restarts: slot.spec.limit.max_restarts,
            restart_window_ms: millis(slot.spec.limit.window),
            quarantined_until: self.quarantined_until(entry),
            retry_at: self.retry_at(entry),
            last_error: slot.last_error.as_ref().map(|e| e.message.clone()),
            warnings: run.map(|run| run.warnings.clone()).unwrap_or_default(),
        }
    }

    fn quarantined_until(&self, entry: &Entry) -> Option<DateTime<Utc>> {
        match entry.slot.phase {
            Phase::Quarantined { until } => Some(self.wall_at(until)),
            _ => None,
        }
    }

    fn retry_at(&self, entry: &Entry) -> Option<DateTime<Utc>> {
        match entry.slot.phase {
            Phase::Backoff { until, .. } => Some(self.wall_at(until)),
            _ => None,
        }
    }

    pub(super) fn pool_view(&self, entry: &Entry) -> Option<PoolView> {
        let spec = &entry.slot.spec;
        let pool = spec.pool.as_ref().filter(|_| spec.pool_slot.is_some())?;
        Some(PoolView {
            template: spec.template.clone(),
            min: pool.min,
            max: pool.max,
            count: self.pools.get(&spec.template).and_then(|pool| pool.count),
        })
    }

    /// Answers "why is it not running?".
    fn reason(&self, entry: &Entry, now: Instant) -> Option<String> {
        let slot = &entry.slot;
        let limit = slot.spec.limit;
        match slot.state() {
            AgentState::Quarantined => Some(format!(
                "crash loop: {} charged ends within {}",
                slot.ledger.count(limit.window, now),
                short(limit.window)
            )),
            AgentState::Backoff => Some(match &slot.last_error {
                Some(error) => {
                    format!("waiting before the next restart, after {}", error.message)
                }
                None => "waiting before the next restart".into(),
            }),
            AgentState::Starting if matches!(slot.phase, Phase::Queued(_)) => {
                Some("waiting for its turn to be started".into())
            }
            AgentState::Starting => Some("its start is under way".into()),
            AgentState::Blocked => {
                let on = slot
                    .blocked_on
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                Some(format!("waits for {on}, which is not up"))
            }
            AgentState::Suspended if self.args.spec.suspended => {
                Some("the city is suspended".into())
            }
            AgentState::Suspended => Some("suspended in the config".into()),
            AgentState::Limited => Some(format!(
                "left out by max_agents = {}",
                self.args.spec.max_agents.unwrap_or_default()
            )),
            AgentState::Held => match &slot.want {
                Want::Held(why) => Some(why.clone()),
                _ => None,
            },
            AgentState::Frozen => Some("the first check of its pool has not ended yet".into()),
            AgentState::Done => Some(format!(
                "ended, and restart = \"{}\" asks for no successor",
                json!(slot.spec.restart).as_str().unwrap_or_default()
            )),
            AgentState::Draining => {
                let drain = slot.run.as_ref().and_then(|run| run.drain);
                drain.map(|drain| format!("asked to finish: {}", drain.reason.as_str()))
            }
            AgentState::Stopping => match slot.phase {
                Phase::Stopping(reason) => Some(format!("being stopped: {}", reason.as_str())),
                _ => None,
            },
            AgentState::Stopped => Some(self.why_stopped(entry)),
            AgentState::Running => None,
        }
    }

    /// A slot at rest has a plan ahead of it, or its city has none.
    fn why_stopped(&self, entry: &Entry) -> String {
        match (&self.stage, &entry.slot.want) {
            (Stage::Stopping(_), _) => "the city is stopping".into(),
            (Stage::Swapping(_), _) => "the session provider is being swapped".into(),
            (_, Want::Gone | Want::Excess) => "no longer wanted".into(),
            _ => "to be started with the next plan".into(),
        }
    }

    /// The city's part of the actor tree.
    pub(super) fn tree(&self) -> Node {
        let now = self.now();
        let city = self.args.spec.name.to_string();
        let status = match &self.stage {
            Stage::Adopting => CityStatus::AdoptingSessions,
            Stage::Starting => CityStatus::StartingAgents,
            Stage::Running | Stage::Swapping(_) => CityStatus::Running,
            Stage::Stopping(_) => CityStatus::Stopping,
        };
        let mut node = Node::new(Kind::City, &city, &city, status.as_str())
            .gauged(&self.args.gauge, now)
            .since(self.began_at, now.saturating_duration_since(self.began))
            .with("provider", self.args.ports.sessions.provider());
        if let Some(tracker) = &self.tracker {
            let path = format!("{city}/tracker");
            node.children.push(
                Node::new(Kind::Tracker, "tracker", &path, "running")
                    .gauged(tracker.gauge(), now)
                    .since(self.began_at, now.saturating_duration_since(self.began)),
            );
        }
        node.children.extend(self.helpers(&city));
        let mut workers: Vec<Node> = self
            .slots
            .all()
            .iter()
            .map(|entry| self.worker_node(&city, entry, now))
            .collect();
        workers.sort_by(|a, b| a.name.cmp(&b.name));
        node.children.extend(workers);
        node
    }

    /// What works for the city behind its ports.
    fn helpers(&self, city: &str) -> [Node; 3] {
        let trouble =
            |message: Option<String>| message.map(|message| LastError { at: None, message });
        let ports = &self.args.ports;
        let log = ports.journal.trouble();
        let provider = ports.sessions.provider();
        [
            Node::helper(Kind::EventLog, "event-log", city, log),
            Node::helper(
                Kind::ConfigWatcher,
                "config-watcher",
                city,
                trouble(self.unwatched.clone()),
            ),
            Node::helper(
                Kind::Provider,
                "provider",
                city,
                trouble(self.blind.clone()),
            )
            .with("provider", provider),
        ]
    }

    /// What a child handled of late; nothing of a slot without a Worker.
    pub(super) fn past(&self, child: &str) -> Vec<Past> {
        let tracker = self.tracker.as_ref().filter(|_| child == "tracker");
        let gauge = match tracker {
            Some(tracker) => Some(tracker.gauge()),
            None => self.slots.worker(child).map(Addr::gauge),
        };
        gauge.map(|gauge| gauge.past()).unwrap_or_default()
    }

    fn worker_node(&self, city: &str, entry: &Entry, now: Instant) -> Node {
        let view = self.instance(entry, now);
        let name = view.qualified_name.as_str();
        let mut node = Node::new(
            Kind::Worker,
            name,
            &format!("{city}/{name}"),
            view.state.as_str(),
        );
        if let Some(worker) = &entry.worker {
            node = node.gauged(worker.gauge(), now);
        }
        if let Some(run) = &entry.slot.run {
            let age = now.saturating_duration_since(run.started);
            node = node.since(self.wall_at(run.started), age);
        }
        if let Some(pid) = view.pid {
            node = node.with("pid", pid);
        }
        if !view.depends_on.is_empty() {
            node = node.with("after", json!(view.depends_on));
        }
        node.restarts_in_window = Some(view.restarts_in_window);
        node.max_restarts = Some(view.max_restarts);
        node.restart_window_ms = Some(view.restart_window_ms);
        node.strategy = Some(entry.slot.spec.strategy);
        node.quarantined_until = view.quarantined_until;
        node.retry_at = view.retry_at;
        node.reason = view.reason;
        if view.state != AgentState::Running {
            let error = entry.slot.last_error.as_ref();
            node.last_error = error.map(|error| LastError {
                at: Some(self.wall_at(error.at)),
                message: error.message.clone(),
            });
        }
        node
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A span for people: `90s`, `10m`, `1h`.
fn short(span: Duration) -> String {
    match span.as_secs() {
        s if s >= 3600 && s % 3600 == 0 => format!("{}h", s / 3600),
        s if s >= 60 && s % 60 == 0 => format!("{}m", s / 60),
        0 => format!("{}ms", span.as_millis()),
        s => format!("{s}s"),
    }
}
