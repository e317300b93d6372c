//! Listings, programs, activity and metadata.

use std::sync::Arc;

use anyhow::{Context, ensure};

use super::stage::session;
use super::{Act, Outcome, Stage, rows};
use crate::ports::{Fence, Liveness, Note, SessionError};

rows! {
    14 programs_are_found_by_their_names needs |caps| caps.process_tree, commands;
    15 a_program_that_ended_is_not_found_under_its_live_shell needs |caps| caps.process_tree, commands;
    16 a_listing_shows_owned_sessions_in_order;
    17 a_listing_of_a_hundred_says_what_single_questions_say;
    28 activity_moves_with_output needs |caps| caps.activity, commands;
    29 metadata_is_kept_exactly;
    29 metadata_that_cannot_be_kept_is_refused;
    30 metadata_belongs_to_one_run;
    30 metadata_is_seen_by_a_provider_built_anew needs |caps| caps.survives;
}

async fn programs_are_found_by_their_names(stage: Arc<Stage>) -> Outcome {
    // An interpreter is who goes by the name of one.
    let line = "sleep 1000 & ln -s \"$(command -v sh)\" node
                echo 'while :; do sleep 1; done' >agent.js; ./node agent.js & wait";
    stage.start("a", Act::Shell(line.into())).await?;
    let alive = async |names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect();
        anyhow::Ok(stage.sessions.process_alive(session("a")?, names).await?)
    };
    stage
        .until("its child is found", async || alive(&["sleep"]).await)
        .await?;
    let wrapped = async || alive(&["agent"]).await;
    stage
        .until("what an interpreter runs is found", wrapped)
        .await?;
    ensure!(alive(&["no-such", "sh"]).await?, "itself");
    ensure!(!alive(&["no-such"]).await?, "somebody who is not there");
    ensure!(alive(&[]).await?, "anybody");
    let nobody = stage.sessions.process_alive(session("never")?, vec![]);
    ensure!(!nobody.await?, "a session that is not there");
    Ok(())
}

async fn a_program_that_ended_is_not_found_under_its_live_shell(stage: Arc<Stage>) -> Outcome {
    let line = "tail -f /dev/null & echo $! >pid.tmp; mv pid.tmp pid; while :; do sleep 1; done";
    let token = stage.start("a", Act::Shell(line.into())).await?;
    let pid = stage.read("pid").await?;
    let alive = async || {
        let look = stage
            .sessions
            .process_alive(session("a")?, vec!["tail".into()]);
        anyhow::Ok(look.await?)
    };
    stage.until("it is found", alive).await?;
    let pid = pid
        .trim()
        .parse()
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.context("its pid")?, rustix::process::Signal::KILL)?;
    stage
        .until("it is gone", async || Ok(!alive().await?))
        .await?;
    ensure!(
        stage.is_live("a", &token).await?,
        "the session died with it"
    );
    Ok(())
}

async fn a_listing_shows_owned_sessions_in_order(stage: Arc<Stage>) -> Outcome {
    for name in ["rig/b", "a", "rig/a", "Z_1"] {
        stage.start(name, Act::Idle).await?;
    }
    stage.backend().plant_foreign("stranger");
    let listing = stage.sessions.snapshot().await?;
    let names: Vec<&str> = listing.owned.iter().map(|f| f.session.as_str()).collect();
    ensure!(names == ["Z_1", "a", "rig--a", "rig--b"], "{names:?}");
    let agents: Vec<&str> = listing.owned.iter().map(|f| f.agent.as_str()).collect();
    ensure!(agents == ["Z_1", "a", "rig/a", "rig/b"], "{agents:?}");
    Ok(())
}

async fn a_listing_of_a_hundred_says_what_single_questions_say(stage: Arc<Stage>) -> Outcome {
    for n in 0..100 {
        stage.start(&format!("a{n:03}"), Act::Idle).await?;
    }
    let listing = stage.sessions.snapshot().await?;
    ensure!(
        listing.owned.len() == 100,
        "{} are listed",
        listing.owned.len()
    );
    for facts in listing.owned.iter().step_by(9) {
        let look = stage
            .sessions
            .liveness(facts.session.clone(), facts.token.clone());
        let look = look.await?;
        ensure!(
            facts.live && look == Liveness::Live { pid: facts.pid },
            "{facts:?}: {look:?}"
        );
    }
    Ok(())
}

