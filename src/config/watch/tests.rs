use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use notify::EventKind;
use tokio::time::Instant;

use super::super::source::FILE;
use super::watcher::{Burst, Concern, Entries};
use super::*;

/// Longer than any healthy machine needs; only a hang takes it.
const PATIENCE: Duration = Duration::from_secs(30);

fn city_dir() -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix("city")
        .tempdir()
        .expect("temporary directory");
    fs::write(dir.path().join(FILE), named("old")).expect("written");
    dir
}

fn named(name: &str) -> String {
    format!("[workspace]\nname = '{name}'\n")
}

/// Waits for changes until a load gives that city name.
async fn until_named(files: &ConfigFiles, changes: &mut watch::Receiver<u64>, name: &str) {
    let seen = async {
        loop {
            changes.changed().await.expect("still watched");
            if files
                .load()
                .await
                .is_ok_and(|spec| spec.name.as_str() == name)
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, seen)
        .await
        .expect("the change was noticed");
}

#[tokio::test]
async fn every_way_of_saving_is_noticed() {
    let dir = city_dir();
    let file = dir.path().join(FILE);
    let files = ConfigFiles::watch(Loader::new(dir.path()));
    let mut changes = files.changes();

    fs::write(&file, named("in-place")).expect("written");
    until_named(&files, &mut changes, "in-place").await;

    fs::write(dir.path().join("new"), named("swapped")).expect("written");
    fs::rename(dir.path().join("new"), &file).expect("renamed");
    until_named(&files, &mut changes, "swapped").await;

    fs::remove_file(&file).expect("removed");
    fs::write(&file, named("again")).expect("written");
    until_named(&files, &mut changes, "again").await;
}

#[tokio::test]
async fn files_that_a_load_depends_on_are_watched_even_before_they_are_there() {
    let dir = city_dir();
    let text = "[[rigs]]\nname = 'r'\npath = 'a/b'\n[[agent]]\nname = 'w'\ndir = 'r'\nstart_command = 'x'\npool = { namepool = 'lists/names' }\n";
    fs::write(dir.path().join(FILE), named("old") + text).expect("written");
    let files = ConfigFiles::watch(Loader::new(dir.path()));
    let mut changes = files.changes();
    assert!(files.load().await.is_err(), "no list of names");
    let mut until = async |what: &str, holds: &dyn Fn(&CitySpec) -> bool| {
        let seen = async {
            loop {
                changes.changed().await.expect("still watched");
                if files.load().await.is_ok_and(|spec| holds(&spec)) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect(what);
    };
    let first_name = |spec: &CitySpec| spec.agents[0].instance(1).name.to_string();

    fs::create_dir(dir.path().join("lists")).expect("created");
    fs::write(dir.path().join("lists/names"), "ann\n").expect("written");
    until("the list came", &|spec| first_name(spec) == "r/ann").await;

    fs::write(dir.path().join("lists/names"), "bob\n").expect("written");
    until("the list changed", &|spec| first_name(spec) == "r/bob").await;

    fs::create_dir_all(dir.path().join("a/b")).expect("created");
    until("the rig came", &|spec| spec.agents[0].held.is_none()).await;
}

#[tokio::test]
async fn a_replaced_link_and_an_edit_behind_it_are_noticed() {
    let dir = city_dir();
    let away = tempfile::tempdir().expect("temporary directory");
    for version in ["v1", "v2"] {
        fs::create_dir(away.path().join(version)).expect("created");
        fs::write(away.path().join(version).join("real"), named(version)).expect("written");
    }
    symlink("v1", away.path().join("now")).expect("linked");
    let files = ConfigFiles::watch(Loader::new(dir.path()));
    let mut changes = files.changes();

    symlink(away.path().join("now/real"), dir.path().join("link")).expect("linked");
    fs::rename(dir.path().join("link"), dir.path().join(FILE)).expect("renamed");
    until_named(&files, &mut changes, "v1").await;

    fs::write(away.path().join("v1/real"), named("edited")).expect("written");
    until_named(&files, &mut changes, "edited").await;

    symlink("v2", away.path().join("next")).expect("linked");
    fs::rename(away.path().join("next"), away.path().join("now")).expect("renamed");
    until_named(&files, &mut changes, "v2").await;
}

#[tokio::test]
async fn a_failed_load_keeps_the_last_good_one() {
    let dir = city_dir();
    let files = ConfigFiles::watch(Loader::new(dir.path()));
    let loaded = files.loaded();
    assert!(loaded.borrow().is_none());
    files.load().await.expect("valid");
    fs::write(dir.path().join(FILE), "nonsense").expect("written");
    files.load().await.expect_err("nonsense");
    let city = loaded.borrow().clone().expect("loaded before");
    assert_eq!(city.spec.name.as_str(), "old");
}

#[tokio::test]
async fn what_cannot_be_watched_is_said_and_tried_again() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let root = parent.path().join("city");
    let files = ConfigFiles::watch(Loader::new(&root));
    let (mut changes, mut trouble) = (files.changes(), files.watch_trouble());
    assert!(files.load().await.is_err());
    assert!(trouble.borrow_and_update().is_some());
    fs::create_dir(&root).expect("made");
    fs::write(root.join(FILE), named("late")).expect("written");
    let watched = tokio::time::timeout(PATIENCE, trouble.wait_for(Option::is_none));
    assert!(watched.await.is_ok(), "watched by now");
    until_named(&files, &mut changes, "late").await;
    fs::write(root.join(FILE), named("later")).expect("written");
    until_named(&files, &mut changes, "later").await;
}

#[test]
fn other_files_and_mere_reading_are_no_change() {
    use notify::Event;
    use notify::event::{AccessKind, AccessMode, CreateKind, DataChange, ModifyKind};
    let concern = Concern {
        entries: Entries::from([("/c".into(), FILE.into())]),
        holders: BTreeSet::from(["/c".into()]),
        trees: BTreeSet::from(["/p".into()]),
    };
    let at = |kind, path: &str| concern.has(&Event::new(kind).add_path(path.into()));
    let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    assert!(at(data, "/c/city.toml"));
    assert!(at(EventKind::Create(CreateKind::File), "/c/city.toml"));
    assert!(!at(data, "/c/city.toml~"));
    assert!(!at(data, "/c/sub/city.toml"));
    assert!(!at(
        EventKind::Access(AccessKind::Close(AccessMode::Write)),
        "/c/city.toml"
    ));
}

/// How often events at these times, in milliseconds, are told.
fn told(events: impl IntoIterator<Item = u64>) -> usize {
    let start = Instant::now();
    let mut bursts: Vec<Burst> = Vec::new();
    for at in events {
        let now = start + Duration::from_millis(at);
        match bursts.last_mut() {
            Some(burst) if now < burst.due() => burst.extend(now),
            _ => bursts.push(Burst::new(now)),
        }
    }
    bursts.len()
}

#[test]
fn a_burst_is_told_once_and_an_endless_one_every_two_seconds() {
    assert_eq!(told((0..50).map(|i| i * 3)), 1);
    assert_eq!(told((0..50).map(|i| i * 100)), 3);
    assert_eq!(told([0, 1000]), 2);
}
