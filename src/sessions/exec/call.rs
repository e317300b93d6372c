//! One call of the script.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use gascity_actors::model::{ExitStatus, SessionName};
use gascity_actors::ports::{AttachPlan, Key, SessionError};

use super::{ExecConfig, Inner, backend, lock};
use crate::sessions::environment::Environment;
use crate::shell::Program;

/// How much of what the script prints is kept.
const OUTPUT: usize = 4 << 20;

/// How much of the end of its complaints is kept.
const COMPLAINTS: usize = 64 << 10;

/// The exit code for an op the script does not know.
const UNKNOWN: i32 = 2;

/// What the script is asked to do.
#[derive(Debug)]
pub(super) enum Op<'a> {
    /// With the JSON of the run.
    Start(&'a SessionName, Vec<u8>),
    Stop(&'a SessionName),
    Interrupt(&'a SessionName),
    IsRunning(&'a SessionName),
    ListRunning,
    ProcessAlive(&'a SessionName, Vec<String>),
    Peek(&'a SessionName, u32),
    Nudge(&'a SessionName, String),
    SendKeys(&'a SessionName, &'a [Key]),
    SetMeta(&'a SessionName, &'a str, String),
    GetMeta(&'a SessionName, &'a str),
    RemoveMeta(&'a SessionName, &'a str),
    LastActivity(&'a SessionName),
    ClearScrollback(&'a SessionName),
    CopyTo(&'a SessionName, &'a str, &'a str),
}

impl Op<'_> {
    /// As the script knows it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Start(..) => "start",
            Self::Stop(_) => "stop",
            Self::Interrupt(_) => "interrupt",
            Self::IsRunning(_) => "is-running",
            Self::ListRunning => "list-running",
            Self::ProcessAlive(..) => "process-alive",
            Self::Peek(..) => "peek",
            Self::Nudge(..) => "nudge",
            Self::SendKeys(..) => "send-keys",
            Self::SetMeta(..) => "set-meta",
            Self::GetMeta(..) => "get-meta",
            Self::RemoveMeta(..) => "remove-meta",
            Self::LastActivity(_) => "get-last-activity",
            Self::ClearScrollback(_) => "clear-scrollback",
            Self::CopyTo(..) => "copy-to",
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Self::Start(name, _)
            | Self::Stop(name)
            | Self::Interrupt(name)
            | Self::IsRunning(name)
            | Self::ProcessAlive(name, _)
            | Self::Nudge(name, _)
            | Self::LastActivity(name)
            | Self::ClearScrollback(name) => vec![name.to_string()],
            Self::ListRunning => vec![String::new()],
            Self::Peek(name, lines) => vec![name.to_string(), lines.to_string()],
            Self::CopyTo(name, from, to) => {
                vec![name.to_string(), (*from).to_owned(), (*to).to_owned()]
            }
            Self::SendKeys(name, keys) => {
                let keys = keys.iter().map(Key::to_string);
                std::iter::once(name.to_string()).chain(keys).collect()
            }
            Self::SetMeta(name, key, _)
            | Self::GetMeta(name, key)
            | Self::RemoveMeta(name, key) => {
                vec![name.to_string(), (*key).to_owned()]
            }
        }
    }

    fn input(self) -> Vec<u8> {
        match self {
            Self::Start(_, json) => json,
            Self::ProcessAlive(_, names) => names.join("\n").into_bytes(),
            Self::Nudge(_, text) | Self::SetMeta(_, _, text) => text.into_bytes(),
            _ => Vec::new(),
        }
    }
}

/// What came of a call that worked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// What it printed, final newlines cut.
    Done(String),
    /// The script does not know the op.
    Unknown,
}

/// A call that did not work.
#[derive(Debug)]
pub(super) enum CallError {
    /// The script exited with this code, and this complaint.
    Exit(i32, String),
    TimedOut,
    /// It could not be run, or was killed.
    Broken(String),
}

impl From<CallError> for SessionError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Exit(code, text) if text.is_empty() => backend(format!("exit {code}")),
            CallError::Exit(_, text) | CallError::Broken(text) => backend(text),
            CallError::TimedOut => SessionError::Timeout,
        }
    }
}

/// The script as an absolute path.
pub(super) fn find(config: &ExecConfig, env: &Environment) -> io::Result<PathBuf> {
    let script = &config.script;
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{script}: {error}"));
    if script.contains('/') {
        let path = config.city.root.join(script);
        rustix::fs::access(&path, rustix::fs::Access::EXEC_OK)
            .map_err(|error| about(error.into()))?;
        return Ok(path);
    }
    let path = env
        .get(OsStr::new("PATH"))
        .cloned()
        .unwrap_or_else(OsString::new);
    let mut found = std::env::split_paths(&path).map(|dir| config.city.root.join(dir).join(script));
    let is_program = |path: &PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{script}: not on PATH"));
    found.find(is_program).ok_or_else(missing)
}

impl Inner {
    /// The script with this op and these arguments.
    pub(super) fn program(&self, op: &str, arguments: Vec<String>) -> Program {
        let mut words: Vec<OsString> = vec![self.program.clone().into(), op.into()];
        words.extend(arguments.into_iter().map(OsString::from));
        Program {
            path: self.program.clone(),
            words,
            env: self.env.clone(),
            dir: self.config.city.root.clone(),
            input: Vec::new(),
            output: OUTPUT,
            complaints: COMPLAINTS,
            limit: lock(&self.timeouts).0,
        }
    }

    /// Asks the script, unless it is known not to know.
    pub(super) async fn call(&self, op: Op<'_>) -> Result<Answer, CallError> {
        let word = op.word();
        if !self.knows(word) {
            return Ok(Answer::Unknown);
        }
        let mut program = self.program(word, op.arguments());
        if word == "start" {
            program.limit = lock(&self.timeouts).1;
        }
        program.input = op.input();
        let _permit = self.permits.acquire().await;
        let ended = program.run().await;
        let ended = ended
            .map_err(|error| CallError::Broken(format!("{}: {error}", self.program.display())))?;
        match ended.status {
            None => Err(CallError::TimedOut),
            Some(ExitStatus::Code(0)) => {
                let text = String::from_utf8_lossy(&ended.output);
                Ok(Answer::Done(text.trim_end_matches('\n').to_owned()))
            }
            Some(ExitStatus::Code(UNKNOWN)) => {
                lock(&self.unknown).insert(word);
                Ok(Answer::Unknown)
            }
            Some(ExitStatus::Code(code)) => {
                Err(CallError::Exit(code, ended.complaints.trim().to_owned()))
            }
            Some(status) => Err(CallError::Broken(format!("{word}: {status}"))),
        }
    }

    /// The same, for whom the way it failed does not matter.
    pub(super) async fn ask(&self, op: Op<'_>) -> Result<Answer, SessionError> {
        let word = op.word();
        self.call(op).await.map_err(|error| match error.into() {
            SessionError::Backend(text) => backend(format!("{word}: {text}")),
            error => error,
        })
    }

    /// What the caller runs for a terminal.
    pub(super) fn attach_plan(&self, name: &SessionName) -> AttachPlan {
        let mut argv = vec!["env".to_owned()];
        for key in ["GC_CITY", "GC_CITY_NAME", "GC_EXEC_STATE_DIR"] {
            let value = self
                .env
                .get(OsStr::new(key))
                .map(|value| value.to_string_lossy());
            argv.push(format!("{key}={}", value.unwrap_or_default()));
        }
        argv.push(self.program.to_string_lossy().into_owned());
        argv.extend(["attach".to_owned(), name.to_string()]);
        let unset = Vec::new();
        AttachPlan { argv, unset }
    }
}
