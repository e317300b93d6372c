//! Stops and interrupts: what ends, and what must not.

use std::sync::Arc;

use anyhow::ensure;

use super::stage::{fresh_token, is_process_alive, session};
use super::{Act, Outcome, Stage, rows};
use crate::model::ExitStatus;
use crate::ports::{Fence, Liveness, SessionError, Stopped};

rows! {
    8 a_stop_ends_a_session_and_finds_nothing_twice;
    8 a_dead_session_can_be_stopped needs |caps| caps.exit_push;
    9 a_stop_ends_the_whole_family_wherever_it_went, commands;
    9 who_does_not_leave_is_forced needs |caps| caps.log || caps.screen;
    10 a_stop_for_another_run_touches_nothing;
    11 a_stop_during_a_start_leaves_nothing;
    12 an_interrupt_reaches_the_agent needs |caps| caps.exit_push && (caps.log || caps.screen);
    12 an_interrupt_of_nobody_says_so;
    45 two_cities_do_not_touch_each_other;
}

async fn a_stop_ends_a_session_and_finds_nothing_twice(stage: Arc<Stage>) -> Outcome {
    let token = stage.start("a", Act::Idle).await?;
    let stopped = stage.sessions.stop(session("a")?, Fence::Any).await?;
    ensure!(stopped != Stopped::Absent, "it was there");
    let look = stage.sessions.liveness(session("a")?, token).await?;
    ensure!(look == Liveness::Absent, "it is {look:?}");
    ensure!(stage.facts("a").await?.is_none(), "it is still listed");
    for name in ["a", "never"] {
        let stopped = stage.sessions.stop(session(name)?, Fence::Any).await?;
        ensure!(stopped == Stopped::Absent, "{name}: {stopped:?}");
    }
    Ok(())
}

async fn a_dead_session_can_be_stopped(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let token = stage.start("a", Act::Exit(0)).await?;
    stage.next_exit(&mut events).await?;
    let look = stage.sessions.liveness(session("a")?, token).await?;
    ensure!(!matches!(look, Liveness::Live { .. }), "it is {look:?}");
    stage.sessions.stop(session("a")?, Fence::Any).await?;
    ensure!(stage.facts("a").await?.is_none(), "it is still listed");
    Ok(())
}

async fn a_stop_ends_the_whole_family_wherever_it_went(stage: Arc<Stage>) -> Outcome {
    // Each writes its own number before it becomes a sleep: nobody is missed by a race.
    let member = "sh -c 'echo $$ >>pids; exec sleep 1000'";
    let line = format!(
        "trap '' HUP
         {member} &
         setsid {member} &
         nohup {member} >/dev/null 2>&1 &
         (setsid sh -c \"setsid {} & echo \\$\\$ >>pids; exec sleep 1000\" &)
         (trap '' TERM INT HUP; {member} &)
         while [ $(wc -l <pids) -lt 6 ]; do sleep 0.02; done
         echo $$ >>pids; cp pids all.tmp; mv all.tmp all
         while :; do sleep 1; done",
        member.replace('$', "\\$"),
    );
    stage.start("a", Act::Shell(line)).await?;
    let bystander = stage.start("b", Act::Idle).await?;
    let family = stage.read("all").await?;
    let family: Vec<i32> = family.lines().filter_map(|pid| pid.parse().ok()).collect();
    ensure!(family.len() == 7, "the family is {family:?}");
    stage.sessions.stop(session("a")?, Fence::Any).await?;
    let left: Vec<_> = family
        .iter()
        .filter(|pid| is_process_alive(**pid))
        .collect();
    ensure!(left.is_empty(), "left behind: {left:?} of {family:?}");
    ensure!(
        stage.is_live("b", &bystander).await?,
        "another session died"
    );
    Ok(())
}

async fn who_does_not_leave_is_forced(stage: Arc<Stage>) -> Outcome {
    let token = stage.start_ready("a", Act::Stubborn).await?;
    let fence = Fence::Token(token.clone());
    let stopped = stage.sessions.stop(session("a")?, fence).await?;
    ensure!(stopped == Stopped::Forced, "{stopped:?}");
    ensure!(!stage.is_live("a", &token).await?, "it lives");
    Ok(())
}

async fn a_stop_for_another_run_touches_nothing(stage: Arc<Stage>) -> Outcome {
    let token = stage.start("a", Act::Idle).await?;
    let fence = || anyhow::Ok(Fence::Token(fresh_token()?));
    let stopped = stage.sessions.stop(session("a")?, fence()?).await;
    ensure!(stopped == Err(SessionError::Fenced), "{stopped:?}");
    let sent = stage.sessions.interrupt(session("a")?, fence()?).await;
    ensure!(sent == Err(SessionError::Fenced), "{sent:?}");
    ensure!(stage.is_live("a", &token).await?, "it died");
    Ok(())
}

async fn a_stop_during_a_start_leaves_nothing(stage: Arc<Stage>) -> Outcome {
    for _ in 0..5 {
        let (starter, spec) = (stage.clone(), stage.spec("a", &Act::Idle)?);
        let start = tokio::spawn(async move { starter.attempt(spec).await });
        tokio::task::yield_now().await;
        stage.sessions.stop(session("a")?, Fence::Any).await?;
        let _ = start.await??; // whichever came first
        stage.sessions.stop(session("a")?, Fence::Any).await?;
        ensure!(stage.facts("a").await?.is_none(), "it is still listed");
    }
    Ok(())
}

async fn an_interrupt_reaches_the_agent(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let token = stage.start_ready("a", Act::Trap(7)).await?;
    let fence = Fence::Token(token.clone());
    let sent = stage.sessions.interrupt(session("a")?, fence).await?;
    ensure!(sent, "nobody was there");
    let (ended, status) = stage.next_exit(&mut events).await?;
    ensure!(ended == token, "another run ended");
    ensure!(stage.is_status(status, ExitStatus::Code(7)), "{status}");
    Ok(())
}

async fn an_interrupt_of_nobody_says_so(stage: Arc<Stage>) -> Outcome {
    let sent = stage
        .sessions
        .interrupt(session("never")?, Fence::Any)
        .await?;
    ensure!(!sent, "somebody was there");
    Ok(())
}

async fn two_cities_do_not_touch_each_other(stage: Arc<Stage>) -> Outcome {
    let Some(other) = stage.backend().neighbour() else {
        return Ok(());
    };
    let ours = stage.start("a", Act::Idle).await?;
    let theirs = fresh_token()?;
    let spec = Arc::new(stage.spec("a", &Act::Idle)?);
    let started = other.start(theirs.clone(), spec).await;
    if started.is_err() {
        // The name is taken, which is as good.
        return Ok(());
    }
    for (sessions, token) in [(&stage.sessions, &ours), (&other, &theirs)] {
        let owned = sessions.snapshot().await?.owned;
        let tokens: Vec<_> = owned.iter().map(|facts| &facts.token).collect();
        ensure!(tokens == [token], "listed: {tokens:?}");
    }
    let wrong = Fence::Token(theirs.clone());
    let stopped = stage.sessions.stop(session("a")?, wrong).await;
    ensure!(stopped == Err(SessionError::Fenced), "{stopped:?}");
    stage.sessions.stop(session("a")?, Fence::Any).await?;
    let look = other.liveness(session("a")?, theirs).await?;
    ensure!(matches!(look, Liveness::Live { .. }), "theirs is {look:?}");
    other.stop(session("a")?, Fence::Any).await?;
    Ok(())
}
