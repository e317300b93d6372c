//! Lines as real processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gascity_actors::model::CityName;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::*;

/// Upper bound of every wait; reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(60);

/// A shell in a directory of its own. What its lines leave behind ends with it.
struct City {
    dir: TempDir,
    shell: Arc<ProcessShell>,
}

impl City {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = CityName::new("test").unwrap();
        let root = dir.path().canonicalize().unwrap();
        let config = SubprocessConfig::new(root, name, "/opt/gc".into());
        let runner = [("PATH", "/usr/bin:/bin"), ("SECRET", "x")];
        let runner = runner.map(|(name, value)| (name.into(), value.into()));
        let shell = Arc::new(ProcessShell::with_runner_env(config, runner));
        Self { dir, shell }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn job(&self, line: &str) -> ShellJob {
        ShellJob {
            line: line.to_owned(),
            dir: self.dir.path().to_owned(),
            env: BTreeMap::new(),
            run: None,
            limit: LIMIT,
        }
    }

    async fn run(&self, line: &str) -> Result<String, ShellError> {
        self.shell.run(self.job(line)).await
    }

    /// Processes with this city's mark.
    fn processes(&self) -> Vec<i32> {
        let mark = format!("GC_CITY={}", self.root().display());
        let is_ours = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ
                .split(|byte| *byte == 0)
                .any(|entry| entry == mark.as_bytes())
        };
        let pids = fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).collect()
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = async {
            while !condition(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let done = tokio::time::timeout(LIMIT, wait).await;
        assert!(done.is_ok(), "never happened: {what}");
    }
}

impl Drop for City {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

fn failed(status: &str, stderr: &str) -> Result<String, ShellError> {
    Err(ShellError::Failed {
        status: status.to_owned(),
        stderr: stderr.to_owned(),
    })
}

#[tokio::test]
async fn a_line_answers_with_what_it_prints() {
    let city = City::new();
    assert_eq!(city.run("echo 3; echo no >&2").await, Ok("3\n".to_owned()));
    assert_eq!(city.run("cat; true").await, Ok(String::new()), "no input");
    let dir = city.dir.path().canonicalize().unwrap();
    assert_eq!(city.run("pwd -P").await, Ok(format!("{}\n", dir.display())));
}

#[tokio::test]
async fn a_failing_line_says_how_and_why() {
    let city = City::new();
    assert_eq!(
        city.run("echo why >&2; exit 3").await,
        failed("exit 3", "why")
    );
    assert_eq!(city.run("kill -9 $$").await, failed("signal 9", ""));
    let result = city.run("no-such-program").await;
    assert!(
        matches!(&result, Err(ShellError::Failed { status, stderr })
            if status == "exit 127" && stderr.contains("no-such-program")),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_line_sees_the_environment_of_agents_and_its_own() {
    let city = City::new();
    let mut job = city.job("echo \"$SECRET,$MINE,$GC_CITY_NAME,$GC_CITY,$PATH\"");
    job.env.insert("MINE".into(), "<${SECRET}>".into());
    let root = city.root().display().to_string();
    let want = format!(",<x>,test,{root},{root}/.gc/bin:/usr/bin:/bin\n");
    assert_eq!(city.shell.run(job.clone()).await, Ok(want));
    job.env.insert("MINE".into(), "${UNSET}".into());
    let result = city.shell.run(job).await;
    assert!(matches!(&result, Err(ShellError::Unrunnable(why)) if why.contains("UNSET")));
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let city = City::new();
    let mut job = city.job("true");
    job.dir = PathBuf::from("/no/such/dir");
    let result = city.shell.run(job).await;
    assert!(matches!(&result, Err(ShellError::Unrunnable(why)) if why.contains("/no/such/dir")));
}

#[tokio::test]
async fn a_line_that_hangs_ends_at_its_limit_with_all_its_processes() {
    let city = City::new();
    let mut job = city.job("trap '' TERM; (trap '' TERM; sleep 1000) & sleep 1000; sleep 1000");
    job.limit = Duration::from_millis(300);
    let result = city.shell.run(job.clone()).await;
    assert_eq!(result, Err(ShellError::TimedOut(job.limit)));
    city.until("all gone", |city| city.processes().is_empty())
        .await;
}

#[tokio::test]
async fn a_line_is_asked_before_it_is_killed() {
    let city = City::new();
    let has = |name: &'static str| move |city: &City| city.dir.path().join(name).exists();
    let line = "trap 'touch asked; exit 0' TERM; touch ready; while :; do sleep 0.01; done";
    tokio::select! {
        _ = city.run(line) => panic!("it goes on for ever"),
        () = city.until("ready", has("ready")) => {}
    }
    city.until("asked", has("asked")).await;
}

#[tokio::test]
async fn huge_output_is_read_and_bounded() {
    let city = City::new();
    let line = "head -c 3000000 /dev/zero | tr '\\0' a; head -c 3000000 /dev/zero | tr '\\0' b >&2";
    let output = city.run(line).await.unwrap();
    assert_eq!(output, "a".repeat(OUTPUT));
    let line = format!("{line}; echo end >&2; exit 1");
    match city.run(&line).await {
        Err(ShellError::Failed { stderr, .. }) => {
            assert!(
                stderr.len() <= COMPLAINTS && stderr.ends_with("bend"),
                "{}",
                stderr.len()
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_pipe_held_by_a_process_left_behind_does_not_hold_the_answer() {
    let city = City::new();
    let answer = city.run("setsid sleep 1000 & echo 7").await;
    assert_eq!(answer, Ok("7\n".to_owned()));
    assert_eq!(city.processes().len(), 1, "it is not ours to end");
}

#[tokio::test]
async fn a_line_nobody_waits_for_is_ended() {
    let city = City::new();
    let run = city.run("trap '' TERM; sleep 1000 & sleep 1000; sleep 1000");
    let begun = city.until("begun", |city| city.processes().len() == 3);
    tokio::select! {
        _ = run => panic!("it sleeps"),
        () = begun => {}
    }
    city.until("all gone", |city| city.processes().is_empty())
        .await;
}

#[test]
fn a_line_ends_with_the_runtime() {
    let city = City::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::select! {
            _ = city.run("sleep 1000; true") => panic!("it sleeps"),
            () = city.until("begun", |city| city.processes().len() == 2) => {}
        }
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(city.until("all gone", |city| city.processes().is_empty()));
}

#[tokio::test]
async fn many_lines_at_once_each_get_their_own_answer() {
    let city = City::new();
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..30 {
        let (shell, job) = (city.shell.clone(), city.job(&format!("echo {number}")));
        runs.spawn(async move { (number, shell.run(job).await) });
    }
    while let Some(run) = runs.join_next().await {
        let (number, answer) = run.unwrap();
        assert_eq!(answer, Ok(format!("{number}\n")));
    }
}
