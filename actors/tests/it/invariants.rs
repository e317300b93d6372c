//! Invariants of patrol.md 15 that have no better place.
//!
//! Elsewhere: I2, I21 `patrol.rs`; I4 the ledger's own tests; I5, I6, I8 `quarantine.rs`; I7
//! `history.rs`; I15 `reload.rs`; I16 here and in `races.rs`; I18 `pools.rs`; I20 here and in
//! `swap.rs`; I22 `restart.rs`; I24 `isolation.rs`; I25 `adoption.rs`; I26 `isolation.rs`; I31 here
//! and in `shutdown.rs`; I32 `stall.rs`.
//!
//! Not here, for they need more than ports in memory: I1, I12 and I17 (the root's black-box
//! `invariants`), I11 and the orders of I14 (orders), the source scan of I13 (the root's tidy
//! test). I3, I28 and I29 are in `histories.rs`.

use std::time::Duration;

use gascity_actors::memory::MemoryClock;
use gascity_actors::model::{AgentSpecBuilder, CityStatus};
use gascity_actors::ports::{Note, SessionEvent, SessionEventKind};
use gascity_actors::{AgentCommand, Machine, MachinePorts, MachineSettings, StopMode};

use crate::util::{
    CRASH, HOUR, MINUTE, Town, agent, calls_of, chain, city, pass, pool, save, settle, since,
    starts_in, story, stubborn, up,
};

const SECOND: Duration = Duration::from_secs(1);

/// Invariant I9: drift is a matter of content.
#[tokio::test(start_paused = true)]
async fn only_another_command_restarts() {
    let base = || {
        let db = agent("db").env("A", "1").env("B", "2");
        city("a").agent(db).agent(agent("api"))
    };
    let (_town, city) = Town::with(base()).await;
    city.sessions.clear_calls();
    save(&city, base()).await; // touched
    let reordered = agent("db").env("B", "2").env("A", "1");
    save(
        &city,
        crate::util::city("a").agent(agent("api")).agent(reordered),
    )
    .await;
    pass(MINUTE).await;
    assert_eq!(city.sessions.mutating(), []);
    let one_byte = gascity_actors::model::AgentSpec::command("db", ["run", "dc"]);
    let edited = one_byte.env("A", "1").env("B", "2");
    save(
        &city,
        crate::util::city("a").agent(agent("api")).agent(edited),
    )
    .await;
    pass(MINUTE).await;
    assert_eq!(calls_of(&city, "start"), ["db"]);
}

/// Invariant I10: keys of supervision never restart.
#[tokio::test(start_paused = true)]
async fn edits_of_supervision_keys_restart_nobody() {
    let town = Town::new().await;
    let workers = |max| gascity_actors::model::PoolSpec {
        max: Some(max),
        ..pool()
    };
    let spec = |db: AgentSpecBuilder, max| {
        city("a")
            .agent(db)
            .agent(agent("api"))
            .agent(agent("w").pool(workers(max)))
    };
    let city = town.add(spec(agent("db"), 3));
    city.shell.prints("count", "2");
    settle().await;
    let before = city.sessions.running();
    city.sessions.clear_calls();
    let edits = [
        agent("db").idle_timeout(HOUR),
        agent("db").idle_timeout(HOUR).depends_on("api"),
        agent("db").max_restarts(9, MINUTE),
        agent("db").restart(gascity_actors::model::RestartType::Transient),
        agent("db").strategy(gascity_actors::model::Strategy::OneForAll),
    ];
    for (i, db) in edits.into_iter().enumerate() {
        save(&city, spec(db, 4 + u32::try_from(i).unwrap())).await;
        pass(MINUTE).await;
    }
    assert_eq!(city.journal.count("config.reloaded", ""), 5);
    assert_eq!(city.sessions.mutating(), []);
    assert_eq!(city.sessions.running(), before);
}

