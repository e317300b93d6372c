//! The same on tmux. The floor is a bare connection in control mode: what tmux itself charges.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gascity::City;
use gascity::model::{AgentName, AgentSpec, CityName, CitySpec, Launch, RunToken, SessionName};
use gascity::ports::{Sessions, StartSpec};
use gascity::sessions::{SubprocessConfig, Tmux, TmuxConfig};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::agent::{Births, now};
use crate::median;

const SIZES: [usize; 3] = [1, 100, 500];
const LISTINGS: usize = 20;
const ROUNDS: usize = 5;
const KILLS: usize = 100;
const AGENTS: usize = 200;

pub(crate) fn measure() {
    let Some(program) = program() else {
        println!("tmux: skipped, not installed");
        return;
    };
    listings(&program);
    restarts(&program);
    starts(&program);
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).map(|dir| dir.join("tmux"));
    found.find(|path| path.is_file())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn provider(program: &Path, dir: &Path) -> Tmux {
    let root = dir.canonicalize().unwrap();
    let name = CityName::new("bench").unwrap();
    let city = SubprocessConfig::new(root, name, "gc".into());
    let mut config = TmuxConfig::new(city, program.to_owned());
    config.tmux_config = "none".to_owned();
    config.socket_dir = Some(dir.to_owned());
    Tmux::new(config).unwrap()
}

fn listings(program: &Path) {
    println!("tmux listing: one listing of all against one process for each, median of {LISTINGS}");
    for size in SIZES {
        let dir = tempfile::tempdir().unwrap();
        let (listing, processes) = runtime().block_on(async {
            let tmux = provider(program, dir.path());
            for n in 0..size {
                start(&tmux, dir.path(), n).await;
            }
            let mut samples = Vec::new();
            for _ in 0..LISTINGS {
                let began = Instant::now();
                assert_eq!(tmux.snapshot().await.unwrap().owned.len(), size);
                samples.push(nanos(began.elapsed()));
            }
            let began = Instant::now();
            for n in 0..size {
                let target = format!("=a{n}:");
                let mut ask = Command::new(program);
                ask.env("TMUX_TMPDIR", dir.path()).args(["-L", "bench"]);
                ask.args(["display-message", "-p", "-t", &target, "#{pane_dead}"]);
                assert!(ask.output().unwrap().status.success());
            }
            let processes = nanos(began.elapsed()) as f64 / 1000.0;
            for n in 0..size {
                let name = SessionName::new(format!("a{n}")).unwrap();
                tmux.stop(name, gascity::ports::Fence::Any).await.unwrap();
            }
            tmux.retire().await.unwrap();
            (median(&mut samples), processes)
        });
        println!(
            "  {size:>3} sessions: listing {listing:.0} us, processes {processes:.0} us, ratio {:.0}",
            processes / listing
        );
    }
}

async fn start(tmux: &Tmux, dir: &Path, n: usize) {
    let agent = AgentName::new(format!("a{n}")).unwrap();
    let words = ["sleep", "600"].map(str::to_owned).to_vec();
    let spec = StartSpec {
        session: SessionName::new(format!("a{n}")).unwrap(),
        template: agent.clone(),
        agent,
        generation: 1,
        launch: Arc::new(Launch {
            command: gascity::model::Command::Words(words),
            work_dir: dir.canonicalize().unwrap(),
            ..Launch::default()
        }),
        setup_timeout: Duration::from_secs(10),
        process_names: Vec::new(),
        live: Vec::new(),
        notes: std::collections::BTreeMap::new(),
    };
    let token = RunToken::new(format!("t{n}")).unwrap();
    tmux.start(token, Arc::new(spec)).await.unwrap();
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap()
}

/// A bare connection.
struct Bare {
    child: Child,
    input: ChildStdin,
    program: PathBuf,
    dir: PathBuf,
}

