//! Keeping logs within bounds (sessions.md 2.2).
//!
//! Agents write their logs themselves, so nobody notices each line. A log is looked at a second
//! after its run began, and from then on when it could be full at the rate it grows; one that
//! does not grow is not looked at again before a listing finds that it did.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gascity_actors::model::SessionName;
use gascity_actors::ports::SessionError;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::note::Files;
use super::run::Run;
use super::{Inner, lock};

/// No log is looked at more often.
const LEAST: Duration = Duration::from_secs(1);

/// Growth that would fill a log later than this waits for the next listing.
const MOST: Duration = Duration::from_secs(3600);

/// How large logs get, and how many old ones are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) keep: u32,
}

/// How far a log has grown, and when that was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    size: u64,
    at: Instant,
}

impl Growth {
    pub(super) fn new(size: u64) -> Self {
        let at = Instant::now();
        Self { size, at }
    }

    /// Takes in the size now. When it could reach `full` at that rate; `None` if it did not grow.
    fn seen(&mut self, size: u64, full: u64) -> Option<Duration> {
        let before = std::mem::replace(self, Self::new(size));
        let grown = size.checked_sub(before.size).filter(|grown| *grown > 0)?;
        let took = self
            .at
            .saturating_duration_since(before.at)
            .max(Duration::from_millis(1));
        let rate = grown as f64 / took.as_secs_f64();
        let left = full.saturating_sub(size) as f64 / rate;
        Some(
            Duration::try_from_secs_f64(left)
                .unwrap_or(MOST)
                .clamp(LEAST, MOST),
        )
    }
}

/// Which logs are to be looked at, and when.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    plan: Mutex<Plan>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Plan {
    due: BTreeMap<SessionName, Instant>,
    /// The task that does it runs.
    kept: bool,
    /// It sleeps till then; `None` while it has nothing to do.
    until: Option<Instant>,
}

impl Inner {
    /// Has the log of a session looked at. Needs a tokio runtime.
    pub(super) fn watch_log(self: &Arc<Self>, name: &SessionName, after: Duration) {
        let at = Instant::now() + after;
        let mut plan = lock(&self.keeper.plan);
        plan.due.insert(name.clone(), at);
        if !plan.kept {
            plan.kept = true;
            tokio::spawn(keep(Arc::downgrade(self), self.keeper.clone()));
        } else if plan.until.is_none_or(|until| at < until) {
            self.keeper.wake.notify_one();
        }
    }

    /// What a listing saw of a log.
    pub(super) fn saw_log(self: &Arc<Self>, run: &Run, size: u64) {
        let next = lock(&run.growth).seen(size, self.bounds().bytes);
        if let Some(next) = next {
            let full = size > self.bounds().bytes;
            self.watch_log(&run.name, if full { Duration::ZERO } else { next });
        }
    }

    /// Looks at a log and begins it anew if it is full; when to look again. Blocks.
    fn look_at_log(&self, name: &SessionName) -> Option<Duration> {
        let run = lock(&self.slots.0).get(name).cloned()?.run()?;
        let bounds = self.bounds();
        let size = fs::metadata(self.files.log(name)).ok()?.len();
        if size <= bounds.bytes {
            return lock(&run.growth).seen(size, bounds.bytes);
        }
        if let Err(error) = run.rotate(&self.files, bounds) {
            tracing::warn!(session = %name, %error, "a full log was not begun anew");
        }
        *lock(&run.growth) = Growth::new(0);
        Some(LEAST)
    }
}

/// Looks at logs when they are due, for as long as somebody holds the provider.
async fn keep(inner: Weak<Inner>, keeper: Arc<Keeper>) {
    loop {
        let next = {
            let mut plan = lock(&keeper.plan);
            plan.until = plan.due.values().min().copied();
            plan.until
        };
        match next {
            None => keeper.wake.notified().await,
            Some(next) => {
                // Woken, or due: the plan says which.
                let _ = tokio::time::timeout_at(next, keeper.wake.notified()).await;
            }
        }
        let now = Instant::now();
        let mut due = Vec::new();
        lock(&keeper.plan).due.retain(|name, at| {
            let later = *at > now;
            if !later {
                due.push(name.clone());
            }
            later
        });
        let Some(here) = inner.upgrade() else { return };
        if due.is_empty() {
            continue;
        }
        let looked = tokio::task::spawn_blocking(move || {
            let look = |name: SessionName| Some((here.look_at_log(&name)?, name));
            due.into_iter().filter_map(look).collect::<Vec<_>>()
        });
        let now = Instant::now();
        for (after, name) in looked.await.unwrap_or_default() {
            lock(&keeper.plan).due.entry(name).or_insert(now + after);
        }
    }
}

impl Run {
    /// Moves what is in the log to its first old one, and begins anew. Blocks.
    fn rotate(&self, files: &Files, bounds: Bounds) -> Result<(), SessionError> {
        let mut moved = Ok(None);
        self.change(files, |meta| {
            moved = rotate(&files.log(&self.name), bounds);
            if let Ok(Some(())) = moved {
                // What this run wrote begins in the old one where it began in the log; of a run
                // that filled more than one, with its first byte.
                meta.rotated = (bounds.keep > 0).then_some(match meta.rotated {
                    Some(_) => 0,
                    None => meta.log_offset,
                });
                meta.log_offset = 0;
            }
        })?;
        moved.map(drop).map_err(super::backend)
    }
}

/// The `nth` old log; the newest is the first.
pub(in crate::sessions) fn old_log(log: &Path, nth: u32) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{nth}"));
    name.into()
}

/// Copies a full log away and empties it. `None`: somebody else did already. Writers are not
/// stopped: only what they write between the last byte copied and the cut is lost.
fn rotate(log: &Path, bounds: Bounds) -> io::Result<Option<()>> {
    let mut from = OpenOptions::new().read(true).write(true).open(log)?;
    if from.metadata()?.len() <= bounds.bytes {
        return Ok(None);
    }
    let old = |nth| old_log(log, nth);
    if bounds.keep > 0 {
        for nth in (1..bounds.keep).rev() {
            match fs::rename(old(nth), old(nth + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut to = open_private(&old(1))?;
        io::copy(&mut from, &mut to)?;
    }
    // More than configured, left by an older config.
    let mut nth = bounds.keep + 1;
    while fs::remove_file(old(nth)).is_ok() {
        nth += 1;
    }
    from.set_len(0)?;
    Ok(Some(()))
}

fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_log_is_looked_at_when_it_could_be_full() {
        let mut growth = Growth::new(0);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(growth.seen(0, 1000), None, "silent");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(growth.seen(100, 1000), Some(Duration::from_secs(90)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(growth.seen(900, 1000), Some(LEAST));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(growth.seen(10, 1000), None, "begun anew");
    }

    #[test]
    fn old_logs_shift_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        let bounds = Bounds { bytes: 3, keep: 2 };
        let read = |nth| fs::read_to_string(old_log(&log, nth)).ok();
        for text in ["one.", "two.", "three."] {
            fs::write(&log, text).unwrap();
            assert_eq!(rotate(&log, bounds).unwrap(), Some(()));
            assert_eq!(fs::metadata(&log).unwrap().len(), 0);
        }
        assert_eq!(
            (read(1).as_deref(), read(2).as_deref()),
            (Some("three."), Some("two."))
        );
        assert_eq!(read(3), None);
        assert_eq!(rotate(&log, bounds).unwrap(), None, "not full");
        fs::write(&log, "four.").unwrap();
        rotate(&log, Bounds { bytes: 3, keep: 0 }).unwrap();
        assert_eq!((read(1), read(2)), (None, None));
    }
}
