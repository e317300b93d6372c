//! What must hold after every step, and in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use gascity_actors::AskError;
use gascity_actors::memory::Call;
use gascity_actors::model::{
    AgentName, AgentState, CityView, InstanceView, RestartLimit, RestartType, RunToken,
};
use gascity_actors::ports::Note;
use tokio::time::{Instant, sleep};

use crate::steps::settle;
use crate::world::{AgentPlan, FOREIGN, SimCity, World};

/// Longest window, delays, stops and drains, with room to spare.
const QUIET: Duration = Duration::from_secs(915);
/// Ticks after which nothing may have changed.
const IDLE_TICKS: u32 = 20;

/// Checked after every step.
pub(crate) async fn after_step(world: &mut World) -> Result<(), String> {
    for at in 0..world.cities.len() {
        let asked = Instant::now();
        let view = world.view(at).await;
        if asked.elapsed() > Duration::ZERO {
            return Err(format!("a question took {:?}", asked.elapsed()));
        }
        let city = &mut world.cities[at];
        told(city)?;
        foreign(city)?;
        match view {
            Some(Ok(view)) => against_view(city, &view)?,
            Some(Err(AskError::NoAnswer)) => return Err("a question was not answered".into()),
            _ => {}
        }
    }
    mailboxes(world).await
}

/// Takes what the record found wrong, and looks at the order of events.
fn told(city: &mut SimCity) -> Result<(), String> {
    if let Some(violation) = city.observer.book().violations.first() {
        return Err(violation.clone());
    }
    let events = city.ports.journal.events();
    let fresh = &events[city.seen.saturating_sub(1)..];
    for pair in fresh.windows(2) {
        if pair[1].seq <= pair[0].seq || pair[1].ts < pair[0].ts {
            return Err(format!("event {} follows {}", pair[1].seq, pair[0].seq));
        }
    }
    city.seen = events.len();
    Ok(())
}

/// I27, and the call log is kept short.
fn foreign(city: &SimCity) -> Result<(), String> {
    let calls = city.ports.sessions.mutating();
    city.ports.sessions.clear_calls();
    match calls.iter().find(|call| FOREIGN.contains(&&*call.session)) {
        Some(call) => Err(format!("I27: {} of {}", call.op, call.session)),
        None => Ok(()),
    }
}

fn against_view(city: &SimCity, view: &CityView) -> Result<(), String> {
    let mut book = city.observer.book();
    let expected = book.in_force.as_ref().map(|spec| spec.revision.clone());
    if expected.as_ref() != Some(&view.config.revision) {
        return Err("another config is in force than the events tell".into());
    }
    let slots: BTreeSet<AgentName> = view
        .instances
        .iter()
        .map(|i| i.qualified_name.clone())
        .collect();
    if slots.len() != view.instances.len() {
        return Err("two slots of one name".into());
    }
    book.on_slots(slots);
    for instance in &view.instances {
        let (name, shown) = (&instance.qualified_name, instance.restarts_in_window);
        if instance.max_restarts > 0 && shown > instance.max_restarts {
            return Err(format!(
                "I4: {name} has {shown} of {} charged ends",
                instance.max_restarts
            ));
        }
        let limit = RestartLimit {
            max_restarts: instance.max_restarts,
            window: Duration::from_millis(instance.restart_window_ms),
        };
        let charged = book.charged(name, limit, Instant::now());
        if charged != shown as usize {
            return Err(format!(
                "{name} shows {shown} charged ends, the events tell of {charged}"
            ));
        }
        if instance.running && instance.session_id.is_none() {
            return Err(format!("{name} runs without a run"));
        }
    }
    Ok(())
}

async fn mailboxes(world: &World) -> Result<(), String> {
    let Some(door) = world.door() else {
        return Ok(());
    };
    let asked = Instant::now();
    let tree = door
        .tree()
        .await
        .map_err(|error| format!("the tree: {error}"))?;
    if asked.elapsed() > Duration::ZERO {
        return Err(format!("the tree took {:?}", asked.elapsed()));
    }
    match tree.root.walk().find(|node| node.mailbox_depth > 0) {
        Some(node) => Err(format!(
            "{} has {} messages left",
            node.path, node.mailbox_depth
        )),
        None => Ok(()),
    }
}

/// Live runs that a successor must leave alone, per city (I25).
pub(crate) async fn steady(world: &World) -> Vec<BTreeSet<(String, RunToken)>> {
    let mut all = Vec::new();
    for (at, city) in world.cities.iter().enumerate() {
        let view = world.view(at).await.and_then(Result::ok);
        all.push(view.map(|view| calm(city, &view)).unwrap_or_default());
    }
    all
}

