use std::borrow::Borrow;
use std::collections::HashMap;

use tokio::time::Instant;

use super::slot::{Phase, Slot};
use crate::model::{SessionName, StopReason};
use crate::ports::{Facts, Listing};

/// One step towards the desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask [`super::admit`] about the slot, and start it if it agrees.
    Consider(usize),
    /// The slot has no run and must not have one: the user holds it back.
    Hold(usize),
    /// Stop the run of the slot.
    Stop(usize, StopReason),
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
}

/// Compares what is wanted with what is there. `None` for `observed` means that nothing could be
/// observed: then nobody is declared dead and nothing unknown is touched.
pub fn plan<S: Borrow<Slot>>(
    city_suspended: bool,
    slots: &[S],
    observed: Option<Observed<'_>>,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let seen = observed
        .map(|observed| by_session(observed.listing))
        .unwrap_or_default();
    for (index, slot) in slots.iter().map(Borrow::borrow).enumerate() {
        let wanted = slot.configured && !slot.spec.suspended && !city_suspended;
        match slot.phase {
            Phase::Running if !slot.configured => {
                actions.push(Action::Stop(index, StopReason::Orphan))
            }
            Phase::Running if !wanted => actions.push(Action::Stop(index, StopReason::Suspended)),
            Phase::Running if slot.has_drifted() => {
                actions.push(Action::Stop(index, StopReason::Drift))
            }
            Phase::Running => {
                if observed.is_some_and(|observed| is_missing(slot, &seen, observed)) {
                    actions.push(Action::Check(index));
                }
            }
            Phase::Stopped
            | Phase::Backoff { .. }
            | Phase::Quarantined { .. }
            | Phase::Suspended => {
                actions.push(if wanted {
                    Action::Consider(index)
                } else {
                    Action::Hold(index)
                });
            }
            Phase::Queued(_) if !wanted => actions.push(Action::Hold(index)),
            Phase::Starting if !slot.configured => {
                actions.push(Action::Stop(index, StopReason::Orphan))
            }
            Phase::Starting if !wanted => actions.push(Action::Stop(index, StopReason::Suspended)),
            Phase::Queued(_) | Phase::Starting | Phase::Stopping(_) | Phase::Done => {}
        }
    }
    if let Some(observed) = observed {
        unknown_sessions(slots, observed.listing, &mut actions);
    }
    actions
}

type Seen<'a> = HashMap<&'a SessionName, &'a Facts>;

fn by_session(listing: &Listing) -> Seen<'_> {
    listing
        .owned
        .iter()
        .map(|facts| (&facts.session, facts))
        .collect()
}

fn is_missing(slot: &Slot, seen: &Seen<'_>, observed: Observed<'_>) -> bool {
    let Some(run) = &slot.run else { return false };
    let alive = seen
        .get(&slot.spec.session)
        .is_some_and(|facts| facts.token == run.token && facts.live);
    !alive && run.started < observed.as_of
}

