//! A terminal that is drawn on again and again, until `q`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal;
use tokio::signal::unix::{SignalKind, signal};

/// Cursor to the upper left corner, and nothing below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Passed,
    Quit,
    /// Ctrl-C, which is a key here.
    Interrupt,
}

/// The terminal; its keys are ours until it is dropped, if somebody can press any.
#[derive(Debug)]
pub(super) struct Terminal {
    keys: bool,
}

impl Terminal {
    pub(super) fn take() -> Self {
        let keys = io::stdin().is_terminal() && terminal::enable_raw_mode().is_ok();
        if keys {
            give_back_when_ended();
        }
        Self { keys }
    }

    pub(super) fn draw(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        // A raw terminal does not go back to the left by itself.
        write!(out, "{REDRAW}{}\r\n", text.replace('\n', "\r\n"))?;
        out.flush()
    }

    /// Waits for that long, or until a key ends the watch.
    pub(super) fn wait(&self, time: Duration) -> io::Result<Waited> {
        if !self.keys {
            std::thread::sleep(time);
            return Ok(Waited::Passed);
        }
        let end = Instant::now() + time;
        while event::poll(end.saturating_duration_since(Instant::now()))? {
            let Event::Key(key) = event::read()? else {
                continue;
            };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('c') if control => return Ok(Waited::Interrupt),
                KeyCode::Char('q') if !control => return Ok(Waited::Quit),
                _ => {}
            }
        }
        Ok(Waited::Passed)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.keys {
            let _ = terminal::disable_raw_mode(); // a terminal that is gone needs nothing
        }
    }
}

/// SIGTERM ends this process as ever, but leaves the terminal as it was.
fn give_back_when_ended() {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let Ok(runtime) = runtime else { return };
        let told = runtime.block_on(async {
            let mut term = signal(SignalKind::terminate()).ok()?;
            term.recv().await
        });
        if told.is_some() {
            let _ = terminal::disable_raw_mode();
            std::process::exit(143);
        }
    };
    let _ = std::thread::Builder::new()
        .name("sigterm".into())
        .spawn(wait);
}
