use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::mailbox::lock;
use crate::ports::{PortFuture, Shell, ShellError, ShellJob};

/// What a scripted line does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How long it takes.
    pub after: Duration,
    /// What it prints, or how it fails.
    pub result: Result<String, ShellError>,
}

/// A shell that answers from a script and keeps a log. A line without a script prints nothing.
#[derive(Debug, Default)]
pub struct MemoryShell {
    answers: Mutex<HashMap<String, Answer>>,
    calls: Mutex<Vec<(Instant, ShellJob)>>,
}

impl MemoryShell {
    /// What this line does from now on.
    pub fn script(&self, line: &str, answer: Answer) {
        lock(&self.answers).insert(line.to_owned(), answer);
    }

    /// From now on this line prints this at once.
    pub fn prints(&self, line: &str, text: &str) {
        let result = Ok(text.to_owned());
        self.script(
            line,
            Answer {
                after: Duration::ZERO,
                result,
            },
        );
    }

    /// Lines run so far, with their time.
    #[must_use]
    pub fn calls(&self) -> Vec<(Instant, ShellJob)> {
        lock(&self.calls).clone()
    }

    /// How often this line was run.
    #[must_use]
    pub fn count(&self, line: &str) -> usize {
        lock(&self.calls)
            .iter()
            .filter(|(_, job)| job.line == line)
            .count()
    }
}

impl Shell for MemoryShell {
    fn run(&self, job: ShellJob) -> PortFuture<'_, String, ShellError> {
        lock(&self.calls).push((Instant::now(), job.clone()));
        let silent = Answer {
            after: Duration::ZERO,
            result: Ok(String::new()),
        };
        let answer = lock(&self.answers)
            .get(&job.line)
            .cloned()
            .unwrap_or(silent);
        Box::pin(async move {
            if !answer.after.is_zero() {
                tokio::time::sleep(answer.after.min(job.limit)).await;
            }
            if answer.after >= job.limit && !job.limit.is_zero() {
                return Err(ShellError::TimedOut(job.limit));
            }
            answer.result
        })
    }
}
