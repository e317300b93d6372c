//! The log as its users see it, with several writers and torn lines.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gascity_actors::model::{Event, EventDraft};
use gascity_actors::ports::{Journal, JournalError};
use tempfile::TempDir;

use super::*;

/// Upper bound of every wait; reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(60);

fn draft(kind: &str) -> EventDraft {
    EventDraft::new(kind, "x")
}

fn journal(dir: &TempDir) -> FileJournal {
    FileJournal::open(EventLog::new(dir.path())).unwrap()
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

fn write_raw(dir: &TempDir, text: &str) {
    let path = dir.path().join("events.jsonl");
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn raw(seq: u64) -> String {
    format!("{{\"seq\":{seq},\"type\":\"t\",\"ts\":\"2026-03-18T10:00:00.123Z\",\"actor\":\"gc\"}}")
}

#[tokio::test]
async fn appended_events_are_numbered_broadcast_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    let mut live = journal.subscribe();
    for kind in ["a", "b", "c"] {
        journal.append(draft(kind));
    }
    journal.flush().await.unwrap();
    let read = journal.read(1, 10).await.unwrap();
    assert_eq!(seqs(&read), [2, 3]);
    assert_eq!(seqs(&journal.read(0, 1).await.unwrap()), [1]);
    for kind in ["a", "b", "c"] {
        assert_eq!(live.recv().await.unwrap().kind, kind);
    }
    for file in ["events.jsonl", "events.lock"] {
        let mode = fs::metadata(dir.path().join(file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn numbers_go_on_after_a_reopening_and_drop_writes_what_is_queued() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let journal = journal(&dir);
        journal.append(draft("a"));
        journal.append(draft("b"));
    }
    let log = EventLog::new(dir.path());
    assert_eq!(
        seqs(&log.read_after(0, 100).unwrap().events),
        [1, 2, 3, 4, 5, 6]
    );
}

#[test]
fn a_torn_line_costs_nothing_but_itself() {
    let cases = [
        // A part of a line: its number is used again, for nobody ever saw it.
        ("{\"seq\":2,\"ty".to_owned(), vec![1, 2], 1),
        // All of a line but its newline: that event happened.
        (raw(2), vec![1, 2, 3], 0),
    ];
    for (torn, want, skipped) in cases {
        let dir = tempfile::tempdir().unwrap();
        write_raw(&dir, &format!("{}\n{torn}", raw(1)));
        journal(&dir).append(draft("after"));
        let read = EventLog::new(dir.path()).read_after(0, 100).unwrap();
        assert_eq!(
            (seqs(&read.events), read.skipped),
            (want, skipped),
            "{torn}"
        );
    }
}

#[test]
fn lines_that_are_no_events_are_skipped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    write_raw(
        &dir,
        &format!("nonsense\n{}\n\u{0}\n\n{}\n{{\"seq\":9", raw(1), raw(2)),
    );
    let log = EventLog::new(dir.path());
    for batch in [log.read_after(0, 100).unwrap(), log.last(100).unwrap()] {
        assert_eq!((seqs(&batch.events), batch.skipped), (vec![1, 2], 2));
    }
    assert_eq!(log.last_seq().unwrap(), 2);
}

#[test]
fn any_position_is_found_in_a_long_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for seq in 1..=5000 {
        text.push_str(&raw(seq * 2));
        text.push_str("\ntorn\n");
    }
    write_raw(&dir, &text);
    let log = EventLog::new(dir.path());
    for after in [0, 1, 2, 777, 5000, 9998, 9999, 10_000, 20_000] {
        let want: Vec<u64> = (1..=5000)
            .map(|seq| seq * 2)
            .filter(|seq| *seq > after)
            .take(3)
            .collect();
        assert_eq!(
            seqs(&log.read_after(after, 3).unwrap().events),
            want,
            "{after}"
        );
    }
    assert_eq!(seqs(&log.last(2).unwrap().events), [9998, 10_000]);
    assert_eq!(log.last(9999).unwrap().events.len(), 5000);
}

#[test]
fn an_absent_log_has_no_events() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::new(dir.path().join("none"));
    assert_eq!(log.read_after(0, 10).unwrap(), Batch::default());
    assert_eq!(log.last_seq().unwrap(), 0);
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_events_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    fs::create_dir(dir.path().join("events.jsonl")).unwrap();
    journal.append(draft("lost"));
    assert!(matches!(journal.flush().await, Err(JournalError(_))));
    assert_eq!(journal.lost(), 1);
    fs::remove_dir(dir.path().join("events.jsonl")).unwrap();
    journal.append(draft("kept"));
    journal.flush().await.unwrap();
    assert_eq!(seqs(&journal.read(0, 10).await.unwrap()), [1]);
}

