//! Frames as they are, and what keys make of them.

use serde_json::json;

use super::frame::frame;
use super::keys::{Key, Wish, press};
use super::model::{Act, Look, Model, Target, View};

fn instance(name: &str, state: &str) -> serde_json::Value {
    json!({
        "name": name, "qualified_name": name, "state": state, "running": state == "running",
        "suspended": state == "suspended", "session": name.replace('/', "-"), "generation": 1,
        "restarts_in_window": 0, "max_restarts": 5, "restart_window_ms": 3_600_000
    })
}

fn look() -> Look {
    let mut planner = instance("planner", "running");
    planner["pid"] = json!(4121);
    planner["uptime_ms"] = json!(4_320_000);
    planner["restarts_in_window"] = json!(1);
    let mut worker = instance("hello/worker-1", "quarantined");
    worker["restarts_in_window"] = json!(5);
    worker["quarantined_until"] = json!("2026-03-18T14:32:10Z");
    worker["last_error"] = json!("exit 1: no such model");
    let scout = instance("scout", "suspended");
    let view = json!({
        "name": "town", "path": "/town", "provider": "fake", "suspended": false,
        "uptime_sec": 187_200, "last_tick_ms": 41, "ticks_missed": 0,
        "instances": [planner, worker, scout],
        "config": {"revision": "3f9ac1", "loaded_at": "2026-03-18T10:02:11Z", "state": "ok"}
    });
    let node = |path: &str, kind: &str, state: &str, children: Vec<serde_json::Value>| {
        let name = path.strip_prefix("town/").unwrap_or(path);
        json!({
            "id": path, "name": name, "path": path, "kind": kind, "state": state,
            "mailbox_depth": 0, "mailbox_peak": 0, "handled": 0, "children": children
        })
    };
    let mut busy = node("town/tracker", "tracker", "running", vec![]);
    busy["mailbox_depth"] = json!(1200);
    let city = vec![
        busy,
        node("town/planner", "worker", "running", vec![]),
        node("town/hello/worker-1", "worker", "quarantined", vec![]),
    ];
    let root = node(
        "machine",
        "machine",
        "running",
        vec![node("town", "city", "running", city)],
    );
    let event = |seq: u64, kind: &str, subject: &str, message: &str| {
        let event = json!({
            "seq": seq, "type": kind, "ts": "2026-03-18T13:51:00Z", "actor": "gc",
            "subject": subject, "message": message, "payload": {}
        });
        ("town".to_owned(), serde_json::from_value(event).unwrap())
    };
    Look {
        taken_at: "2026-03-18T13:51:10Z".parse().unwrap(),
        mode: "supervisor".into(),
        pid: 4021,
        uptime_sec: 187_200,
        cities: serde_json::from_value(json!([
            {"name": "town", "path": "/town", "running": true, "status": "running"}
        ]))
        .unwrap(),
        views: vec![serde_json::from_value(view).unwrap()],
        tree: serde_json::from_value(json!({"taken_at": "2026-03-18T13:51:10Z", "root": root}))
            .ok(),
        events: vec![
            event(1, "agent.started", "planner", ""),
            event(2, "agent.crashed", "hello/worker-1", "exit 1 after 12s"),
        ],
    }
}

fn model() -> Model {
    let mut model = Model::default();
    model.take(look());
    model
}

fn drawn(model: &Model, width: usize, height: usize) -> String {
    let frame = frame(model, width, height);
    assert_eq!(frame.len(), height);
    let text: Vec<String> = frame.into_iter().map(|line| line.text).collect();
    assert!(text.iter().all(|line| line.chars().count() <= width));
    text.join("\n")
}

fn typed(model: &mut Model, text: &str) -> Option<Wish> {
    let mut wish = None;
    for c in text.chars() {
        let key = match c {
            '\n' => Key::Enter,
            '\x1b' => Key::Esc,
            '\t' => Key::Tab,
            c => Key::Char(c),
        };
        wish = press(model, key);
    }
    wish
}

fn worker() -> Target {
    Target {
        root: "/town".into(),
        agent: "hello/worker-1".into(),
    }
}

#[test]
fn agents_fill_the_first_frame() {
    let expected = "\
supervisor pid 4021  up 2d4h  1/1 cities  1/3 agents up  tick 41ms  0.0 events/s
[1 agents] 2 actors  3 events   sort: name

 NAME            STATE        UP     RESTARTS  NOTE
>hello/worker-1  quarantined  -      5/5       until 14:32:10Z (41m); exit 1: n…
 planner         running      1h12m  1/5       pid 4121
 scout           suspended    -      0/5


Enter detail  / filter  s sort  p peek  a attach  n nudge  r restart  d drain  …";
    assert_eq!(drawn(&model(), 80, 10), expected);
}

#[test]
fn every_view_fits_a_small_terminal() {
    let mut model = model();
    for view in View::ALL {
        model.view = view;
        let text = drawn(&model, 60, 15);
        assert!(text.contains(&format!("{}]", view.name())), "{text}");
    }
    assert_eq!(frame(&model, 10, 3).len(), 1);
}