fn unknown_sessions<S: Borrow<Slot>>(slots: &[S], listing: &Listing, actions: &mut Vec<Action>) {
    let by_agent: HashMap<_, _> = slots
        .iter()
        .map(Borrow::borrow)
        .map(|slot| (&slot.spec.name, slot))
        .collect();
    for (index, facts) in listing.owned.iter().enumerate() {
        let slot = by_agent.get(&facts.agent);
        let ended = slot.is_some_and(|slot| slot.ended.as_ref() == Some(&facts.token));
        let busy =
            slot.is_some_and(|slot| slot.run.is_some() || matches!(slot.phase, Phase::Queued(_)));
        match (busy, ended) {
            (true, _) => {}
            (false, false) => actions.push(Action::Adopt(index)),
            (false, true) if !facts.live => actions.push(Action::Bury(index)),
            // Seen to end after the listing was made.
            (false, true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use chrono::DateTime;

    use super::*;
    use crate::model::{AgentSpec, Fingerprint, RunToken, StartCause};
    use crate::policy::Run;

    fn slot(name: &str, phase: Phase) -> Slot {
        let spec = AgentSpec::command(name, ["x"]).build().unwrap();
        let mut slot = Slot {
            phase,
            ..Slot::new(Arc::new(spec))
        };
        if matches!(phase, Phase::Running | Phase::Starting | Phase::Stopping(_)) {
            slot.run = Some(Run {
                token: token(name),
                started: Instant::now(),
                pid: None,
                fingerprint: Some(slot.spec.fingerprint.clone()),
                cause: StartCause::Initial,
                announced: true,
            });
        }
        slot
    }

    fn token(name: &str) -> RunToken {
        RunToken::new(format!("t-{name}")).unwrap()
    }

    fn facts(slot: &Slot, live: bool) -> Facts {
        Facts {
            session: slot.spec.session.clone(),
            agent: slot.spec.name.clone(),
            token: token(slot.spec.name.as_str()),
            live,
            pid: None,
            started_at: DateTime::UNIX_EPOCH,
            last_activity: None,
            attached: false,
            notes: BTreeMap::new(),
        }
    }

    fn listing(owned: Vec<Facts>) -> Listing {
        Listing {
            owned,
            foreign: Vec::new(),
        }
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    fn planned(slots: &[Slot], owned: Vec<Facts>) -> Vec<Action> {
        plan(
            false,
            slots,
            Some(Observed {
                listing: &listing(owned),
                as_of: later(),
            }),
        )
    }

    #[test]
    fn healthy_agents_need_nothing() {
        let slots = [slot("a", Phase::Running), slot("b", Phase::Done)];
        assert_eq!(planned(&slots, vec![facts(&slots[0], true)]), []);
    }

    #[test]
    fn what_rests_is_considered_and_what_is_under_way_is_left_alone() {
        let slots = [
            slot("a", Phase::Stopped),
            slot("b", Phase::Starting),
            slot("c", Phase::Stopping(StopReason::User)),
            slot("d", Phase::Quarantined { until: later() }),
        ];
        assert_eq!(
            planned(&slots, vec![]),
            [Action::Consider(0), Action::Consider(3)]
        );
    }

    #[test]
    fn another_fingerprint_is_drift_but_an_unknown_one_or_version_is_not() {
        let run_with = |fingerprint| {
            let mut slot = slot("a", Phase::Running);
            slot.run.as_mut().unwrap().fingerprint = fingerprint;
            slot
        };
        let hash = |hash: &str| {
            Some(Fingerprint {
                hash: hash.into(),
                fields: BTreeMap::new(),
            })
        };
        let table = [
            (hash("v1:00"), vec![Action::Stop(0, StopReason::Drift)]),
            (hash("v0:00"), vec![]),
            (None, vec![]),
        ];
        for (fingerprint, expected) in table {
            let slots = [run_with(fingerprint.clone())];
            assert_eq!(
                planned(&slots, vec![facts(&slots[0], true)]),
                expected,
                "{fingerprint:?}"
            );
        }
    }

    #[test]
    fn a_run_is_looked_at_closer_when_a_newer_listing_misses_it() {
        let slots = [slot("a", Phase::Running), slot("b", Phase::Running)];
        assert_eq!(
            planned(&slots, vec![facts(&slots[1], false)]),
            [Action::Check(0), Action::Check(1)]
        );
        let older = Instant::now() - Duration::from_secs(1);
        let nothing = listing(vec![]);
        assert_eq!(
            plan(
                false,
                &slots,
                Some(Observed {
                    listing: &nothing,
                    as_of: older
                })
            ),
            []
        );
    }

    #[test]
    fn without_a_listing_nobody_is_declared_dead() {
        let slots = [slot("a", Phase::Running), slot("b", Phase::Stopped)];
        assert_eq!(plan(false, &slots, None), [Action::Consider(1)]);
    }

    #[test]
    fn removed_and_suspended_agents_are_stopped() {
        let removed = Slot {
            configured: false,
            ..slot("a", Phase::Running)
        };
        let running = slot("b", Phase::Running);
        let slots = [removed, running];
        assert_eq!(
            plan(true, &slots, None),
            [
                Action::Stop(0, StopReason::Orphan),
                Action::Stop(1, StopReason::Suspended)
            ]
        );
    }

    #[test]
    fn sessions_nobody_knows_are_adopted_and_seen_ends_are_buried() {
        let stranger = slot("stranger", Phase::Stopped);
        let mut ended = slot("ended", Phase::Done);
        ended.ended = Some(token("ended"));
        let slots = [ended];
        let owned = vec![facts(&stranger, true), facts(&slots[0], false)];
        assert_eq!(planned(&slots, owned), [Action::Adopt(0), Action::Bury(1)]);
        let seen_to_end_since = vec![facts(&slots[0], true)];
        assert_eq!(planned(&slots, seen_to_end_since), []);
    }
}
