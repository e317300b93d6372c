//! The figures of docs/performance.md, measured as ratios in one run.
//!
//! `cargo bench --bench figures` runs all of them, `cargo bench --bench figures -- restart` one.
//! Times are of this machine and noisy; what counts is the ratio to the floor of the same run: a
//! bare loop of spawn and pidfd, which is what any supervisor has to do at least.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod adoption;
mod agent;
mod commands;
mod config;
mod floor;
mod process;
mod resident;
mod restart;
mod start;
mod tmux;
mod workers;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    match args.as_slice() {
        [mode, pipe] if mode == agent::MODE => return agent::run(pipe),
        [mode, dir] if mode == adoption::MODE => return adoption::supervise(dir),
        _ => {}
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    if wanted("config") {
        config::measure();
    }
    if wanted("restart") {
        restart::measure();
    }
    if wanted("start") {
        start::measure();
    }
    if wanted("adoption") {
        adoption::measure();
    }
    if wanted("tmux") {
        tmux::measure();
    }
    if wanted("workers") {
        workers::measure();
    }
    if wanted("commands") {
        commands::measure();
    }
    if wanted("resident") {
        resident::measure();
    }
}

/// The median, in microseconds.
fn median(samples: &mut [u64]) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2] as f64 / 1000.0
}
