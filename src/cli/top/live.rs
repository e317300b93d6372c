//! The loop of `gc top` on a terminal: keys, looks and signals in, frames out.

use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use crossterm::event::EventStream;
use futures_core::Stream as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::frame::frame;
use super::keys::{Wish, press};
use super::model::{Look, Model, Page, Target};
use super::screen::{Input, Screen, input};
use super::source::{Agent, Source};
use crate::cli::context::Context;
use crate::cli::error::{CliResult, Code};

/// What comes in from elsewhere than the terminal.
enum Update {
    Looked(Box<Look>),
    Gone(String),
    Said(String),
    Page(Page),
}

/// Shows the model and what becomes of it until the user leaves; answers the exit code.
///
/// # Errors
/// If the terminal fails.
pub(super) fn run(
    context: &Context,
    model: Model,
    source: Source,
    interval: Duration,
) -> CliResult<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (updates, inbox) = mpsc::channel(8);
    let look_now = looks(source, interval, updates.clone())?;
    let top = Top {
        context: context.clone(),
        model,
        updates,
        look_now,
    };
    runtime.block_on(top.run(inbox))
}

/// Looks again and again, and whenever asked to, in a thread: the questions block. Ends when
/// nobody asks or listens any more.
fn looks(
    mut source: Source,
    interval: Duration,
    updates: mpsc::Sender<Update>,
) -> CliResult<std_mpsc::Sender<()>> {
    let (look_now, asked) = std_mpsc::channel();
    let work = move || {
        while asked.recv_timeout(interval) != Err(std_mpsc::RecvTimeoutError::Disconnected) {
            let update = match source.look() {
                Ok(look) => Update::Looked(Box::new(look)),
                Err(error) => Update::Gone(error.message),
            };
            if updates.blocking_send(update).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("looks".into())
        .spawn(work)?;
    Ok(look_now)
}

struct Top {
    context: Context,
    model: Model,
    updates: mpsc::Sender<Update>,
    look_now: std_mpsc::Sender<()>,
}

impl Top {
    async fn run(mut self, mut inbox: mpsc::Receiver<Update>) -> CliResult<u8> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut screen = Screen::take(self.context.out.colour)?;
        let mut events = EventStream::new();
        loop {
            let (width, height) = Screen::size()?;
            screen.draw(frame(&self.model, width, height))?;
            let event = std::future::poll_fn(|cx| Pin::new(&mut events).poll_next(cx));
            let event = tokio::select! {
                _ = interrupt.recv() => return Ok(130),
                _ = terminate.recv() => return Ok(143),
                _ = hangup.recv() => return Ok(129),
                update = inbox.recv() => {
                    update.into_iter().for_each(|update| self.take(update));
                    continue;
                }
                event = event => event,
            };
            let Some(Ok(event)) = event else {
                return Ok(Code::Failed.exit()); // the terminal is gone
            };
            match input(&event) {
                Some(Input::Interrupt) => return Ok(130),
                Some(Input::Resized) => screen.forget(),
                Some(Input::Key(key)) => match press(&mut self.model, key) {
                    Some(Wish::Quit) => return Ok(0),
                    Some(Wish::Attach(target)) => {
                        // Two readers would share what is typed.
                        drop(events);
                        screen.leave();
                        self.model.said = self.attach(&target);
                        screen.enter()?;
                        events = EventStream::new();
                    }
                    Some(wish) => self.carry_out(wish),
                    None => {}
                },
                None => {}
            }
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Looked(look) => self.model.take(*look),
            Update::Gone(why) => self.model.gone = Some(why),
            Update::Said(text) => self.model.said = Some(text),
            Update::Page(page) => {
                self.model.said = None;
                self.model.page = Some(page);
            }
        }
    }

    /// Has an agent asked, in a thread: the answer may take long.
    fn carry_out(&mut self, wish: Wish) {
        let (updates, look_now) = (self.updates.clone(), self.look_now.clone());
        let context = self.context.clone();
        let agent = |target| Agent { context, target };
        self.model.said = Some("...".to_owned());
        tokio::task::spawn_blocking(move || {
            let update = match wish {
                Wish::Peek(target) => {
                    let title = target.agent.clone();
                    match agent(target).peek() {
                        Ok(text) => Update::Page(Page::new(title, &text)),
                        Err(error) => Update::Said(format!("! {title}: {}", error.message)),
                    }
                }
                Wish::Nudge(target, text) => Update::Said(agent(target).nudge(&text)),
                Wish::Do(target, act) => Update::Said(agent(target).act(act)),
                Wish::Quit | Wish::Attach(_) => return,
            };
            let _ = updates.blocking_send(update); // the user may have left
            let _ = look_now.send(());
        });
    }

    /// Becomes the agent's terminal until the user leaves it. Answers what went wrong.
    fn attach(&self, target: &Target) -> Option<String> {
        let run = || {
            let mut gc = Command::new(std::env::current_exe()?);
            if let Some(home) = &self.context.globals.home {
                gc.arg("--home").arg(home);
            }
            gc.arg("--city").arg(&target.root);
            gc.args(["agent", "attach", &target.agent]);
            // Errors would be gone with the screen they stand on.
            let (stdin, stdout) = (Stdio::inherit(), Stdio::inherit());
            let gc = gc.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
            gc.spawn()?.wait_with_output()
        };
        match run() {
            Ok(said) if said.status.success() => None,
            Ok(said) => {
                let text = String::from_utf8_lossy(&said.stderr);
                Some(format!("! {}", text.lines().next().unwrap_or_default()))
            }
            Err(error) => Some(format!("! {}: {error}", target.agent)),
        }
    }
}
