//! One pass over all processes, shared by everyone who needs one at the same time.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use gascity_actors::model::RunToken;

use super::{Led, Mark, lock};
use crate::sessions::proc::{self, Environ, Stat};

/// All processes at one time, and which run of this city they belong to.
#[derive(Debug, Default)]
pub(in crate::sessions) struct Processes {
    all: HashMap<i32, Stat>,
    children: HashMap<i32, Vec<i32>>,
    groups: HashMap<i32, Vec<i32>>,
    /// Members of kernel sessions, by their leaders.
    sessions: HashMap<i32, Vec<i32>>,
    runs: HashMap<RunToken, Vec<i32>>,
    /// This process and its ancestors: nobody's to end.
    spared: HashSet<i32>,
}

impl Processes {
    fn new(all: Vec<Stat>, spared: HashSet<i32>) -> Self {
        let mut processes = Self {
            spared,
            ..Self::default()
        };
        for stat in all {
            let (
                pid,
                Stat {
                    ppid, pgid, sid, ..
                },
            ) = (stat.pid, stat);
            processes.children.entry(ppid).or_default().push(pid);
            processes.groups.entry(pgid).or_default().push(pid);
            processes.sessions.entry(sid).or_default().push(pid);
            processes.all.insert(pid, stat);
        }
        processes
    }

    /// Everything alive of a run, deepest first: its leader with its process group and
    /// kernel session, whoever carries its token, and their descendants.
    pub(in crate::sessions) fn of_run(&self, run: &dyn Led) -> Vec<Stat> {
        let (token, leader) = (run.token(), run.pid().as_raw_nonzero().get());
        let pids = |found: Option<&Vec<i32>>| found.cloned().unwrap_or_default();
        let mut seeds = pids(self.runs.get(token));
        // Its number means this run only while its leader exists, if only as a zombie. A stranger
        // may have been given it since, and even within the same tick.
        let is_leader = |stat: &Stat| stat.start == run.start() && (stat.dead || run.is_live());
        if self.all.get(&leader).is_some_and(is_leader) {
            seeds.push(leader);
            seeds.extend(pids(self.groups.get(&leader)));
            seeds.extend(pids(self.sessions.get(&leader)));
        }
        self.tree(seeds)
    }

    /// `seeds` and their descendants that are alive, deepest first; never through the spared.
    fn tree(&self, seeds: Vec<i32>) -> Vec<Stat> {
        let mut reached = self.spared.clone();
        let mut queue = seeds;
        queue.retain(|pid| reached.insert(*pid));
        let mut next = 0;
        while let Some(pid) = queue.get(next) {
            next += 1;
            let children = self.children.get(pid).into_iter().flatten();
            let fresh: Vec<i32> = children
                .copied()
                .filter(|child| reached.insert(*child))
                .collect();
            queue.extend(fresh);
        }
        let stats = queue.iter().rev().filter_map(|pid| self.all.get(pid));
        stats.filter(|stat| !stat.dead).copied().collect()
    }
}

/// Passes over all processes. Many stops at once would otherwise each make their own, and the
/// end of a city would cost the square of its size.
#[derive(Debug, Default)]
pub(in crate::sessions) struct Census {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    begun: u64,
    last: Option<(u64, Arc<Processes>)>,
    known: Known,
}

/// What environments said in the pass before: they are by far the most expensive to read, and
/// stay what they are until the process loads another program.
type Known = HashMap<i32, (Stat, Option<RunToken>)>;

impl Census {
    /// The result of a pass that began after this call did. Blocks.
    pub(in crate::sessions) fn take(&self, mark: &Mark) -> io::Result<Arc<Processes>> {
        let mut state = lock(&self.state);
        let wanted = state.begun + 1;
        loop {
            match &state.last {
                Some((pass, processes)) if *pass >= wanted => return Ok(processes.clone()),
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
        let mut known = std::mem::take(&mut state.known);
        drop(state);
        let processes = look(mark, &mut known).map(Arc::new);
        let mut state = lock(&self.state);
        state.running = false;
        state.known = known;
        // Kept only for those who wait for it now: the next call wants a later one.
        state.last = processes.as_ref().ok().map(|found| (pass, found.clone()));
        self.finished.notify_all();
        processes
    }
}

fn look(mark: &Mark, known: &mut Known) -> io::Result<Processes> {
    let all = proc::all()?;
    let mut before = std::mem::take(known);
    let mut runs: HashMap<RunToken, Vec<i32>> = HashMap::new();
    for stat in all.iter().filter(|stat| !stat.dead) {
        let token = match before.remove(&stat.pid) {
            Some((seen, token)) if is_same_program(&seen, stat) => token,
            _ => token(mark, stat),
        };
        if let Some(token) = &token {
            runs.entry(token.clone()).or_default().push(stat.pid);
        }
        known.insert(stat.pid, (*stat, token));
    }
    Ok(Processes {
        runs,
        ..Processes::new(all, proc::own_line()?.into_keys().collect())
    })
}

/// Whether the environment cannot have changed between two looks.
fn is_same_program(before: &Stat, now: &Stat) -> bool {
    before.start == now.start && before.env == now.env && !now.in_exec
}

/// The run of this city a process belongs to. What cannot be read belongs to somebody else.
fn token(mark: &Mark, stat: &Stat) -> Option<RunToken> {
    let environ = Environ::of(stat.pid).ok().flatten()?;
    let ours = mark.is_ours(&environ);
    ours.then(|| RunToken::new(environ.text("GC_SESSION_ID")?).ok())?
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

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
            env: (0, 0),
        }
    }

    #[test]
    fn a_tree_is_ended_from_its_leaves_and_never_through_the_spared() {
        let all = [(10, 1), (11, 10), (12, 11), (20, 10), (21, 20), (30, 1)]
            .map(|(pid, ppid)| process(pid, ppid));
        let pids = |spared: &[i32]| -> Vec<i32> {
            let spared = spared.iter().copied().collect();
            let found = Processes::new(all.to_vec(), spared).tree(vec![10]);
            found.iter().map(|stat| stat.pid).collect()
        };
        assert_eq!(pids(&[]), [21, 12, 20, 11, 10]);
        assert_eq!(pids(&[20]), [12, 11, 10]);
    }

    #[test]
    fn a_process_that_loads_another_program_is_looked_at_again() {
        let (token, root) = (RunToken::new("0123456789abcdef").unwrap(), "/some/city");
        let mark = Mark(root.into());
        let mut known = Known::new();
        // Before it gets the variables, and after: one process.
        let script = format!(
            "read go; exec env GC_CITY={root} GC_SESSION_ID={} sleep 1000",
            token.as_str()
        );
        let mut child = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        let before = look(&mark, &mut known).unwrap();
        assert!(before.all.contains_key(&pid) && before.runs.is_empty());
        drop(child.stdin.take()); // `read` comes to its end
        let carries = |found: &Processes| found.runs.get(&token) == Some(&vec![pid]);
        let mut found = false;
        for _ in 0..500 {
            found = found || carries(&look(&mark, &mut known).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(found && carries(&look(&mark, &mut known).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn passes_are_shared_and_never_older_than_the_question() {
        let mark = Mark("/none".into());
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
                    let found = census.take(&mark);
                    child.kill().unwrap();
                    child.wait().unwrap();
                    assert!(found.unwrap().all.contains_key(&pid));
                });
            }
        });
        assert!(lock(&census.state).begun <= 16);
    }
}
