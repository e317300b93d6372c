//! Finding the runs that an earlier supervisor, or another process, started.
//!
//! Candidates come from the notes. Where one is missing or wrong, one pass over the processes
//! finds those that carry our city and a token. A leader was put into its own process group at
//! birth, so it never can become the leader of a kernel session: that tells it from children
//! that called `setsid`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, RunToken, SessionName};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::note::{Files, NoteFile};
use crate::sessions::proc::{self, Environ};
use crate::sessions::processes::has_fired;

/// What a note turned out to mean.
#[derive(Debug)]
pub(super) enum Found {
    /// There is no note, or one of no interest.
    Nothing,
    /// A live run of another city.
    Foreign,
    /// Our run, over.
    Dead(NoteFile),
    /// Our run, alive.
    Live(NoteFile, OwnedFd),
}

/// What a look at the noted process says.
enum Leader {
    Live(OwnedFd),
    Gone,
    /// Somebody else: the note is wrong.
    Stranger,
}

/// What is known of the session `name`, going by its note.
pub(super) fn look(files: &Files, name: &SessionName) -> io::Result<Found> {
    Ok(examine(files, name)?.0)
}

/// Also: whether the note named a process that is not the run's.
fn examine(files: &Files, name: &SessionName) -> io::Result<(Found, bool)> {
    let Some(note) = files.read_note(name)? else {
        return Ok((Found::Nothing, false));
    };
    if note.city != files.city() {
        let other = Files::new(note.city.clone().into(), files.boot.clone());
        let found = match leader(&other, &note)? {
            Leader::Live(_) => Found::Foreign,
            Leader::Gone | Leader::Stranger => Found::Nothing,
        };
        return Ok((found, false));
    }
    Ok(match leader(files, &note)? {
        Leader::Live(pidfd) => (Found::Live(note, pidfd), false),
        Leader::Gone => (Found::Dead(note), false),
        Leader::Stranger => (Found::Dead(note), true),
    })
}

fn leader(files: &Files, note: &NoteFile) -> io::Result<Leader> {
    if note.boot != files.boot {
        return Ok(Leader::Gone);
    }
    let Some(pidfd) = open(note.pid)? else {
        return Ok(Leader::Gone);
    };
    // From here on `pidfd` pins whoever it is; everything below is said of that process as
    // long as it has not ended by the last line.
    let Some(stat) = proc::stat(note.pid)? else {
        return Ok(Leader::Gone);
    };
    if stat.start != note.start || stat.dead {
        return Ok(Leader::Gone);
    }
    if stat.pgid != note.pid || !group_carries(files, note)? {
        return Ok(Leader::Stranger);
    }
    if has_fired(&pidfd) {
        return Ok(Leader::Gone);
    }
    Ok(Leader::Live(pidfd))
}

/// Whether the leader, or a member of its group, carries the token. A leader may have wiped
/// its own environment.
fn group_carries(files: &Files, note: &NoteFile) -> io::Result<bool> {
    if files.mark.carries(note.pid, &note.token) {
        return Ok(true);
    }
    let member = |stat: &proc::Stat| stat.pgid == note.pid && !stat.dead;
    let all = proc::all()?;
    let mut members = all.iter().filter(|stat| member(stat));
    Ok(members.any(|stat| files.mark.carries(stat.pid, &note.token)))
}