/// Invariant I13: names mean nothing. The same history under other names is the same trace.
#[tokio::test(start_paused = true)]
async fn renaming_every_agent_changes_nothing_but_the_names() {
    async fn history(names: [&str; 3]) -> Vec<String> {
        let [web, api, db] = names;
        let spec = city("a")
            .agent(agent(web).depends_on(api))
            .agent(agent(api).depends_on(db))
            .agent(agent(db));
        let (_town, city) = Town::with(spec).await;
        city.sessions.exit(api, CRASH);
        pass(MINUTE).await;
        city.sessions.exit(db, CRASH);
        pass(MINUTE).await;
        let plain = |line: String| {
            let line = line.replace(web, "1").replace(api, "2");
            line.replace(db, "3")
        };
        story(&city).into_iter().map(plain).collect()
    }
    assert_eq!(
        history(["web", "api", "db"]).await,
        history(["one", "two", "three"]).await
    );
}

/// Invariant I14, without orders: a city without agents works.
#[tokio::test(start_paused = true)]
async fn a_city_without_agents_ticks_reloads_and_stops() {
    let (town, city) = Town::with(city("a")).await;
    assert_eq!(town.status("a"), CityStatus::Running);
    city.sessions.clear_calls();
    pass(5 * MINUTE).await;
    assert_eq!(city.sessions.count("snapshot", None), 10);
    let edited = crate::util::city("a").daemon(|d| d.stop_parallelism = 2);
    save(&city, edited).await;
    assert_eq!(city.journal.count("config.reloaded", ""), 1);
    town.door().stop(StopMode::Graceful).await.unwrap();
    assert_eq!(city.journal.trace().last().unwrap(), "controller.stopped");
}

/// Invariant I16: a reload in the middle of a tick leaves one revision in force. Everything that
/// runs in the end was started with it, or restarted for it once.
#[tokio::test(start_paused = true)]
async fn a_reload_during_checks_starts_and_drains_leaves_one_revision() {
    let town = Town::new().await;
    let spec = |value: &str| {
        let worker = agent("w").env("A", value).pool(pool());
        let db = agent("db").env("A", value);
        city("a")
            .agent(agent("api").env("A", value).depends_on("db"))
            .agent(db)
            .agent(worker)
    };
    let city = town.add(spec("1"));
    city.sessions.script("db", starts_in(5 * SECOND));
    city.sessions.delay_listing(2 * SECOND);
    city.shell.prints("count", "3");
    pass(9 * SECOND).await;
    city.shell.prints("count", "1");
    town.city("a").poke().await.unwrap();
    pass(SECOND).await; // a listing and a check are under way
    save(&city, spec("2")).await;
    city.sessions.script("db", starts_in(Duration::ZERO));
    pass(10 * MINUTE).await;
    assert_eq!(up(&city), ["api", "db", "w-1"]);
    for name in up(&city) {
        let current = town.instance("a", &name).await;
        let stored = city.sessions.noted(&name, Note::ConfigHash);
        assert_eq!(stored, Some(current.config_hash), "{name}");
        assert!(city.journal.count("agent.drifted", &name) <= 1, "{name}");
    }
}

/// Invariant I19: supervised, standalone or library: one code path, one trace.
#[tokio::test(start_paused = true)]
async fn the_trace_is_the_same_in_every_mode() {
    async fn trace(mode: &str) -> Vec<String> {
        let town = Town::new().await;
        town.door().stop(StopMode::Graceful).await.unwrap();
        let ports = MachinePorts {
            cities: town.cities.clone(),
            journal: town.journal.clone(),
            clock: std::sync::Arc::new(MemoryClock::new()),
        };
        let settings = MachineSettings {
            mode: mode.into(),
            ..MachineSettings::default()
        };
        let machine = Machine::spawn(settings, ports).await.unwrap();
        let city = town.add(chain());
        pass(MINUTE).await;
        city.sessions.exit("api", CRASH);
        pass(MINUTE).await;
        machine.door().stop(StopMode::Graceful).await.unwrap();
        city.journal.trace()
    }
    let library = trace("library").await;
    assert_eq!(trace("supervisor").await, library);
    assert_eq!(trace("standalone").await, library);
}

