//! The measured agent: this very program, telling the time of its first instruction.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};
use rustix::time::{ClockId, clock_gettime};

/// First argument that makes this program an agent.
pub(crate) const MODE: &str = "--agent";

/// Nanoseconds of the monotonic clock, which all processes share.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap()
}

/// Tells pid and time, then waits to be killed.
pub(crate) fn run(pipe: &str) {
    let born = now();
    let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
    let pid = u64::from(std::process::id());
    let mut message = pid.to_ne_bytes().to_vec();
    message.extend(born.to_ne_bytes());
    pipe.write_all(&message).unwrap();
    drop(pipe);
    loop {
        std::thread::park();
    }
}

/// The reading end: one message per agent that came to life.
pub(crate) struct Births {
    path: PathBuf,
    pipe: File,
}

impl Births {
    pub(crate) fn new(dir: &Path) -> Self {
        let path = dir.join("births");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Read-write, so that it never comes to its end.
        let pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        Self { path, pipe }
    }

    /// Command line of an agent that reports here.
    pub(crate) fn command(&self) -> Vec<String> {
        let exe = std::env::current_exe().unwrap();
        vec![
            exe.to_string_lossy().into_owned(),
            MODE.to_owned(),
            self.path.to_string_lossy().into_owned(),
        ]
    }

    /// Waits for the next one: its pid and the time of its first instruction.
    pub(crate) fn next(&mut self) -> (i32, u64) {
        let mut message = [0_u8; 16];
        self.pipe.read_exact(&mut message).unwrap();
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        (
            i32::try_from(number(&message[..8])).unwrap(),
            number(&message[8..]),
        )
    }
}
