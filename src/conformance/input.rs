//! What is sent to agents.

use std::sync::Arc;

use anyhow::ensure;

use super::stage::{fresh_token, session};
use super::{Act, Outcome, Stage, rows};
use crate::ports::{Delivery, Fence, SessionError};

rows! {
    21 a_message_arrives_word_for_word needs |caps| caps.nudge && (caps.log || caps.screen);
    21 a_message_nobody_can_be_given_is_said_so needs |caps| !caps.nudge;
    23 many_messages_at_once_do_not_mix needs |caps| caps.nudge && (caps.log || caps.screen);
    24 a_message_is_cleaned_or_refused needs |caps| caps.nudge && (caps.log || caps.screen);
    24 a_message_for_nobody_or_another_run_goes_nowhere needs |caps| caps.nudge;
    27 a_terminal_for_nobody_is_refused;
}

async fn nudge(stage: &Stage, text: &str) -> anyhow::Result<Result<Delivery, SessionError>> {
    let sent = stage
        .sessions
        .nudge(session("a")?, Fence::Any, text.to_owned());
    Ok(sent.await)
}

/// Tells the agent something that must arrive.
async fn tell(stage: &Stage, text: &str) -> anyhow::Result<()> {
    let sent = nudge(stage, text).await?;
    ensure!(matches!(sent, Ok(Delivery::Delivered { .. })), "{sent:?}");
    Ok(())
}

/// Waits until the agent has repeated `line`. Screens may break long lines.
async fn heard(stage: &Stage, line: &str) -> anyhow::Result<()> {
    let want = format!("got {line}");
    let what = format!("the agent hears {line:?}");
    let heard = async || Ok(stage.peek("a", 200).await?.lines().any(|seen| seen == want));
    stage.until(&what, heard).await
}

async fn a_message_arrives_word_for_word(stage: Arc<Stage>) -> Outcome {
    stage.start_ready("a", Act::Echo).await?;
    for text in [
        "plain",
        "it's \"quoted\" `cmd` $HOME $(id) \\n ~ ; # % !",
        "- leading dash",
        "-l --",
        "Grüße, 日本語 \u{1f600}",
        "Enter",
        "C-c",
    ] {
        tell(&stage, text).await?;
        heard(&stage, text).await?;
    }
    Ok(())
}

async fn a_message_nobody_can_be_given_is_said_so(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Idle).await?;
    let sent = nudge(&stage, "hello").await?;
    ensure!(
        matches!(sent, Err(SessionError::Unsupported(_))),
        "{sent:?}"
    );
    Ok(())
}

async fn many_messages_at_once_do_not_mix(stage: Arc<Stage>) -> Outcome {
    stage.start_ready("a", Act::Echo).await?;
    let texts: Vec<String> = (10..30)
        .map(|n| format!("{n} ").repeat(15) + "end")
        .collect();
    let mut sent = Vec::new();
    for text in texts.clone() {
        let stage = stage.clone();
        sent.push(tokio::spawn(async move { tell(&stage, &text).await }));
    }
    for sent in sent {
        sent.await??;
    }
    for text in &texts {
        heard(&stage, text).await?;
    }
    let seen = stage.peek("a", 500).await?;
    let count = seen.lines().filter(|line| line.starts_with("got ")).count();
    ensure!(count == texts.len(), "{count} messages arrived:\n{seen}");
    Ok(())
}

async fn a_message_is_cleaned_or_refused(stage: Arc<Stage>) -> Outcome {
    stage.start_ready("a", Act::Echo).await?;
    tell(&stage, "a\tb\u{1b}[31m\u{7}c\u{7f}").await?;
    heard(&stage, "a b[31mc").await?;
    let large = nudge(&stage, &"x".repeat((64 << 10) + 1)).await?;
    ensure!(matches!(large, Err(SessionError::TooLarge(_))), "{large:?}");
    tell(&stage, "").await?;
    tell(&stage, "after").await?;
    heard(&stage, "after").await?;
    let seen = stage.peek("a", 200).await?;
    ensure!(!seen.lines().any(|line| line == "got"), "nothing was typed");
    Ok(())
}

async fn a_message_for_nobody_or_another_run_goes_nowhere(stage: Arc<Stage>) -> Outcome {
    let sent = nudge(&stage, "hello").await?;
    ensure!(sent == Ok(Delivery::NoSession), "{sent:?}");
    stage.start("a", Act::Idle).await?;
    let fence = Fence::Token(fresh_token()?);
    let sent = stage.sessions.nudge(session("a")?, fence, "hello".into());
    let sent = sent.await;
    ensure!(sent == Err(SessionError::Fenced), "{sent:?}");
    Ok(())
}

async fn a_terminal_for_nobody_is_refused(stage: Arc<Stage>) -> Outcome {
    let plan = stage.sessions.attach(session("never")?, true).await;
    let want = match stage.caps().attach {
        true => SessionError::NotFound,
        false => SessionError::Unsupported("attach"),
    };
    ensure!(plan == Err(want), "{plan:?}");
    Ok(())
}
