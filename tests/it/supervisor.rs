//! The supervisor process: its locks, socket, signals, settings and program (supervisor.md).

mod process;
mod service;
mod socket;
mod upgrade;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::util::{GC, Place, Said, eventually, is_root, kill};

/// Someone who is not us.
const NOBODY: u32 = 65534;

/// A supervisor in the foreground, ended with the test.
struct Foreground(Child);

impl Foreground {
    fn start(place: &Place, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = place.command(&place.path(""), &["supervisor", "run"]);
        command
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = Self(command.spawn().unwrap());
        eventually("the supervisor", || {
            let said = place.gc(&place.path(""), &["supervisor", "status", "--json"]);
            (said.code == Some(0)).then_some(())
        });
        child
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Its exit code, once it has ended.
    fn exit(&mut self) -> Option<i32> {
        eventually("its end", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `gc` under another user, who may pass through the place and its home. `None` when this test has
/// no other user to offer.
fn as_nobody(place: &Place, args: &[&str]) -> Option<Said> {
    use std::os::unix::process::CommandExt as _;
    if !is_root() {
        println!("skipped: needs root");
        return None;
    }
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&place.path(""), 0o755);
    open(&place.home(), 0o755);
    // Where the program lies its user may not come.
    let program = place.path("gc");
    fs::copy(GC, &program).unwrap();
    open(&program, 0o755);
    let mut command = Command::new(&program);
    command
        .args(args)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_clear()
        .env("GC_HOME", place.home());
    Some(Said::by(&mut command))
}
