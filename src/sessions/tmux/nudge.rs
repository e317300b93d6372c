//! Typing a message into a session, and seeing whether it arrived.

use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::SessionName;
use gascity_actors::ports::{Delivery, Fence, Key, SessionError, nudge_text};
use tokio::time::{Instant, sleep, timeout};

use super::acts::{leave_copy_mode, screen};
use super::line::Line;
use super::parser::Block;
use super::run::Run;
use super::server::Server;
use super::{Inner, Pace, backend, check, lost};
use crate::control::lock::{Lock, take_turn};
use crate::sessions::processes::{Led as _, lock};

/// Up to this much is typed; more is pasted.
const TYPED: usize = 512;

/// Between text and Enter there is a pause, since programs take what comes too quickly for a
/// paste. More of it for each further piece of a long text, and the most.
const DEBOUNCE_MORE: Duration = Duration::from_millis(25);
const DEBOUNCE_MOST: Duration = Duration::from_secs(2);

/// How long the screen may take to change after Enter, and how often it is looked at.
const REACTION: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(25);

/// Waits before Enter is pressed again.
const AGAIN: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Lines of the screen that are watched.
const WATCHED: u32 = 5;

/// How long single keys wait for others that are being typed.
const KEYS_WAIT: Duration = Duration::from_secs(2);

/// How long a program may take to see that its window has changed.
const RESIZED: Duration = Duration::from_millis(50);

impl Inner {
    pub(super) async fn nudge(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
        text: &str,
    ) -> Result<Delivery, SessionError> {
        let text = nudge_text(text)?;
        let (run, server) = match self.seated(name).await {
            Err(SessionError::NotFound) => return Ok(Delivery::NoSession),
            found => found?,
        };
        check(fence, &*run)?;
        if !run.is_live() {
            return Ok(Delivery::NoSession);
        }
        if text.is_empty() {
            return Ok(Delivery::Delivered { confirmed: true });
        }
        let limit = self.pace().turn;
        let slot = self.slot(name);
        let typing = timeout(limit, slot.typing.lock()).await;
        let _typing = typing.map_err(|_| SessionError::Busy)?;
        let _turn = self.turn(name, limit).await?;
        type_in(&server, &run, &text).await?;
        self.pause(&text).await;
        let confirmed = submit(&server, &run).await?;
        wake(&server, &run).await?;
        Ok(Delivery::Delivered { confirmed })
    }

    pub(super) async fn send_keys(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
        keys: &[Key],
    ) -> Result<bool, SessionError> {
        Key::check(keys)?;
        let (run, server) = match self.seated(name).await {
            Err(SessionError::NotFound) => return Ok(false),
            found => found?,
        };
        check(fence, &*run)?;
        if !run.is_live() {
            return Ok(false);
        }
        let slot = self.slot(name);
        let typing = timeout(KEYS_WAIT, slot.typing.lock()).await;
        let _typing = typing.map_err(|_| SessionError::Busy)?;
        let _turn = self.turn(name, KEYS_WAIT).await?;
        let pane = run.seat.pane.as_str();
        let line = keys.iter().fold(leave_copy_mode(pane), |line, key| {
            let to = ["send-keys", "-t", pane];
            let word = key.to_string();
            match key {
                Key::Text(_) => line.and(to.into_iter().chain(["-l", "--", &word])),
                _ => line.and(to.into_iter().chain([word.as_str()])),
            }
        });
        match carried_out(&server, line).await {
            Err(SessionError::NotFound) => Ok(false),
            sent => sent.map(|()| true),
        }
    }

    fn pace(&self) -> Pace {
        *lock(&self.pace)
    }

    async fn pause(&self, text: &str) {
        let pieces = u32::try_from(text.len().saturating_sub(1) / TYPED).unwrap_or(u32::MAX);
        let wait = self.pace().debounce + DEBOUNCE_MORE.saturating_mul(pieces);
        sleep(wait.min(DEBOUNCE_MOST)).await;
    }

