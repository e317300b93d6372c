//! The agents of a city as JSON text.
//!
//! With a thousand agents, writing them out costs more than all else in `gc status --json`. An
//! agent that runs and is well changes rarely, so its text is kept: only its age is put in anew.

use std::sync::Arc;

use tokio::time::Instant;

use super::CityState;
use super::slots::Entry;
use crate::model::{AgentSpec, AgentState, InstanceView, RunToken};
use crate::policy::Want;

/// What stands before the age.
const AGE: &str = "\"uptime_ms\":";

/// The text of an agent, and all that it was made of but its age.
#[derive(Debug)]
pub(super) struct Kept {
    of: Facts,
    head: String,
    tail: String,
}

/// Everything that the text of a running agent depends on.
#[derive(Debug, Clone, PartialEq)]
struct Facts {
    spec: Spec,
    token: RunToken,
    generation: u64,
    pid: Option<u32>,
    announced: bool,
    suspended: bool,
    drifted: bool,
    last_activity: Option<Instant>,
    restarts_in_window: u32,
    last_error: Option<String>,
    warnings: Vec<String>,
    pool_count: Option<u32>,
}

/// Specs never change: another one is another allocation.
#[derive(Debug, Clone)]
struct Spec(Arc<AgentSpec>);

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl CityState {
    /// All agents, as an array.
    pub(super) fn instances_text(&mut self) -> String {
        let now = self.now();
        let mut text = String::with_capacity(self.text_size + 1024);
        text.push('[');
        for index in 0..self.slots.all().len() {
            if index > 0 {
                text.push(',');
            }
            self.push_instance(index, now, &mut text);
        }
        text.push(']');
        self.text_size = text.len();
        text
    }

    fn push_instance(&mut self, index: usize, now: Instant, text: &mut String) {
        let entry = &self.slots.all()[index];
        let started = entry.slot.run.as_ref().map(|run| run.started);
        let facts = self.facts(entry, now);
        let (Some(facts), Some(started)) = (facts, started) else {
            let view = self.instance(entry, now);
            // Plain data; it cannot fail.
            text.push_str(&serde_json::to_string(&view).unwrap_or_default());
            return;
        };
        if entry.kept.as_ref().is_none_or(|kept| kept.of != facts) {
            let kept = kept(facts, &self.instance(entry, now));
            self.slots.keep(index, kept);
        }
        if let Some(kept) = &self.slots.all()[index].kept {
            let age = now.saturating_duration_since(started).as_millis();
            text.push_str(&kept.head);
            text.push_str(&age.to_string());
            text.push_str(&kept.tail);
        }
    }

    /// What the text of an agent that is up is made of; none for all others, whose reasons tell
    /// of times.
    fn facts(&self, entry: &Entry, now: Instant) -> Option<Facts> {
        let slot = &entry.slot;
        let run = slot.run.as_ref()?;
        if slot.state() != AgentState::Running {
            return None;
        }
        let drifted = run.fingerprint.as_ref();
        let drifted = drifted.is_some_and(|then| then.hash != slot.spec.fingerprint.hash);
        Some(Facts {
            spec: Spec(slot.spec.clone()),
            token: run.token.clone(),
            generation: slot.generation,
            pid: run.pid,
            announced: run.announced,
            suspended: slot.want == Want::Suspended,
            drifted,
            last_activity: run.last_activity,
            restarts_in_window: slot.ledger.count(slot.spec.limit.window, now),
            last_error: slot.last_error.as_ref().map(|e| e.message.clone()),
            warnings: run.warnings.clone(),
            pool_count: self.pool_view(entry).and_then(|pool| pool.count),
        })
    }
}

/// Cuts the text where the age stands. A quote within a value is escaped, so there is one such
/// place only.
fn kept(of: Facts, view: &InstanceView) -> Kept {
    // A field that is new here must be among the facts, follow from them or be constant.
    let InstanceView {
        name: _,
        qualified_name: _,
        state: _,
        reason: _,
        running: _,
        suspended: _,
        provider: _,
        pool: _,
        depends_on: _,
        last_activity: _,
        config_hash: _,
        drifted_from: _,
        session: _,
        session_id: _,
        generation: _,
        pid: _,
        uptime_ms: _,
        warnings: _,
        restarts_in_window: _,
        max_restarts: _,
        restart_window_ms: _,
        quarantined_until: _,
        retry_at: _,
        last_error: _,
    } = view;
    let whole = serde_json::to_string(view).unwrap_or_default();
    let at = whole.find(AGE).map_or(whole.len(), |at| at + AGE.len());
    let (head, rest) = whole.split_at(at);
    let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    Kept {
        of,
        head: head.to_owned(),
        tail: tail.to_owned(),
    }
}
