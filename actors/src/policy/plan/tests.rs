use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::DateTime;

use super::*;
use crate::model::{AgentSpec, AgentSpecBuilder, Fingerprint, RunToken, StartCause};
use crate::policy::Drain;

const MINUTE: Duration = Duration::from_secs(60);

fn agent(name: &str) -> AgentSpecBuilder {
    AgentSpec::command(name, ["x"])
}

fn slot(spec: AgentSpecBuilder, phase: Phase) -> Slot {
    let spec = spec.build().unwrap();
    let mut slot = Slot {
        phase,
        ..Slot::new(Arc::new(spec))
    };
    if matches!(phase, Phase::Running | Phase::Starting | Phase::Stopping(_)) {
        let mut run = Run::new(
            token(slot.spec.name.as_str()),
            Instant::now(),
            StartCause::Initial,
        );
        run.fingerprint = Some(slot.spec.fingerprint.clone());
        run.live_hash = Some(slot.spec.live_hash());
        run.announced = true;
        slot.run = Some(run);
    }
    slot
}

fn up(spec: AgentSpecBuilder, change: impl FnOnce(&mut Run)) -> Slot {
    let mut slot = slot(spec, Phase::Running);
    change(slot.run.as_mut().unwrap());
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
        ..Listing::default()
    }
}

fn later() -> Instant {
    Instant::now() + MINUTE
}

fn planned(slots: &[Slot], owned: Vec<Facts>) -> Vec<Action> {
    let observed = Observed {
        listing: &listing(owned),
        as_of: later(),
        zombies: &HashSet::new(),
    };
    plan(slots, Some(observed), &Daemon::default(), later())
}

fn alone(slot: &Slot) -> Vec<Action> {
    plan(
        std::slice::from_ref(slot),
        None,
        &Daemon::default(),
        later(),
    )
}

fn drifted(spec: AgentSpecBuilder, told: bool) -> Slot {
    up(spec, |run| {
        let current = run.fingerprint.clone().unwrap().hash;
        run.fingerprint = Some(Fingerprint {
            hash: "v1:00".into(),
            fields: BTreeMap::new(),
        });
        run.drift_told = told.then_some(current);
    })
}

#[test]
fn healthy_agents_need_nothing() {
    let slots = [
        slot(agent("a"), Phase::Running),
        slot(agent("b"), Phase::Done),
    ];
    assert_eq!(planned(&slots, vec![facts(&slots[0], true)]), []);
}

#[test]
fn what_rests_is_considered_and_what_is_under_way_is_left_alone() {
    let slots = [
        slot(agent("a"), Phase::Stopped),
        slot(agent("b"), Phase::Starting),
        slot(agent("c"), Phase::Stopping(StopReason::User)),
        slot(agent("d"), Phase::Quarantined { until: later() }),
    ];
    assert_eq!(
        planned(&slots, vec![]),
        [Action::Consider(0), Action::Consider(3)]
    );
}

#[test]
fn for_a_run_that_is_up_the_first_thing_that_applies_is_done() {
    let idle = |run: &mut Run| run.last_activity = Some(run.started - MINUTE);
    let requested = |run: &mut Run| run.restart_requested = true;
    let timed = || agent("a").idle_timeout(MINUTE);
    let both = up(timed(), |run| {
        idle(run);
        requested(run);
    });
    assert_eq!(
        alone(&both),
        [Action::Stop(0, StopReason::Requested)],
        "the request comes first"
    );
    assert_eq!(
        alone(&up(timed(), idle)),
        [Action::Stop(0, StopReason::Idle)]
    );
    let attached = up(timed(), |run| {
        idle(run);
        run.attached = true;
    });
    assert_eq!(alone(&attached), [], "an attached terminal is sacred");
    let mut idle_and_drifted = drifted(timed(), true);
    idle(idle_and_drifted.run.as_mut().unwrap());
    assert_eq!(
        alone(&idle_and_drifted),
        [Action::Stop(0, StopReason::Idle)]
    );
    let unknown = up(timed(), |_| {});
    assert_eq!(alone(&unknown), [], "unknown activity is not idleness");
}

