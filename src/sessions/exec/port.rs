//! The port itself.

use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::RunToken;
use gascity_actors::ports::{
    Caps, Limits, Listing, PortFuture, Probe, SessionError, SessionEvents, Sessions, StartError,
    StartSpec, Started,
};

use super::{Exec, start};
use crate::sessions::delegate::delegate;

impl Sessions for Exec {
    fn provider(&self) -> &str {
        &self.0.word
    }

    fn caps(&self) -> Caps {
        let inner = &self.0;
        Caps {
            log: inner.knows("peek"),
            nudge: inner.knows("nudge"),
            keys: inner.knows("send-keys"),
            attach: inner.knows("attach"),
            activity: inner.knows("get-last-activity"),
            exit_push: true,
            exit_status: inner.watches(),
            process_tree: inner.knows("process-alive"),
            meta: inner.knows("set-meta"),
            stages: true,
            survives: true,
            ..Caps::default()
        }
    }

    /// Each call of the script has one of its own.
    fn limits(&self) -> Limits {
        Limits::NONE
    }

    /// A listing costs several processes.
    fn look_every(&self) -> Duration {
        self.0.config.poll
    }

    fn probe(&self) -> PortFuture<'_, Probe, SessionError> {
        Box::pin(async move {
            let script = &self.0.program;
            let checked = rustix::fs::access(script, rustix::fs::Access::EXEC_OK);
            let notes = match checked {
                Ok(()) => vec![script.display().to_string()],
                Err(error) => vec![format!("{}: {error}", script.display())],
            };
            Ok(Probe {
                usable: checked.is_ok(),
                version: None,
                notes,
            })
        })
    }

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        Box::pin(start::start(self.0.clone(), token, spec))
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(async move {
            self.0.watch_exits();
            self.0.clone().snapshot().await
        })
    }

    delegate!(inner self name => self.0;
        stop interrupt liveness process_alive clear_scrollback peek set_note nudge send_keys attach
        copy_to);

    fn subscribe(&self) -> SessionEvents {
        self.0.subscribers.add()
    }
}
