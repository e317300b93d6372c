//! Names and ids. Each is a cheap clone of one shared string.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::template::Template;

/// A name that breaks the grammar of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {text:?}: {rule}")]
pub struct NameError {
    /// What the name was for.
    pub kind: &'static str,
    /// The offending text.
    pub text: String,
    /// The rule it breaks, as a fragment of a sentence.
    pub rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the grammar of the kind.
            ///
            /// # Errors
            /// [`NameError`] names the rule that `text` breaks.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError { kind: $kind, text: text.to_owned(), rule: $rule })
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

fn starts_alphanumeric(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric())
}

fn all_of(text: &str, extra: &[u8]) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || extra.contains(&b))
}

/// One `/`-separated part of a qualified agent name.
fn is_agent_part(text: &str) -> bool {
    starts_alphanumeric(text) && text.len() <= 63 && all_of(text, b"_-") && !text.contains("--")
}

name!(
    /// A city, unique in its registry ignoring ASCII case.
    CityName,
    "city name",
    "1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter or digit",
    |text| starts_alphanumeric(text) && text.len() <= 64 && all_of(text, b"._-")
);

name!(
    /// The qualified name of an agent template or of one instance of it: `dir/name` or `name`.
    AgentName,
    "agent name",
    "`/`-separated parts of 1 to 63 letters, digits, `_` or `-` without `--`, each starting with a letter or digit",
    |text| text.split('/').all(is_agent_part)
);

name!(
    /// The provider's name for the container of a run; equal for all runs of an instance.
    SessionName,
    "session name",
    "1 to 128 letters, digits, `_` or `-`, not starting with `_gc`",
    |text| (1..=128).contains(&text.len()) && all_of(text, b"_-") && !text.starts_with("_gc")
);

name!(
    /// The random id of one run (`GC_SESSION_ID`). Whatever concerns a run carries it.
    RunToken,
    "run token",
    "1 to 64 letters, digits or `-`",
    |text| (1..=64).contains(&text.len()) && all_of(text, b"-")
);

impl AgentName {
    /// The name with a number behind it, as instances of a pool have it.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Self {
        Self(format!("{}-{number}", self.0).into())
    }
}

impl SessionName {
    /// The session of an instance under the default `session_template`, `{{.Agent}}`.
    #[must_use]
    pub fn of(agent: &AgentName) -> Self {
        Self(agent.as_str().replace('/', "--").into())
    }

    /// The session of an instance under another template. It may break the grammar, so a load
    /// checks it with [`SessionName::new`].
    #[must_use]
    pub fn made(template: &Template, city: &str, agent: &AgentName) -> Self {
        let (dir, name) = agent
            .as_str()
            .rsplit_once('/')
            .unwrap_or(("", agent.as_str()));
        let text = template.render(|variable| match variable {
            "Agent" => Some(agent.as_str().replace('/', "--").into()),
            "City" => Some(city.into()),
            "Dir" => Some(dir.replace('/', "--").into()),
            "Name" => Some(name.into()),
            _ => None,
        });
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        Self(
            text.chars()
                .map(|c| if plain(c) { c } else { '_' })
                .collect::<String>()
                .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names_follow_the_grammar() {
        for good in ["a", "db", "rig/api-2", "A_1/x"] {
            assert!(AgentName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a--b", "a/", "/a", "a b", "ä", &"x".repeat(64)] {
            assert!(AgentName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn city_and_session_names_follow_their_own_grammars() {
        assert!(CityName::new("bright.lights-2").is_ok());
        assert!(CityName::new(".hidden").is_err());
        assert!(SessionName::new("_gc").is_err());
        assert!(SessionName::new("a.b").is_err());
    }

    #[test]
    fn a_session_is_named_after_its_agent() {
        let agent = AgentName::new("rig/api-2").expect("valid");
        assert_eq!(SessionName::of(&agent).as_str(), "rig--api-2");
    }

    #[test]
    fn names_keep_their_grammar_through_serde() {
        assert!(serde_json::from_str::<AgentName>("\"a b\"").is_err());
        let name: AgentName = serde_json::from_str("\"rig/w\"").expect("valid");
        assert_eq!(serde_json::to_string(&name).expect("text"), "\"rig/w\"");
    }
}
