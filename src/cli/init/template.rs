//! The cities `gc init` knows how to make.

use std::fmt::Write as _;
use std::path::Path;

use super::words;
use crate::cli::{CliError, CliResult, Code};
use crate::model::CityName;

/// A city to start from. Data: the text lies in `src/templates/`.
#[derive(Debug)]
pub(super) struct Template {
    /// What it is called.
    pub(super) name: &'static str,
    /// What is in it, in one line.
    pub(super) about: &'static str,
    /// `city.toml` with `@NAME@` for the quoted name of the city, and a line `@RUN@` wherever
    /// something says what is run.
    text: &'static str,
    /// What stands for `@RUN@` unless a command is given; nothing removes the line.
    run: &'static str,
}

/// What agents run in place of what the template says.
#[derive(Debug, Clone, Copy)]
pub(super) enum Runs<'a> {
    Command(&'a str),
    Provider(&'a str),
}

/// All templates; the first is the default.
pub(super) const TEMPLATES: &[Template] = &[
    Template {
        name: "demo",
        about: "two agents on the built-in demo program; needs nothing but gc",
        text: include_str!("../../templates/demo/city.toml"),
        run: "provider = \"demo\"",
    },
    Template {
        name: "solo",
        about: "one agent",
        text: include_str!("../../templates/solo/city.toml"),
        run: "provider = \"demo\"",
    },
    Template {
        name: "team",
        about: "a lead, and up to four helpers as they are needed",
        text: include_str!("../../templates/team/city.toml"),
        run: "provider = \"demo\"",
    },
    Template {
        name: "empty",
        about: "no agents yet",
        text: include_str!("../../templates/empty/city.toml"),
        run: "",
    },
];

/// The template of that name, for a city at the path that was typed.
///
/// # Errors
/// `not_found` with the nearest name, or all of them.
pub(super) fn find(name: &str, typed: &Path) -> CliResult<&'static Template> {
    let found = TEMPLATES.iter().find(|template| template.name == name);
    found.ok_or_else(|| {
        let error = CliError::new(Code::NotFound, format!("no template {name:?}"));
        match nearest(name) {
            Some(near) => error.cause(format!("did you mean {near:?}?")).hint(words(&[
                "gc",
                "init",
                &typed.to_string_lossy(),
                "--template",
                near,
            ])),
            None => error
                .cause(format!(
                    "there is: {}",
                    names().collect::<Vec<_>>().join(", ")
                ))
                .hint("gc init --list"),
        }
    })
}

fn names() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().map(|template| template.name)
}

fn nearest(name: &str) -> Option<&'static str> {
    let limit = (name.chars().count() / 3).max(1);
    names()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, known)| known)
}

impl Template {
    /// The `city.toml` of a city of this name, with what its agents run, if that is given.
    pub(super) fn render(&self, name: &CityName, runs: Option<Runs<'_>>) -> String {
        let run = match runs {
            Some(Runs::Command(command)) => format!("start_command = {}", quoted(command)),
            Some(Runs::Provider(provider)) => format!("provider = {}", quoted(provider)),
            None => self.run.to_owned(),
        };
        let name = quoted(name.as_str());
        // Line by line, so that nothing in a name or a command is taken for a placeholder.
        let mut text = String::with_capacity(self.text.len());
        for line in self.text.lines() {
            let _ = match line {
                "@RUN@" if run.is_empty() => Ok(()),
                "@RUN@" => writeln!(text, "{run}"),
                line => writeln!(text, "{}", line.replace("@NAME@", &name)),
            }; // writing to a string cannot fail
        }
        text
    }
}

/// The text as a TOML string.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::{Table, Value};

    use super::*;

    fn rendered(template: &str, command: Option<&str>) -> Table {
        let name = CityName::new("my-city").unwrap();
        let text = find(template, Path::new("."))
            .unwrap()
            .render(&name, command.map(Runs::Command));
        assert!(!text.contains('@'), "{text}");
        text.parse().unwrap_or_else(|error| panic!("{text}{error}"))
    }

    /// The value of `key` in each agent, empty where there is none.
    fn of_agents<'a>(city: &'a Table, key: &str) -> Vec<&'a str> {
        let agents = city["agent"].as_array().unwrap().iter();
        agents
            .map(|agent| agent.get(key).and_then(Value::as_str).unwrap_or(""))
            .collect()
    }

    #[test]
    fn the_demo_runs_two_agents_of_the_built_in_program() {
        let city = rendered("demo", None);
        assert_eq!(city["workspace"]["name"].as_str(), Some("my-city"));
        assert_eq!(city["session"]["provider"].as_str(), Some("subprocess"));
        assert_eq!(of_agents(&city, "name"), ["planner", "scout"]);
        assert_eq!(of_agents(&city, "provider"), ["demo", "demo"]);
    }

    #[test]
    fn the_empty_city_has_a_name_only() {
        let city = rendered("empty", None);
        assert_eq!(city.len(), 1);
        assert_eq!(city["workspace"].as_table().unwrap().len(), 1);
        assert_eq!(city["workspace"]["name"].as_str(), Some("my-city"));
    }

    #[test]
    fn a_command_takes_the_place_of_the_built_in_program() {
        let city = rendered("demo", Some("my-agent --go"));
        assert_eq!(of_agents(&city, "provider"), ["", ""]);
        assert_eq!(
            of_agents(&city, "start_command"),
            ["my-agent --go", "my-agent --go"]
        );
        let city = rendered("empty", Some("my-agent"));
        assert_eq!(
            city["workspace"]["start_command"].as_str(),
            Some("my-agent")
        );
    }

    #[test]
    fn a_provider_takes_its_place_too() {
        let name = CityName::new("c").unwrap();
        let text = TEMPLATES[0].render(&name, Some(Runs::Provider("claude")));
        let city: Table = text.parse().unwrap();
        assert_eq!(of_agents(&city, "provider"), ["claude", "claude"]);
    }

    #[test]
    fn an_unknown_template_names_the_nearest_or_all() {
        let near = find("dmeo", Path::new("my city")).unwrap_err();
        assert_eq!(near.code, Code::NotFound);
        assert_eq!(near.causes, ["did you mean \"demo\"?"]);
        assert_eq!(
            near.hint.as_deref(),
            Some("gc init 'my city' --template demo")
        );
        let far = find("metropolis", Path::new(".")).unwrap_err();
        assert_eq!(far.causes, ["there is: demo, solo, team, empty"]);
    }

    proptest! {
        #[test]
        fn any_command_survives_quoting(command in "[ -~\n\t\"'\\\\é@]{0,40}") {
            let name = CityName::new("c").unwrap();
            let text = TEMPLATES[0].render(&name, Some(Runs::Command(&command)));
            let city: Table = text.parse().unwrap();
            let agents = city["agent"].as_array().unwrap();
            prop_assert_eq!(agents[1]["start_command"].as_str(), Some(command.as_str()));
        }
    }
}