#[tokio::test]
async fn numbers_go_on_when_somebody_empties_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let journal = journal(&dir);
    journal.append(draft("a"));
    journal.flush().await.unwrap();
    fs::write(dir.path().join("events.jsonl"), "").unwrap();
    journal.append(draft("b"));
    journal.flush().await.unwrap();
    assert_eq!(seqs(&journal.read(0, 10).await.unwrap()), [2]);
}

async fn next(follower: &mut Follower) -> Vec<u64> {
    let events = tokio::time::timeout(LIMIT, follower.next()).await;
    seqs(&events.expect("an event in time").unwrap())
}

#[tokio::test]
async fn a_follower_sees_what_comes_also_in_a_file_that_was_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut follower = EventLog::new(dir.path()).follow(0).unwrap();
    let journal = journal(&dir);
    journal.append(draft("a"));
    assert_eq!(next(&mut follower).await, [1]);
    journal.append(draft("b"));
    assert_eq!(next(&mut follower).await, [2]);

    let mut late = EventLog::new(dir.path()).follow(1).unwrap();
    assert_eq!(next(&mut late).await, [2]);
}

#[tokio::test]
async fn a_follower_waits_for_the_end_of_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut follower = EventLog::new(dir.path()).follow(0).unwrap();
    let line = raw(1);
    let (head, tail) = line.split_at(20);
    write_raw(&dir, head);
    assert!(follower.poll_now().unwrap().is_empty());
    write_raw(&dir, &format!("{tail}\nnonsense\n"));
    assert_eq!(next(&mut follower).await, [1]);
    assert!(follower.poll_now().unwrap().is_empty());
    assert_eq!(follower.skipped(), 1);
}

#[tokio::test]
async fn a_follower_goes_on_in_a_file_that_took_the_place() {
    let dir = tempfile::tempdir().unwrap();
    write_raw(&dir, &format!("{}\n", raw(1)));
    let mut follower = EventLog::new(dir.path()).follow(0).unwrap();
    assert_eq!(next(&mut follower).await, [1]);
    write_raw(&dir, &format!("{}\n", raw(2)));
    fs::rename(dir.path().join("events.jsonl"), dir.path().join("old")).unwrap();
    write_raw(&dir, &format!("{}\n", raw(3)));
    assert_eq!(next(&mut follower).await, [2]);
    assert_eq!(next(&mut follower).await, [3]);
}

/// Turns the test `as_an_emitter` into a process that emits.
const DIR: &str = "GC_TEST_EVENTS_DIR";
const COUNT: &str = "GC_TEST_EVENTS_COUNT";

/// A process that emits; killed if the test fails.
struct Emitter(Child);

impl Emitter {
    fn start(dir: &TempDir, count: usize) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "events::tests::as_an_emitter"])
            .env(DIR, dir.path())
            .env(COUNT, count.to_string())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn as_an_emitter() {
    let (Some(dir), Ok(count)) = (std::env::var_os(DIR), std::env::var(COUNT)) else {
        return; // only of use as a process of its own
    };
    let journal = FileJournal::open(EventLog::new(dir)).unwrap();
    for i in 0..count.parse::<usize>().unwrap() {
        journal.append(draft("emitted"));
        if i % 50 == 0 {
            journal.flush().await.unwrap(); // many small writes, so that they interleave
        }
    }
    journal.flush().await.unwrap();
    assert_eq!(journal.lost(), 0);
}

#[test]
fn eight_processes_share_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut emitters: Vec<Emitter> = (0..8).map(|_| Emitter::start(&dir, 1000)).collect();
    for emitter in &mut emitters {
        assert!(emitter.0.wait().unwrap().success());
    }
    let read = EventLog::new(dir.path()).read_after(0, usize::MAX).unwrap();
    assert_eq!(seqs(&read.events), (1..=8000).collect::<Vec<u64>>());
    assert_eq!(read.skipped, 0);
}