/// Invariant I20: everybody is interrupted before anybody is forced.
#[tokio::test(start_paused = true)]
async fn every_session_is_interrupted_before_the_first_is_forced() {
    let town = Town::new().await;
    let mut spec = city("a");
    for i in 0..40 {
        spec = spec.agent(agent(&format!("w{i}")));
    }
    let city = town.add(spec);
    for i in 0..40 {
        city.sessions.script(&format!("w{i}"), stubborn());
    }
    pass(MINUTE).await;
    town.door().stop(StopMode::Graceful).await.unwrap();
    let calls = city.sessions.calls();
    let first_force = calls.iter().position(|c| c.op == "stop").unwrap();
    let last_interrupt = calls.iter().rposition(|c| c.op == "interrupt").unwrap();
    assert!(last_interrupt < first_force);
    assert_eq!(city.sessions.count("interrupt", None), 40);
}

/// Invariant I20, second half: without a grace nobody is interrupted.
#[tokio::test(start_paused = true)]
async fn without_a_grace_nobody_is_interrupted() {
    let spec = chain().daemon(|d| d.shutdown_timeout = Duration::ZERO);
    let (town, city) = Town::with(spec).await;
    town.command("a", "db", AgentCommand::Restart)
        .await
        .unwrap();
    settle().await;
    town.door().stop(StopMode::Graceful).await.unwrap();
    assert_eq!(city.sessions.count("interrupt", None), 0);
    assert_eq!(up(&city).len(), 0);
}

/// Invariant I23: whatever a city is doing when it panics, no other city notices, and its agents
/// are not restarted.
#[tokio::test(start_paused = true)]
async fn a_panic_at_any_moment_stays_inside_the_city() {
    // Moments: adopting, a listing under way, starts under way, a stop under way, at rest.
    for moment in 0..5 {
        let town = Town::new().await;
        let b = town.add(city("b").agent(agent("db")));
        let a = town.add(city("a").agent(agent("slow")).agent(agent("db")));
        a.sessions.script("slow", starts_in(SECOND));
        settle().await;
        match moment {
            0 => {}
            1 => {
                pass(MINUTE).await;
                a.sessions.delay_listing(5 * SECOND);
                town.city("a").poke().await.unwrap();
            }
            2 => {
                pass(MINUTE).await;
                a.sessions.exit("slow", CRASH);
            }
            3 => {
                pass(MINUTE).await;
                let restart = AgentCommand::Restart;
                town.command("a", "slow", restart).await.unwrap();
            }
            _ => pass(MINUTE).await,
        }
        let (trace_b, agents_b) = (b.journal.trace(), b.sessions.running());
        let db = a.sessions.running().into_iter().find(|(n, _)| n == "db");
        assert!(town.door().crash("a").await);
        settle().await;
        pass(MINUTE).await;
        assert_eq!(town.status("a"), CityStatus::Running, "moment {moment}");
        let after = a.sessions.running().into_iter().find(|(n, _)| n == "db");
        assert_eq!(after, db, "moment {moment}");
        assert_eq!(up(&a), ["db", "slow"], "moment {moment}");
        assert_eq!(b.journal.trace(), trace_b);
        assert_eq!(b.sessions.running(), agents_b);
    }
}

