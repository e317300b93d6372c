//! Cities on every kind of session, and agents that behave badly in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gascity::City;
use gascity::model::{AgentSpec, CitySpec, CitySpecBuilder};
use rustix::process::Signal;

use crate::util::{
    Place, QUIET, Said, count, environment, eventually, is_alive, kill, kill_all_of, lacks,
    processes_of, repository, sleeper,
};

/// The directory of a city built in code. What runs in it ends with it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn spec(&self, provider: &str) -> CitySpecBuilder {
        CitySpec::builder("test")
            .root(self.root())
            .provider(provider)
            .daemon(|daemon| {
                daemon.restart_delay = Duration::ZERO;
                daemon.shutdown_timeout = Duration::from_secs(1);
            })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        kill_all_of(&self.root());
    }
}

/// An agent that notes its process and waits.
fn waiting(home: &Home, name: &str) -> gascity::model::AgentSpecBuilder {
    let line = format!("echo $$ >{name}.new; mv {name}.new {name}.pid; exec sleep 1000");
    AgentSpec::shell(name, line).work_dir(home.root())
}

fn pid(home: &Home, name: &str) -> i32 {
    eventually("an agent notes its process", || {
        let text = fs::read_to_string(home.root().join(format!("{name}.pid"))).ok()?;
        text.trim().parse().ok().filter(|pid| is_alive(*pid))
    })
}

