//! One pass over all processes, shared by everyone who needs one at the same time.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use gascity_actors::model::RunToken;

use super::lock;
use super::note::Files;
use crate::sessions::proc::{self, Environ, Stat};

/// A process, and the run of this city it belongs to.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) stat: Stat,
    pub(super) token: Option<RunToken>,
}

/// Passes over all processes. Many stops at once would otherwise each make their own, and the
/// end of a city would cost the square of its size.
#[derive(Debug, Default)]
pub(super) struct Census {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    begun: u64,
    last: Option<(u64, Arc<Vec<Member>>)>,
}

impl Census {
    /// The result of a pass that began after this call did. Blocks.
    pub(super) fn take(&self, files: &Files) -> io::Result<Arc<Vec<Member>>> {
        let mut state = lock(&self.state);
        let wanted = state.begun + 1;
        loop {
            match &state.last {
                Some((pass, members)) if *pass >= wanted => return Ok(members.clone()),
                _ if state.running => {
                    let woken = self.finished.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
                _ => break,
            }
        }
        state.running = true;
        state.begun += 1;
        let pass = state.begun;
        drop(state);
        let members = members(files).map(Arc::new);
        let mut state = lock(&self.state);
        state.running = false;
        // Kept only for those who wait for it now: the next call wants a later one.
        state.last = members.as_ref().ok().map(|members| (pass, members.clone()));
        self.finished.notify_all();
        members
    }
}

fn members(files: &Files) -> io::Result<Vec<Member>> {
    let token = |stat: &Stat| {
        // What cannot be read belongs to somebody else.
        let environ = Environ::of(stat.pid).ok().flatten()?;
        let ours = files.is_ours(&environ);
        ours.then(|| RunToken::new(environ.text("GC_SESSION_ID")?).ok())?
    };
    let with_token = |stat: Stat| Member {
        token: if stat.dead { None } else { token(&stat) },
        stat,
    };
    Ok(proc::all()?.into_iter().map(with_token).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn passes_are_shared_and_never_older_than_the_question() {
        let files = Files::new("/none".into(), String::new());
        let census = Census::default();
        let barrier = Barrier::new(16);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    barrier.wait();
                    let mut child = std::process::Command::new("sleep")
                        .arg("1000")
                        .spawn()
                        .unwrap();
                    let pid = child.id().cast_signed();
                    let members = census.take(&files);
                    child.kill().unwrap();
                    child.wait().unwrap();
                    assert!(members.unwrap().iter().any(|member| member.stat.pid == pid));
                });
            }
        });
        assert!(lock(&census.state).begun <= 16);
    }
}
