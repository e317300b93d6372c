//! What is sent to agents.

use std::sync::Arc;

use anyhow::ensure;

use super::stage::{fresh_token, session};
use super::{Act, Outcome, Stage, rows};
use crate::ports::{Delivery, Fence, Key, SessionError};

rows! {
    21 a_message_arrives_word_for_word needs |caps| caps.nudge && (caps.log || caps.screen);
    21 a_message_nobody_can_be_given_is_said_so needs |caps| !caps.nudge;
    22 a_long_message_is_one_submission needs |caps| caps.nudge && caps.keys && caps.screen, commands;
    23 many_messages_at_once_do_not_mix needs |caps| caps.nudge && (caps.log || caps.screen);
    24 a_message_is_cleaned_or_refused needs |caps| caps.nudge && (caps.log || caps.screen);
    24 a_message_for_nobody_or_another_run_goes_nowhere needs |caps| caps.nudge;
    26 keys_arrive_as_the_bytes_of_a_terminal needs |caps| caps.keys && (caps.log || caps.screen);
    26 keys_for_nobody_or_another_run_go_nowhere;
    32 files_are_copied_to_where_the_agent_works;
    27 a_terminal_for_nobody_is_refused;
    27 a_terminal_is_to_be_had_for_a_live_session needs |caps| caps.attach;
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

/// Into a program that asked for brackets around what is pasted.
async fn a_long_message_is_one_submission(stage: Arc<Stage>) -> Outcome {
    let line = "stty -icanon -echo -isig -icrnl -ixon min 1; printf '\\033[?2004h'; echo ready; \
                exec tee typed";
    stage.start_ready("a", Act::Shell(line.into())).await?;
    let lines: String = (0..200).map(|n| format!("line {n} ")).collect();
    let long = lines.repeat(7);
    ensure!(long.len() > 10 << 10, "{}", long.len());
    let mut want = String::new();
    for text in [
        "first\nsecond\n\nlast",
        &long,
        &long.replace("line 7 ", "line 7\n"),
    ] {
        tell(&stage, text).await?;
        want.push_str(&format!("\u{1b}[200~{text}\u{1b}[201~\r"));
        stage
            .until("it is typed", async || {
                Ok(std::fs::read(stage.file("typed"))?.len() >= want.len())
            })
            .await?;
        let typed = stage.read("typed").await?;
        ensure!(typed == want, "{want:?} became {typed:?}");
    }
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

async fn press(stage: &Stage, keys: &[&str]) -> anyhow::Result<Result<bool, SessionError>> {
    let keys = keys.iter().copied().map(Key::from).collect();
    let sent = stage.sessions.send_keys(session("a")?, Fence::Any, keys);
    Ok(sent.await)
}

/// An ability may turn out to be missing when it is first asked for.
fn lacks_keys<T>(stage: &Stage, sent: &Result<T, SessionError>) -> bool {
    matches!(sent, Err(SessionError::Unsupported(_))) && !stage.caps().keys
}

async fn keys_arrive_as_the_bytes_of_a_terminal(stage: Arc<Stage>) -> Outcome {
    stage.start_ready("a", Act::Bytes).await?;
    let mut want = String::new();
    for keys in [
        &["Down", "C-c", "Enter"][..],
        &["y"],
        &["-l", "Tab", "BSpace", "Escape", "é;\"$", "Space"],
        &["Up", "Left", "Right", "C-x", "."], // the last byte shows that there is no more
    ] {
        let sent = press(&stage, keys).await?;
        if lacks_keys(&stage, &sent) {
            return Ok(());
        }
        ensure!(sent == Ok(true), "{sent:?}");
        for byte in keys.iter().flat_map(|key| Key::from(*key).bytes()) {
            want.push_str(&format!("{byte:02x} "));
        }
    }
    let mut seen = String::new();
    let arrived = stage.until("the last key arrives", async || {
        let screen = stage.peek("a", 100).await?;
        Ok(screen.trim_end().ends_with("2e"))
    });
    arrived.await?;
    for line in stage.peek("a", 100).await?.lines().skip(1) {
        seen.push_str(line.trim());
        seen.push(' ');
    }
    ensure!(seen == want, "{want} became {seen}");
    Ok(())
}

async fn keys_for_nobody_or_another_run_go_nowhere(stage: Arc<Stage>) -> Outcome {
    let sent = press(&stage, &["Enter"]).await?;
    if !stage.caps().keys {
        ensure!(lacks_keys(&stage, &sent), "{sent:?}");
        return Ok(());
    }
    ensure!(sent == Ok(false), "{sent:?}");
    stage.start("a", Act::Idle).await?;
    let fence = Fence::Token(fresh_token()?);
    let keys = vec![Key::ENTER];
    let sent = stage.sessions.send_keys(session("a")?, fence, keys).await;
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

async fn a_terminal_is_to_be_had_for_a_live_session(stage: Arc<Stage>) -> Outcome {
    let token = stage.start("a", Act::Idle).await?;
    for read_only in [false, true] {
        match stage.sessions.attach(session("a")?, read_only).await {
            // Not everybody can keep a terminal from being typed into.
            Err(SessionError::Unsupported("attach")) if read_only => {}
            plan => {
                let argv = plan?.argv;
                ensure!(argv.first().is_some_and(|p| !p.is_empty()), "{argv:?}");
            }
        }
    }
    ensure!(stage.is_live("a", &token).await?, "a plan touched it");
    let facts = stage.facts("a").await?;
    let attached = facts.is_none_or(|facts| facts.attached);
    ensure!(!attached, "nobody has run a plan yet");
    Ok(())
}

async fn files_are_copied_to_where_the_agent_works(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Idle).await?;
    let copy = async |from: &str, to: &str| {
        let (from, to) = (stage.file(from), to.to_owned());
        anyhow::Ok(stage.sessions.copy_to(session("a")?, from, to).await)
    };
    std::fs::create_dir_all(stage.file("source/deep"))?;
    std::fs::write(stage.file("source/one"), "1")?;
    std::fs::write(stage.file("source/deep/two"), "2")?;
    let file = copy("source/one", "new/file").await?;
    ensure!(file == Ok(1), "a file: {file:?}");
    let dir = copy("source", "copied").await?;
    ensure!(dir == Ok(2), "a directory: {dir:?}");
    std::fs::write(stage.file("source/one"), "one more")?;
    let again = copy("source/one", "new/file").await?;
    ensure!(again == Ok(1), "over a file: {again:?}");
    for (file, want) in [
        ("new/file", "one more"),
        ("copied/one", "1"),
        ("copied/deep/two", "2"),
    ] {
        let seen = std::fs::read_to_string(stage.file(file))?;
        ensure!(seen == want, "{file} is {seen:?}");
    }
    let missing = copy("no-such", "x").await?;
    ensure!(missing == Ok(0), "nothing: {missing:?}");
    for outside in ["../x", "/x", "a/../../x"] {
        let refused = copy("source/one", outside).await?;
        ensure!(
            matches!(refused, Err(SessionError::Invalid(_))),
            "{outside}: {refused:?}"
        );
    }
    let nobody = stage
        .sessions
        .copy_to(session("never")?, stage.file("source"), "x".into());
    let nobody = nobody.await;
    ensure!(nobody == Err(SessionError::NotFound), "{nobody:?}");
    Ok(())
}
