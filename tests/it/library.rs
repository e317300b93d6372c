//! A city inside a program of one's own, on real processes.

use std::time::Duration;

use gascity::City;
use gascity::model::{AgentSpec, AgentState, CitySpec, Event};
use gascity::ports::EventStream;
use rustix::process::Signal;

use crate::util::{LIMIT, Place, is_alive, kill};

async fn next(events: &mut EventStream, kind: &str) -> Event {
    let wait = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.kind == kind {
                return (*event).clone();
            }
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .unwrap_or_else(|_| panic!("no {kind}"))
}

fn spec(place: &Place) -> CitySpec {
    let root = place.path("city");
    std::fs::create_dir_all(&root).unwrap();
    let agent = AgentSpec::command("worker", ["sleep", "600"]).work_dir(&root);
    let patrol = |d: &mut gascity::model::Daemon| d.patrol_interval = Duration::from_secs(3600);
    CitySpec::builder("embedded")
        .root(&root)
        .provider("subprocess")
        .daemon(patrol)
        .agent(agent)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_killed_agent_is_replaced_without_a_tick_and_a_stop_leaves_nothing() {
    let place = Place::new();
    let city = City::from_spec(spec(&place)).spawn().await.unwrap();
    let mut events = city.subscribe();
    let before = city.status().await.unwrap().instances[0].pid.unwrap();
    kill(before.cast_signed(), Signal::KILL);
    let crashed = next(&mut events, "agent.crashed").await;
    assert_eq!(crashed.payload["signal"], 9);
    let started = next(&mut events, "agent.started").await;
    assert_eq!(started.payload["cause"], "crash");
    let view = city.status().await.unwrap();
    assert_eq!(view.instances[0].state, AgentState::Running);
    let after = view.instances[0].pid.unwrap();
    assert_ne!(before, after);
    assert!(is_alive(after.cast_signed()));
    assert!(city.tree().await.unwrap().to_string().contains("worker"));
    let summary = city.stop().await.unwrap();
    assert_eq!((summary.interrupted, summary.killed.len()), (1, 0));
    assert!(!is_alive(after.cast_signed()));
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[tokio::test]
async fn a_detached_city_is_adopted_by_the_next_one() {
    let place = Place::new();
    let city = City::from_spec(spec(&place)).spawn().await.unwrap();
    let before = city.status().await.unwrap().instances[0].clone();
    city.detach().await.unwrap();
    assert!(is_alive(before.pid.unwrap().cast_signed()));
    let city = City::from_spec(spec(&place)).spawn().await.unwrap();
    let after = city.status().await.unwrap().instances[0].clone();
    assert_eq!(
        (before.pid, before.session_id),
        (after.pid, after.session_id)
    );
    city.stop().await.unwrap();
    assert_eq!(place.processes(), [0_i32; 0]);
}

#[tokio::test]
async fn one_city_has_one_runner() {
    let place = Place::new();
    let city = City::from_spec(spec(&place)).spawn().await.unwrap();
    let error = City::from_spec(spec(&place))
        .spawn()
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("controller already running"), "{error}");
    city.stop().await.unwrap();
}

#[tokio::test]
async fn a_directory_without_a_config_is_no_city_and_is_left_alone() {
    let place = Place::new();
    let dir = place.path("empty");
    std::fs::create_dir_all(&dir).unwrap();
    let error = City::open(&dir).await.err().unwrap().to_string();
    assert!(error.contains("there is no city.toml"), "{error}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}