#[test]
fn several_journals_in_one_process_share_one_log() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let journal = journal(&dir);
                (0..200).for_each(|_| journal.append(draft("a")));
            });
        }
    });
    let read = EventLog::new(dir.path()).read_after(0, usize::MAX).unwrap();
    assert_eq!(seqs(&read.events), (1..=1600).collect::<Vec<u64>>());
}

#[test]
fn a_writer_killed_at_any_moment_leaves_a_usable_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = EventLog::new(dir.path());
    for round in 0..5 {
        let before = log.last_seq().unwrap();
        let emitter = Emitter::start(&dir, 1_000_000);
        let deadline = std::time::Instant::now() + LIMIT;
        while log.last_seq().unwrap() < before + 100 {
            assert!(std::time::Instant::now() < deadline, "round {round}");
            std::thread::yield_now();
        }
        drop(emitter);
        journal(&dir).append(draft("after"));
    }
    let read = log.read_after(0, usize::MAX).unwrap();
    let numbers = seqs(&read.events);
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert_eq!(
        read.events
            .iter()
            .filter(|event| event.kind == "after")
            .count(),
        5
    );
}

/// A log that is put away after every few events.
fn small(dir: &TempDir, keep: u32) -> EventLog {
    EventLog::new(dir.path()).rotating(Rotation { bytes: 300, keep })
}

#[tokio::test]
async fn a_full_log_is_put_away_and_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = small(&dir, 3);
    for n in 1..=60 {
        append_one(log.clone(), draft(&format!("e{n}"))).unwrap();
    }
    let kept = log.read_after(0, 1000).unwrap().events;
    let first = kept[0].seq;
    assert!(first > 1, "the oldest archive was dropped");
    let last = log.last_seq().unwrap();
    assert_eq!(
        seqs(&kept),
        (first..=last).collect::<Vec<_>>(),
        "no gap, no repeat"
    );
    assert!(dir.path().join("events.jsonl.3").exists());
    assert!(!dir.path().join("events.jsonl.4").exists());
    let current = fs::read_to_string(dir.path().join("events.jsonl")).unwrap();
    let note: Event = serde_json::from_str(current.lines().next().unwrap()).unwrap();
    assert_eq!(note.kind, "events.rotated");
    assert_eq!(note.payload["last_seq"], note.seq - 1);
    assert!(note.payload["first_seq"].as_u64().unwrap() < note.seq);
    // Reads span archives, from any place on and from the end.
    let after = first + 3;
    let rest = log.read_after(after, 1000).unwrap().events;
    assert_eq!(seqs(&rest), (after + 1..=last).collect::<Vec<_>>());
    let newest = log.last(10).unwrap().events;
    assert_eq!(seqs(&newest), (last - 9..=last).collect::<Vec<_>>());
    assert_eq!(log.read_after(0, 5).unwrap().events.len(), 5);
}

#[test]
fn numbers_go_on_also_if_whoever_put_the_log_away_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let log = small(&dir, 3);
    append_one(log.clone(), draft("a")).unwrap();
    fs::rename(log.path(), dir.path().join("events.jsonl.1")).unwrap();
    assert_eq!(append_one(log.clone(), draft("b")).unwrap().seq, 2);
    assert_eq!(seqs(&log.read_after(0, 9).unwrap().events), [1, 2]);
}

#[tokio::test]
async fn a_follower_misses_and_repeats_nothing_across_many_rotations() {
    let dir = tempfile::tempdir().unwrap();
    let log = small(&dir, 50);
    for _ in 0..20 {
        append_one(log.clone(), draft("before")).unwrap();
    }
    let mut follower = log.follow(5).unwrap();
    let mut seen = seqs(&follower.poll_now().unwrap());
    for round in 0..20 {
        // Several rotations between two looks.
        for _ in 0..round {
            append_one(log.clone(), draft("after")).unwrap();
        }
        loop {
            let events = follower.poll_now().unwrap();
            if events.is_empty() {
                break;
            }
            seen.extend(seqs(&events));
        }
    }
    let last = log.last_seq().unwrap();
    assert_eq!(seen, (6..=last).collect::<Vec<_>>());
}