/// Runs with nothing about them that calls for a stop. None, if somebody's end is still to be
/// found out: it may take others along.
fn calm(city: &SimCity, view: &CityView) -> BTreeSet<(String, RunToken)> {
    let sessions = &city.ports.sessions;
    let live = sessions.running();
    let odd = city.broken || !city.faults.is_empty() || sessions.present().len() > live.len();
    if odd || city.plan.agents.iter().any(|agent| agent.watched) {
        return BTreeSet::new();
    }
    let asks = |agent: &str| {
        let notes = [Note::RestartRequested, Note::DrainAck];
        notes
            .iter()
            .any(|note| sessions.noted(agent, *note).is_some())
    };
    let calm = |instance: &&InstanceView| {
        let agent = instance.qualified_name.as_str();
        instance.state == AgentState::Running
            && instance.drifted_from.is_none()
            && !is_restless(city, agent)
            && is_configured(city, agent)
            && !asks(agent)
    };
    let names: BTreeSet<&str> = (view.instances.iter().filter(calm))
        .map(|instance| instance.qualified_name.as_str())
        .collect();
    (live.into_iter())
        .filter(|(agent, _)| names.contains(agent.as_str()))
        .collect()
}

/// The runs live on, and nobody tried to end them.
pub(crate) fn untouched(
    city: &SimCity,
    steady: &BTreeSet<(String, RunToken)>,
) -> Result<(), String> {
    let (live, calls) = (
        city.ports.sessions.running(),
        city.ports.sessions.mutating(),
    );
    for (agent, token) in steady {
        let touched = |call: &&Call| call.session == *agent && call.op != "set_note";
        if let Some(call) = calls.iter().find(touched) {
            return Err(format!("I25: {} of {agent}, which was adopted", call.op));
        }
        if !live.iter().any(|(_, run)| run == token) {
            return Err(format!("I25: {agent} {token} did not survive"));
        }
    }
    Ok(())
}

/// Heals everything, waits, and demands that what runs is what should (I3), then that nothing
/// happens any more (I2).
pub(crate) async fn converge(world: &mut World) -> Result<(), String> {
    for city in &mut world.cities {
        city.heal();
        city.save();
    }
    if world.machine.is_none() {
        world.found().await;
    }
    sleep(QUIET).await;
    settle().await;
    rest(world).await;
    after_step(world).await?;
    let mut before = Vec::new();
    for at in 0..world.cities.len() {
        let view = world.view(at).await.unwrap_or(Err(AskError::NotRunning));
        let view = view.map_err(|error| format!("I3: after all faults healed: {error}"))?;
        settled(&world.cities[at], &view).map_err(|what| format!("I3: {what}"))?;
        before.push(still(&world.cities[at], &view));
    }
    for at in 0..world.cities.len() {
        sleep(world.cities[at].plan.interval * IDLE_TICKS).await;
    }
    settle().await;
    for (at, before) in before.into_iter().enumerate() {
        let view = world.city(at).ok_or("no machine")?.view().await;
        let view = view.map_err(|error| format!("I2: {error}"))?;
        let after = still(&world.cities[at], &view);
        if let Some(new) = after.iter().find(|line| !before.contains(*line)) {
            return Err(format!("I2: without a cause: {new}"));
        }
        let calls = world.cities[at].ports.sessions.mutating();
        let moved = calls
            .iter()
            .find(|call| !is_restless(&world.cities[at], &call.session));
        if let Some(call) = moved {
            return Err(format!("I2: without a cause: {} {}", call.op, call.session));
        }
    }
    after_step(world).await
}

/// Idle agents are restarted for ever; waits until none of them is between two runs.
async fn rest(world: &World) {
    for _ in 0..1000 {
        let mut between = false;
        for at in 0..world.cities.len() {
            let Some(Ok(view)) = world.view(at).await else {
                continue;
            };
            let moves = |i: &InstanceView| {
                matches!(i.state, AgentState::Starting | AgentState::Stopping)
                    && is_restless(&world.cities[at], i.qualified_name.as_str())
            };
            between |= view.instances.iter().any(moves);
        }
        if !between {
            return;
        }
        settle().await;
    }
}