/// Opens a process; `None` if there is none. Anything else is an error: not to be able to look
/// does not mean dead.
fn open(pid: i32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        // The last two: the number belongs to a mere thread.
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Every owned run there is, live or dead.
pub(super) fn all(files: &Files) -> io::Result<Vec<(SessionName, Found)>> {
    let mut found: BTreeMap<SessionName, (Found, bool)> = BTreeMap::new();
    for name in files.noted()? {
        let seen = examine(files, &name)?;
        if let Found::Dead(note) = &seen.0 {
            bury(note);
        }
        found.insert(name, seen);
    }
    for candidate in candidates(files)? {
        let known = found.get(&candidate.name);
        if known.is_none_or(|(known, wrong)| candidate.supersedes(known, *wrong))
            && let Some(live) = candidate.confirm(files)?
        {
            found.insert(candidate.name, (live, false));
        }
    }
    Ok(found
        .into_iter()
        .map(|(name, (seen, _))| (name, seen))
        .collect())
}

/// Reaps a run that ended while this process became another program, and so was its child all
/// along. Only before anything is watched: a watched run is reaped by its watch.
fn bury(note: &NoteFile) {
    let ours = |stat: &proc::Stat| {
        stat.dead && stat.start == note.start && u32::try_from(stat.ppid) == Ok(std::process::id())
    };
    if proc::stat(note.pid)
        .ok()
        .flatten()
        .is_some_and(|stat| ours(&stat))
        && let Some(pid) = Pid::from_raw(note.pid)
    {
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}

/// A process that looks like the leader of a run.
#[derive(Debug)]
struct Candidate {
    name: SessionName,
    agent: AgentName,
    token: RunToken,
    pid: i32,
    ppid: i32,
    start: u64,
}

impl Candidate {
    /// Whether this is to be believed more than what a note said.
    fn supersedes(&self, known: &Found, note_was_wrong: bool) -> bool {
        match known {
            Found::Nothing => true,
            Found::Foreign | Found::Live(..) => false,
            // Of the same run and younger than its leader: a child that outlived it.
            Found::Dead(note) => {
                note_was_wrong || note.token != self.token || self.start <= note.start
            }
        }
    }

    fn confirm(&self, files: &Files) -> io::Result<Option<Found>> {
        let note = NoteFile {
            token: self.token.clone(),
            pid: self.pid,
            start: self.start,
            boot: files.boot.clone(),
            agent: self.agent.clone(),
            city: files.city(),
            started_at: DateTime::<Utc>::from_timestamp_millis(proc::started_millis(self.start)?)
                .unwrap_or_else(Utc::now),
            log_offset: 0,
            rotated: None,
            meta: BTreeMap::new(),
        };
        Ok(match leader(files, &note)? {
            Leader::Live(pidfd) => Some(Found::Live(note, pidfd)),
            Leader::Gone | Leader::Stranger => None,
        })
    }
}

/// One candidate for each session name, from one pass over all processes.
fn candidates(files: &Files) -> io::Result<Vec<Candidate>> {
    let mut runs: HashMap<RunToken, Vec<Candidate>> = HashMap::new();
    for stat in proc::all()? {
        if stat.dead || stat.pgid != stat.pid || stat.sid == stat.pid {
            continue;
        }
        // Processes of others cannot be read, and are not ours.
        let Ok(Some(environ)) = Environ::of(stat.pid) else {
            continue;
        };
        let text = |name| environ.text(name).unwrap_or_default();
        if files.mark.is_ours(&environ)
            && let Ok(token) = RunToken::new(text("GC_SESSION_ID"))
            && let Ok(name) = SessionName::new(text("GC_SESSION_NAME"))
            && let Ok(agent) = AgentName::new(text("GC_AGENT"))
        {
            runs.entry(token.clone()).or_default().push(Candidate {
                name,
                agent,
                token,
                pid: stat.pid,
                ppid: stat.ppid,
                start: stat.start,
            });
        }
    }
    let mut leaders: BTreeMap<SessionName, Candidate> = BTreeMap::new();
    for leader in runs.into_values().filter_map(eldest) {
        match leaders.get(&leader.name) {
            Some(other) if other.start >= leader.start => {}
            _ => {
                leaders.insert(leader.name.clone(), leader);
            }
        }
    }
    Ok(leaders.into_values().collect())
}

/// Of all processes of one run, the one the others come from.
fn eldest(run: Vec<Candidate>) -> Option<Candidate> {
    let pids: HashSet<i32> = run.iter().map(|candidate| candidate.pid).collect();
    run.into_iter().min_by_key(|candidate| {
        (
            pids.contains(&candidate.ppid),
            candidate.start,
            candidate.pid,
        )
    })
}
