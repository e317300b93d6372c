//! What should run: the desired set, and the checks that size pools.

use std::collections::HashMap;
use std::sync::Arc;

use super::{CityMsg, CityState};
use crate::model::{AgentName, AgentSpec, CitySpec, EventDraft, PoolSpec, StartCause};
use crate::policy::{Phase, Slot, Want, clamp, desired, parse_count, unnamed};
use crate::ports::{Listing, ShellError, ShellJob};

/// What is known of a pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Size wanted by the last good check of this city run.
    pub(super) count: Option<u32>,
    /// A check is under way; never two.
    checking: bool,
    /// The last check failed; told once per streak.
    failing: bool,
}

impl CityState {
    /// Brings the slots in line with config, pool counts and limits.
    pub(super) fn refresh(&mut self) {
        let spec = self.args.spec.clone();
        let now = self.now();
        let counts = self.counts();
        let set = {
            let slots = &self.slots;
            let running =
                |agent: &AgentName| slots.get(agent).is_some_and(|e| e.slot.run.is_some());
            desired(&spec, &counts, running)
        };
        let order: HashMap<AgentName, usize> = set
            .iter()
            .enumerate()
            .map(|(i, (agent, _))| (agent.name.clone(), i))
            .collect();
        for (agent, want) in set {
            match self.slots.get_mut(&agent.name) {
                Some(entry) => {
                    let resumed = entry.slot.want == Want::Suspended && want == Want::Yes;
                    if resumed && entry.slot.phase == Phase::Stopped {
                        entry.slot.phase = Phase::Backoff {
                            until: now,
                            cause: StartCause::User,
                        };
                    }
                    entry.slot.spec = agent;
                    entry.slot.want = want;
                }
                None => {
                    self.slots.add(Slot {
                        want,
                        ..Slot::new(agent)
                    });
                }
            }
        }
        for entry in self.slots.iter_mut() {
            if !order.contains_key(&entry.slot.spec.name) {
                if let Some(member) = member_now(&spec, &entry.slot.spec) {
                    entry.slot.spec = Arc::new(member);
                }
                entry.slot.want = unnamed(&spec, &entry.slot.spec, &counts);
            }
        }
        self.slots.reorder(&order);
        self.restore_ledgers();
    }

    fn counts(&self) -> HashMap<AgentName, u32> {
        let known = |(template, pool): (&AgentName, &Pool)| Some((template.clone(), pool.count?));
        self.pools.iter().filter_map(known).collect()
    }

    fn templates(&self) -> Vec<(Arc<AgentSpec>, Arc<PoolSpec>)> {
        let pool = |agent: &Arc<AgentSpec>| Some((agent.clone(), agent.pool.clone()?));
        self.args.spec.agents.iter().filter_map(pool).collect()
    }

    /// Launches the check of every pool that has none under way, a few at a time. Nobody waits for
    /// them.
    pub(super) fn check_pools(&mut self) {
        for (agent, pool) in self.templates() {
            let idle = self.args.spec.suspended || agent.suspended || pool.max == Some(0);
            let state = self.pools.entry(agent.name.clone()).or_default();
            let Some(line) = pool.check.clone().filter(|_| !idle && !state.checking) else {
                continue;
            };
            state.checking = true;
            let job = hook(line, &pool, &agent.name, pool.check_timeout);
            let (me, ports, checks) = (
                self.me.clone(),
                self.args.ports.clone(),
                self.checks.clone(),
            );
            tokio::spawn(async move {
                let _permit = checks.acquire().await; // never closed
                let result = match ports.shell.run(job).await {
                    Ok(output) => parse_count(&output).map_err(|error| (error, false)),
                    Err(error) => {
                        let timed_out = matches!(error, ShellError::TimedOut(_));
                        Err((error.to_string(), timed_out))
                    }
                };
                me.send(CityMsg::Checked(agent.name.clone(), result));
            });
        }
    }