async fn activity_moves_with_output(stage: Arc<Stage>) -> Outcome {
    let line = "while [ ! -e go ]; do sleep 0.05; done; echo now; exec sleep 1000";
    stage.start("a", Act::Shell(line.into())).await?;
    let activity = async || {
        let facts = stage.facts("a").await?.context("not listed")?;
        let at = facts.last_activity.context("activity is not known")?;
        ensure!(at >= facts.started_at, "active before it began");
        Ok(at)
    };
    let before = activity().await?;
    // Far enough for clocks that tick once a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    ensure!(activity().await? == before, "it moved without output");
    std::fs::write(stage.file("go"), "")?;
    stage
        .until("it moves", async || Ok(activity().await? > before))
        .await
}

async fn noted(stage: &Stage, name: &str, note: Note) -> anyhow::Result<Option<String>> {
    let facts = stage.facts(name).await?.context("not listed")?;
    Ok(facts.notes.get(&note).cloned())
}

async fn set(stage: &Stage, name: &str, value: Option<&str>) -> anyhow::Result<()> {
    let value = value.map(str::to_owned);
    let set = stage
        .sessions
        .set_note(session(name)?, Fence::Any, Note::Drain, value);
    Ok(set.await?)
}

async fn metadata_is_kept_exactly(stage: Arc<Stage>) -> Outcome {
    let mut spec = stage.spec("a", &Act::Idle)?;
    spec.notes.insert(Note::ConfigHash, "v1:abc".into());
    stage.attempt(spec).await?.context("start")?;
    let first = noted(&stage, "a", Note::ConfigHash).await?;
    ensure!(first.as_deref() == Some("v1:abc"), "{first:?}");
    ensure!(noted(&stage, "a", Note::Drain).await?.is_none(), "unset");
    let every: String = (1..=0x2ff).filter_map(char::from_u32).collect();
    let large = "ü".repeat(32 << 10);
    for value in [
        "1",
        "2",
        "",
        " \n\n ",
        &every,
        &large,
        "%41 \\x41 'a' \"b\" $c `d`",
    ] {
        set(&stage, "a", Some(value)).await?;
        let kept = noted(&stage, "a", Note::Drain).await?;
        ensure!(kept.as_deref() == Some(value), "{value:?} became {kept:?}");
    }
    set(&stage, "a", None).await?;
    ensure!(noted(&stage, "a", Note::Drain).await?.is_none(), "removed");
    set(&stage, "a", None).await?;
    let kept = noted(&stage, "a", Note::ConfigHash).await?;
    ensure!(kept == first, "another entry changed: {kept:?}");
    Ok(())
}

async fn metadata_that_cannot_be_kept_is_refused(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Idle).await?;
    let large = "x".repeat((64 << 10) + 1);
    for (value, want) in [
        (large.as_str(), SessionError::TooLarge(64 << 10)),
        ("a\0b", SessionError::Invalid("the value holds a NUL byte")),
    ] {
        let set = stage.sessions.set_note(
            session("a")?,
            Fence::Any,
            Note::Drain,
            Some(value.to_owned()),
        );
        let refused = set.await;
        ensure!(refused == Err(want.clone()), "{refused:?}, not {want:?}");
    }
    let nobody = stage
        .sessions
        .set_note(session("never")?, Fence::Any, Note::Drain, None);
    let refused = nobody.await;
    ensure!(refused == Err(SessionError::NotFound), "{refused:?}");
    let fence = Fence::Token(super::stage::fresh_token()?);
    let other = stage
        .sessions
        .set_note(session("a")?, fence, Note::Drain, None);
    let refused = other.await;
    ensure!(refused == Err(SessionError::Fenced), "{refused:?}");
    Ok(())
}

async fn metadata_belongs_to_one_run(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Idle).await?;
    stage.start("b", Act::Idle).await?;
    set(&stage, "a", Some("of a")).await?;
    ensure!(noted(&stage, "b", Note::Drain).await?.is_none(), "shared");
    stage.sessions.stop(session("a")?, Fence::Any).await?;
    stage.start("a", Act::Idle).await?;
    ensure!(
        noted(&stage, "a", Note::Drain).await?.is_none(),
        "inherited"
    );
    Ok(())
}

async fn metadata_is_seen_by_a_provider_built_anew(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Idle).await?;
    set(&stage, "a", Some("kept")).await?;
    let listing = stage.another().snapshot().await?;
    let facts = listing.owned.first().context("not listed")?;
    let kept = facts.notes.get(&Note::Drain);
    ensure!(kept.is_some_and(|value| value == "kept"), "{kept:?}");
    Ok(())
}
