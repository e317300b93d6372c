//! `gc events`: the log as commands show it.

use std::fs;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::process::Stdio;
use std::sync::mpsc;

use gascity::events::{EventLog, FileJournal};
use gascity::model::EventDraft;
use gascity::ports::Journal as _;
use rustix::process::Signal;
use serde_json::Value;

use crate::util::{LIMIT, Place, QUIET, events, eventually, is_alive, kill, sleeper};

#[test]
fn the_newest_of_a_kind_are_shown() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}{}", sleeper("a"), sleeper("b")));
    place.gc(&city, &["start"]).ok();
    place.gc(&city, &["stop"]).ok();
    let rows = |args: &[&str]| {
        let said = place.gc(&city, &[&["events"], args].concat()).ok();
        said.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rows(&["-n", "1"]).len(), 1);
    assert_eq!(rows(&["--type", "agent.started"]).len(), 2);
    assert_eq!(rows(&["--type", "agent.*", "--subject", "b"]).len(), 2);
    assert_eq!(
        rows(&["--type", "agent.*,controller.*", "-n", "3"]).len(),
        3
    );
    let none = place.gc(&city, &["events", "--type", "nothing"]).ok();
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", "no events\n"));
    let last = events(&city).last().unwrap()["seq"].as_u64().unwrap();
    assert_eq!(rows(&["--seq"]), [last.to_string()]);
    let json = place.gc(&city, &["events", "--json", "-n", "2"]).ok();
    for line in json.out.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["city"], "town");
    }
    let none = place.gc(&city, &["events", "--watch", "--timeout", "1ms"]);
    none.fails(1);
    let past = [
        "events",
        "--watch",
        "--after",
        "0",
        "--type",
        "agent.started",
    ];
    assert!(place.gc(&city, &past).ok().out.contains("agent.started"));
}