async fn lives(home: &Home, spec: CitySpecBuilder) {
    let city = City::from_spec(spec.build().unwrap())
        .spawn()
        .await
        .unwrap();
    let (a, b) = (pid(home, "a"), pid(home, "b"));
    kill(a, Signal::KILL);
    let root = home.root();
    let again = eventually("the agent is replaced", || {
        let text = fs::read_to_string(root.join("a.pid")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        (pid != a && is_alive(pid)).then_some(pid)
    });
    assert!(is_alive(b), "the other one is left alone");
    city.stop().await.unwrap();
    assert!(!is_alive(again) && !is_alive(b));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_city_lives_on_a_script() {
    if lacks(&["jq", "setsid", "pgrep"]) {
        return;
    }
    let home = Home::new();
    let script = repository().join("docs/exec-provider");
    let spec = home.spec(&format!("exec:{}", script.display()));
    let spec = spec.agent(waiting(&home, "a")).agent(waiting(&home, "b"));
    lives(&home, spec).await;
    let runtime = home.root().join(".gc/runtime/sessions");
    assert_eq!(
        fs::read_dir(runtime).unwrap().count(),
        0,
        "nothing is remembered"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_may_live_elsewhere_than_its_city() {
    let home = Home::new();
    let odd = waiting(&home, "odd").launch(|launch| launch.session = Some("fake".into()));
    let broken = waiting(&home, "broken").launch(|launch| launch.session = Some("fail".into()));
    let spec = home.spec("subprocess").agent(waiting(&home, "a"));
    let spec = spec.agent(odd).agent(broken).agent(waiting(&home, "b"));
    let city = City::from_spec(spec.build().unwrap())
        .spawn()
        .await
        .unwrap();
    let status = city.status().await.unwrap();
    let running: Vec<&str> = status
        .instances
        .iter()
        .filter(|i| i.running)
        .map(|i| &*i.name)
        .collect();
    assert_eq!(running, ["a", "odd", "b"]);
    assert!(is_alive(pid(&home, "a")));
    assert!(!home.root().join("odd.pid").exists(), "it runs in memory");
    let why = status
        .instances
        .iter()
        .find(|i| i.name == "broken")
        .unwrap();
    let why = why.last_error.clone().unwrap_or_default();
    assert!(why.contains("session unavailable"), "{why}");
    city.stop().await.unwrap();
    assert_eq!(processes_of(&home.root()), [0; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_a_family_everywhere_leaves_nobody_behind() {
    let home = Home::new();
    let line = "setsid sleep 1000 & (setsid sh -c 'setsid sleep 1000 & sleep 1000' &); \
                (trap '' TERM INT HUP; sleep 1000 &); nohup sleep 1000 >/dev/null 2>&1 & \
                touch up; trap '' TERM; while :; do sleep 1; done";
    let agent = AgentSpec::shell("a", line).work_dir(home.root());
    let city = City::from_spec(home.spec("subprocess").agent(agent).build().unwrap());
    let city = city.spawn().await.unwrap();
    eventually("all are there", || {
        (home.root().join("up").exists() && processes_of(&home.root()).len() >= 7).then_some(())
    });
    city.stop().await.unwrap();
    assert_eq!(processes_of(&home.root()), [0; 0]);
}

/// Resident memory of a process, in MiB.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        >> 10
}

fn logged(city: &Path, name: &str) -> u64 {
    let log = city.join(format!(".gc/runtime/logs/{name}.log"));
    log.metadata().map_or(0, |meta| meta.len())
}

#[test]
fn floods_and_garbage_disturb_neither_the_supervisor_nor_another_agent() {
    let place = Place::new();
    let agent = |name: &str, line: &str| {
        format!("[[agent]]\nname = \"{name}\"\nstart_command = '''{line}'''\n")
    };
    // 10 MB/s in lines, bytes of every kind, other people's letters, and a quiet one among them.
    let flood = "while :; do yes flood | head -c 1000000; sleep 0.1; done";
    let garbage = "while :; do head -c 1000000 /dev/urandom; sleep 0.1; done";
    let letters =
        "while :; do printf 'Grüße 日本 \\360\\237\\230\\200 \\033[31m\\r\\n'; sleep 0.01; done";
    let city = place.city(
        "noise",
        &format!(
            "[daemon]\npatrol_interval = \"1s\"\n[session]\nprovider = \"subprocess\"\nlog_bytes = 1048576\n\
             log_keep = 1\n{}{}{}{}",
            agent("flood", flood),
            agent("Garbage_1", garbage),
            agent("x-2_letters", letters),
            sleeper("quiet"),
        ),
    );
    place.gc(&city, &["start"]).ok();
    let quiet = place.awaited_pid(&city, "quiet");
    let supervisor = place.supervisor_pid();
    // Long enough for each log to fill several times.
    eventually("a full log was begun anew", || {
        let old = city.join(".gc/runtime/logs/flood.log.1");
        old.exists().then_some(())
    });
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let status = place.status(&city);
        let running = status["instances"].as_array().unwrap().iter();
        assert_eq!(running.filter(|i| i["running"] == true).count(), 4);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(resident(supervisor) < 100, "{} MiB", resident(supervisor));
    for name in ["flood", "Garbage_1"] {
        // One check's output beyond the bound, on a machine that may be busy.
        assert!(logged(&city, name) < 64 << 20, "{}", logged(&city, name));
        assert!(!city.join(format!(".gc/runtime/logs/{name}.log.2")).exists());
    }
    let said = place
        .gc(&city, &["agent", "logs", "x-2_letters", "-n", "1"])
        .ok();
    assert_eq!(said.out.trim_end(), "Grüße 日本 😀");
    let said = place
        .gc(&city, &["agent", "logs", "Garbage_1", "-n", "3"])
        .ok();
    assert!(!said.out.contains('\u{1b}'));
    assert_eq!(place.pid(&city, "quiet"), Some(quiet));
    place.gc(&city, &["stop"]).ok();
    assert!(!is_alive(quiet));
}

#[test]
fn the_bounds_of_logs_follow_the_config() {
    let place = Place::new();
    let toml = |bytes: u64| {
        format!(
            "[daemon]\npatrol_interval = \"200ms\"\n[session]\nprovider = \"subprocess\"\n\
             log_bytes = {bytes}\n[[agent]]\nname = \"w\"\n\
             start_command = 'while :; do echo 0123456789; sleep 0.02; done'\n"
        )
    };
    let city = place.city("logs", &toml(1 << 20));
    place.gc(&city, &["start"]).ok();
    eventually("it prints", || (logged(&city, "w") > 500).then_some(()));
    let old = city.join(".gc/runtime/logs/w.log.1");
    assert!(!old.exists());
    fs::write(city.join("city.toml"), toml(400)).unwrap();
    eventually("its log is full", || old.exists().then_some(()));
}

#[test]
fn what_agents_inherit_follows_the_config_without_a_restart() {
    let place = Place::new();
    let toml = |more: &str| {
        format!(
            "{QUIET}[session]\nprovider = \"subprocess\"\n\
             env_passthrough = [\"PATH\", {more}]\n{}",
            sleeper("w")
        )
    };
    let city = place.city("inherits", &toml(""));
    let mut start = place.command(&city, &["start"]);
    Said::by(start.env("INHERITED_TEST", "yes")).ok();
    let before = place.awaited_pid(&city, "w");
    assert!(!environment(before).contains_key("INHERITED_TEST"));
    fs::write(city.join("city.toml"), toml("\"INHERITED_*\"")).unwrap();
    eventually("the config is loaded", || {
        (count(&city, "config.reloaded", "") == 1).then_some(())
    });
    assert_eq!(place.pid(&city, "w"), Some(before), "it was restarted");
    kill(before, Signal::KILL);
    let after = place.replacement(&city, "w", before);
    assert_eq!(environment(after)["INHERITED_TEST"], "yes");
}

#[test]
fn fake_agents_do_what_their_script_says() {
    let place = Place::new();
    let toml = format!("{QUIET}[session]\nprovider = \"fake\"\n{}", sleeper("w"));
    let city = place.city("acting", &toml);
    let script = "[[agent]]\nmatch = 'w*'\noutput = [['0s', 'curtain up'], ['50ms', 'to be']]\n\
                  exits = [['500ms', 7]]\n[[fault]]\nop = 'nudge'\nfail = 'the prompter sleeps'\n";
    fs::write(city.join("play.toml"), script).unwrap();
    let mut start = place.command(&city, &["start"]);
    Said::by(start.env("GC_FAKE_SCRIPT", "play.toml")).ok();
    eventually("it ends as scripted, once", || {
        (count(&city, "agent.crashed", "w") == 1).then_some(())
    });
    eventually("it acts again", || {
        let said = place.gc(&city, &["agent", "peek", "w"]).out;
        (said == "curtain up\nto be\n").then_some(())
    });
    let said = place.gc(&city, &["agent", "nudge", "w", "louder"]);
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("the prompter sleeps"), "{}", said.err);
    place.gc(&city, &["supervisor", "stop"]).ok();
    fs::write(
        city.join("play.toml"),
        "[[agent]]\nexits = [['1s', 'gone']]\n",
    )
    .unwrap();
    let mut start = place.command(&city, &["start"]);
    let said = Said::by(start.env("GC_FAKE_SCRIPT", "play.toml"));
    assert_ne!(said.code, Some(0));
    assert!(said.err.contains("is no way to end"), "{}", said.err);
}

#[test]
fn another_provider_takes_over_when_the_config_says_so() {
    let place = Place::new();
    let toml = |provider: &str| {
        format!(
            "{QUIET}[session]\nprovider = \"{provider}\"\n{}",
            sleeper("w")
        )
    };
    let city = place.city("swap", &toml("subprocess"));
    place.gc(&city, &["start"]).ok();
    let before = place.awaited_pid(&city, "w");
    fs::write(city.join("city.toml"), toml("fake")).unwrap();
    eventually("the city is on the other provider", || {
        (place.status(&city)["provider"] == "fake").then_some(())
    });
    eventually("the process is gone", || (!is_alive(before)).then_some(()));
    let said = place.gc(&city, &["status"]).ok();
    assert!(said.out.contains("Sessions    fake"), "{}", said.out);
    fs::write(city.join("city.toml"), toml("subprocess")).unwrap();
    let again = place.replacement(&city, "w", before);
    eventually("it is a process again", || is_alive(again).then_some(()));
}

#[test]
fn status_says_what_runs_the_sessions_and_why() {
    let place = Place::new();
    let city = place.city("why", &format!("{QUIET}{}", sleeper("w")));
    place.gc(&city, &["start"]).ok();
    let status = place.status(&city);
    let why = status["provider_why"].as_str().unwrap();
    assert!(why.starts_with("auto: "), "{why}");
    let said = place.gc(&city, &["status"]).ok();
    assert!(said.out.contains(&format!("({why})")), "{}", said.out);
}

#[test]
fn a_start_is_the_sequence_that_is_configured() {
    let place = Place::new();
    let city = place.city(
        "steps",
        &format!(
            "{QUIET}[session]\nprovider = \"subprocess\"\n\
             [[agent]]\nname = \"w\"\nwork_dir = \"work\"\n\
             start_command = \"sh agent.sh\"\nprompt_template = \"prompt.md\"\n\
             pre_start = [\"echo one >steps\", \"echo two $GC_AGENT >>steps\"]\n\
             session_setup = [\"echo three >>steps\"]\nready_delay_ms = 200\n\
             nudge = \"hello there\"\noverlay_dir = \"over\"\n\
             [[agent]]\nname = \"pretends\"\nsession = \"fake\"\nstart_command = \"touch ran\"\n"
        ),
    );
    fs::create_dir(city.join("over")).unwrap();
    let script = "cat steps; printf '<%s>\\n' \"$1\"; while read -r l; do echo got $l; done\n";
    fs::write(city.join("over/agent.sh"), script).unwrap();
    fs::write(city.join("prompt.md"), "be good\n").unwrap();
    place.gc(&city, &["start"]).ok();
    let said = eventually("it was told", || {
        let said = place.gc(&city, &["agent", "logs", "w"]).out;
        said.contains("got hello there").then_some(said)
    });
    assert!(said.starts_with("one\ntwo w\n<[steps] w • "), "{said}");
    assert!(said.contains("\n\nbe good>\n"), "{said}");
    let steps = fs::read_to_string(city.join("work/steps")).unwrap();
    assert_eq!(steps, "one\ntwo w\nthree\n");
    let status = place.status(&city);
    let other = &status["instances"][1];
    assert_eq!(
        (&other["name"], &other["running"]),
        (&"pretends".into(), &true.into())
    );
    assert!(!city.join("ran").exists(), "it ran");
    // What its sessions cannot do is said, with what works instead.
    let error = place
        .gc(&city, &["agent", "attach", "w", "--json"])
        .fails(8)
        .json_error();
    assert_eq!(error["hint"], "gc agent logs w -f");
    let said = place.gc(&city, &["agent", "nudge", "w", "and", "you"]).ok();
    assert_eq!(said.out, "delivered\n");
}

#[test]
fn a_city_on_a_script_is_configured_like_any_other() {
    if lacks(&["jq", "setsid", "pgrep"]) {
        return;
    }
    let place = Place::new();
    let script = repository().join("docs/exec-provider");
    let toml = format!(
        "{QUIET}[session]\nprovider = \"exec:{}\"\n{}",
        script.display(),
        "[[agent]]\nname = \"w\"\nstart_command = 'echo up; while read -r l; do echo got $l; done'\n"
    );
    let city = place.city("scripted", &toml);
    place.gc(&city, &["start"]).ok();
    place.gc(&city, &["agent", "nudge", "w", "hi"]).ok();
    eventually("it was told", || {
        let said = place.gc(&city, &["agent", "peek", "w", "--log"]).out;
        said.contains("got hi").then_some(())
    });
    // Without a supervisor, it is still there and can be talked to; the next one takes it over.
    let run = place.instance(&city, "w")["session_id"].clone();
    kill(place.supervisor_pid(), Signal::KILL);
    let said = place
        .gc(&city, &["agent", "nudge", "w", "still", "there?"])
        .ok();
    assert_eq!(said.out, "delivered\n");
    place.gc(&city, &["start"]).ok();
    let agent = place.instance(&city, "w");
    assert_eq!(
        (&agent["session_id"], &agent["running"]),
        (&run, &true.into())
    );
    place.gc(&city, &["stop"]).ok();
    let state = city.join(".gc/runtime/exec");
    assert_eq!(fs::read_dir(state).unwrap().count(), 0, "nothing is left");
}

#[test]
fn files_of_your_own_are_kept_and_named() {
    let place = Place::new();
    let toml = format!(
        "{QUIET}[session]\nprovider = \"subprocess\"\n\
         [[agent]]\nname = \"w\"\nwork_dir = \"work\"\noverlay_dir = \"over\"\n\
         start_command = \"sleep 1000\"\n"
    );
    let city = place.city("kept", &toml);
    fs::create_dir(city.join("over")).unwrap();
    fs::write(city.join("over/settings"), "theirs").unwrap();
    place.gc(&city, &["start"]).ok();
    let show = || place.gc(&city, &["agent", "show", "w"]).ok().out;
    assert!(!show().contains("were kept"), "{}", show());
    fs::write(city.join("work/settings"), "mine").unwrap();
    fs::write(city.join("over/settings"), "newer").unwrap();
    place.gc(&city, &["agent", "restart", "w"]).ok();
    let warning = "overlay: files of your own were kept: settings";
    eventually("it is shown", || show().contains(warning).then_some(()));
    let kept = fs::read_to_string(city.join("work/settings")).unwrap();
    assert_eq!(kept, "mine");
    let events = place.gc(&city, &["events", "--json"]).ok().out;
    let mut lines = events.lines().rev();
    let started = lines.find(|line| line.contains("agent.started"));
    assert!(started.unwrap().contains(warning), "{events}");
}
