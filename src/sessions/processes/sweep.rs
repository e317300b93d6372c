//! Ending every process of a run, wherever it went (sessions.md 2.1, stop).

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::census::Census;
use super::{Led, Mark};
use crate::sessions::proc::{self, Stat};

/// How long processes may take to leave on the polite signal.
const GRACE: Duration = Duration::from_secs(2);

/// The least of it for those who are found only after the others had theirs.
const STRAY_GRACE: Duration = Duration::from_millis(500);

/// How long the kernel may take to carry out a kill.
const KILL_WAIT: Duration = Duration::from_secs(1);

/// How often is looked again for processes that were born during a round.
const ROUNDS: usize = 3;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::sessions) struct Swept {
    /// At least one process had to be killed.
    pub(in crate::sessions) forced: bool,
}

/// Ends all processes of a run: leader, descendants, group members, and whoever carries its
/// token. Blocks for up to a few seconds. An error names what could not be ended.
///
/// What descends from a live leader is asked to leave first, found from parent to child; most
/// often that is all. One look at all processes then finds those who left the tree, or none.
pub(in crate::sessions) fn end_all(
    mark: &Mark,
    census: &Census,
    run: &dyn Led,
) -> io::Result<Swept> {
    let mut swept = Swept::default();
    let deadline = Instant::now() + GRACE;
    let tree = ask_tree(run)?;
    let asked: HashSet<(i32, u64)> = tree.iter().map(|target| target.id).collect();
    wait(tree, deadline)?;
    let mut rest = targets(census, mark, run)?;
    let is_stray = |target: &Target| !asked.contains(&target.id);
    if rest.iter().any(is_stray) {
        signal(rest.iter().filter(|target| is_stray(target)), Signal::TERM);
        wait(rest, deadline.max(Instant::now() + STRAY_GRACE))?;
        rest = targets(census, mark, run)?;
    }
    for _ in 0..ROUNDS {
        if rest.is_empty() {
            return Ok(swept);
        }
        swept.forced = true;
        signal(&rest, Signal::KILL);
        wait(rest, Instant::now() + KILL_WAIT)?;
        rest = targets(census, mark, run)?;
    }
    match rest.len() {
        0 => Ok(swept),
        left => Err(io::Error::other(format!(
            "{left} processes cannot be ended"
        ))),
    }
}

/// Asks a live leader, its group and its descendants to leave; those that can be waited for.
fn ask_tree(run: &dyn Led) -> io::Result<Vec<Target>> {
    if !run.is_live() {
        return Ok(Vec::new());
    }
    let leader = run.pid().as_raw_nonzero().get();
    let own = proc::own_line()?;
    let is_own = own.values().any(|group| *group == leader);
    let (members, others): (Vec<Stat>, Vec<Stat>) = descent(leader, own.into_keys().collect())?
        .into_iter()
        .partition(|stat| stat.pgid == leader);
    let (mut asked, members) = (open(others), open(members));
    signal(&asked, Signal::TERM);
    // All of the group at once, also those whose parents are gone. But not us.
    if is_own || !run.signal_group(Signal::TERM)? {
        signal(&members, Signal::TERM);
    }
    asked.extend(members);
    Ok(asked)
}

/// A process and its descendants that are alive, deepest first, never through the spared. Only
/// itself where the kernel does not tell of children.
fn descent(root: i32, spared: HashSet<i32>) -> io::Result<Vec<Stat>> {
    let mut reached = spared;
    let mut found = Vec::new();
    let mut queue = VecDeque::from([root]);
    while let Some(pid) = queue.pop_front() {
        if reached.insert(pid) {
            found.extend(proc::stat(pid)?);
            queue.extend(proc::children(pid).unwrap_or_default());
        }
    }
    found.retain(|stat| !stat.dead);
    found.reverse();
    Ok(found)
}

/// Kills what the dead leader of an adopted run left in its process group.
pub(in crate::sessions) fn kill_group(mark: &Mark, run: &dyn Led) -> io::Result<()> {
    let group = run.pid().as_raw_nonzero().get();
    let members = proc::all()?
        .into_iter()
        .filter(|stat| stat.pgid == group && !stat.dead && mark.carries(stat.pid, run.token()));
    signal(&open(members), Signal::KILL);
    Ok(())
}

/// A process that was identified after its descriptor was opened, so the descriptor means it.
struct Target {
    /// Pid and start.
    id: (i32, u64),
    pidfd: OwnedFd,
}

/// Everything alive that belongs to the run, ready to be signalled, deepest first.
fn targets(census: &Census, mark: &Mark, run: &dyn Led) -> io::Result<Vec<Target>> {
    Ok(open(belonging(census, mark, run)?))
}

/// Everything alive that belongs to the run, deepest first.
pub(in crate::sessions) fn belonging(
    census: &Census,
    mark: &Mark,
    run: &dyn Led,
) -> io::Result<Vec<Stat>> {
    Ok(census.take(mark)?.of_run(run))
}

/// Opens each process and looks again that it is still the one that was chosen.
fn open(chosen: impl IntoIterator<Item = Stat>) -> Vec<Target> {
    let open = |stat: Stat| {
        let pidfd = pidfd_open(Pid::from_raw(stat.pid)?, PidfdFlags::empty()).ok()?;
        let now = proc::stat(stat.pid).ok().flatten()?;
        let id = (stat.pid, stat.start);
        (now.start == stat.start && !now.dead).then_some(Target { id, pidfd })
    };
    chosen.into_iter().filter_map(open).collect()
}

fn signal<'a>(targets: impl IntoIterator<Item = &'a Target>, signal: Signal) {
    for target in targets {
        // It may have ended, or changed its user; the next look tells.
        let _ = pidfd_send_signal(&target.pidfd, signal);
    }
}

/// Waits until all have ended, or the time is over.
fn wait(mut targets: Vec<Target>, deadline: Instant) -> io::Result<()> {
    while !targets.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut fds: Vec<PollFd<'_>> = targets
            .iter()
            .map(|target| PollFd::new(&target.pidfd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut fired = fds
            .iter()
            .map(|fd| !fd.revents().is_empty())
            .collect::<Vec<_>>()
            .into_iter();
        targets.retain(|_| !fired.next().unwrap_or(false));
    }
    Ok(())
}
