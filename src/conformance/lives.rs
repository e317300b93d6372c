//! Starts: what begins, what is refused, what an agent sees.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};

use super::stage::{fresh_token, session};
use super::{Act, Outcome, Stage, rows};
use crate::model::{Command, FailureClass, Launch};
use crate::ports::{Liveness, StartError, StartSpec};

rows! {
    1 a_started_run_is_live;
    2 a_second_start_is_refused;
    2 of_many_starts_at_once_one_wins;
    3 a_dead_session_is_replaced needs |caps| caps.exit_push;
    3 a_foreign_session_is_left_alone;
    4 a_missing_directory_is_the_agents_fault, commands;
    4 a_missing_program_is_the_agents_fault_or_exit_127, commands;
    5 a_start_that_is_given_up_leaves_nothing;
    6 long_and_strange_values_arrive_unchanged, commands;
    7 an_agent_sees_its_own_environment_and_nothing_else, commands;
    11 fifty_at_once_come_and_go;
    13 what_cannot_be_reached_is_not_dead;
}

async fn a_started_run_is_live(stage: Arc<Stage>) -> Outcome {
    let started = stage.attempt(stage.spec("a", &Act::Idle)?).await?;
    let (token, started) = started.context("start")?;
    let look = stage
        .sessions
        .liveness(session("a")?, token.clone())
        .await?;
    let Liveness::Live { pid } = look else {
        anyhow::bail!("it is {look:?}");
    };
    ensure!(pid == started.pid, "pid {:?} became {pid:?}", started.pid);
    if let (true, Some(pid)) = (stage.runs_commands(), pid) {
        let alive = super::stage::is_process_alive(pid.cast_signed());
        ensure!(alive, "there is no process {pid}");
    }
    let other = stage
        .sessions
        .liveness(session("a")?, fresh_token()?)
        .await?;
    ensure!(other == Liveness::Absent, "another run is {other:?}");
    let other = stage.sessions.liveness(session("b")?, token).await?;
    ensure!(other == Liveness::Absent, "another session is {other:?}");
    Ok(())
}

async fn a_second_start_is_refused(stage: Arc<Stage>) -> Outcome {
    let token = stage.start("a", Act::Idle).await?;
    let second = stage.attempt(stage.spec("a", &Act::Idle)?).await?;
    let (owned, live) = (true, true);
    ensure!(
        second == Err(StartError::Exists { owned, live }),
        "two runs in one session, or another error: {second:?}"
    );
    ensure!(stage.is_live("a", &token).await?, "the first run is gone");
    Ok(())
}

async fn of_many_starts_at_once_one_wins(stage: Arc<Stage>) -> Outcome {
    let mut starts = Vec::new();
    for _ in 0..20 {
        let (stage, spec) = (stage.clone(), stage.spec("a", &Act::Idle)?);
        starts.push(tokio::spawn(async move { stage.attempt(spec).await }));
    }
    let mut won = Vec::new();
    for start in starts {
        match start.await?? {
            Ok(run) => won.push(run),
            Err(StartError::Exists { owned: true, .. }) => {}
            Err(error) => anyhow::bail!("{error:?}"),
        }
    }
    ensure!(won.len() == 1, "{} runs came up", won.len());
    let facts = stage.facts("a").await?.context("not listed")?;
    ensure!(facts.token == won[0].0 && facts.live, "{facts:?}");
    Ok(())
}

async fn a_dead_session_is_replaced(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let first = stage.start("a", Act::Exit(1)).await?;
    stage.next_exit(&mut events).await?;
    let second = stage.start("a", Act::Idle).await?;
    ensure!(
        stage.is_live("a", &second).await?,
        "the new run is not live"
    );
    let look = stage.sessions.liveness(session("a")?, first).await?;
    ensure!(look == Liveness::Absent, "the old run is {look:?}");
    Ok(())
}

