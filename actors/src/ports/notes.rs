use super::PortFuture;
use crate::model::SessionName;

/// Small state beside the city that outlives its supervisor.
pub trait Notes: Send + Sync + 'static {
    /// The crash history as saved last; `None` if there is none.
    fn load_crash_history(&self) -> PortFuture<'_, Option<String>, NotesError>;

    /// Replaces the crash history.
    fn save_crash_history(&self, text: String) -> PortFuture<'_, (), NotesError>;

    /// Keeps the last output of a crashed run; says where it will be. Never waits: a capture that
    /// cannot be written costs the capture, not the restart.
    fn save_capture(&self, session: &SessionName, text: String) -> String;
}

/// State that could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotesError(pub String);