/// Invariant I27: sessions that are not ours are never touched, whatever they are called.
#[tokio::test(start_paused = true)]
async fn foreign_sessions_are_never_touched() {
    let town = Town::new().await;
    let spec = || {
        city("a")
            .agent(agent("db"))
            .agent(agent("rig/api"))
            .agent(agent("w").pool(pool()))
    };
    let city = town.add(spec());
    let names = [
        "db", "rig--api", "rig__api", "w-1", "w-2", "w", "gc-a-db", "x",
    ];
    for name in names {
        city.sessions.add_foreign(name);
    }
    city.shell.prints("count", "2");
    pass(5 * MINUTE).await;
    save(&city, spec().agent(agent("x"))).await;
    town.door().stop(StopMode::Graceful).await.unwrap();
    let touched: Vec<_> = city
        .sessions
        .mutating()
        .into_iter()
        .filter(|call| call.op != "start" && names.contains(&call.session.as_str()))
        .collect();
    assert_eq!(touched, []);
}

#[tokio::test(start_paused = true)]
async fn a_name_held_by_a_foreign_session_is_retried_and_never_charged() {
    let town = Town::new().await;
    let city = town.add(city("a").agent(agent("db")));
    city.sessions.add_foreign("db");
    pass(10 * MINUTE).await;
    let db = town.instance("a", "db").await;
    assert_eq!(db.restarts_in_window, 0);
    assert_eq!(story(&city), ["start_failed db"]);
    assert_eq!(town.view("a").await.foreign_sessions, ["db"]);
}

/// Invariant I30: news of runs that are over is no news.
#[tokio::test(start_paused = true)]
async fn stale_news_has_no_effect() {
    let (town, city) = Town::with(city("a").agent(agent("db"))).await;
    let brief = AgentCommand::Drain {
        timeout: Some(MINUTE),
    };
    town.command("a", "db", brief).await.unwrap();
    let old = city.sessions.running().remove(0).1;
    town.command("a", "db", AgentCommand::DrainAck)
        .await
        .unwrap();
    settle().await;
    let told = story(&city).len();
    let session = gascity_actors::model::SessionName::new("db").unwrap();
    for kind in [
        SessionEventKind::Exited(CRASH),
        SessionEventKind::BackendLost("killed".to_owned()),
        SessionEventKind::Attached(true),
    ] {
        let event = SessionEvent {
            session: session.clone(),
            token: old.clone(),
            kind,
        };
        city.sessions.announce(&event);
    }
    pass(10 * MINUTE).await; // beyond the old drain's timeout, too
    assert_eq!(since(&city, told).len(), 0);
}

/// Invariant I31: after a stop nothing runs, whatever arrives late.
#[tokio::test(start_paused = true)]
async fn ticks_pokes_commands_and_checks_after_a_stop_start_nothing() {
    let town = Town::new().await;
    let spec = city("a").agent(agent("db")).agent(agent("w").pool(pool()));
    let city = town.add(spec);
    city.sessions.script("db", stubborn());
    let slow = gascity_actors::memory::Answer {
        after: 2 * SECOND,
        result: Ok("3".into()),
    };
    city.shell.script("count", slow);
    settle().await; // the first check is under way
    let starts = city.sessions.count("start", None);
    town.cities.unregister("a");
    settle().await;
    let _ = town.city("a").poke().await;
    let refused = town.command("a", "db", AgentCommand::Restart).await;
    assert_eq!(refused.unwrap_err(), gascity_actors::CommandError::Busy);
    pass(10 * MINUTE).await;
    assert_eq!(city.sessions.count("start", None), starts);
    assert_eq!(up(&city).len(), 0);
}

/// Invariant I33: a terminal on an agent keeps it.
#[tokio::test(start_paused = true)]
async fn nobody_with_a_terminal_attached_is_stopped() {
    let spec = |value: &str| city("a").agent(agent("db").env("A", value).idle_timeout(MINUTE));
    let (_town, city) = Town::with(spec("1")).await;
    city.sessions.set_attached("db", true);
    save(&city, spec("2")).await;
    pass(HOUR).await;
    assert_eq!(city.sessions.count("interrupt", None), 0);
    assert_eq!(city.sessions.count("stop", None), 0);
    city.sessions.set_attached("db", false);
    pass(31 * SECOND).await;
    assert_eq!(city.journal.count("agent.started", "db"), 2, "one restart");
}
