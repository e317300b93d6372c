//! `gc init`: makes what is missing, changes nothing that is there.

use std::fs;

use crate::util::{Place, contents};

// C2
#[test]
fn an_existing_city_is_left_byte_for_byte() {
    let place = Place::new();
    let city = place.city("town", "# mine\n[workspace]\nname = \"mine\"\n");
    let before = contents(&place.path(""));
    let said = place.gc(&place.path(""), &["init", "town"]).fails(1);
    assert!(said.err.contains("is a city already"), "{said:?}");
    assert!(said.err.contains("hint: gc init town --force"), "{said:?}");
    let error = place.gc(&city, &["init", "--json"]).fails(1).json_error();
    assert_eq!(error["code"], "conflict");
    assert_eq!(contents(&place.path("")), before);
    let made = place.gc(&city, &["init", "--force", "--json"]).ok().json();
    assert_eq!(made["created"], serde_json::json!([".gc/"]));
    assert_eq!(made["name"], "mine");
    assert_eq!(
        fs::read_to_string(city.join("city.toml")).unwrap(),
        "# mine\n[workspace]\nname = \"mine\"\n"
    );
}

#[test]
fn every_template_is_a_city_that_starts() {
    let place = Place::new();
    let here = place.path("");
    let list = place.gc(&here, &["init", "--list", "--json"]).ok().json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(list["total"], items.len());
    for template in items {
        let name = template["name"].as_str().unwrap();
        place.gc(&here, &["init", name, "--template", name]).ok();
        place.gc(&here, &["start", name]).ok();
        place.gc(&here, &["stop", name]).ok();
    }
}

#[test]
fn a_command_of_ones_own_takes_the_place_of_the_demo_program() {
    let place = Place::new();
    let here = place.path("");
    place
        .gc(&here, &["init", "own", "--command", "sleep \"600\""])
        .ok();
    let city = place.path("own");
    place.gc(&city, &["start"]).ok();
    assert_eq!(place.instance(&city, "planner")["state"], "running");
    place.gc(&city, &["stop"]).ok();
}

#[test]
fn what_cannot_be_made_is_explained_and_leaves_nothing() {
    let place = Place::new();
    let here = place.path("");
    fs::write(place.path("file"), "").unwrap();
    fs::create_dir_all(place.path("odd/city.toml")).unwrap();
    let before = contents(&here);
    for (args, code, hint) in [
        (vec!["init", "bad name!"], 2, "--name bad-name"),
        (vec!["init", "x", "--name", "-"], 2, "--name my-city"),
        (vec!["init", "x", "--template", "dmeo"], 1, "demo"),
        (vec!["init", "x", "--command", " "], 2, "--command is empty"),
        (vec!["init", "file"], 1, "is not a directory"),
        (vec!["init", "odd"], 1, "move it away"),
        (vec!["init", "odd", "--force"], 1, "move it away"),
    ] {
        let said = place.gc(&here, &args).fails(code);
        assert!(said.err.contains(hint), "{args:?}: {said:?}");
    }
    assert_eq!(contents(&here), before);
}

#[test]
fn a_new_city_can_be_started_right_away() {
    let place = Place::new();
    let here = place.path("");
    let said = place.gc(&here, &["init", "fresh", "--start"]).ok();
    assert!(said.out.contains("created fresh"), "{said:?}");
    assert!(said.out.contains("fresh is up"), "{said:?}");
    let city = place.path("fresh");
    let json = place.gc(&here, &["init", "second", "--start", "--json"]);
    assert!(json.ok().json()["instances"].is_array());
    place.gc(&city, &["supervisor", "stop"]).ok();
    let provider = ["init", "third", "--provider", "claude"];
    place.gc(&here, &provider).ok();
    let toml = std::fs::read_to_string(place.path("third").join("city.toml")).unwrap();
    assert!(toml.contains("provider = \"claude\""), "{toml}");
    let both = ["init", "fourth", "--provider", "claude", "--command", "x"];
    place.gc(&here, &both).fails(2);
}

#[test]
fn a_city_is_made_like_another_or_from_a_file() {
    let place = Place::new();
    let here = place.path("");
    let text = "# mine\n[workspace]\nname = \"one\" # named\n[[agent]]\nname = \"a\"\nstart_command = \"sh -c 'exec sleep 600'\"\nprompt_template = \"prompts/a.md\"\n";
    let one = place.city("one", text);
    fs::create_dir_all(one.join("prompts")).unwrap();
    fs::write(one.join("prompts/a.md"), "hello").unwrap();
    std::os::unix::fs::symlink("prompts/a.md", one.join("link")).unwrap();
    fs::create_dir_all(one.join(".gc")).unwrap();
    fs::write(one.join(".gc/secret"), "state").unwrap();
    let before = contents(&one);
    let made = place
        .gc(&here, &["init", "two", "--from", "one", "--json"])
        .ok()
        .json();
    assert_eq!(made["from"], "one");
    let two = place.path("two");
    let read = |path: &str| fs::read_to_string(place.path(path)).unwrap();
    assert_eq!(read("two/city.toml"), text.replace("\"one\"", "\"two\""));
    assert_eq!(read("two/prompts/a.md"), "hello");
    assert!(fs::symlink_metadata(two.join("link")).unwrap().is_symlink());
    assert!(!two.join(".gc/secret").exists());
    assert_eq!(contents(&one), before);
    place.gc(&two, &["start"]).ok();
    assert_eq!(place.instance(&two, "a")["state"], "running");
    place.gc(&two, &["stop"]).ok();

    let file = ["init", "three", "--file", "one/city.toml", "--name", "drei"];
    place.gc(&here, &file).ok();
    assert_eq!(read("three/city.toml"), text.replace("\"one\"", "\"drei\""));
    fs::write(place.path("broken"), "[workspace").unwrap();
    let kept = contents(&here);
    for (args, code, said) in [
        (["init", "x", "--from", "nowhere"], 1, "nowhere"),
        (["init", "one/x", "--from", "one"], 2, "lies in"),
        (["init", "x", "--file", "none"], 1, "there is no none"),
        (["init", "x", "--file", "broken"], 1, "is no config"),
        (["init", "two", "--from", "one"], 1, "is a city already"),
    ] {
        let error = place.gc(&here, &args).fails(code);
        assert!(error.err.contains(said), "{args:?}: {error:?}");
    }
    let both = ["init", "x", "--from", "one", "--template", "solo"];
    place.gc(&here, &both).fails(2);
    assert_eq!(contents(&here), kept);
}
