//! What the demo agent does until it ends.

use std::future::pending;
use std::io::BufRead;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::drain::Drain;
use super::script::Action;
use crate::cli::CliResult;

/// Steps of one imagined task.
const STEPS: u64 = 5;
/// Lines come in bursts this far apart at least: timers are no finer, and waking costs.
const BURST: Duration = Duration::from_millis(20);
/// How often an agent without steps looks whether it should finish.
const LOOK: Duration = Duration::from_secs(1);
/// The reader of standard input needs hardly any.
const READER_STACK: usize = 64 << 10;

/// Everything that was decided about the agent before it began.
#[derive(Debug)]
pub(super) struct Life {
    /// What the supervisor calls it.
    pub(super) name: Option<String>,
    pub(super) start_delay: Duration,
    pub(super) work: Work,
    pub(super) crash: Option<Fate>,
    pub(super) hang_after: Option<Duration>,
    pub(super) ignore_interrupt: bool,
    /// Outside of sessions nobody asks it to finish.
    pub(super) drain: Option<Drain>,
}

/// What it busies itself with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A step of this length after the other.
    Steps(Duration),
    /// So many lines per second.
    Spam(u32),
    /// What is written, then a clean exit.
    Script(Vec<Action>),
}

/// A crash that is bound to happen.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) after: Duration,
    pub(super) say: Option<String>,
    pub(super) code: u8,
}

/// How work ends.
enum End {
    Exit(u8),
    Hang,
}

/// Prints a line.
type Say<'a> = &'a dyn Fn(&str) -> CliResult;

/// Lives until told to leave, or until its flags say so; returns the exit code.
pub(super) async fn live(life: &Life, say: Say<'_>) -> CliResult<u8> {
    tokio::select! {
        biased;
        left = leave(life.ignore_interrupt, say) => left,
        code = act(life, say, listen) => code,
    }
}

/// Waits for a signal that ends the agent; only an interrupt can be ignored.
async fn leave(ignore_interrupt: bool, say: Say<'_>) -> CliResult<u8> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        let ignored = tokio::select! {
            _ = interrupt.recv() => ignore_interrupt,
            _ = terminate.recv() => false,
        };
        if !ignored {
            say("demo: interrupted, leaving")?;
            return Ok(0);
        }
        say("demo: interrupt ignored")?;
    }
}

/// The agent without its signals. `ears` opens the stream of what it is told.
async fn act(
    life: &Life,
    say: Say<'_>,
    ears: impl FnOnce() -> CliResult<mpsc::Receiver<String>>,
) -> CliResult<u8> {
    wait(life.start_delay).await;
    let crash = async {
        match &life.crash {
            Some(fate) => meet(fate, say).await,
            None => pending().await,
        }
    };
    let active = async {
        let name = life.name.as_deref().unwrap_or("agent");
        say(&format!("demo: {name} is up, pid {}", std::process::id()))?;
        let ears = ears()?;
        let busy = async {
            tokio::select! {
                end = work(life, say) => end,
                failed = echo(ears, say) => failed,
            }
        };
        let end = match life.hang_after {
            Some(after) => timeout(after, busy).await.unwrap_or(Ok(End::Hang))?,
            None => busy.await?,
        };
        match end {
            End::Exit(code) => Ok(code),
            End::Hang => pending().await,
        }
    };
    tokio::select! {
        biased;
        code = crash => code,
        code = active => code,
    }
}

async fn meet(fate: &Fate, say: Say<'_>) -> CliResult<u8> {
    wait(fate.after).await;
    if let Some(words) = &fate.say {
        say(words)?;
    }
    Ok(fate.code)
}

/// A sleep that takes no time at all if it is zero; a timer would take a millisecond.
async fn wait(length: Duration) {
    if !length.is_zero() {
        sleep(length).await;
    }
}

