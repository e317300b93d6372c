use std::sync::Mutex;

use crate::mailbox::lock;
use crate::model::SessionName;
use crate::ports::{Notes, NotesError, PortFuture};

/// State that outlives the tree, but not the program.
#[derive(Debug, Default)]
pub struct MemoryNotes {
    crash_history: Mutex<Option<String>>,
    captures: Mutex<Vec<(String, String)>>,
}

impl MemoryNotes {
    /// The crash history as saved last.
    #[must_use]
    pub fn crash_history(&self) -> Option<String> {
        lock(&self.crash_history).clone()
    }

    /// Captures so far: session and text.
    #[must_use]
    pub fn captures(&self) -> Vec<(String, String)> {
        lock(&self.captures).clone()
    }
}

impl Notes for MemoryNotes {
    fn load_crash_history(&self) -> PortFuture<'_, Option<String>, NotesError> {
        let history = self.crash_history();
        Box::pin(async move { Ok(history) })
    }

    fn save_crash_history(&self, text: String) -> PortFuture<'_, (), NotesError> {
        *lock(&self.crash_history) = Some(text);
        Box::pin(async { Ok(()) })
    }

    fn save_capture(&self, session: &SessionName, text: String) -> String {
        let mut captures = lock(&self.captures);
        captures.push((session.to_string(), text));
        format!("captures/{session}-{}.txt", captures.len())
    }
}
