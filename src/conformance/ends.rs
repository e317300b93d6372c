//! Exits, and lives beyond the provider's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};

use super::stage::session;
use super::{Act, Outcome, Stage, rows};
use crate::model::{ExitStatus, RunToken};
use crate::ports::{Fence, Liveness};

rows! {
    33 each_exit_is_told_once_with_its_status needs |caps| caps.exit_push;
    33 a_hundred_deaths_at_once_are_a_hundred_events needs |caps| caps.exit_push && caps.exit_status;
    34 who_reads_late_misses_no_exit needs |caps| caps.exit_push && caps.exit_status;
    35 a_provider_built_anew_finds_what_runs needs |caps| caps.survives;
}

const KILL: i32 = 9;
const SEGV: i32 = 11;

async fn each_exit_is_told_once_with_its_status(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let ways = [
        (Act::Exit(0), ExitStatus::Code(0)),
        (Act::Exit(9), ExitStatus::Code(9)),
        (Act::Die(KILL), ExitStatus::Signal(KILL)),
        (Act::Die(SEGV), ExitStatus::Signal(SEGV)),
    ];
    let mut want: BTreeMap<RunToken, ExitStatus> = BTreeMap::new();
    for (n, (act, status)) in ways.into_iter().enumerate() {
        want.insert(stage.start(&format!("a{n}"), act).await?, status);
    }
    while !want.is_empty() {
        let (token, status) = stage.next_exit(&mut events).await?;
        let wanted = want.remove(&token).context("told twice, or of nobody")?;
        ensure!(stage.is_status(status, wanted), "{wanted} became {status}");
    }
    for n in 0..4 {
        stage
            .sessions
            .stop(session(&format!("a{n}"))?, Fence::Any)
            .await?;
    }
    ensure!(events.try_recv().is_err(), "an exit was told twice");
    Ok(())
}

async fn a_hundred_deaths_at_once_are_a_hundred_events(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let mut runs = Vec::new();
    for n in 0..100 {
        runs.push(stage.start(&format!("a{n}"), Act::Die(KILL)).await?);
    }
    for _ in 0..100 {
        let (token, status) = stage.next_exit(&mut events).await?;
        let at = runs.iter().position(|run| *run == token);
        runs.remove(at.context("told twice, or of nobody")?);
        ensure!(status == ExitStatus::Signal(KILL), "{status}");
    }
    Ok(())
}

async fn who_reads_late_misses_no_exit(stage: Arc<Stage>) -> Outcome {
    let mut late = stage.sessions.subscribe();
    let mut prompt = stage.sessions.subscribe();
    for round in 0..50 {
        let token = stage.start("a", Act::Exit(round % 3)).await?;
        let (ended, _) = stage.next_exit(&mut prompt).await?;
        ensure!(ended == token, "another run ended");
    }
    for round in 0..50 {
        let (_, status) = stage.next_exit(&mut late).await?;
        ensure!(status == ExitStatus::Code(round % 3), "{round}: {status}");
    }
    Ok(())
}

async fn a_provider_built_anew_finds_what_runs(stage: Arc<Stage>) -> Outcome {
    let token = stage.start("a", Act::Idle).await?;
    let before = stage.facts("a").await?.context("not listed")?;
    let anew = stage.another();
    let mut events = anew.subscribe();
    let listing = anew.snapshot().await?;
    let after = listing.owned.first().context("not listed any more")?;
    ensure!(
        (&after.token, after.pid, after.live) == (&token, before.pid, true),
        "{before:?} became {after:?}"
    );
    ensure!(after.agent == before.agent, "{:?}", after.agent);
    let second = anew.start(
        super::stage::fresh_token()?,
        Arc::new(stage.spec("a", &Act::Idle)?),
    );
    ensure!(second.await.is_err(), "it was started a second time");
    stage
        .sessions
        .stop(session("a")?, Fence::Token(token.clone()))
        .await?;
    if anew.caps().exit_push {
        let (ended, _) = stage.next_exit(&mut events).await?;
        ensure!(ended == token, "another run ended");
    }
    let look = anew.liveness(session("a")?, token).await?;
    ensure!(!matches!(look, Liveness::Live { .. }), "it is {look:?}");
    Ok(())
}