#[test]
fn drift_is_told_once_and_then_handled_as_configured() {
    assert_eq!(alone(&drifted(agent("a"), false)), [Action::TellDrift(0)]);
    let table = [
        (OnDrift::Restart, vec![Action::Stop(0, StopReason::Drift)]),
        (
            OnDrift::Drain,
            vec![Action::Drain(0, DrainReason::ConfigDrift)],
        ),
        (OnDrift::Report, vec![]),
        (OnDrift::Idle, vec![]),
    ];
    for (on_drift, expected) in table {
        assert_eq!(
            alone(&drifted(agent("a").on_drift(on_drift), true)),
            expected,
            "{on_drift:?}"
        );
    }
    let mut quiet = drifted(agent("a").on_drift(OnDrift::Idle), true);
    let run = quiet.run.as_mut().unwrap();
    run.last_activity = Some(run.started - 2 * MINUTE);
    assert_eq!(alone(&quiet), [Action::Stop(0, StopReason::Drift)]);
    let mut attached = drifted(agent("a"), true);
    attached.run.as_mut().unwrap().attached = true;
    assert_eq!(
        alone(&attached),
        [],
        "deferred while a terminal is attached"
    );
}

#[test]
fn an_unknown_hash_or_version_is_no_drift() {
    for fingerprint in [None, Some("v0:00")] {
        let slot = up(agent("a"), |run| {
            run.fingerprint = fingerprint.map(|hash| Fingerprint {
                hash: hash.into(),
                fields: BTreeMap::new(),
            });
        });
        assert_eq!(alone(&slot), [], "{fingerprint:?}");
    }
}

#[test]
fn changed_live_lines_are_run_again_without_a_restart() {
    let slot = up(agent("a").live(["new"]), |run| {
        run.live_hash = Some(String::new())
    });
    assert_eq!(alone(&slot), [Action::ApplyLive(0)]);
}

#[test]
fn a_drain_ends_by_ack_timeout_or_because_it_became_pointless() {
    let drain = |reason, timeout| Drain {
        since: Instant::now(),
        reason,
        timeout,
    };
    let run_with = |want, drain, acked| {
        let mut slot = up(agent("a"), |run| {
            run.drain = drain;
            run.acked = acked;
        });
        slot.want = want;
        slot
    };
    let excess = drain(DrainReason::PoolExcess, Some(2 * MINUTE));
    let user = drain(DrainReason::User, None);
    let short = drain(DrainReason::PoolExcess, Some(MINUTE / 2));
    let drift = drain(DrainReason::ConfigDrift, Some(2 * MINUTE));
    let table = [
        (Want::Excess, Some(excess), false, vec![]),
        (
            Want::Excess,
            Some(excess),
            true,
            vec![Action::Stop(0, StopReason::Drained)],
        ),
        (
            Want::Excess,
            Some(short),
            false,
            vec![Action::Stop(0, StopReason::DrainTimeout)],
        ),
        (Want::Yes, Some(excess), false, vec![Action::Undrain(0)]),
        (
            Want::Yes,
            Some(excess),
            true,
            vec![Action::Stop(0, StopReason::Drained)],
        ),
        (Want::Yes, Some(drift), false, vec![Action::Undrain(0)]),
        (Want::Yes, Some(user), false, vec![]),
        (
            Want::Yes,
            None,
            true,
            vec![Action::Stop(0, StopReason::Drained)],
        ),
        (
            Want::Excess,
            None,
            false,
            vec![Action::Drain(0, DrainReason::PoolExcess)],
        ),
    ];
    for (want, drain, acked, expected) in table {
        let slot = run_with(want.clone(), drain, acked);
        assert_eq!(alone(&slot), expected, "{want:?} {drain:?} {acked}");
    }
}