/// The config of an instance.
fn plan_of<'a>(city: &'a SimCity, name: &str) -> Option<&'a AgentPlan> {
    city.plan.agents.iter().find(|agent| {
        let rest = name.strip_prefix(&agent.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Agents that are stopped for idleness never come to rest, nor does whoever looks at them.
fn is_restless(city: &SimCity, name: &str) -> bool {
    plan_of(city, name).is_some_and(|agent| agent.idle_timeout.is_some())
}

/// Wanted, as far as the config tells. Who was left out by a limit, and could not be stopped then,
/// does not show.
fn is_configured(city: &SimCity, name: &str) -> bool {
    let clear = city.plan.max_agents.is_none() || !city.stops_failed;
    let agent = plan_of(city, name);
    clear && !city.plan.suspended && agent.is_some_and(|agent| !agent.suspended)
}

/// Events and states, without those that never come to rest.
fn still(city: &SimCity, view: &CityView) -> Vec<String> {
    let events = city.ports.journal.events();
    let events = events
        .iter()
        .filter(|event| !is_restless(city, &event.subject))
        .map(|event| format!("event {} {} {}", event.seq, event.kind, event.subject));
    let states = view
        .instances
        .iter()
        .filter(|instance| !is_restless(city, instance.qualified_name.as_str()))
        .map(|i| format!("{} is {}", i.qualified_name, i.state.as_str()));
    events.chain(states).collect()
}

/// Running equals desired, minus what has a reason not to.
fn settled(city: &SimCity, view: &CityView) -> Result<(), String> {
    let spec = city.plan.spec();
    let up = |template: &AgentName| {
        view.instances.iter().any(|i| {
            let of = i
                .pool
                .as_ref()
                .map_or(&i.qualified_name, |pool| &pool.template);
            of == template && matches!(i.state, AgentState::Running | AgentState::Draining)
        })
    };
    let mut wanted = BTreeSet::new();
    for (index, agent) in city.plan.agents.iter().enumerate() {
        let template = &spec.agents[index];
        let count = agent.pool.map_or(1, |(min, _)| min);
        for slot in 1..=count {
            let name = template.instance(slot).name;
            wanted.insert(name.clone());
            let Some(instance) = view.instances.iter().find(|i| i.qualified_name == name) else {
                return Err(format!("{name} has no slot"));
            };
            let state = instance.state;
            let allowed = match state {
                _ if agent.suspended || spec.suspended => state == AgentState::Suspended,
                AgentState::Running | AgentState::Draining => true,
                AgentState::Starting | AgentState::Stopping => agent.idle_timeout.is_some(),
                AgentState::Done => agent.restart != RestartType::Permanent,
                AgentState::Limited => spec.max_agents.is_some(),
                AgentState::Blocked => waits_for(instance).is_some_and(|on| {
                    spec.agents.iter().any(|agent| agent.name == on)
                        && !up(&on)
                        && !is_empty_pool(city, &on)
                }),
                _ => false,
            };
            if !allowed {
                let why = instance.reason.clone().unwrap_or_default();
                return Err(format!("{name} is {} ({why})", state.as_str()));
            }
        }
    }
    for instance in &view.instances {
        // A suspended pool keeps the slots it has.
        let kept = instance.state == AgentState::Suspended;
        if !kept && !wanted.contains(&instance.qualified_name) {
            let state = instance.state.as_str();
            return Err(format!(
                "{} is {state} and not wanted",
                instance.qualified_name
            ));
        }
    }
    same_as_provider(city, view)
}

/// The template it says it waits for: a dependency, or whoever took it along.
fn waits_for(instance: &InstanceView) -> Option<AgentName> {
    let words = instance.reason.as_ref()?.strip_prefix("waits for ")?;
    AgentName::new(words.split(',').next()?).ok()
}

fn is_empty_pool(city: &SimCity, template: &AgentName) -> bool {
    let agent = city
        .plan
        .agents
        .iter()
        .find(|a| a.name == template.as_str());
    agent.is_some_and(|agent| !agent.suspended && agent.pool.is_some_and(|(min, _)| min == 0))
}

/// What the city believes is what the provider has, and every other run has its terminal event.
fn same_as_provider(city: &SimCity, view: &CityView) -> Result<(), String> {
    let live: BTreeSet<(String, String)> = city
        .ports
        .sessions
        .running()
        .into_iter()
        .map(|(agent, token)| (agent, token.to_string()))
        .collect();
    let shown: BTreeSet<(String, String)> = view
        .instances
        .iter()
        .filter(|instance| instance.running)
        .filter_map(|i| {
            Some((
                i.qualified_name.to_string(),
                i.session_id.as_ref()?.to_string(),
            ))
        })
        .collect();
    if let Some((agent, token)) = live.symmetric_difference(&shown).next() {
        return Err(format!("{agent} {token}: provider and city disagree"));
    }
    for (token, run) in &city.observer.book().runs {
        let on = live.iter().any(|(_, live)| live == token.as_str());
        if run.is_open() && !on {
            return Err(format!(
                "I29: {} {token} ended without a terminal event",
                run.agent
            ));
        }
        if !run.is_open() && on {
            return Err(format!(
                "I29: {} {token} is live and was said to have ended",
                run.agent
            ));
        }
    }
    Ok(())
}
