//! Suspending and resuming, of agents and of cities.

use super::{QUIET, refusal, sleeper, up};
use crate::util::{Place, events, eventually, is_alive};

#[test]
fn agents_and_cities_are_suspended_and_resumed_in_the_file() {
    let place = Place::new();
    let toml = format!("{QUIET}# kept\n{}{}", sleeper("a"), sleeper("b"));
    let city = up(&place, &toml);
    let pid = place.pid(&city, "a").unwrap();
    place
        .gc(
            &city,
            &["agent", "suspend", "a", "--reason", "model is down"],
        )
        .ok();
    eventually("the stop", || (!is_alive(pid)).then_some(()));
    eventually("the state", || {
        (place.instance(&city, "a")["state"] == "suspended").then_some(())
    });
    let file = std::fs::read_to_string(city.join("city.toml")).unwrap();
    assert!(
        file.contains("suspended = true") && file.contains("# kept"),
        "{file}"
    );
    let noted = events(&city);
    let noted = noted
        .iter()
        .find(|event| event["type"] == "agent.state")
        .unwrap();
    assert_eq!(noted["payload"]["reason"], "model is down");
    assert_eq!(noted["actor"], "human");
    let again = place.gc(&city, &["agent", "suspend", "a"]).ok().out;
    assert!(again.contains("suspended already"), "{again}");
    let error = refusal(&place, &city, &["agent", "restart", "a"], 1);
    assert_eq!(error["hint"], "gc agent resume a");
    let said = place
        .gc(&city, &["agent", "resume", "a", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&said["items"][0]["ok"], &said["source"]),
        (&true.into(), &"live".into())
    );
    eventually("the start", || {
        place.pid(&city, "a").filter(|pid| is_alive(*pid))
    });
    assert_eq!(
        std::fs::read_to_string(city.join("city.toml")).unwrap(),
        toml
    );
    // The whole city.
    let said = place.gc(&city, &["suspend", "--json"]).ok().json();
    assert_eq!(
        (&said["suspended"], &said["changed"]),
        (&true.into(), &true.into())
    );
    eventually("silence", || {
        ["a", "b"]
            .iter()
            .all(|agent| place.pid(&city, agent).is_none())
            .then_some(())
    });
    let shown = place.gc(&city, &["agent", "show", "b"]).ok().out;
    assert!(
        shown.starts_with("b: suspended: the city is suspended; gc resume\n"),
        "{shown}"
    );
    let again = place.gc(&city, &["suspend", "--json"]).ok().json();
    assert_eq!(again["changed"], false);
    place.gc(&city, &["resume"]).ok();
    eventually("both", || place.pid(&city, "a").zip(place.pid(&city, "b")));
    let name = refusal(&place, &city, &["agent", "suspend", "zzz"], 1);
    assert_eq!(name["code"], "not_found");
    place.gc(&city, &["stop"]).ok();
}
