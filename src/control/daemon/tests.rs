use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn shell(script: &str, limit: Duration) -> (tempfile::TempDir, Result<u32, DaemonError>) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("supervisor.out");
    let result = spawn_detached(Path::new("/bin/sh"), &["-c", script], &out, limit);
    (dir, result)
}

#[test]
fn the_parent_returns_the_pid_of_a_ready_child() {
    let (dir, result) = shell("echo noise; echo oops >&2; echo READY $$", PATIENCE);
    assert!(result.unwrap() > 0);
    let out = dir.path().join("supervisor.out");
    assert_eq!(fs::read_to_string(&out).unwrap(), "oops\n");
    assert_eq!(
        fs::metadata(&out).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn the_parent_repeats_the_childs_error() {
    let (_dir, result) = shell(
        "echo 'ERROR supervisor already running (pid 7)'; exit 1",
        PATIENCE,
    );
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "supervisor already running (pid 7)");
}

#[test]
fn a_child_that_ends_without_a_word_is_reported_with_its_output() {
    let (dir, result) = shell("exit 3", PATIENCE);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("exit status: 3"), "{error}");
    let out = dir.path().join("supervisor.out").display().to_string();
    assert!(error.ends_with(&out), "{error}");
}

#[test]
fn a_child_that_says_nothing_is_given_up_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, out) = (dir.path().join("fifo"), dir.path().join("out"));
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let script = format!("read line < '{}'; echo survived >&2", fifo.display());
    let args = ["-c", script.as_str()];
    let result = spawn_detached(Path::new("/bin/sh"), &args, &out, Duration::from_millis(1));
    assert!(
        matches!(result, Err(DaemonError::NotReady { .. })),
        "{result:?}"
    );
    let mut fifo = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    fifo.write_all(b"go\n").unwrap(); // the child is there to read it, and ends
}

#[test]
fn a_missing_program_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let args: [&str; 0] = [];
    let result = spawn_detached(
        Path::new("/nonexistent/gc"),
        &args,
        &dir.path().join("o"),
        PATIENCE,
    );
    assert!(matches!(result, Err(DaemonError::Io { .. })), "{result:?}");
}

/// The child side, run in a process of its own: `… detached_child <dir>`. Alone, a no-op.
#[test]
fn detached_child() {
    let args: Vec<String> = std::env::args().collect();
    let Some(dir) = args.iter().find_map(|arg| arg.strip_prefix("detached-in=")) else {
        return;
    };
    let dir = Path::new(dir);
    let detached = Detached::enter(&dir.join("supervisor.out")).unwrap();
    let session = rustix::process::getsid(None).unwrap();
    assert_eq!(session, rustix::process::getpid(), "a session of its own");
    let listing = Command::new("ls")
        .args(["-l", "/dev/fd/"])
        .output()
        .unwrap();
    fs::write(dir.join("fds"), listing.stdout).unwrap();
    if dir.join("fail").exists() {
        detached.failed("no\nluck").unwrap();
    } else {
        detached.ready().unwrap();
    }
    println!("after");
    let _ = io::stdin().read(&mut [0; 1]); // null: ends at once
    fs::write(dir.join("done.tmp"), "").unwrap();
    fs::rename(dir.join("done.tmp"), dir.join("done")).unwrap();
}

fn detach(dir: &Path, exe: &Path, prefix: &[&str]) -> Result<u32, DaemonError> {
    let marker = format!("detached-in={}", dir.display());
    let mut args: Vec<&str> = prefix.to_vec();
    args.extend(["--exact", "control::daemon::tests::detached_child"]);
    args.extend(["--nocapture", &marker]);
    spawn_detached(exe, &args, &dir.join("supervisor.out"), PATIENCE)
}

#[test]
fn a_detached_child_has_its_own_session_and_passes_no_descriptors_on() {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    // A shell opens a descriptor without close-on-exec, as a careless parent would.
    let script = format!("exec 7< '{}'; exec \"$0\" \"$@\"", dir.path().display());
    let prefix = ["-c", script.as_str(), exe.to_str().unwrap()];
    let pid = detach(dir.path(), Path::new("/bin/sh"), &prefix).unwrap();
    assert!(pid > 0);
    let fds = fs::read_to_string(dir.path().join("fds")).unwrap();
    assert!(!fds.contains(&*dir.path().display().to_string()), "{fds}");
}

#[test]
fn a_detached_child_reports_failure_and_then_writes_to_its_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("fail"), "").unwrap();
    let error = detach(dir.path(), &std::env::current_exe().unwrap(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "no luck");
    // `Failed` waits for the child's end, so its file is complete.
    assert!(dir.path().join("done").exists());
    let out = fs::read_to_string(dir.path().join("supervisor.out")).unwrap();
    assert!(out.contains("after"), "{out}");
}