impl Bare {
    fn new(program: &Path, dir: &Path) -> Self {
        let mut child = Command::new(program)
            .env("TMUX_TMPDIR", dir)
            .env_remove("TMUX")
            .args([
                "-L",
                "bare",
                "-f",
                "/dev/null",
                "-C",
                "new-session",
                "-s",
                "_",
                "cat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(drop));
        let input = child.stdin.take().unwrap();
        Self {
            child,
            input,
            program: program.to_owned(),
            dir: dir.to_owned(),
        }
    }

    fn session(&mut self, n: usize, words: &[String]) {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!("new-session -d -s a{n} -- {}\n", words.join(" "));
        self.input.write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let mut end = Command::new(&self.program);
        end.env("TMUX_TMPDIR", &self.dir)
            .args(["-L", "bare", "kill-server"]);
        let _ = end.output();
        let _ = self.child.wait();
    }
}

fn restarts(program: &Path) {
    println!(
        "tmux restart: SIGKILL to the replacement's first instruction, median of {KILLS}, {ROUNDS} rounds"
    );
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let bare = median(&mut bare_restarts(program));
        let city = median(&mut city_restarts(program));
        println!(
            "  round {round}: floor {bare:.0} us, city {city:.0} us, ratio {:.2}",
            city / bare
        );
        ratios.push((city / bare * 1000.0) as u64);
    }
    println!("  median ratio {:.2}", median(&mut ratios));
}

fn bare_restarts(program: &Path) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let mut births = Births::new(dir.path());
    let words = births.command();
    let mut bare = Bare::new(program, dir.path());
    bare.session(0, &words);
    let (mut pid, _) = births.next();
    let mut samples = Vec::with_capacity(KILLS);
    for n in 1..=KILLS {
        let leader = Pid::from_raw(pid).unwrap();
        let pidfd = pidfd_open(leader, PidfdFlags::empty()).unwrap();
        let killed = now();
        kill_process(leader, Signal::KILL).unwrap();
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
        bare.session(n, &words);
        let (next, born) = births.next();
        samples.push(born - killed);
        pid = next;
    }
    samples
}

fn city_restarts(program: &Path) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let births = Births::new(dir.path());
    runtime().block_on(async {
        let agent = AgentSpec::command("agent", births.command())
            .work_dir(dir.path())
            .max_restarts(0, Duration::from_secs(3600));
        let spec = spec(dir.path()).agent(agent);
        let city = City::from_spec(spec.build().unwrap());
        let city = city.sessions(Arc::new(provider(program, dir.path())));
        let city = city.spawn().await.unwrap();
        let timed = tokio::task::spawn_blocking(move || {
            let mut births = births;
            let samples = kill_and_time(&mut births);
            births.next();
            samples
        });
        let samples = timed.await.unwrap();
        city.stop().await.unwrap();
        samples
    })
}

fn kill_and_time(births: &mut Births) -> Vec<u64> {
    let (mut pid, _) = births.next();
    let mut samples = Vec::with_capacity(KILLS);
    for i in 0..KILLS {
        let killed = now();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        if i + 1 == KILLS {
            break; // the last one is the caller's
        }
        let (next, born) = births.next();
        samples.push(born - killed);
        pid = next;
    }
    samples
}

fn spec(dir: &Path) -> gascity::model::CitySpecBuilder {
    CitySpec::builder("bench")
        .root(dir.canonicalize().unwrap())
        .provider("tmux")
        .daemon(|d| {
            d.patrol_interval = Duration::from_secs(3600);
            d.restart_delay = Duration::ZERO;
            d.shutdown_timeout = Duration::ZERO;
        })
}

fn starts(program: &Path) {
    println!("tmux start: {AGENTS} agents, until the last one lives, {ROUNDS} rounds");
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let bare = bare_starts(program).as_secs_f64() * 1e3;
        let city = city_starts(program).as_secs_f64() * 1e3;
        println!(
            "  round {round}: floor {bare:.0} ms, city {city:.0} ms, ratio {:.2}",
            city / bare
        );
        ratios.push((city / bare * 1000.0) as u64);
    }
    println!("  median ratio {:.2}", median(&mut ratios));
}

fn bare_starts(program: &Path) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let mut births = Births::new(dir.path());
    let words = births.command();
    let mut bare = Bare::new(program, dir.path());
    let began = Instant::now();
    for n in 0..AGENTS {
        bare.session(n, &words);
    }
    for _ in 0..AGENTS {
        births.next();
    }
    began.elapsed()
}

fn city_starts(program: &Path) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let births = Births::new(dir.path());
    runtime().block_on(async {
        let mut spec = spec(dir.path());
        for n in 0..AGENTS {
            let agent = AgentSpec::command(format!("a{n}"), births.command());
            spec = spec.agent(agent.work_dir(dir.path()));
        }
        let city = City::from_spec(spec.build().unwrap());
        let city = city.sessions(Arc::new(provider(program, dir.path())));
        let began = Instant::now();
        let lived = tokio::task::spawn_blocking(move || {
            let mut births = births;
            for _ in 0..AGENTS {
                births.next();
            }
            Instant::now()
        });
        let city = city.spawn().await.unwrap();
        let took = lived.await.unwrap() - began;
        city.stop().await.unwrap();
        took
    })
}
