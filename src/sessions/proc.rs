//! Reading `/proc`: who runs, in which group, with which environment.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use gascity_actors::model::ExitStatus;

/// Ticks per second of the times in `/proc`, the same on every architecture we build for.
const USER_HZ: u64 = 100;

/// No `stat` is longer than this: 52 numbers and a short name.
const STAT_SIZE: usize = 2048;

/// Few environments are larger than this.
const ENVIRON_USUAL: usize = 8 << 10;

/// No environment is read beyond this.
const ENVIRON_LIMIT: u64 = 8 << 20;

/// No command line is read beyond this.
const WORDS_LIMIT: u64 = 64 << 10;

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: i32,
    pub(super) ppid: i32,
    pub(super) pgid: i32,
    pub(super) sid: i32,
    /// Ended, whether or not anyone has reaped it yet.
    pub(super) dead: bool,
    /// Start in ticks since boot: with the pid and the boot, an identity.
    pub(super) start: u64,
    /// Wait status, once dead.
    pub(super) exit_code: i32,
    /// A program is just being loaded, or torn down: the environment cannot be read yet, or
    /// any more.
    pub(super) in_exec: bool,
    /// Where the environment lies in its memory. Another program has another one; zeros if it
    /// is not ours to know.
    pub(super) env: (u64, u64),
}

/// `PF_KTHREAD`: a thread of the kernel itself.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// How often, and in which steps, is waited for a program that is being loaded.
const EXEC_TRIES: usize = 50;
const EXEC_STEP: Duration = Duration::from_millis(1);

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may itself hold spaces and parentheses.
        let pid = text.split(' ').next()?.parse().ok()?;
        let rest = text.get(text.rfind(')')? + 2..)?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            pid,
            in_exec: number(48)? == 0 && number(6)? & KERNEL_THREAD == 0,
            env: (number(47)?, number(48)?),
            dead: matches!(*fields.first()?, "Z" | "X" | "x"),
            ppid: fields.get(1)?.parse().ok()?,
            pgid: fields.get(2)?.parse().ok()?,
            sid: fields.get(3)?.parse().ok()?,
            start: number(19)?,
            exit_code: fields.get(49).and_then(|code| code.parse().ok())?,
        })
    }
}

/// Reads a file that disappears with its process; `None` if it has. One call if `usual` holds
/// it, and one for its end.
fn read(path: &str, usual: usize, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(usual);
    match File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The process `pid`, or `None` if there is none.
pub(super) fn stat(pid: i32) -> io::Result<Option<Stat>> {
    // The kernel gives all of it at the first call, and there are many to read in a pass.
    let mut buffer = [0; STAT_SIZE];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut buffer));
    match read {
        Ok(size) => Ok(Stat::parse(&String::from_utf8_lossy(&buffer[..size]))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every process there is. One that ends meanwhile is left out.
pub(super) fn all() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Ok(Some(stat)) = stat(pid) {
            found.push(stat);
        }
    }
    Ok(found)
}

/// The children of a process, of all its threads; `None` if it is gone, or if this kernel does
/// not tell.
pub(super) fn children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let list = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        let pids = list.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Some(found)
}

/// This process and its ancestors, and their process groups.
pub(super) fn own_line() -> io::Result<HashMap<i32, i32>> {
    let mut line = HashMap::from([(1, 1)]);
    let mut pid = rustix::process::getpid().as_raw_nonzero().get();
    while let Some(stat) = stat(pid)?.filter(|stat| stat.pid > 1) {
        line.insert(pid, stat.pgid);
        pid = stat.ppid;
    }
    Ok(line)
}

/// Whether the kernel shows us everything of `pid`; of others it shows some fields as 0.
pub(super) fn is_readable(pid: i32) -> bool {
    let me = rustix::process::geteuid();
    let owner = fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    me.is_root() || owner.is_ok_and(|owner| owner == me.as_raw())
}

/// The environment a process was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Environ(Vec<u8>);

