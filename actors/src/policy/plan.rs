use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::slot::{DrainReason, Phase, Run, Slot, Want};
use crate::model::{Daemon, OnDrift, SessionName, StopReason};
use crate::ports::{Facts, Listing, Note};

/// One step towards the desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask [`super::admit`] about the slot, and start it if it agrees.
    Consider(usize),
    /// Forget the slot: it has no run and is in no config.
    Forget(usize),
    /// Stop the run of the slot.
    Stop(usize, StopReason),
    /// Ask the run to finish.
    Drain(usize, DrainReason),
    /// Take that wish back.
    Undrain(usize),
    /// Say that the config differs from the run's.
    TellDrift(usize),
    /// Run the live lines again, without a restart.
    ApplyLive(usize),
    /// The session is there, but none of the programs it should hold.
    Zombie(usize),
    /// The listing knows nothing, or nothing alive, of the slot's run: look closer.
    Check(usize),
    /// A session of ours that no slot knows: take it over. Index into the listing.
    Adopt(usize),
    /// Remains of a run whose end was seen: clear them away. Index into the listing.
    Bury(usize),
}

/// What a listing says, and from when it is.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The sessions.
    pub listing: &'a Listing,
    /// When the listing was asked for. It proves nothing about later runs.
    pub as_of: Instant,
    /// Sessions without the programs they should hold.
    pub zombies: &'a HashSet<SessionName>,
}

/// Compares what is wanted with what is there. `None` for `observed` means that nothing could be
/// observed: then nobody is declared dead and nothing unknown is touched.
pub fn plan<S: Borrow<Slot>>(
    slots: &[S],
    observed: Option<Observed<'_>>,
    daemon: &Daemon,
    now: Instant,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut seen = observed.map(|observed| Seen::new(observed.listing));
    let mut excess = Vec::new();
    for (index, slot) in slots.iter().map(Borrow::borrow).enumerate() {
        let facts = seen.as_mut().and_then(|seen| seen.take(slot));
        match (&slot.phase, &slot.run) {
            (Phase::Running, Some(run)) => {
                if leaves_pool(slot) && run.drain.is_none() && !run.acked {
                    excess.push((slot.spec.pool_slot, index));
                    continue;
                }
                let look =
                    observed.and_then(|observed| closer_look(index, slot, run, facts, observed));
                actions.extend(look.or_else(|| running(index, slot, run, daemon, now)));
            }
            (Phase::Starting, _) => {
                actions.extend(unwanted(&slot.want).map(|why| Action::Stop(index, why)))
            }
            (Phase::Queued(_) | Phase::Stopping(_) | Phase::Running, _) => {}
            _ if matches!(slot.want, Want::Gone | Want::Excess) => {
                actions.push(Action::Forget(index))
            }
            (Phase::Done, _) if slot.spec.pool_slot.is_none() => {}
            _ => actions.push(Action::Consider(index)),
        }
    }
    // The highest member of a pool leaves first.
    excess.sort_unstable_by(|a, b| b.cmp(a));
    actions.extend(
        excess
            .into_iter()
            .map(|(_, index)| Action::Drain(index, DrainReason::PoolExcess)),
    );
    if let Some(seen) = seen {
        unknown_sessions(slots, seen.left(), &mut actions);
    }
    actions
}

/// The step for one slot whose run is up, between listings.
#[must_use]
pub fn plan_running(slot: &Slot, daemon: &Daemon, now: Instant) -> Option<Action> {
    match (&slot.phase, &slot.run) {
        (Phase::Running, Some(run)) if leaves_pool(slot) && run.drain.is_none() && !run.acked => {
            Some(Action::Drain(0, DrainReason::PoolExcess))
        }
        (Phase::Running, Some(run)) => running(0, slot, run, daemon, now),
        _ => None,
    }
}

/// A member of a pool that is not wanted any more, or has no place, finishes what it is doing.
fn leaves_pool(slot: &Slot) -> bool {
    match slot.want {
        Want::Excess => true,
        Want::Limited => slot.spec.pool_slot.is_some(),
        _ => false,
    }
}

/// Why a run that is not wanted is stopped; members of a pool drain instead.
fn unwanted(want: &Want) -> Option<StopReason> {
    match want {
        Want::Suspended => Some(StopReason::Suspended),
        Want::Limited => Some(StopReason::Limited),
        Want::Gone => Some(StopReason::Orphan),
        Want::Excess => Some(StopReason::Orphan),
        Want::Yes | Want::Held(_) | Want::Frozen => None,
    }
}

/// What to do about a run that is up: the first thing that applies.
fn running(index: usize, slot: &Slot, run: &Run, daemon: &Daemon, now: Instant) -> Option<Action> {
    match slot.want {
        Want::Held(_) | Want::Frozen => return None,
        _ if leaves_pool(slot) => return drain_step(index, slot, run, now),
        Want::Suspended | Want::Limited | Want::Gone | Want::Excess => {
            return unwanted(&slot.want).map(|why| Action::Stop(index, why));
        }
        Want::Yes => {}
    }
    if let Some(action) = drain_step(index, slot, run, now) {
        return Some(action);
    }
    if run.drain.is_some() {
        return None;
    }
    if run.restart_requested {
        return Some(Action::Stop(index, StopReason::Requested));
    }
    let idle = slot
        .spec
        .idle_timeout
        .is_some_and(|limit| run.quiet_for_more_than(limit, now));
    if idle && !run.attached {
        return Some(Action::Stop(index, StopReason::Idle));
    }
    if slot.has_drifted() {
        return drift_step(index, slot, run, daemon, now);
    }
    slot.has_live_drift().then_some(Action::ApplyLive(index))
}