async fn work(life: &Life, say: Say<'_>) -> CliResult<End> {
    match &life.work {
        Work::Steps(length) => steps(life, *length, say).await,
        Work::Spam(rate) => spam(life, *rate, say).await,
        Work::Script(actions) => {
            for action in actions {
                if let Some(end) = life.finish(say)? {
                    return Ok(end);
                }
                if let Some(end) = perform(action, say).await? {
                    return Ok(end);
                }
            }
            Ok(End::Exit(0))
        }
    }
}

impl Life {
    /// Between two pieces of work: leaves if it is asked to.
    fn finish(&self, say: Say<'_>) -> CliResult<Option<End>> {
        let Some(drain) = self.drain.as_ref().filter(|drain| drain.is_asked()) else {
            return Ok(None);
        };
        say("demo: draining, finishing")?;
        if let Err(error) = drain.acknowledge() {
            say(&format!(
                "demo: nobody hears that I am done: {}",
                error.message
            ))?;
        }
        Ok(Some(End::Exit(0)))
    }
}

async fn steps(life: &Life, length: Duration, say: Say<'_>) -> CliResult<End> {
    for done in 0_u64.. {
        if let Some(end) = life.finish(say)? {
            return Ok(end);
        }
        let (task, step) = (done / STEPS + 1, done % STEPS + 1);
        say(&format!("demo: step {step} of task {task}"))?;
        sleep(length.max(Duration::from_millis(1))).await; // zero would spin
    }
    Ok(End::Hang)
}

async fn spam(life: &Life, rate: u32, say: Say<'_>) -> CliResult<End> {
    let began = Instant::now();
    let mut looked = began;
    let gap = Duration::from_secs(1)
        .checked_div(rate)
        .map_or(BURST, |gap| gap.max(BURST));
    let mut printed = 0;
    loop {
        sleep(gap).await;
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if let Some(end) = life.finish(say)? {
                return Ok(end);
            }
        }
        let due = lines_due(rate, began.elapsed());
        let burst: Vec<String> = (printed..due)
            .map(|line| format!("demo: spam line {}", line + 1))
            .take(rate as usize) // after a pause of the machine, not everything at once
            .collect();
        printed = due;
        if !burst.is_empty() {
            say(&burst.join("\n"))?;
        }
    }
}

/// Lines that `rate` per second come to.
fn lines_due(rate: u32, elapsed: Duration) -> u64 {
    let due = u128::from(rate) * elapsed.as_nanos() / 1_000_000_000;
    u64::try_from(due).unwrap_or(u64::MAX)
}

async fn perform(action: &Action, say: Say<'_>) -> CliResult<Option<End>> {
    match action {
        Action::Sleep(length) => sleep(*length).await,
        Action::Print(text) => say(text)?,
        Action::Run(line) => shell(line, say).await?,
        Action::Exit(code) => return Ok(Some(End::Exit(*code))),
        Action::Hang => return Ok(Some(End::Hang)),
    }
    Ok(None)
}

/// Runs a line through the shell. Its failure is told, not fatal.
async fn shell(line: &str, say: Say<'_>) -> CliResult {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null());
    // On its own thread, so that an interrupt need not wait for it.
    let outcome = tokio::task::spawn_blocking(move || command.status()).await;
    match outcome {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => say(&format!("demo: {line}: {status}")),
        Ok(Err(error)) => say(&format!("demo: {line}: {error}")),
        Err(error) => say(&format!("demo: {line}: {error}")),
    }
}

/// Repeats what the agent is told, for as long as anybody could tell it something.
async fn echo(mut ears: mpsc::Receiver<String>, say: Say<'_>) -> CliResult<End> {
    while let Some(line) = ears.recv().await {
        say(&format!("demo: got nudge: {line}"))?;
    }
    pending().await
}

/// Lines of standard input. A thread of its own: it may be a terminal, a pipe or a file, and only
/// a blocking read suits them all without changing it for others who share it.
fn listen() -> CliResult<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::Builder::new()
        .stack_size(READER_STACK)
        .spawn(move || {
            let mut input = std::io::stdin().lock();
            let mut line = Vec::new();
            while let Ok(1..) = input.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.blocking_send(text).is_err() {
                    return;
                }
                line.clear();
            }
        })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests;