    /// Excludes other processes that type into the session.
    async fn turn(&self, name: &SessionName, limit: Duration) -> Result<Lock, SessionError> {
        let dir = self.config.city.root.join(".gc/runtime/locks");
        let path = dir.join(name.as_str());
        let work = move || {
            std::fs::create_dir_all(&dir)?;
            take_turn(&path, limit)
        };
        let turn = tokio::task::spawn_blocking(work).await;
        turn.map_err(backend)?
            .map_err(backend)?
            .ok_or(SessionError::Busy)
    }
}

async fn type_in(server: &Server, run: &Run, text: &str) -> Result<(), SessionError> {
    let pane = run.seat.pane.as_str();
    let line = leave_copy_mode(pane);
    let line = if text.len() <= TYPED && !text.contains('\n') {
        line.and(["send-keys", "-t", pane, "-l", "--", text])
    } else {
        // Bracketed, if the program asked for that: newlines inside do not submit.
        let buffer = format!("gc-{}", run.name);
        line.and(["set-buffer", "-b", &buffer, "--", text]).and([
            "paste-buffer",
            "-p",
            "-r",
            "-d",
            "-b",
            &buffer,
            "-t",
            pane,
        ])
    };
    carried_out(server, line).await
}

/// Presses Enter until the screen changes. `false`: it never did.
async fn submit(server: &Server, run: &Run) -> Result<bool, SessionError> {
    let pane = run.seat.pane.as_str();
    let before = look(server, pane).await?;
    let enter = || Line::new(["send-keys", "-t", pane, "Enter"]);
    carried_out(server, enter()).await?;
    if reacts(server, pane, &before, REACTION).await? {
        return Ok(true);
    }
    for wait in AGAIN {
        carried_out(server, enter()).await?;
        if reacts(server, pane, &before, wait).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What changes when a program takes something in: the end of the screen, or the cursor alone.
async fn look(server: &Server, pane: &str) -> Result<String, SessionError> {
    let place = "#{cursor_x} #{cursor_y} #{history_size}";
    let ask = Line::new(["display-message", "-p", "-t", pane, place]);
    let blocks = server.link.send(ask);
    let text = screen(server, pane, WATCHED).await?;
    let blocks = blocks.await.map_err(lost)?;
    let place = blocks.first().map(Block::text).unwrap_or_default();
    Ok(format!("{place}\n{text}"))
}

async fn reacts(
    server: &Server,
    pane: &str,
    before: &str,
    limit: Duration,
) -> Result<bool, SessionError> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        sleep(LOOK).await;
        if look(server, pane).await? != before {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Programs that nobody looks at may draw nothing until their window changes.
async fn wake(server: &Server, run: &Run) -> Result<(), SessionError> {
    let pane = run.seat.pane.as_str();
    let ask = Line::new([
        "display-message",
        "-p",
        "-t",
        pane,
        "#{session_attached} #{window_width}",
    ]);
    let blocks = server.link.ask(ask).await.map_err(lost)?;
    let text = blocks.first().map(Block::text);
    let text = text.unwrap_or_default();
    let Some((Ok(0), Ok(width))) = text
        .split_once(' ')
        .map(|(attached, width)| (attached.parse::<u32>(), width.parse::<u32>()))
    else {
        return Ok(());
    };
    let resize = |width: u32| Line::new(["resize-window", "-t", pane, "-x", &width.to_string()]);
    carried_out(server, resize(width + 1)).await?;
    sleep(RESIZED).await;
    let back = resize(width).and(["set-option", "-u", "-w", "-t", pane, "window-size"]);
    carried_out(server, back).await
}

/// A pane that is gone by now is not there to talk to.
async fn carried_out(server: &Server, line: Line) -> Result<(), SessionError> {
    let blocks = server.link.ask(line).await.map_err(lost)?;
    match blocks.iter().all(|block| block.ok) {
        true => Ok(()),
        false => Err(SessionError::NotFound),
    }
}