async fn a_foreign_session_is_left_alone(stage: Arc<Stage>) -> Outcome {
    if !stage.backend().plant_foreign("stranger") {
        return Ok(());
    }
    let start = stage.attempt(stage.spec("stranger", &Act::Idle)?).await?;
    let held = matches!(start, Err(StartError::Exists { owned: false, .. }));
    ensure!(held, "its name was taken over, or another error: {start:?}");
    let listing = stage.sessions.snapshot().await?;
    ensure!(listing.owned.is_empty(), "{:?}", listing.owned);
    ensure!(
        listing.foreign.iter().any(|name| name == "stranger"),
        "it is gone"
    );
    Ok(())
}

async fn a_missing_directory_is_the_agents_fault(stage: Arc<Stage>) -> Outcome {
    let spec = stage.spec("a", &Act::Idle)?;
    let launch = Launch {
        work_dir: PathBuf::from("/nonexistent/of/conformance"),
        ..(*spec.launch).clone()
    };
    let launch = Arc::new(launch);
    let attempt = stage.attempt(StartSpec { launch, ..spec }).await?;
    let Err(StartError::Failed(failure)) = attempt else {
        anyhow::bail!("it came up, or another error: {attempt:?}");
    };
    ensure!(failure.class == FailureClass::Agent, "{failure:?}");
    let left = stage.facts("a").await?.filter(|facts| facts.live);
    ensure!(left.is_none(), "it is left behind: {left:?}");
    Ok(())
}

async fn a_missing_program_is_the_agents_fault_or_exit_127(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let spec = stage.spec("a", &Act::Idle)?;
    let launch = Arc::new(Launch {
        command: Command::Words(vec!["no-such-program-at-all".into()]),
        ..(*spec.launch).clone()
    });
    match stage.attempt(StartSpec { launch, ..spec }).await? {
        Err(StartError::Failed(failure)) => {
            ensure!(failure.class == FailureClass::Agent, "{failure:?}");
            let named = failure.detail.contains("no-such-program-at-all");
            ensure!(named, "it does not say what is missing: {failure}");
        }
        Err(error) => anyhow::bail!("{error:?}"),
        Ok((token, _)) => {
            let (ended, status) = stage.next_exit(&mut events).await?;
            let missing = crate::model::ExitStatus::Code(127);
            ensure!(
                ended == token && stage.is_status(status, missing),
                "{status}"
            );
        }
    }
    Ok(())
}

async fn a_start_that_is_given_up_leaves_nothing(stage: Arc<Stage>) -> Outcome {
    for round in 0..10_u32 {
        let token = fresh_token()?;
        let spec = Arc::new(stage.spec("a", &Act::Idle)?);
        let patience = std::time::Duration::from_micros(u64::from(round) * 300);
        let start = stage.sessions.start(token.clone(), spec);
        let given_up = tokio::time::timeout(patience, start).await.is_err();
        if given_up {
            stage
                .until("a start that was given up is gone", async || {
                    Ok(!stage.is_live("a", &token).await?)
                })
                .await?;
        }
        let fence = crate::ports::Fence::Any;
        stage.sessions.stop(session("a")?, fence).await?;
    }
    Ok(())
}

async fn long_and_strange_values_arrive_unchanged(stage: Arc<Stage>) -> Outcome {
    let value = "a ' \" $HOME $(id) `id` ~ ; # % \\ \\n\n\ttab é 日本\u{1f600}";
    let long = "x".repeat(60 << 10);
    let padding = "y".repeat(100 << 10);
    let line = format!(
        ": {padding}; printf '%s' \"$STRANGE\" >strange.tmp; printf '%s' \"$LONG\" >long.tmp; \
         mv long.tmp long; mv strange.tmp strange; exec sleep 1000"
    );
    let spec = stage.spec("a", &Act::Shell(line))?;
    let mut launch = (*spec.launch).clone();
    // `$` begins a variable of the supervisor's in `env`, and is doubled to mean itself.
    let strange = value.replace('$', "$$");
    launch.env.insert("STRANGE".into(), strange);
    launch.env.insert("LONG".into(), long.clone());
    let launch = Arc::new(launch);
    let started = stage.attempt(StartSpec { launch, ..spec }).await?;
    started.context("start")?;
    let seen = stage.read("strange").await?;
    ensure!(seen == value, "{value:?} became {seen:?}");
    let seen = stage.read("long").await?;
    ensure!(seen == long, "{} bytes became {}", long.len(), seen.len());
    Ok(())
}

