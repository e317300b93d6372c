//! What is done with a session that is there, by one call of the script or a few.

use std::path::PathBuf;

use gascity_actors::model::{ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{
    AttachPlan, Delivery, Fence, Key, Liveness, Note, SessionError, Stopped, check_note, inside,
    nudge_text,
};

use super::call::{Answer, Op};
use super::{Inner, backend, lock, start};
use crate::sessions::output;
use crate::sessions::prepare::count_files;
use crate::sessions::processes::{blocking, sweep};

impl Inner {
    pub(super) async fn stop(
        &self,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<Stopped, SessionError> {
        let gate = self.gate(name);
        let _gate = gate.lock().await;
        let Some(record) = self.fenced(name, fence)? else {
            return Ok(Stopped::Absent);
        };
        let forced = match self.ask(Op::Stop(name)).await? {
            Answer::Unknown => return Err(backend("the script knows no stop")),
            Answer::Done(text) => text.trim() == "forced",
        };
        let swept = self.sweep(&record.token).await?;
        if self.is_running(name).await? {
            return Err(backend("the session still runs after its stop"));
        }
        self.tell_end(name, &record.token, ExitStatus::Unknown);
        self.records.remove(name).map_err(backend)?;
        lock(&self.ended).remove(&record.token);
        Ok(match forced || swept {
            true => Stopped::Forced,
            false => Stopped::Clean,
        })
    }

    /// Ends what the script left of a run on this machine. Whether something had to be killed.
    pub(super) async fn sweep(&self, token: &RunToken) -> Result<bool, SessionError> {
        let (mark, census) = (self.mark.clone(), self.census.clone());
        let strays = start::Strays(token.clone());
        let swept = blocking(move || sweep::end_all(&mark, &census, &strays)).await?;
        Ok(swept.forced)
    }

    pub(super) async fn liveness(
        &self,
        name: &SessionName,
        token: &RunToken,
    ) -> Result<Liveness, SessionError> {
        let record = self.records.read(name).map_err(backend)?;
        if record.is_none_or(|record| record.token != *token) {
            return Ok(Liveness::Absent);
        }
        if self.is_running(name).await? {
            self.saw(name, token);
            return Ok(Liveness::Live { pid: None });
        }
        Ok(Liveness::Dead(self.tell_end(
            name,
            token,
            ExitStatus::Unknown,
        )))
    }

    pub(super) async fn set_note(
        &self,
        name: &SessionName,
        fence: &Fence,
        note: Note,
        value: Option<String>,
    ) -> Result<(), SessionError> {
        let gate = self.gate(name);
        let _gate = gate.lock().await;
        self.fenced(name, fence)?.ok_or(SessionError::NotFound)?;
        check_note(value.as_deref())?;
        self.records
            .change(name, note, value.clone())
            .map_err(backend)?;
        // For whoever asks the backend itself; ours is the file.
        let _ = match value {
            Some(value) => self.ask(Op::SetMeta(name, note.key(), value)).await,
            None => self.ask(Op::RemoveMeta(name, note.key())).await,
        };
        Ok(())
    }

    /// An op about one session: `None` if there is no session, an error if there is no such op.
    async fn about(
        &self,
        name: &SessionName,
        cap: &'static str,
        op: Op<'_>,
    ) -> Result<Option<String>, SessionError> {
        if !self.knows(op.word()) {
            return Err(SessionError::Unsupported(cap));
        }
        if self.records.read(name).map_err(backend)?.is_none() {
            return Ok(None);
        }
        match self.ask(op).await? {
            Answer::Done(text) => Ok(Some(text)),
            Answer::Unknown => Err(SessionError::Unsupported(cap)),
        }
    }

    pub(super) async fn interrupt(
        &self,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<bool, SessionError> {
        if self.fenced(name, fence)?.is_none() {
            return Ok(false);
        }
        // A script that cannot do it is left alone: the stop that follows needs no leave.
        self.ask(Op::Interrupt(name)).await.map(|_| true)
    }

    pub(super) async fn process_alive(
        &self,
        name: &SessionName,
        names: Vec<String>,
    ) -> Result<bool, SessionError> {
        if self.fenced(name, &Fence::Any)?.is_none() {
            return Ok(false);
        }
        if !names.is_empty() && self.knows("process-alive") {
            match self.ask(Op::ProcessAlive(name, names)).await? {
                Answer::Done(text) => return Ok(text.trim() == "true"),
                Answer::Unknown => {}
            }
        }
        self.is_running(name).await
    }

    pub(super) async fn clear_scrollback(&self, name: &SessionName) -> Result<(), SessionError> {
        self.fenced(name, &Fence::Any)?
            .ok_or(SessionError::NotFound)?;
        self.ask(Op::ClearScrollback(name)).await.map(drop)
    }

    pub(super) async fn peek(
        &self,
        name: &SessionName,
        lines: u32,
    ) -> Result<String, SessionError> {
        let text = self.about(name, "peek", Op::Peek(name, lines)).await?;
        let text = text.ok_or(SessionError::NotFound)?;
        Ok(output::last(text.as_bytes(), lines))
    }

    pub(super) async fn nudge(
        &self,
        name: &SessionName,
        fence: &Fence,
        text: &str,
    ) -> Result<Delivery, SessionError> {
        let text = nudge_text(text)?;
        let op = Op::Nudge(name, text.clone());
        let sent = self.type_in(name, fence, "nudge", op, text.is_empty());
        Ok(match sent.await? {
            true => Delivery::Delivered { confirmed: true },
            false => Delivery::NoSession,
        })
    }

    pub(super) async fn send_keys(
        &self,
        name: &SessionName,
        fence: &Fence,
        keys: &[Key],
    ) -> Result<bool, SessionError> {
        Key::check(keys)?;
        let op = Op::SendKeys(name, keys);
        self.type_in(name, fence, "keys", op, keys.is_empty()).await
    }

    /// One who types at a time. `false`: there is no live session.
    async fn type_in(
        &self,
        name: &SessionName,
        fence: &Fence,
        cap: &'static str,
        op: Op<'_>,
        nothing: bool,
    ) -> Result<bool, SessionError> {
        if !self.knows(op.word()) {
            return Err(SessionError::Unsupported(cap));
        }
        if self.fenced(name, fence)?.is_none() {
            return Ok(false);
        }
        if nothing {
            return Ok(true);
        }
        let gate = self.gate(name);
        let _gate = gate.lock().await;
        if !self.is_running(name).await? {
            return Ok(false);
        }
        Ok(self.about(name, cap, op).await?.is_some())
    }

    pub(super) async fn attach(
        &self,
        name: &SessionName,
        read_only: bool,
    ) -> Result<AttachPlan, SessionError> {
        let record = self.fenced(name, &Fence::Any)?;
        if !self.knows("attach") || read_only && record.is_some() {
            return Err(SessionError::Unsupported("attach"));
        }
        record.ok_or(SessionError::NotFound)?;
        Ok(self.attach_plan(name))
    }

    /// The script does the copying, on its own side. One that cannot copies nothing.
    pub(super) async fn copy_to(
        &self,
        name: &SessionName,
        from: PathBuf,
        to: &str,
    ) -> Result<usize, SessionError> {
        inside(to)?;
        self.fenced(name, &Fence::Any)?
            .ok_or(SessionError::NotFound)?;
        let source = from.clone();
        let files = blocking(move || count_files(&source)).await?;
        if files == 0 {
            return Ok(0);
        }
        let from = from.to_string_lossy();
        Ok(match self.ask(Op::CopyTo(name, &from, to)).await? {
            Answer::Done(_) => files,
            Answer::Unknown => 0,
        })
    }
}
