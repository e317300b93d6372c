//! What is done with a session that is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gascity_actors::model::{RunToken, SessionName};
use gascity_actors::ports::{AttachPlan, Fence, Liveness, Note, SessionError, Stopped, check_note};
use tokio::time::{Instant, sleep, timeout};

use super::line::{Line, encode};
use super::run::{Pane, Run};
use super::server::{KEEPER, Server};
use super::{Inner, Slot, listing, lost};
use crate::sessions::output;
use crate::sessions::processes::{Led as _, blocking, check, copy_to, lock, programs, sweep};

/// How long the report of an end may take once every process is gone.
const END_WAIT: Duration = Duration::from_secs(2);

/// No more of a screen is given.
const PEEK_LIMIT: usize = 1 << 20;

/// How long the last words of a leader may take to arrive, and how often is looked.
const LAST_WORDS: Duration = Duration::from_millis(100);
const LAST_WORDS_STEP: Duration = Duration::from_millis(2);

impl Inner {
    pub(super) async fn stop(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        match self.seen(name).await {
            Err(SessionError::NotFound) => return Ok(Stopped::Absent),
            run => drop(run?),
        }
        let slot = self.slot(name);
        let stopped = {
            let _gate = slot.gate.lock().await;
            match slot.run() {
                Some(run) => self.stop_run(&slot, &run, fence).await,
                None => Ok(Stopped::Absent),
            }
        };
        drop(slot);
        self.forget(name);
        stopped
    }

    pub(super) async fn stop_run(
        self: &Arc<Self>,
        slot: &Slot,
        run: &Arc<Run>,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        check(fence, &**run)?;
        let swept = self.sweep(slot, run).await?;
        let reported = timeout(END_WAIT, run.ended()).await;
        reported.map_err(|_| SessionError::Timeout)?;
        let server = self.server().await?;
        if server.pid == run.seat.server {
            let line = Line::new(["kill-session", "-t", &run.seat.session]);
            server.link.ask(line).await.map_err(lost)?; // it may be gone already
        }
        *lock(&slot.held) = None;
        Ok(if swept.forced {
            Stopped::Forced
        } else {
            Stopped::Clean
        })
    }

    /// Ends every process of a run.
    pub(super) async fn sweep(
        &self,
        _: &Slot,
        run: &Arc<Run>,
    ) -> Result<sweep::Swept, SessionError> {
        run.stopping.store(true, Ordering::Release);
        let (mark, census, swept) = (self.mark.clone(), self.census.clone(), run.clone());
        let work = move || {
            let done = sweep::end_all(&mark, &census, &*swept);
            swept.stopping.store(false, Ordering::Release);
            done
        };
        blocking(work).await
    }

    pub(super) async fn liveness(
        self: &Arc<Self>,
        name: &SessionName,
        token: &RunToken,
    ) -> Result<Liveness, SessionError> {
        let run = match self.slot(name).run() {
            Some(run) if run.token == *token => Ok(run),
            _ => self.seen(name).await,
        };
        match run {
            Err(SessionError::NotFound) => Ok(Liveness::Absent),
            Err(error) => Err(error),
            Ok(run) if run.token != *token => Ok(Liveness::Absent),
            Ok(run) if run.is_live() => Ok(Liveness::Live {
                pid: Some(run.raw_pid().cast_unsigned()),
            }),
            Ok(run) => Ok(Liveness::Dead(run.ended().await)),
        }
    }

    pub(super) async fn clear_scrollback(
        self: &Arc<Self>,
        name: &SessionName,
    ) -> Result<(), SessionError> {
        let (run, server) = self.seated(name).await?;
        let line = Line::new(["clear-history", "-t", &run.seat.pane]);
        server.link.ask(line).await.map_err(lost).map(drop)
    }

    pub(super) async fn attach(
        self: &Arc<Self>,
        name: &SessionName,
        read_only: bool,
    ) -> Result<AttachPlan, SessionError> {
        let (_, server) = self.seated(name).await?;
        let program = self.config.program.to_string_lossy().into_owned();
        let socket = server.socket.to_string_lossy().into_owned();
        let target = format!("={name}");
        let words = ["-u", "-S", &socket, "attach-session", "-t", &target];
        let mut argv = vec![program];
        argv.extend(words.map(str::to_owned));
        argv.extend(read_only.then(|| "-r".to_owned()));
        Ok(AttachPlan {
            argv,
            unset: vec!["TMUX".to_owned(), "TMUX_PANE".to_owned()],
        })
    }

    pub(super) async fn copy_to(
        self: &Arc<Self>,
        name: &SessionName,
        from: PathBuf,
        to: &str,
    ) -> Result<usize, SessionError> {
        copy_to(self.seen(name).await?, from, to).await
    }

