//! Ending every process of a run, wherever it went (sessions.md 2.1, stop).

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gascity_actors::model::RunToken;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::census::{Census, Member};
use super::note::Files;
use super::run::Run;
use crate::sessions::proc::{self, Environ, Stat};

/// How long processes may take to leave on the polite signal.
const GRACE: Duration = Duration::from_secs(2);

/// How long the kernel may take to carry out a kill.
const KILL_WAIT: Duration = Duration::from_secs(1);

/// How often is looked again for processes that were born during a round.
const ROUNDS: usize = 3;

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Swept {
    /// At least one process had to be killed.
    pub(super) forced: bool,
}

/// Ends all processes of a run: leader, descendants, group members, and whoever carries its
/// token. Blocks for up to a few seconds. An error names what could not be ended.
pub(super) fn end_all(files: &Files, census: &Census, run: &Run) -> io::Result<Swept> {
    let mut swept = Swept::default();
    let polite = targets(&census.take(files)?, run);
    if polite.is_empty() {
        return Ok(swept);
    }
    signal(&polite, Signal::TERM);
    wait(polite, GRACE)?;
    for _ in 0..ROUNDS {
        let rest = targets(&census.take(files)?, run);
        if rest.is_empty() {
            return Ok(swept);
        }
        swept.forced = true;
        signal(&rest, Signal::KILL);
        wait(rest, KILL_WAIT)?;
    }
    match targets(&census.take(files)?, run).len() {
        0 => Ok(swept),
        left => Err(io::Error::other(format!(
            "{left} processes cannot be ended"
        ))),
    }
}

/// Kills what the dead leader of an adopted run left in its process group.
pub(super) fn kill_group(files: &Files, run: &Run) -> io::Result<()> {
    let group = run.pid.as_raw_nonzero().get();
    let members = proc::all()?
        .into_iter()
        .filter(|stat| stat.pgid == group && !stat.dead && carries(files, stat.pid, &run.token));
    signal(&open(members), Signal::KILL);
    Ok(())
}

/// A process that was identified after its descriptor was opened, so the descriptor means it.
struct Target {
    pidfd: OwnedFd,
}

/// Whether a process carries the city and the token of a run.
pub(super) fn carries(files: &Files, pid: i32, token: &RunToken) -> bool {
    matches!(Environ::of(pid), Ok(Some(environ)) if files.owns(&environ, token))
}

/// Everything alive that belongs to the run, ready to be signalled, deepest first.
fn targets(members: &[Member], run: &Run) -> Vec<Target> {
    open(belonging(members, run))
}

/// Everything alive that belongs to the run, deepest first.
pub(super) fn belonging(members: &[Member], run: &Run) -> Vec<Stat> {
    let all: Vec<Stat> = members.iter().map(|member| member.stat).collect();
    let spared = own_line(&all);
    let leader = run.pid.as_raw_nonzero().get();
    // The group id means this run only while its leader exists, if only as a zombie.
    let has_leader = |stat: &Stat| stat.pid == leader && stat.start == run.start;
    let group = all.iter().any(has_leader).then_some(leader);
    let seed = |member: &Member| {
        let stat = &member.stat;
        has_leader(stat) || Some(stat.pgid) == group || member.token.as_ref() == Some(&run.token)
    };
    let seeds: HashSet<i32> = members
        .iter()
        .filter(|member| !spared.contains(&member.stat.pid) && seed(member))
        .map(|member| member.stat.pid)
        .collect();
    tree(&all, &seeds, &spared)
}

/// `seeds` and their descendants that are alive, deepest first; never through the `spared`.
fn tree(all: &[Stat], seeds: &HashSet<i32>, spared: &HashSet<i32>) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.ppid).or_default().push(stat);
    }
    let mut queue: Vec<&Stat> = all
        .iter()
        .filter(|stat| seeds.contains(&stat.pid))
        .collect();
    let mut reached: HashSet<i32> = seeds.clone();
    let mut next = 0;
    while let Some(stat) = queue.get(next) {
        next += 1;
        for child in children.get(&stat.pid).into_iter().flatten() {
            if !spared.contains(&child.pid) && reached.insert(child.pid) {
                queue.push(child);
            }
        }
    }
    queue.retain(|stat| !stat.dead);
    queue.into_iter().rev().copied().collect()
}

/// This process and its ancestors.
fn own_line(all: &[Stat]) -> HashSet<i32> {
    let parents: HashMap<i32, i32> = all.iter().map(|stat| (stat.pid, stat.ppid)).collect();
    let mut line = HashSet::from([1]);
    let mut pid = rustix::process::getpid().as_raw_nonzero().get();
    while line.insert(pid) {
        match parents.get(&pid) {
            Some(parent) if *parent > 0 => pid = *parent,
            _ => break,
        }
    }
    line
}

/// Opens each process and looks again that it is still the one that was chosen.
fn open(chosen: impl IntoIterator<Item = Stat>) -> Vec<Target> {
    let open = |stat: Stat| {
        let pidfd = pidfd_open(Pid::from_raw(stat.pid)?, PidfdFlags::empty()).ok()?;
        let now = proc::stat(stat.pid).ok().flatten()?;
        (now.start == stat.start && !now.dead).then_some(Target { pidfd })
    };
    chosen.into_iter().filter_map(open).collect()
}

fn signal(targets: &[Target], signal: Signal) {
    for target in targets {
        // It may have ended, or changed its user; the next look tells.
        let _ = pidfd_send_signal(&target.pidfd, signal);
    }
}

/// Waits until all have ended, or the time is over.
fn wait(mut targets: Vec<Target>, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, ppid: i32) -> Stat {
        Stat {
            pid,
            ppid,
            pgid: pid,
            sid: 1,
            dead: false,
            start: 0,
            exit_code: 0,
            in_exec: false,
        }
    }

    #[test]
    fn a_tree_is_ended_from_its_leaves_and_never_through_the_spared() {
        let all = [
            process(10, 1),
            process(11, 10),
            process(12, 11),
            process(20, 10),
            process(21, 20),
            process(30, 1),
        ];
        let pids = |spared: &[i32]| -> Vec<i32> {
            let spared = spared.iter().copied().collect();
            let found = tree(&all, &HashSet::from([10]), &spared);
            found.iter().map(|stat| stat.pid).collect()
        };
        assert_eq!(pids(&[]), [21, 12, 20, 11, 10]);
        assert_eq!(pids(&[20]), [12, 11, 10]);
    }

    #[test]
    fn this_process_and_its_ancestors_are_spared() {
        let line = own_line(&proc::all().unwrap());
        let me = i32::try_from(std::process::id()).unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!(line.contains(&me) && line.contains(&parent) && line.contains(&1));
    }
}
