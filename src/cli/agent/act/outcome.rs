//! What became of a command to several agents.

use serde_json::{Value, json};

use crate::cli::agent::roster::{Source, Unknown};
use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code};
use crate::cli::output::Mark;
use crate::cli::values::count;
use crate::model::{AgentName, AgentState};

/// How it went for one name.
#[derive(Debug)]
pub(in crate::cli::agent) struct Outcome {
    /// Whom it was about, or the name that stands for nobody.
    name: String,
    /// The agent there is, and its state before.
    pub(super) agent: Option<(AgentName, AgentState)>,
    /// State and what was done, or why not.
    pub(super) done: CliResult<(AgentState, String)>,
}

impl Outcome {
    /// For an agent that was in state `before`.
    pub(in crate::cli::agent) fn of(
        agent: &AgentName,
        before: AgentState,
        done: CliResult<(AgentState, String)>,
    ) -> Self {
        Self {
            name: agent.to_string(),
            agent: Some((agent.clone(), before)),
            done,
        }
    }

    /// For a name that fits nobody.
    pub(in crate::cli::agent) fn nobody(unknown: Unknown) -> Self {
        Self {
            name: unknown.asked,
            agent: None,
            done: Err(unknown.error),
        }
    }

    fn json(&self) -> Value {
        let mut item = json!({"name": self.name, "ok": self.done.is_ok()});
        match (&self.done, &self.agent) {
            (Ok((state, detail)), _) => {
                item["state"] = json!(state);
                item["detail"] = json!(detail);
            }
            (Err(_), Some((_, before))) => item["state"] = json!(before),
            (Err(_), None) => {}
        }
        if let Err(error) = &self.done {
            item["error"] = json!(error.message);
            item["code"] = json!(error.code.as_str());
        }
        item
    }
}

/// Tells how it went. Nobody to do it to is no failure.
///
/// # Errors
/// The failure, or how many there were.
pub(in crate::cli::agent) fn finish(
    context: &Context,
    source: &Source,
    verb: &str,
    outcomes: Vec<Outcome>,
) -> CliResult<u8> {
    if context.out.json {
        let items: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
        let document = json!({"items": items, "total": items.len(), "source": source.word()});
        context.out.document(&document)?;
    } else if outcomes.is_empty() {
        context.out.note("no agents");
    }
    for outcome in &outcomes {
        if let Ok((_, detail)) = &outcome.done {
            let text = format!("{}: {detail}", outcome.name);
            context.out.report(Mark::Done, text)?;
        }
    }
    match failure(verb, outcomes) {
        Some(error) => Err(error),
        None => Ok(0),
    }
}

/// One failure of one is itself; among several it is counted and named.
fn failure(verb: &str, mut outcomes: Vec<Outcome>) -> Option<CliError> {
    let all = outcomes.len();
    outcomes.retain(|outcome| outcome.done.is_err());
    let errors: Vec<(String, CliError)> = outcomes
        .into_iter()
        .filter_map(|outcome| Some((outcome.name, outcome.done.err()?)))
        .collect();
    let (_, first) = errors.first()?;
    if all == 1 {
        return Some(first.clone());
    }
    let same = errors.iter().all(|(_, error)| error.code == first.code);
    let code = if same { first.code } else { Code::Failed };
    let message = format!(
        "{verb} failed for {} of {}",
        errors.len(),
        count(all, "agent")
    );
    let mut failure = CliError::new(code, message);
    failure.hint = errors.iter().find_map(|(_, error)| error.hint.clone());
    for (name, error) in &errors {
        failure = match error.message.contains(name) {
            true => failure.cause(&error.message),
            false => failure.cause(format!("{name}: {}", error.message)),
        };
    }
    Some(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(agent: &str, error: Option<(Code, &str)>) -> Outcome {
        let done = match error {
            None => Ok((AgentState::Running, "restarted".to_owned())),
            Some((code, message)) => Err(CliError::new(code, message)),
        };
        Outcome::of(&AgentName::new(agent).unwrap(), AgentState::Backoff, done)
    }

    #[test]
    fn one_failure_of_one_is_itself_and_several_are_counted() {
        let conflict = Some((Code::Conflict, "a is quarantined"));
        let alone = failure("restart", vec![outcome("a", conflict)]).unwrap();
        assert_eq!(
            (alone.code, alone.message.as_str()),
            (Code::Conflict, "a is quarantined")
        );
        let nobody = Outcome::nobody(Unknown {
            asked: "x".into(),
            error: CliError::new(Code::NotFound, "no agent \"x\""),
        });
        let late = outcome("c", Some((Code::Timeout, "it took too long")));
        let all = vec![outcome("a", conflict), outcome("b", None), nobody, late];
        let several = failure("restart", all).unwrap();
        assert_eq!(several.code, Code::Failed);
        assert_eq!(several.message, "restart failed for 3 of 4 agents");
        let causes = ["a is quarantined", "no agent \"x\"", "c: it took too long"];
        assert_eq!(several.causes, causes);
        assert_eq!(failure("restart", vec![outcome("a", None)]), None);
    }

    #[test]
    fn each_name_is_an_item() {
        let item = outcome("a", None).json();
        assert_eq!(
            item,
            json!({"name": "a", "ok": true, "state": "running", "detail": "restarted"})
        );
        let item = outcome("a", Some((Code::Conflict, "no"))).json();
        let failed = json!({
            "name": "a", "ok": false, "state": "backoff", "error": "no", "code": "conflict"
        });
        assert_eq!(item, failed);
    }
}