/// A run that was asked to finish, or says that it has.
fn drain_step(index: usize, slot: &Slot, run: &Run, now: Instant) -> Option<Action> {
    if run.acked {
        return Some(Action::Stop(index, StopReason::Drained));
    }
    let drain = run.drain?;
    let over = |limit: Duration| now.saturating_duration_since(drain.since) > limit;
    if drain.timeout.is_some_and(over) {
        return Some(Action::Stop(index, StopReason::DrainTimeout));
    }
    let pointless = match drain.reason {
        DrainReason::PoolExcess => slot.want == Want::Yes,
        DrainReason::ConfigDrift => !slot.has_drifted(),
        DrainReason::User => false,
    };
    pointless.then_some(Action::Undrain(index))
}

fn drift_step(
    index: usize,
    slot: &Slot,
    run: &Run,
    daemon: &Daemon,
    now: Instant,
) -> Option<Action> {
    if run.drift_told.as_ref() != Some(&slot.spec.fingerprint.hash) {
        return Some(Action::TellDrift(index));
    }
    if run.attached {
        return None;
    }
    match slot.spec.on_drift {
        OnDrift::Restart => Some(Action::Stop(index, StopReason::Drift)),
        OnDrift::Drain => Some(Action::Drain(index, DrainReason::ConfigDrift)),
        OnDrift::Idle if run.quiet_for_more_than(daemon.drift_idle_after, now) => {
            Some(Action::Stop(index, StopReason::Drift))
        }
        OnDrift::Idle | OnDrift::Report => None,
    }
}

/// A listing, of which each slot takes the session of its run.
struct Seen<'a> {
    owned: &'a [Facts],
    by_session: HashMap<&'a SessionName, usize>,
    taken: Vec<bool>,
}

impl<'a> Seen<'a> {
    fn new(listing: &'a Listing) -> Self {
        let owned = listing.owned.as_slice();
        let named = owned.iter().enumerate();
        Self {
            owned,
            by_session: named.map(|(i, facts)| (&facts.session, i)).collect(),
            taken: vec![false; owned.len()],
        }
    }

    fn take(&mut self, slot: &Slot) -> Option<&'a Facts> {
        let token = &slot.run.as_ref()?.token;
        let index = *self.by_session.get(&slot.spec.session)?;
        let facts = self.owned.get(index).filter(|f| f.token == *token)?;
        self.taken[index] = true;
        Some(facts)
    }

    /// Sessions that are no slot's run.
    fn left(self) -> Vec<(usize, &'a Facts)> {
        let left = self.owned.iter().enumerate().zip(self.taken);
        left.filter(|(_, taken)| !taken)
            .map(|(facts, _)| facts)
            .collect()
    }
}

/// The listing is the net under lost notifications.
fn closer_look(
    index: usize,
    slot: &Slot,
    run: &Run,
    facts: Option<&Facts>,
    observed: Observed<'_>,
) -> Option<Action> {
    if run.up >= observed.as_of {
        return None;
    }
    match facts {
        Some(facts) if facts.live => observed
            .zombies
            .contains(&slot.spec.session)
            .then_some(Action::Zombie(index)),
        // Nobody could say; the next listing may.
        None if !observed.listing.is_complete() => None,
        _ => Some(Action::Check(index)),
    }
}

fn unknown_sessions<S: Borrow<Slot>>(
    slots: &[S],
    unknown: Vec<(usize, &Facts)>,
    actions: &mut Vec<Action>,
) {
    if unknown.is_empty() {
        return; // as in almost every tick
    }
    let by_agent: HashMap<_, _> = slots
        .iter()
        .map(Borrow::borrow)
        .map(|slot| (&slot.spec.name, slot))
        .collect();
    for (index, facts) in unknown {
        let slot = by_agent.get(&facts.agent);
        let ended = slot.is_some_and(|slot| slot.ended.as_ref() == Some(&facts.token));
        let busy =
            slot.is_some_and(|slot| slot.run.is_some() || matches!(slot.phase, Phase::Queued(_)));
        let failed = slot.is_some_and(|slot| slot.failed.as_ref() == Some(&facts.token));
        let generation = |facts: &Facts| facts.notes.get(&Note::Generation)?.parse::<u64>().ok();
        let older = slot.is_some_and(|slot| generation(facts).is_some_and(|g| g < slot.generation));
        match (busy, ended) {
            // Its start was given up and reported as failed.
            _ if failed => actions.push(Action::Bury(index)),
            (true, _) => {}
            (false, false) if older => actions.push(Action::Bury(index)),
            (false, false) => actions.push(Action::Adopt(index)),
            (false, true) if !facts.live => actions.push(Action::Bury(index)),
            // Seen to end after the listing was made.
            (false, true) => {}
        }
    }
}

#[cfg(test)]
mod tests;
