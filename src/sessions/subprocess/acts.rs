//! What is done with a session that is there.

use std::path::PathBuf;
use std::sync::Arc;

use gascity_actors::model::{RunToken, SessionName};
use gascity_actors::ports::{Fence, Liveness, SessionError};
use rustix::process::Signal;

use super::Inner;
use crate::sessions::output::{self, Written};
use crate::sessions::processes::{Led as _, backend, blocking, check, copy_to, programs};

impl Inner {
    pub(super) async fn interrupt(
        self: &Arc<Self>,
        name: &SessionName,
        fence: &Fence,
    ) -> Result<bool, SessionError> {
        let run = match self.seen(name).await {
            Err(SessionError::NotFound) => return Ok(false),
            run => run?,
        };
        check(fence, &*run)?;
        run.signal_group(Signal::INT).map_err(backend)
    }

    pub(super) async fn liveness(
        self: &Arc<Self>,
        name: &SessionName,
        token: &RunToken,
    ) -> Result<Liveness, SessionError> {
        match self.seen(name).await {
            Err(SessionError::NotFound) => Ok(Liveness::Absent),
            Err(error) => Err(error),
            Ok(run) if run.token != *token => Ok(Liveness::Absent),
            Ok(run) if run.is_live() => Ok(Liveness::Live {
                pid: Some(run.pid.as_raw_nonzero().get().cast_unsigned()),
            }),
            Ok(run) => Ok(Liveness::Dead(run.ended().await)),
        }
    }

    pub(super) async fn peek(
        self: &Arc<Self>,
        name: &SessionName,
        lines: u32,
    ) -> Result<String, SessionError> {
        let run = self.seen(name).await?;
        let log = self.files.log(name);
        let (offset, rotated) = {
            let meta = run.fresh(&self.files);
            (meta.log_offset, meta.rotated)
        };
        // The restart after a crash waits for its last words, most often none or few.
        match output::written(&log, offset) {
            Written::Nothing if rotated.is_none() => Ok(String::new()),
            Written::Little if rotated.is_none() => {
                output::tail(&log, offset, lines).map_err(backend)
            }
            _ => blocking(move || output::tail_across(&log, offset, rotated, lines)).await,
        }
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
        let (files, census) = (self.files.clone(), self.census.clone());
        blocking(move || programs::any_alive(&files.mark, &census, &*run, &names)).await
    }
}