#[test]
fn unwanted_runs_are_stopped_drained_or_left_alone() {
    let table = [
        (
            Want::Suspended,
            vec![Action::Stop(0, StopReason::Suspended)],
        ),
        (Want::Limited, vec![Action::Stop(0, StopReason::Limited)]),
        (Want::Gone, vec![Action::Stop(0, StopReason::Orphan)]),
        (Want::Held("x".into()), vec![]),
        (Want::Frozen, vec![]),
    ];
    for (want, expected) in table {
        let slot = Slot {
            want: want.clone(),
            ..slot(agent("a"), Phase::Running)
        };
        assert_eq!(alone(&slot), expected, "{want:?}");
    }
}

#[test]
fn the_highest_members_of_a_pool_leave_first() {
    let member = |number: u32| {
        let pool = crate::model::PoolSpec {
            max: None,
            ..Default::default()
        };
        let spec = agent("w").pool(pool).build().unwrap().instance(number);
        let mut member = slot(agent("w"), Phase::Running);
        member.spec = Arc::new(spec);
        member.want = Want::Excess;
        member
    };
    let slots = [member(1), member(2), member(3)];
    let order = plan(&slots, None, &Daemon::default(), later());
    let expected: Vec<Action> = [2, 1, 0]
        .map(|i| Action::Drain(i, DrainReason::PoolExcess))
        .into();
    assert_eq!(order, expected);
}

#[test]
fn a_run_is_looked_at_closer_when_a_newer_listing_misses_it() {
    let slots = [
        slot(agent("a"), Phase::Running),
        slot(agent("b"), Phase::Running),
    ];
    assert_eq!(
        planned(&slots, vec![facts(&slots[1], false)]),
        [Action::Check(0), Action::Check(1)]
    );
    let older = Instant::now() - MINUTE;
    let nothing = listing(vec![]);
    let observed = Observed {
        listing: &nothing,
        as_of: older,
        zombies: &HashSet::new(),
    };
    assert_eq!(
        plan(&slots, Some(observed), &Daemon::default(), later()),
        []
    );
}

#[test]
fn a_listing_asked_for_while_the_run_was_starting_proves_nothing() {
    let started = up(agent("a"), |run| run.up = later());
    let nothing = listing(vec![]);
    let observed = Observed {
        listing: &nothing,
        as_of: later() - MINUTE,
        zombies: &HashSet::new(),
    };
    assert!(
        started
            .run
            .as_ref()
            .is_some_and(|run| run.started < observed.as_of)
    );
    assert_eq!(
        plan(&[started], Some(observed), &Daemon::default(), later()),
        []
    );
}

#[test]
fn a_session_without_its_programs_is_a_zombie() {
    let slots = [slot(agent("a"), Phase::Running)];
    let zombies = HashSet::from([slots[0].spec.session.clone()]);
    let listing = listing(vec![facts(&slots[0], true)]);
    let observed = Observed {
        listing: &listing,
        as_of: later(),
        zombies: &zombies,
    };
    assert_eq!(
        plan(&slots, Some(observed), &Daemon::default(), later()),
        [Action::Zombie(0)]
    );
}

#[test]
fn without_a_listing_nobody_is_declared_dead() {
    let slots = [
        slot(agent("a"), Phase::Running),
        slot(agent("b"), Phase::Stopped),
    ];
    assert_eq!(
        plan(&slots, None, &Daemon::default(), later()),
        [Action::Consider(1)]
    );
}

#[test]
fn sessions_nobody_knows_are_adopted_and_seen_ends_are_buried() {
    let stranger = slot(agent("stranger"), Phase::Stopped);
    let mut ended = slot(agent("ended"), Phase::Done);
    ended.ended = Some(token("ended"));
    let slots = [ended];
    let owned = vec![facts(&stranger, true), facts(&slots[0], false)];
    assert_eq!(planned(&slots, owned), [Action::Adopt(0), Action::Bury(1)]);
    let seen_to_end_since = vec![facts(&slots[0], true)];
    assert_eq!(planned(&slots, seen_to_end_since), []);
}
