//! What a city costs that has nothing to do.

use std::fs;
use std::time::Duration;

use crate::util::{Place, sleeper};

/// Row 47.
#[test]
fn an_idle_city_runs_nothing_and_costs_next_to_nothing() {
    idles(&Place::new(), "subprocess");
    if let Some(program) = crate::tmux::program() {
        let mut place = Place::new();
        place.use_tmux(program);
        idles(&place, "tmux");
    }
}

/// Looks at a city with twenty agents that do nothing, for a while.
fn idles(place: &Place, provider: &str) {
    const WHILE: Duration = Duration::from_secs(6);
    /// Half a percent of that, in hundredths of a second.
    const TICKS: u64 = 3;
    let agents: String = (0..20).map(|n| sleeper(&format!("a{n}"))).collect();
    let city = place.city(
        "idle",
        &format!("[session]\nprovider = \"{provider}\"\n{agents}"),
    );
    place.gc(&city, &["start"]).ok();
    for n in 0..20 {
        place.awaited_pid(&city, &format!("a{n}"));
    }
    let supervisor = place.supervisor_pid();
    std::thread::sleep(Duration::from_secs(1)); // what a start leaves to do
    let before = spent(supervisor);
    std::thread::sleep(WHILE);
    let after = spent(supervisor);
    assert_eq!(
        after.children, before.children,
        "{provider}: it ran something"
    );
    let ticks = after.ticks - before.ticks;
    assert!(ticks <= TICKS, "{provider}: {ticks} ticks in {WHILE:?}");
    place.gc(&city, &["stop"]).ok();
}

/// What a process has used, and a trace of every child that it ever waited for.
struct Spent {
    ticks: u64,
    children: (u64, u64, Vec<i32>),
}

fn spent(pid: i32) -> Spent {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    let field = |at: usize| fields[at].parse::<u64>().unwrap();
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let list = fs::read_to_string(task.unwrap().path().join("children"));
        let list = list.unwrap_or_default(); // a thread that has just ended
        children.extend(
            list.split_whitespace()
                .map(|pid| pid.parse::<i32>().unwrap()),
        );
    }
    children.sort_unstable();
    Spent {
        ticks: field(11) + field(12),
        children: (field(8), field(10), children),
    }
}