    pub(super) async fn process_alive(
        self: &Arc<Self>,
        name: &SessionName,
        names: Vec<String>,
    ) -> Result<bool, SessionError> {
        let run = match self.seen(name).await {
            Err(SessionError::NotFound) => return Ok(false),
            run => run?,
        };
        if names.is_empty() {
            return Ok(run.is_live());
        }
        let (mark, census) = (self.mark.clone(), self.census.clone());
        let look = move || programs::any_alive(&mark, &census, &*run, &names);
        blocking(look).await
    }

    pub(super) async fn peek(
        self: &Arc<Self>,
        name: &SessionName,
        lines: u32,
    ) -> Result<String, SessionError> {
        let (run, server) = self.seated(name).await?;
        if !run.is_live() {
            read_up(&server, &run.seat.pane).await;
        }
        screen(&server, &run.seat.pane, lines).await
    }

    pub(super) async fn set_note(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
        note: Note,
        value: Option<String>,
    ) -> Result<(), SessionError> {
        let (run, server) = self.seated(name).await?;
        check(fence, &*run)?;
        check_note(value.as_deref())?;
        let option = listing::option(note.key());
        let target = run.seat.session.as_str();
        let line = match &value {
            Some(value) => Line::new(["set-option", "-t", target, &option, &encode(value)]),
            None => Line::new(["set-option", "-u", "-t", target, &option]),
        };
        let blocks = server.link.ask(line).await.map_err(lost)?;
        if blocks.iter().any(|block| !block.ok) {
            return Err(SessionError::NotFound);
        }
        if !listing::is_changing(note) {
            let mut notes = lock(&run.notes);
            match value {
                Some(value) => drop(notes.insert(note, value)),
                None => drop(notes.remove(&note)),
            }
        }
        Ok(())
    }

    pub(super) async fn interrupt(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<bool, SessionError> {
        let (run, server) = match self.seated(name).await {
            Err(SessionError::NotFound) => return Ok(false),
            found => found?,
        };
        check(fence, &*run)?;
        if !run.is_live() {
            return Ok(false);
        }
        let pane = run.seat.pane.as_str();
        let line = leave_copy_mode(pane).and(["send-keys", "-t", pane, "C-c"]);
        let blocks = server.link.ask(line).await.map_err(lost)?;
        Ok(blocks.iter().all(|block| block.ok))
    }

    /// Nothing of the city is left: ends the server, unless somebody else uses it too.
    pub(super) async fn retire(self: &Arc<Self>) -> Result<(), SessionError> {
        let server = match self.server().await {
            Err(SessionError::NotFound) => return Ok(()),
            server => server?,
        };
        let line = Line::new(["list-sessions", "-F", "#{session_name}"]);
        let blocks = server.link.ask(line).await.map_err(lost)?;
        let mut names = blocks.iter().flat_map(|block| &block.lines);
        if names.all(|name| name == KEEPER.as_bytes()) {
            *self.server.lock().await = None;
            server.end().await;
            self.connector.hint().remove();
        }
        Ok(())
    }
}

/// The end of a leader is known before the server has read the last it said: only then is its pane
/// dead, unless somebody else still writes to it.
async fn read_up(server: &Server, pane: &str) {
    let began = Instant::now();
    while server.pane(pane).await == Ok(Pane::Alive) && began.elapsed() < LAST_WORDS {
        sleep(LAST_WORDS_STEP).await;
    }
}

/// The last lines above and on a screen.
pub(super) async fn screen(
    server: &Server,
    pane: &str,
    lines: u32,
) -> Result<String, SessionError> {
    let from = match lines {
        0 => "-".to_owned(),
        lines => format!("-{lines}"),
    };
    let line = Line::new(["capture-pane", "-p", "-J", "-t", pane, "-S", &from]);
    let mut blocks = server.link.ask(line).await.map_err(lost)?;
    let Some(block) = blocks.pop().filter(|block| block.ok) else {
        return Err(SessionError::NotFound);
    };
    let mut text = Vec::new();
    for line in &block.lines {
        text.extend_from_slice(line.trim_ascii_end());
        text.push(b'\n');
    }
    let text = output::last_lines(&output::clean(&text), lines);
    let mut from = text.len().saturating_sub(PEEK_LIMIT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    Ok(text[from..].to_owned())
}

/// A pane in which somebody scrolls takes keys for commands.
pub(super) fn leave_copy_mode(pane: &str) -> Line {
    let cancel = format!("send-keys -t {pane} -X cancel");
    Line::new(["if-shell", "-F", "-t", pane, "#{pane_in_mode}", &cancel])
}
