//! Small state beside a city, as files under its `.gc`: the adapter of the port
//! [`Notes`].

mod captures;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use captures::Captures;

use crate::control::files;
use crate::control::home::CityDir;
use crate::model::SessionName;
use crate::ports::{Notes, NotesError, PortFuture};

/// Crash history in `.gc/state/crash-history.json`, last output of crashed runs in
/// `.gc/runtime/captures`. All files are private to the user.
///
/// Its calls need a tokio runtime; the work is done off its own threads.
#[derive(Debug)]
pub struct FileNotes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    history: PathBuf,
    /// Number of the newest history that was written; held while one is.
    written: Mutex<u64>,
    /// Number of the newest history that was handed over.
    handed: AtomicU64,
    captures: Captures,
    /// Held while a capture is written.
    capturing: Mutex<()>,
    /// Time of the last capture: no two have the same, so no two have the same file.
    captured_at: Mutex<DateTime<Utc>>,
}

impl FileNotes {
    /// The notes of a city. Touches nothing until the first call.
    #[must_use]
    pub fn new(city: &CityDir) -> Self {
        Self(Arc::new(Inner {
            history: city.state_dir().join("state/crash-history.json"),
            written: Mutex::default(),
            handed: AtomicU64::new(0),
            captures: Captures::new(city.runtime_dir().join("captures")),
            capturing: Mutex::default(),
            captured_at: Mutex::default(),
        }))
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> PortFuture<'_, T, NotesError> {
        let inner = self.0.clone();
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || work(&inner)).await;
            let done = done.map_err(|error| NotesError(error.to_string()))?;
            done.map_err(|error| NotesError(error.to_string()))
        })
    }
}

impl Inner {
    fn capture_time(&self) -> DateTime<Utc> {
        let mut last = self
            .captured_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Utc::now().max(*last + TimeDelta::milliseconds(1));
        *last
    }

    fn load_history(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.history) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(about(&self.history, &error)),
        }
    }

    fn save_history(&self, number: u64, text: &str) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if number < *written {
            return Ok(()); // a newer one overtook it
        }
        if let Some(dir) = self.history.parent() {
            files::create_private_dir(dir)?;
        }
        files::replace(&self.history, text.as_bytes())
            .map_err(|error| about(&self.history, &error))?;
        *written = number;
        Ok(())
    }
}

fn about(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Notes for FileNotes {
    fn load_crash_history(&self) -> PortFuture<'_, Option<String>, NotesError> {
        self.blocking(Inner::load_history)
    }

    fn save_crash_history(&self, text: String) -> PortFuture<'_, (), NotesError> {
        // Numbered here, in the order of the calls: the work itself may be done in another.
        let number = self.0.handed.fetch_add(1, Ordering::Relaxed) + 1;
        self.blocking(move |inner| inner.save_history(number, &text))
    }

    fn save_capture(&self, session: &SessionName, text: String) -> String {
        let at = self.0.capture_time();
        let path = self.0.captures.path(session, at);
        let (inner, target) = (self.0.clone(), path.clone());
        tokio::task::spawn_blocking(move || {
            let _turn = inner
                .capturing
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = inner.captures.save(&target, &text) {
                tracing::warn!(path = %target.display(), %error, "last output was not kept");
            }
        });
        path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn notes() -> (tempfile::TempDir, FileNotes) {
        let dir = tempfile::tempdir().unwrap();
        let notes = FileNotes::new(&CityDir::new(dir.path()));
        (dir, notes)
    }

    fn mode(path: &std::path::Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_crash_history_is_kept_beyond_the_program() {
        let (dir, notes) = notes();
        assert_eq!(notes.load_crash_history().await, Ok(None));
        notes.save_crash_history("one".into()).await.unwrap();
        notes.save_crash_history("two".into()).await.unwrap();
        let other = FileNotes::new(&CityDir::new(dir.path()));
        assert_eq!(other.load_crash_history().await, Ok(Some("two".into())));
        let path = dir.path().join(".gc/state/crash-history.json");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn the_history_handed_over_last_stays() {
        let (_dir, notes) = notes();
        for round in 0..20 {
            let saves: Vec<_> = (0..8)
                .map(|save| notes.save_crash_history(format!("{round}.{save}")))
                .collect();
            // The last first: it must not be undone by those before it.
            for save in saves.into_iter().rev() {
                save.await.unwrap();
            }
            let kept = notes.load_crash_history().await.unwrap();
            assert_eq!(kept, Some(format!("{round}.7")));
        }
    }

    #[tokio::test]
    async fn a_capture_is_a_private_file_at_the_returned_path() {
        let (dir, notes) = notes();
        let session = SessionName::new("rig--a").unwrap();
        let paths: Vec<PathBuf> = ["1", "agent a\n\nlast words"]
            .map(|text| notes.save_capture(&session, text.into()).into())
            .into();
        assert_ne!(paths[0], paths[1], "two at the same time");
        let path = &paths[1];
        let written = async {
            while fs::read_to_string(path).unwrap_or_default().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), written)
            .await
            .unwrap();
        assert_eq!(
            path.parent(),
            Some(&*dir.path().join(".gc/runtime/captures"))
        );
        assert_eq!(fs::read_to_string(path).unwrap(), "agent a\n\nlast words");
        assert_eq!(mode(path), 0o600);
    }

    #[tokio::test]
    async fn state_that_cannot_be_used_is_an_error_that_names_it() {
        let (dir, notes) = notes();
        fs::create_dir_all(dir.path().join(".gc/state/crash-history.json")).unwrap();
        let error = notes.load_crash_history().await.unwrap_err();
        assert!(error.0.contains("crash-history.json"), "{error}");
        assert!(notes.save_crash_history("x".into()).await.is_err());
    }
}
