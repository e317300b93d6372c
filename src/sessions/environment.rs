//! The environment of an agent, built from nothing (sessions.md 4).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::glob::fits;

/// Variables handed on from the supervisor's own environment unless configured otherwise.
pub const DEFAULT_PASSTHROUGH: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_*",
    "TERM",
    "TMPDIR",
    "TZ",
    "SSH_AUTH_SOCK",
    "XDG_*",
];

/// Where programs are looked for if nobody set a `PATH`.
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A `${NAME}` without a value and without a default.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("variable {name} is not set (used in env {used_in})")]
pub(crate) struct Unset {
    /// The variable that is missing.
    pub(crate) name: String,
    /// The entry that needs it.
    pub(crate) used_in: String,
}

/// A ready environment.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// The supervisor's own environment, as far as agents may see it.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    all: Environment,
    inherited: Environment,
}

impl Runner {
    /// Keeps from `vars` what matches one of the `globs` for agents to inherit, and the rest
    /// for `${NAME}` to refer to.
    pub(crate) fn new(
        vars: impl IntoIterator<Item = (OsString, OsString)>,
        globs: &[String],
    ) -> Self {
        let runner = Self {
            all: vars.into_iter().collect(),
            inherited: Environment::new(),
        };
        runner.with(globs)
    }

    /// The same, with other `globs`.
    pub(crate) fn with(&self, globs: &[String]) -> Self {
        let inherited = self.all.iter();
        let inherited = inherited.filter(|(name, _)| matches_any(globs, name));
        Self {
            inherited: inherited
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            all: self.all.clone(),
        }
    }

    /// What agents inherit.
    pub(crate) fn inherited(&self) -> &Environment {
        &self.inherited
    }

    /// Inherited variables, then `configured` ones (expanded), then `injected` ones, which
    /// nothing overrides. `bin` is put in front of `PATH`.
    pub(crate) fn environment(
        &self,
        configured: &BTreeMap<String, String>,
        injected: impl IntoIterator<Item = (&'static str, OsString)>,
        bin: &OsStr,
    ) -> Result<Environment, Unset> {
        self.environment_with(&[], configured, injected, bin)
    }

    /// The same with more `globs` of variables to inherit.
    pub(crate) fn environment_with(
        &self,
        globs: &[String],
        configured: &BTreeMap<String, String>,
        injected: impl IntoIterator<Item = (&'static str, OsString)>,
        bin: &OsStr,
    ) -> Result<Environment, Unset> {
        let mut env = self.inherited.clone();
        if !globs.is_empty() {
            let also = self.all.iter().filter(|(name, _)| matches_any(globs, name));
            env.extend(also.map(|(name, value)| (name.clone(), value.clone())));
        }
        for (name, value) in configured {
            let value = self.expand(value).map_err(|missing| Unset {
                name: missing,
                used_in: name.clone(),
            })?;
            env.insert(name.into(), value);
        }
        for (name, value) in injected {
            env.insert(name.into(), value);
        }
        let mut path = bin.to_owned();
        path.push(":");
        path.push(
            env.get(OsStr::new("PATH"))
                .map_or(OsStr::new(FALLBACK_PATH), |p| p),
        );
        env.insert("PATH".into(), path);
        Ok(env)
    }

    /// Expands `${NAME}`, `${NAME:-default}` and `$$`; anything else is literal. The error is
    /// the name that has no value.
    fn expand(&self, text: &str) -> Result<OsString, String> {
        let mut out = OsString::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push("$");
                rest = after;
            } else if let Some((inner, after)) = braced(rest) {
                out.push(self.value_of(inner)?);
                rest = after;
            } else {
                out.push("$");
            }
        }
        out.push(rest);
        Ok(out)
    }

    fn value_of(&self, inner: &str) -> Result<OsString, String> {
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        match (self.all.get(OsStr::new(name)), default) {
            (Some(value), Some(default)) if value.is_empty() => Ok(default.into()),
            (Some(value), _) => Ok(value.clone()),
            (None, Some(default)) => Ok(default.into()),
            (None, None) => Err(name.to_owned()),
        }
    }
}

fn matches_any(globs: &[String], name: &OsStr) -> bool {
    let name = name.as_bytes();
    globs.iter().any(|glob| fits(glob.as_bytes(), name))
}

/// Splits `{inner}rest`.
fn braced(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('{')?.split_once('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(globs: &[&str]) -> Runner {
        let vars = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("SECRET", "s"),
            ("EMPTY", ""),
        ];
        let globs: Vec<String> = globs.iter().map(ToString::to_string).collect();
        Runner::new(vars.map(|(k, v)| (k.into(), v.into())), &globs)
    }

    #[test]
    fn values_expand_from_the_runners_environment() {
        let runner = runner(&[]);
        let cases = [
            ("${SECRET}!", Ok("s!")),
            ("${NONE:-x y}", Ok("x y")),
            ("${EMPTY:-d}${EMPTY}", Ok("d")),
            ("$$HOME $ {a} ${", Ok("$HOME $ {a} ${")),
            ("a${NONE}", Err("NONE")),
        ];
        for (text, want) in cases {
            let want = want.map(OsString::from).map_err(String::from);
            assert_eq!(runner.expand(text), want, "{text}");
        }
    }

    #[test]
    fn only_listed_variables_are_inherited_and_injected_ones_win() {
        let runner = runner(&["LC_*", "P?TH"]);
        let configured = BTreeMap::from([
            ("GC_CITY".to_owned(), "mine".to_owned()),
            ("X".to_owned(), "${SECRET}".to_owned()),
        ]);
        let env = runner
            .environment(
                &configured,
                [("GC_CITY", "/c".into())],
                OsStr::new("/c/bin"),
            )
            .unwrap();
        let want = [
            ("GC_CITY", "/c"),
            ("LC_ALL", "C"),
            ("PATH", "/c/bin:/bin"),
            ("X", "s"),
        ];
        assert_eq!(env, want.map(|(k, v)| (k.into(), v.into())).into());
    }

    #[test]
    fn a_missing_variable_is_named() {
        let configured = BTreeMap::from([("KEY".to_owned(), "${TOKEN}".to_owned())]);
        let error = runner(&[]).environment(&configured, [], OsStr::new("/b"));
        assert_eq!(
            error.unwrap_err().to_string(),
            "variable TOKEN is not set (used in env KEY)"
        );
    }
}