async fn an_agent_sees_its_own_environment_and_nothing_else(stage: Arc<Stage>) -> Outcome {
    let line = "env >env.tmp; pwd >>env.tmp; mv env.tmp env; exec sleep 1000";
    let spec = stage.spec("rig/a", &Act::Shell(line.into()))?;
    let mut launch = (*spec.launch).clone();
    launch.env.insert("MINE".into(), "1".into());
    let launch = Arc::new(launch);
    let started = stage.attempt(StartSpec { launch, ..spec }).await?;
    let (token, _) = started.context("start")?;
    let seen = stage.read("env").await?;
    let names: BTreeSet<&str> = seen
        .lines()
        .filter_map(|l| Some(l.split_once('=')?.0))
        .collect();
    let has = |line: String| seen.lines().any(|l| l == line);
    ensure!(has("MINE=1".into()), "{seen}");
    ensure!(has("GC_AGENT=rig/a".into()), "{seen}");
    ensure!(has("GC_SESSION_NAME=rig--a".into()), "{seen}");
    ensure!(has(format!("GC_SESSION_ID={token}")), "{seen}");
    let dir = stage.backend().dir().display().to_string();
    ensure!(has(format!("GC_DIR={dir}")) && has(dir), "{seen}");
    for wanted in ["GC_CITY", "GC_CITY_NAME", "GC_TEMPLATE", "PATH"] {
        ensure!(names.contains(wanted), "{wanted} is missing from {names:?}");
    }
    // Set by cargo for whoever runs this, and on nobody's list.
    for unwanted in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "RUST_BACKTRACE"] {
        ensure!(!names.contains(unwanted), "{unwanted} was handed on");
    }
    Ok(())
}

async fn fifty_at_once_come_and_go(stage: Arc<Stage>) -> Outcome {
    let names: Vec<String> = (0..50).map(|n| format!("many-{n:02}")).collect();
    let mut starts = Vec::new();
    for name in names.clone() {
        let stage = stage.clone();
        starts.push(tokio::spawn(
            async move { stage.start(&name, Act::Idle).await },
        ));
    }
    for start in starts {
        start.await??;
    }
    let listing = stage.sessions.snapshot().await?;
    let live = listing.owned.iter().filter(|facts| facts.live);
    let live: Vec<&str> = live.map(|facts| facts.session.as_str()).collect();
    ensure!(live == names, "listed: {live:?}");
    let mut stops = Vec::new();
    for name in names {
        let stage = stage.clone();
        stops.push(tokio::spawn(async move {
            let fence = crate::ports::Fence::Any;
            anyhow::Ok(stage.sessions.stop(session(&name)?, fence).await?)
        }));
    }
    for stop in stops {
        stop.await??;
    }
    let left = stage.sessions.snapshot().await?.owned;
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

async fn what_cannot_be_reached_is_not_dead(stage: Arc<Stage>) -> Outcome {
    let token = stage.start("a", Act::Idle).await?;
    if !stage.backend().break_down() {
        return Ok(());
    }
    let look = stage.sessions.liveness(session("a")?, token).await;
    // The kernel may know better than the backend; it is never taken for dead.
    let dead = matches!(look, Ok(Liveness::Dead(_) | Liveness::Absent));
    ensure!(!dead, "{look:?}");
    let listing = stage.sessions.snapshot().await;
    ensure!(listing.is_err(), "{listing:?}");
    Ok(())
}
