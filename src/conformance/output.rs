//! What agents print.

use std::sync::Arc;

use anyhow::ensure;

use super::stage::session;
use super::{Act, Outcome, Stage, rows};
use crate::ports::SessionError;

rows! {
    18 the_last_lines_are_shown_exactly needs |caps| caps.log || caps.screen;
    18 last_words_outlive_the_agent needs |caps| caps.exit_push && (caps.log || caps.screen);
    18 output_of_nobody_is_not_found needs |caps| caps.log || caps.screen;
    18 output_that_cannot_be_seen_is_said_so needs |caps| !caps.log && !caps.screen;
    19 forged_words_of_a_backend_are_only_output needs |caps| caps.log || caps.screen, commands;
    20 garbage_and_endless_lines_are_shown_within_bounds needs |caps| caps.log || caps.screen, commands;
    31 cleared_output_is_gone needs |caps| caps.log || caps.screen;
}

/// Lines `from` to `to` of an agent that counts.
fn counted(from: u32, to: u32) -> String {
    let lines: Vec<String> = (from..=to).map(|n| format!("line {n}")).collect();
    lines.join("\n")
}

async fn the_last_lines_are_shown_exactly(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Lines(5000)).await?;
    let done = async || Ok(stage.peek("a", 1).await? == "line 5000");
    stage.until("all is printed", done).await?;
    let seen = stage.peek("a", 50).await?;
    ensure!(seen == counted(4951, 5000), "{seen:?}");
    let all = stage.peek("a", 0).await?;
    ensure!(all.ends_with(&counted(4000, 5000)), "{} bytes", all.len());
    Ok(())
}

async fn last_words_outlive_the_agent(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    stage.start("a", Act::LastWords(30)).await?;
    stage.next_exit(&mut events).await?;
    let seen = stage.peek("a", 3).await?;
    ensure!(seen == counted(28, 30), "{seen:?}");
    Ok(())
}

async fn output_of_nobody_is_not_found(stage: Arc<Stage>) -> Outcome {
    let seen = stage.sessions.peek(session("never")?, 5).await;
    ensure!(seen == Err(SessionError::NotFound), "{seen:?}");
    Ok(())
}

async fn output_that_cannot_be_seen_is_said_so(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Idle).await?;
    let seen = stage.sessions.peek(session("a")?, 5).await;
    ensure!(
        matches!(seen, Err(SessionError::Unsupported(_))),
        "{seen:?}"
    );
    Ok(())
}

async fn forged_words_of_a_backend_are_only_output(stage: Arc<Stage>) -> Outcome {
    let mut events = stage.sessions.subscribe();
    let line = "while :; do printf '%%begin 1 1 1\\n%%end 1 1 1\\n%%error 2 2 1\\n%%exit\\n'; \
                printf '%%sessions-changed\\n%%session-closed $1\\n{\"name\":\"a\",\"event\":\"exited\"}\\n'; \
                sleep 0.01; done";
    let liar = stage.start("a", Act::Shell(line.into())).await?;
    let shown = async || Ok(stage.peek("a", 20).await?.contains("%exit"));
    stage.until("it is printed", shown).await?;
    for round in 0..20 {
        let name = format!("b{round}");
        let token = stage.start(&name, Act::Idle).await?;
        ensure!(stage.is_live(&name, &token).await?, "{name} is not live");
        ensure!(stage.is_live("a", &liar).await?, "it is believed");
    }
    ensure!(events.try_recv().is_err(), "it made up an event");
    let listing = stage.sessions.snapshot().await?;
    ensure!(listing.owned.len() == 21, "{:?}", listing.owned);
    Ok(())
}

async fn garbage_and_endless_lines_are_shown_within_bounds(stage: Arc<Stage>) -> Outcome {
    // Garbage may leave a terminal in any state; it is reset before something legible comes.
    let line = "head -c 300000 /dev/urandom; printf '\\030\\033\\\\\\033c'; echo; \
                printf '\\033[31mred\\033[0m \\033]0;title\\007 \\342\\202\\n'; \
                printf '%%begin 1 1 1\\n%%exit\\n%%end 1 1 1\\n'; \
                head -c 1000000 /dev/zero | tr '\\0' x; echo; echo done; exec sleep 1000";
    let token = stage.start("a", Act::Shell(line.into())).await?;
    let done = async || Ok(stage.peek("a", 2).await?.ends_with("done"));
    stage.until("all is printed", done).await?;
    let all = stage.peek("a", 0).await?;
    ensure!(all.len() <= 1 << 20, "{} bytes", all.len());
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    ensure!(!all.contains(is_control), "control characters came along");
    ensure!(stage.is_live("a", &token).await?, "it died of its output");
    Ok(())
}

async fn cleared_output_is_gone(stage: Arc<Stage>) -> Outcome {
    stage.start("a", Act::Lines(200)).await?;
    let done = async || Ok(stage.peek("a", 1).await? == "line 200");
    stage.until("all is printed", done).await?;
    stage.sessions.clear_scrollback(session("a")?).await?;
    let seen = stage.peek("a", 0).await?;
    ensure!(!seen.contains("line 1\n"), "{seen:?}");
    Ok(())
}
