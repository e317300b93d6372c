//! What fake agents do, from a file: `GC_FAKE_SCRIPT`.

use std::path::Path;
use std::time::Duration;

use gascity_actors::memory::{Behaviour, Fault, MemorySessions, Times};
use gascity_actors::model::{ExitStatus, FailureClass, StartFailure};
use gascity_actors::ports::SessionError;
use serde::{Deserialize, Deserializer, de};

use crate::config::duration;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(default)]
    agent: Vec<Agent>,
    #[serde(default)]
    fault: Vec<FaultRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    #[serde(rename = "match", default = "everybody")]
    pattern: String,
    #[serde(default)]
    start_after: Time,
    #[serde(default)]
    result: Outcome,
    ready_after: Option<Time>,
    #[serde(default)]
    output: Vec<(Time, String)>,
    #[serde(default)]
    exits: Vec<(Time, Status)>,
    #[serde(default)]
    ignore_interrupt: bool,
    #[serde(default)]
    process_names: Vec<String>,
    #[serde(default)]
    attached: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultRule {
    op: String,
    #[serde(rename = "match", default = "everybody")]
    pattern: String,
    fail: Option<String>,
    delay: Option<Time>,
    #[serde(default)]
    hang: bool,
    times: Option<u32>,
    chance: Option<u32>,
    #[serde(default)]
    seed: u64,
}

fn everybody() -> String {
    "*".to_owned()
}

/// Calls that can go wrong.
const OPS: [&str; 12] = [
    "start",
    "stop",
    "interrupt",
    "snapshot",
    "liveness",
    "process_alive",
    "clear_scrollback",
    "peek",
    "set_note",
    "nudge",
    "send_keys",
    "copy_to",
];

#[derive(Debug, Clone, Copy, Default)]
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let time = duration::parse(&text);
        time.map(Self)
            .map_err(|why| de::Error::custom(format!("{text:?}: {why}")))
    }
}

/// A code, or `"signal 9"`.
#[derive(Debug, Clone, Copy)]
struct Status(ExitStatus);

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Code(i32),
            Word(String),
        }
        let word = match Raw::deserialize(from)? {
            Raw::Code(code) => return Ok(Self(ExitStatus::Code(code))),
            Raw::Word(word) => word,
        };
        let signal = word.strip_prefix("signal ").map(str::parse);
        match (word.as_str(), signal) {
            (_, Some(Ok(signal))) => Ok(Self(ExitStatus::Signal(signal))),
            ("unknown", _) => Ok(Self(ExitStatus::Unknown)),
            _ => Err(de::Error::custom(format!(
                "{word:?} is no way to end: a code, \"signal 9\" or \"unknown\""
            ))),
        }
    }
}

/// `"ok"`, or whose fault it is that there is none and why: `"agent: no such file"`.
#[derive(Debug, Clone, Default)]
struct Outcome(Option<StartFailure>);

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "ok" {
            return Ok(Self(None));
        }
        let (class, detail) = match text.split_once(": ") {
            Some(("agent", detail)) => (FailureClass::Agent, detail),
            Some(("provider", detail)) => (FailureClass::Provider, detail),
            _ => {
                return Err(de::Error::custom(format!(
                    "{text:?}: a result is \"ok\", \"agent: <why>\" or \"provider: <why>\""
                )));
            }
        };
        Ok(Self(Some(StartFailure::new(
            "start",
            class,
            detail.to_owned(),
        ))))
    }
}

impl Script {
    /// Reads a script. The error is for a person.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |why: String| format!("GC_FAKE_SCRIPT {}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let script: Self = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        for rule in &script.fault {
            rule.fault().map_err(failed)?;
        }
        Ok(script)
    }

    pub(super) fn apply(self, sessions: &MemorySessions) {
        for agent in self.agent {
            let behaviour = Behaviour {
                start_after: agent.start_after.0,
                start_fails: agent.result.0,
                ready_after: agent.ready_after.map(|time| time.0),
                says: agent
                    .output
                    .into_iter()
                    .map(|(t, text)| (t.0, text))
                    .collect(),
                exits_in_turn: agent.exits.into_iter().map(|(t, s)| (t.0, s.0)).collect(),
                ignores_interrupt: agent.ignore_interrupt,
                processes: agent.process_names,
                attached: agent.attached,
                ..Behaviour::default()
            };
            sessions.script(&agent.pattern, behaviour);
        }
        for rule in self.fault {
            if let Ok(fault) = rule.fault() {
                let times = match (rule.times, rule.chance) {
                    (Some(times), _) => Times::Next(times),
                    (_, Some(percent)) => Times::Chance {
                        percent,
                        seed: rule.seed,
                    },
                    _ => Times::Always,
                };
                sessions.fault(&rule.op, &rule.pattern, fault, times);
            }
        }
    }
}

impl FaultRule {
    fn fault(&self) -> Result<Fault, String> {
        if !OPS.contains(&self.op.as_str()) {
            let (op, ops) = (&self.op, OPS.join(", "));
            return Err(format!("there is no op {op:?}; there are {ops}"));
        }
        match (&self.fail, self.delay, self.hang) {
            (Some(why), None, false) => Ok(Fault::Fail(SessionError::Backend(why.clone()))),
            (None, Some(by), false) => Ok(Fault::Delay(by.0)),
            (None, None, true) => Ok(Fault::Hang),
            _ => Err("a fault is one of fail = \"<why>\", delay = \"1s\" and hang = true".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Script, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script.toml");
        std::fs::write(&path, text).unwrap();
        Script::read(&path)
    }

    #[test]
    fn a_script_says_what_agents_do_and_what_goes_wrong() {
        let script = read(
            "[[agent]]\nmatch = 'w*'\nstart_after = '10ms'\nready_after = '1s'\n\
             output = [['0s', 'hello'], ['2s', 'more']]\nexits = [['5s', 1], ['1m', 'signal 9']]\n\
             ignore_interrupt = true\nprocess_names = ['node']\nattached = true\n\
             [[agent]]\nmatch = 'bad'\nresult = 'agent: no such file'\n\
             [[fault]]\nop = 'peek'\ndelay = '3s'\n\
             [[fault]]\nop = 'stop'\nfail = 'down'\nchance = 10\nseed = 3\n",
        );
        let script = script.unwrap();
        assert_eq!(script.agent[0].exits[1].1.0, ExitStatus::Signal(9));
        assert_eq!(script.agent[0].output[1].0.0, Duration::from_secs(2));
        let failure = script.agent[1].result.0.as_ref().unwrap();
        assert_eq!(failure.class, FailureClass::Agent);
        assert_eq!(script.fault.len(), 2);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (text, why) in [
            ("[[agent]]\nexits = [['5s', 'gone']]", "is no way to end"),
            ("[[agent]]\nstart_after = 'soon'", "soon"),
            ("[[agent]]\nresult = 'maybe'", "a result is"),
            ("[[agent]]\nspeed = 3", "unknown field"),
            ("[[fault]]\nop = 'dance'\nhang = true", "there is no op"),
            ("[[fault]]\nop = 'stop'", "a fault is one of"),
            ("nonsense", "line 1"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.starts_with("GC_FAKE_SCRIPT "), "{error}");
        }
        let missing = Script::read(Path::new("/nonexistent.toml")).unwrap_err();
        assert!(missing.contains("/nonexistent.toml"), "{missing}");
    }
}