// C18
#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let place = Place::new();
    let city = place.city("town", &sleeper("a"));
    place.gc(&city, &["start"]).ok();
    let mut child = place
        .command(&city, &["events", "-f"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = BufReader::new(child.stdout.take().unwrap());
    pipe.read_line(&mut String::new()).unwrap();
    drop(pipe);
    place.gc(&city, &["stop"]).ok(); // more events, for which there is no reader
    let said = child.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert!(said.stderr.is_empty(), "{said:?}");
}

#[test]
fn following_misses_and_repeats_nothing_across_a_killed_supervisor() {
    let place = Place::new();
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    let mut follower = place
        .command(&city, &["events", "-f", "-n", "1000", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let (sender, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap();
            let _ = sender.send(event["seq"].as_u64().unwrap()); // the test may be over
        }
    });
    let supervisor = place.supervisor_pid();
    kill(supervisor, Signal::KILL);
    eventually("its end", || (!is_alive(supervisor)).then_some(()));
    place.gc(&city, &["start"]).ok();
    let before = place.pid(&city, "a").unwrap();
    kill(before, Signal::KILL);
    place.replacement(&city, "a", before);
    place.gc(&city, &["stop"]).ok();
    let all: Vec<u64> = events(&city)
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect();
    let followed: Vec<u64> = all
        .iter()
        .map(|_| seen.recv_timeout(LIMIT).unwrap())
        .collect();
    assert_eq!(followed, all);
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    kill(i32::try_from(follower.id()).unwrap(), Signal::KILL);
    follower.wait().unwrap();
    assert!(seen.try_recv().is_err(), "more than the log holds");
}

// C17
#[test]
fn following_misses_and_repeats_nothing_across_ten_thousand_events_a_restart_and_a_rotation() {
    const MANY: usize = 10_000;
    let place = Place::new();
    let city = place.city("town", QUIET);
    fs::create_dir_all(city.join(".gc")).unwrap();
    // Full to the brim: the next event puts it away.
    let log = city.join(".gc/events.jsonl");
    let mut file = fs::File::create(&log).unwrap();
    file.set_len(64 << 20).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    let line = r#"{"seq":41,"type":"old","ts":"2026-03-18T10:00:00.000Z","actor":"gc"}"#;
    writeln!(file, "\n{line}").unwrap();
    drop(file);
    let mut follow = place.command(&city, &["events", "-f", "--json", "--after", "40"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || -> Value {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(next()["seq"], 41);
    place.gc(&city, &["start"]).ok();
    // Two writers, and the supervisor comes and goes.
    let emit = |count: usize| {
        let log = EventLog::new(city.join(".gc"));
        let journal = FileJournal::open(log).unwrap();
        for n in 0..count {
            journal.append(EventDraft::new("test.many", &n.to_string()));
        }
    };
    emit(MANY / 2);
    kill(place.supervisor_pid(), Signal::KILL);
    place.gc(&city, &["start"]).ok();
    emit(MANY / 2);
    place.gc(&city, &["stop"]).ok();
    let head = place.gc(&city, &["events", "--seq", "--json"]).ok().json();
    let head = head["seq"].as_u64().unwrap();
    let (mut many, mut rotated) = (0, 0);
    for seq in 42..=head {
        let event = next();
        assert_eq!(event["seq"], seq, "{event}");
        many += usize::from(event["type"] == "test.many");
        rotated += usize::from(event["type"] == "events.rotated");
    }
    assert_eq!((many, rotated), (MANY, 1));
    assert!(city.join(".gc/events.jsonl.1").exists());
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn a_city_puts_its_log_away_as_its_config_says_also_after_an_edit() {
    let place = Place::new();
    let small = "[events]\nrotate_bytes = 1000\nrotate_keep = 2\n";
    let city = place.city("town", &format!("{QUIET}{}", sleeper("a")));
    place.gc(&city, &["start"]).ok();
    for _ in 0..10 {
        place.gc(&city, &["agent", "restart", "a"]).ok();
    }
    assert!(!city.join(".gc/events.jsonl.1").exists());
    let toml = format!("{QUIET}{small}{}", sleeper("a"));
    fs::write(city.join("city.toml"), toml).unwrap();
    place.gc(&city, &["reload"]).ok();
    for _ in 0..10 {
        place.gc(&city, &["agent", "restart", "a"]).ok();
    }
    assert!(city.join(".gc/events.jsonl.2").exists());
    assert!(!city.join(".gc/events.jsonl.3").exists());
    let all = place.gc(&city, &["events", "--json", "-n", "10"]).ok().out;
    let seqs: Vec<u64> = all
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["seq"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert!(
        seqs.len() == 10 && seqs.windows(2).all(|two| two[1] == two[0] + 1),
        "{seqs:?}"
    );
}

#[test]
fn events_of_all_cities_come_by_time_and_go_on_from_a_cursor() {
    let place = Place::new();
    let one = place.city("one", &format!("{QUIET}{}", sleeper("a")));
    let two = place.city("two", &format!("{QUIET}{}", sleeper("b")));
    let none = place.gc(&one, &["events", "--all"]).fails(1);
    assert!(none.err.ends_with("hint: gc start\n"), "{none:?}");
    for city in [&one, &two] {
        place.gc(city, &["start"]).ok();
    }
    let all = |args: &[&str]| {
        let args = [&["events", "--all", "--json", "-n", "1000"][..], args].concat();
        let said = place.gc(&two, &args).ok();
        let lines = said
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    let told = all(&[]);
    let times: Vec<&str> = told
        .iter()
        .map(|event| event["ts"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let of = |city: &str| told.iter().filter(|event| event["city"] == city).count();
    assert_eq!(of("one"), events(&one).len());
    assert_eq!(of("two"), events(&two).len());
    assert!(of("_machine") > 0);
    // Each line has the place to go on from: all that came after it, and nothing twice.
    let (half, rest) = told.split_at(told.len() / 2);
    let cursor = half.last().unwrap()["cursor"].as_str().unwrap();
    let key = |event: &Value| (event["city"].to_string(), event["seq"].as_u64());
    let after: Vec<_> = all(&["--after", cursor]).iter().map(key).collect();
    assert_eq!(after, rest.iter().map(key).collect::<Vec<_>>());
    let newest = place.gc(&one, &["events", "--all", "--seq"]).ok().out;
    assert_eq!(newest.trim(), told.last().unwrap()["cursor"]);
    place.gc(&one, &["events", "--after", cursor]).fails(2);
    place
        .gc(&one, &["events", "--all", "--after", "7"])
        .fails(2);
    // And those to come, of whichever city.
    let args = [
        "events",
        "--all",
        "--watch",
        "--type",
        "x.y",
        "--timeout",
        "60s",
    ];
    let mut watch = place.command(&one, &[&args[..], &["--after", newest.trim()]].concat());
    let watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    place.gc(&two, &["event", "emit", "x.y"]).ok();
    let said = watch.wait_with_output().unwrap();
    assert!(
        String::from_utf8_lossy(&said.stdout).starts_with("two "),
        "{said:?}"
    );
}
