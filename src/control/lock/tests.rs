use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::control::home::Env;

const PATIENCE: Duration = Duration::from_secs(20);

/// A child that holds the lock given by the environment until its stdin ends. Alone, a no-op.
#[test]
fn lock_holding_child() {
    let Some(path) = std::env::var_os("GC_TEST_HOLD_LOCK") else {
        return;
    };
    let _lock = Lock::acquire(Path::new(&path), Role::Supervisor).unwrap();
    println!("held");
    io::stdout().flush().unwrap();
    let _ = io::stdin().read(&mut [0]);
}

struct Holding(Child);

impl Holding {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "control::lock::tests::lock_holding_child"])
            .arg("--nocapture")
            .env("GC_TEST_HOLD_LOCK", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let found = lines.map_while(Result::ok).any(|l| l.ends_with("held"));
        assert!(found, "the child took the lock");
        Self(child)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn home(dir: &Path, xdg: Option<&Path>) -> Home {
    let env = Env {
        gc_home: None,
        xdg_runtime_dir: xdg.map(Into::into),
        home: Some(dir.into()),
    };
    let home = Home::resolve(None, &env).unwrap();
    home.create().unwrap();
    home
}

#[test]
fn a_second_supervisor_fails_at_once_and_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path(), None);
    let held = SupervisorLock::acquire(&home).unwrap();
    let text = SupervisorLock::acquire(&home).unwrap_err().to_string();
    let pid = std::process::id();
    assert_eq!(text, format!("supervisor already running (pid {pid})"));
    drop(held);
    SupervisorLock::acquire(&home).unwrap();
    assert!(
        home.runtime_lock().exists(),
        "lock files are never unlinked"
    );
}

#[test]
fn supervisors_with_and_without_a_runtime_dir_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let xdg = tempfile::tempdir().unwrap();
    let (with, without) = (home(dir.path(), Some(xdg.path())), home(dir.path(), None));
    let held = SupervisorLock::acquire(&with).unwrap();
    assert_eq!(held.descriptors().count(), 2);
    assert!(SupervisorLock::acquire(&without).is_err());
    drop(held);
    let _held = SupervisorLock::acquire(&without).unwrap();
    assert!(SupervisorLock::acquire(&with).is_err());
}

#[test]
fn a_city_has_one_controller() {
    let dir = tempfile::tempdir().unwrap();
    let city = CityDir::new(dir.path());
    city.create().unwrap();
    let _held = Lock::city(&city).unwrap();
    let text = Lock::city(&city).unwrap_err().to_string();
    let pid = std::process::id();
    assert_eq!(text, format!("controller already running (pid {pid})"));
}

#[test]
fn a_killed_holder_leaves_the_lock_free() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("supervisor.lock");
    let child = Holding::start(&path);
    let pid = child.0.id();
    match Lock::acquire(&path, Role::Supervisor) {
        Err(LockError::Held { pid: found, .. }) => assert_eq!(found, Some(pid)),
        other => panic!("{other:?}"),
    }
    match holder(&path).unwrap() {
        Held::By(Some(found)) => assert_eq!(found.pid, pid),
        other => panic!("{other:?}"),
    }
    assert!(!wait_free(&path, Duration::from_millis(1)).unwrap());
    drop(child); // SIGKILL
    assert!(wait_free(&path, PATIENCE).unwrap());
    Lock::acquire(&path, Role::Supervisor).unwrap();
    assert_eq!(holder(&path).unwrap(), Held::No);
}

#[test]
fn looking_at_a_lock_keeps_nobody_from_taking_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    drop(Lock::acquire(&path, Role::Supervisor).unwrap());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                holder(&path).unwrap();
            }
        });
        let taken = (0..100).all(|_| Lock::acquire(&path, Role::Supervisor).is_ok());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(taken);
    });
}

#[test]
fn the_lock_descriptor_is_close_on_exec() {
    let dir = tempfile::tempdir().unwrap();
    let lock = Lock::acquire(&dir.path().join("l"), Role::Supervisor).unwrap();
    let flags = rustix::io::fcntl_getfd(&lock).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn waiting_for_a_turn_ends_with_the_turn_or_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let held = take_turn(&path, PATIENCE).unwrap().unwrap();
    assert!(
        take_turn(&path, Duration::from_millis(1))
            .unwrap()
            .is_none()
    );
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| take_turn(&path, PATIENCE).unwrap().is_some());
        drop(held);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn unreadable_holders_are_left_out_of_the_message() {
    let error = LockError::Held {
        role: Role::Supervisor,
        pid: None,
    };
    assert_eq!(error.to_string(), "supervisor already running");
}