    /// Applies a check when it arrives. A failed one keeps the last good count, or the minimum.
    pub(super) async fn on_checked(
        &mut self,
        template: &AgentName,
        result: Result<u32, (String, bool)>,
    ) {
        let spec = self
            .args
            .spec
            .agents
            .iter()
            .find(|agent| agent.name == *template)
            .cloned();
        let Some(pool) = spec.and_then(|agent| agent.pool.clone()) else {
            self.pools.remove(template);
            return; // no longer a pool
        };
        let state = self.pools.entry(template.clone()).or_default();
        state.checking = false;
        let before = state.count;
        state.count = Some(clamp(
            &pool,
            result.as_ref().ok().copied().or(before).unwrap_or(pool.min),
        ));
        let changed = state.count != before;
        let fresh = result.is_ok();
        let news = result.is_err() && !state.failing;
        state.failing = result.is_err();
        if let (true, Err((error, timed_out))) = (news, result) {
            let draft = EventDraft::new("pool.check_failed", template.as_str());
            self.emit(
                draft
                    .message(error.clone())
                    .with("error", error)
                    .with("timed_out", timed_out),
            );
        }
        if changed && self.is_open() {
            self.refresh();
        }
        if self.is_open() {
            if fresh {
                self.free_done(template);
            }
            self.plan_pool(template).await;
            if changed {
                self.retry_blocked(template).await;
            }
        }
    }

    /// Runs `on_boot` of each pool of which no live instance was adopted, once per city start.
    pub(super) fn boot_pools(&mut self, listing: &Listing) {
        if std::mem::replace(&mut self.booted, true) {
            return; // adopting again, after a swap of the provider
        }
        for (agent, pool) in self.templates() {
            let adopted = listing
                .owned
                .iter()
                .filter(|facts| facts.live)
                .any(|facts| {
                    let entry = self.slots.get(&facts.agent);
                    entry.is_some_and(|entry| entry.slot.spec.template == agent.name)
                });
            if let (false, Some(line)) = (adopted, pool.on_boot.clone()) {
                self.run_hook("on_boot", line, &pool, &agent.name);
            }
        }
    }

    /// Runs `on_death` after the end of a pool's run.
    pub(super) fn mourn(&self, instance: &AgentSpec) {
        if let Some(pool) = instance
            .pool
            .as_ref()
            .filter(|_| instance.pool_slot.is_some())
            && let Some(line) = pool.on_death.clone()
        {
            self.run_hook("on_death", line, pool, &instance.name);
        }
    }

    fn run_hook(&self, which: &'static str, line: String, pool: &PoolSpec, agent: &AgentName) {
        let job = hook(line, pool, agent, self.args.spec.daemon.check_timeout);
        let (ports, agent) = (self.args.ports.clone(), agent.clone());
        let checks = self.checks.clone();
        tokio::spawn(async move {
            let _permit = checks.acquire().await; // never closed
            if let Err(error) = ports.shell.run(job).await {
                tracing::warn!(%agent, %error, "{which} failed");
            }
        });
    }

    /// A template counts as up if one of its instances is, or if it is a pool that wants none.
    pub(super) fn is_up(&self, template: &AgentName) -> bool {
        // Whoever is about to be stopped is nothing to count on.
        let leaves = |agent: &AgentName| {
            let plan = self.stop_plan.as_ref();
            plan.is_some_and(|plan| plan.takes(agent))
        };
        if self.slots.any_alive(template, leaves) {
            return true;
        }
        let spec = self
            .args
            .spec
            .agents
            .iter()
            .find(|agent| agent.name == *template);
        let Some(pool) = spec
            .filter(|agent| !agent.suspended)
            .and_then(|agent| agent.pool.as_ref())
        else {
            return false;
        };
        match (
            self.pools.get(template).and_then(|pool| pool.count),
            &pool.check,
        ) {
            (Some(count), _) => clamp(pool, count) == 0,
            (None, None) => clamp(pool, pool.min) == 0,
            (None, Some(_)) => pool.max == Some(0),
        }
    }
}

/// The config in force for a member of a pool that is not wanted: how it leaves may have changed.
fn member_now(spec: &CitySpec, member: &AgentSpec) -> Option<AgentSpec> {
    let template = spec.agent(&member.template)?;
    let now = template.instance(member.pool_slot?);
    (template.is_template() && now.name == member.name).then_some(now)
}

fn hook(line: String, pool: &PoolSpec, agent: &AgentName, limit: std::time::Duration) -> ShellJob {
    let env = [("GC_AGENT".to_owned(), agent.to_string())].into();
    ShellJob {
        line,
        dir: pool.dir.clone(),
        env,
        run: None,
        limit,
    }
}