#[test]
fn actors_are_a_tree_or_sorted_by_their_mailboxes() {
    let mut model = model();
    typed(&mut model, "2");
    let text = drawn(&model, 80, 12);
    let first: Vec<&str> = text.lines().skip(4).take(2).collect();
    assert!(first[0].starts_with(">machine"), "{text}");
    assert!(first[1].contains("└─ town"), "{text}");
    typed(&mut model, "s");
    let text = drawn(&model, 80, 12);
    assert!(text.lines().nth(4).unwrap().contains("1200"), "{text}");
}

#[test]
fn events_come_newest_first_and_a_filter_narrows_them() {
    let mut model = model();
    typed(&mut model, "3");
    let text = drawn(&model, 80, 10);
    assert!(
        text.lines().nth(4).unwrap().contains("agent.crashed"),
        "{text}"
    );
    typed(&mut model, "/planner");
    let text = drawn(&model, 80, 10);
    assert!(
        text.contains("/planner_") && !text.contains("crashed"),
        "{text}"
    );
    // Esc while typing brings the filter before back, Esc afterwards clears it.
    typed(&mut model, "\n/x\x1b");
    assert_eq!(model.filter, "planner");
    typed(&mut model, "\x1b");
    assert_eq!(model.rows().len(), 2);
    typed(&mut model, "/nothing");
    assert!(drawn(&model, 80, 10).contains("no events fit"));
}

#[test]
fn what_changes_an_agent_is_asked_for_once_more() {
    for (key, act) in [('r', Act::Restart), ('d', Act::Drain), ('x', Act::Kill)] {
        let mut model = model();
        assert_eq!(typed(&mut model, &key.to_string()), None);
        let asks = format!("{} hello/worker-1? [y/N]", act.word());
        assert!(drawn(&model, 80, 10).contains(&asks));
        assert_eq!(typed(&mut model, "y"), Some(Wish::Do(worker(), act)));
        assert_eq!(typed(&mut model, &format!("{key}n")), None);
        assert_eq!(model.said.as_deref(), Some("nothing was done"));
    }
}

#[test]
fn keys_about_agents_reach_the_selected_one() {
    let mut model = model();
    assert_eq!(typed(&mut model, "p"), Some(Wish::Peek(worker())));
    assert_eq!(typed(&mut model, "a"), Some(Wish::Attach(worker())));
    let nudge = Wish::Nudge(worker(), "go on".into());
    assert_eq!(typed(&mut model, "ngo on\n"), Some(nudge));
    assert_eq!(typed(&mut model, "n\n"), None);
    typed(&mut model, "j");
    let planner = Target {
        agent: "planner".into(),
        ..worker()
    };
    assert_eq!(typed(&mut model, "p"), Some(Wish::Peek(planner.clone())));
    // Workers of the tree are agents as well, other actors are not.
    typed(&mut model, "2");
    assert_eq!(typed(&mut model, "p"), None);
    assert!(model.said.is_some());
    assert_eq!(typed(&mut model, "jjjp"), Some(Wish::Peek(planner)));
    assert_eq!(typed(&mut model, "q"), Some(Wish::Quit));
}

#[test]
fn details_and_help_are_pages_over_the_list() {
    let mut model = model();
    typed(&mut model, "\n");
    let text = drawn(&model, 80, 30);
    assert!(text.contains("exit 1: no such model"), "{text}");
    typed(&mut model, "jjj");
    assert_eq!(model.page.as_ref().unwrap().from, 3);
    typed(&mut model, "\x1b?");
    assert!(drawn(&model, 60, 15).contains("attach to its session"));
    typed(&mut model, "q");
    assert_eq!(model.page, None);
}

#[test]
fn a_frozen_screen_stands_still() {
    let mut model = model();
    typed(&mut model, " ");
    let mut news = look();
    news.views[0].instances.pop();
    model.take(news.clone());
    assert_eq!(model.rows().len(), 3);
    typed(&mut model, " ");
    model.selected = 2;
    model.take(news);
    assert_eq!((model.rows().len(), model.selected), (2, 1));
}

#[test]
fn a_banner_tells_that_the_supervisor_is_gone_until_it_is_back() {
    let mut model = model();
    model.gone = Some("supervisor is not running".into());
    let text = drawn(&model, 80, 10);
    assert!(text.contains("! supervisor is not running; trying again"));
    assert!(text.contains("planner"), "what was known stays: {text}");
    model.take(look());
    assert!(!drawn(&model, 80, 10).contains('!'));
}

#[test]
fn the_selected_row_is_always_to_be_seen() {
    let mut model = model();
    press(&mut model, Key::End);
    let text = drawn(&model, 60, 6);
    assert!(text.contains(">scout"), "{text}");
    press(&mut model, Key::Home);
    assert!(drawn(&model, 60, 6).contains(">hello/worker-1"));
}

#[test]
fn rows_of_several_cities_name_theirs() {
    let mut model = model();
    model.all = true;
    let text = drawn(&model, 100, 10);
    assert!(text.contains(" CITY  NAME"), "{text}");
    assert!(text.contains(">town  hello/worker-1"), "{text}");
}