impl Environ {
    /// Reads that of `pid`; `None` if the process is gone.
    pub(super) fn of(pid: i32) -> io::Result<Option<Self>> {
        let path = format!("/proc/{pid}/environ");
        for _ in 0..EXEC_TRIES {
            match read(&path, ENVIRON_USUAL, ENVIRON_LIMIT)? {
                // A spawn returns a moment before the new program has its environment.
                Some(bytes) if bytes.is_empty() && Self::is_coming(pid)? => {
                    std::thread::sleep(EXEC_STEP);
                }
                bytes => return Ok(bytes.map(Self)),
            }
        }
        Ok(Some(Self(Vec::new())))
    }

    fn is_coming(pid: i32) -> io::Result<bool> {
        Ok(stat(pid)?.is_some_and(|stat| stat.in_exec && !stat.dead))
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// The value of a variable, if it is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }
}

/// The name the kernel has for a process: at most 15 bytes of it.
pub(super) fn comm(pid: i32) -> io::Result<Option<String>> {
    let bytes = read(&format!("/proc/{pid}/comm"), 64, 64)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()))
}

/// The first words of the command line of a process; none for one that is ending.
pub(super) fn words(pid: i32) -> io::Result<Vec<String>> {
    let bytes = read(&format!("/proc/{pid}/cmdline"), 1024, WORDS_LIMIT)?.unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0);
    Ok(words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect())
}

/// Identity of this boot of the machine.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// Wall time of a start, in milliseconds since the epoch.
pub(super) fn started_millis(start: u64) -> io::Result<i64> {
    let text = fs::read_to_string("/proc/stat")?;
    let boot: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse().ok())
        .ok_or_else(|| io::Error::other("no boot time in /proc/stat"))?;
    i64::try_from(boot * 1000 + start * 1000 / USER_HZ).map_err(io::Error::other)
}

/// The exit status in a wait status word.
pub(super) fn exit_status(word: i32) -> ExitStatus {
    match word & 0x7f {
        0 => ExitStatus::Code((word >> 8) & 0xff),
        signal => ExitStatus::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let mut text = String::from("7 (a) b (c) Z 1 7 3");
        for _ in 0..15 {
            text.push_str(" 0");
        }
        text.push_str(" 4242");
        for _ in 0..29 {
            text.push_str(" 0");
        }
        text.push_str(" 256\n");
        let stat = Stat::parse(&text).unwrap();
        assert_eq!((stat.pid, stat.ppid, stat.pgid, stat.sid), (7, 1, 7, 3));
        assert!(stat.dead);
        assert_eq!((stat.start, stat.exit_code), (4242, 256));
        assert_eq!(exit_status(stat.exit_code), ExitStatus::Code(1));
        assert_eq!(exit_status(9), ExitStatus::Signal(9));
        assert_eq!(exit_status(0x8b), ExitStatus::Signal(11));
    }

    #[test]
    fn this_process_is_found_with_its_environment() {
        let me = i32::try_from(std::process::id()).unwrap();
        let stat = stat(me).unwrap().unwrap();
        assert!(!stat.dead && stat.start > 0);
        assert!(all().unwrap().iter().any(|other| other.pid == me));
        assert!(Environ::of(me).unwrap().unwrap().get("PATH").is_some());
        assert!(started_millis(stat.start).unwrap() <= chrono::Utc::now().timestamp_millis());
    }

    #[test]
    fn this_process_and_its_ancestors_are_its_own_line() {
        let line = own_line().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!(line.contains_key(&me) && line.contains_key(&parent) && line.contains_key(&1));
    }

    #[test]
    fn variables_are_matched_by_their_whole_name() {
        let environ = Environ(b"AB=1\0A=2\0EMPTY=\0".to_vec());
        assert_eq!(environ.text("A"), Some("2"));
        assert_eq!(environ.text("EMPTY"), Some(""));
        assert_eq!(environ.text("B"), None);
    }
}
