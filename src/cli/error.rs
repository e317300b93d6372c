//! Failures of commands: one form on the terminal, one in JSON, one table of exit codes.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::control::client::ClientError;
use crate::control::daemon::DaemonError;
use crate::control::home::{CityDir, HomeError};
use crate::control::lock::LockError;
use crate::control::registry::RegistryError;

/// Why a command failed; decides the exit code (`gc help exit-codes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// It did not work out.
    Failed,
    /// A config has errors.
    Config,
    /// There is no such thing.
    NotFound,
    /// The name fits several things.
    Ambiguous,
    /// Nothing runs that could answer.
    NotRunning,
    /// It is there already, or in use.
    Conflict,
    /// It took too long; work goes on.
    Timeout,
    /// Not allowed.
    Denied,
    /// Bad arguments.
    Usage,
    /// The provider cannot do it.
    Unsupported,
    /// Checked, and something needs attention.
    Attention,
    /// A bug in gc.
    Internal,
    /// Ended by Ctrl-C.
    Interrupted,
    /// Ended by SIGTERM.
    Terminated,
}

impl Code {
    /// All codes, for the table and its test.
    pub const ALL: [Self; 14] = [
        Self::Failed,
        Self::Config,
        Self::NotFound,
        Self::Ambiguous,
        Self::NotRunning,
        Self::Conflict,
        Self::Timeout,
        Self::Denied,
        Self::Usage,
        Self::Unsupported,
        Self::Attention,
        Self::Internal,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The word in JSON errors.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Config => "config",
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::NotRunning => "not_running",
            Self::Conflict => "conflict",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Usage => "usage",
            Self::Unsupported => "unsupported",
            Self::Attention => "attention",
            Self::Internal => "internal",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }

    /// What the process exits with.
    #[must_use]
    pub fn exit(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Unsupported => 8,
            Self::Attention => 10,
            Self::Internal => 70,
            Self::Interrupted => 130,
            Self::Terminated => 143,
            _ => 1,
        }
    }
}

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    /// Which kind of failure.
    pub code: Code,
    /// What failed, as a fragment that fits behind `gc <command>: `.
    pub message: String,
    /// Why, line by line; shown indented.
    pub causes: Vec<String>,
    /// One runnable next step.
    pub hint: Option<String>,
}

/// What commands return.
pub type CliResult<T = ()> = Result<T, CliError>;

impl CliError {
    /// A failure with its message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            causes: Vec::new(),
            hint: None,
        }
    }

    /// A config with errors.
    #[must_use]
    pub fn config(root: &Path, diagnostics: impl ToString) -> Self {
        let file = CityDir::new(root).config();
        Self::new(Code::Config, "city.toml has errors")
            .cause(diagnostics)
            .hint(format!("mend {}, then again", file.display()))
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds why; several lines become several causes.
    #[must_use]
    pub fn cause(mut self, cause: impl ToString) -> Self {
        self.causes
            .extend(cause.to_string().lines().map(str::to_owned));
        self
    }

    /// The error object of `--json`.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        let error = std::iter::once(&self.message).chain(&self.causes);
        object.insert(
            "error".into(),
            json!(error.cloned().collect::<Vec<_>>().join("\n")),
        );
        object.insert("code".into(), json!(self.code.as_str()));
        if let Some(hint) = &self.hint {
            object.insert("hint".into(), json!(hint));
        }
        object.insert("exit".into(), json!(self.code.exit()));
        Value::Object(object)
    }

    /// The error as people read it.
    #[must_use]
    pub fn text(&self, command: &str) -> String {
        let space = if command.is_empty() { "" } else { " " };
        let mut text = format!("gc{space}{command}: {}\n", self.message);
        for cause in &self.causes {
            text.push_str(&format!("  {cause}\n"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
        text
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::new(Code::Failed, error.to_string())
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let code = match error.code() {
            "not_running" => Code::NotRunning,
            "denied" => Code::Denied,
            "timeout" => Code::Timeout,
            "not_found" => Code::NotFound,
            "conflict" => Code::Conflict,
            "unsupported" => Code::Unsupported,
            _ => Code::Failed,
        };
        let hint = error.hint().map(str::to_owned);
        Self {
            hint,
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<RegistryError> for CliError {
    fn from(error: RegistryError) -> Self {
        let code = match &error {
            RegistryError::NameTaken { .. } => Code::Conflict,
            RegistryError::Parse { .. } => Code::Config,
            RegistryError::City { .. } => Code::NotFound,
            RegistryError::Locked(_) => Code::Timeout,
            _ => Code::Failed,
        };
        let hint = match &error {
            RegistryError::NameTaken { path, .. } => Some(format!(
                "set another name under [workspace] in city.toml, or gc unregister {}",
                path.display()
            )),
            RegistryError::Parse { file, .. } => Some(format!(
                "mend {}; agents that run are not touched",
                file.display()
            )),
            RegistryError::Locked(_) => Some("run the command again".to_owned()),
            RegistryError::Io { file, source } => io_hint(file, source),
            _ => None,
        };
        Self {
            hint,
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<HomeError> for CliError {
    fn from(error: HomeError) -> Self {
        let hint = match &error {
            HomeError::NoHome => Some("gc --home DIR, or set GC_HOME".to_owned()),
            HomeError::NotPrivate(dir) | HomeError::SocketDir(dir) => {
                Some(format!("chmod 700 {}", dir.display()))
            }
            HomeError::Io { path, source } => io_hint(path, source),
        };
        Self {
            hint,
            ..Self::new(Code::Failed, error.to_string())
        }
    }
}

impl From<LockError> for CliError {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::Held { .. } => Code::Conflict,
            LockError::Unsupported { .. } => Code::Unsupported,
            _ => Code::Failed,
        };
        Self::new(code, error.to_string())
    }
}

impl From<DaemonError> for CliError {
    fn from(error: DaemonError) -> Self {
        let code = match &error {
            DaemonError::NotReady { .. } => Code::Timeout,
            _ => Code::Failed,
        };
        Self::new(code, error.to_string())
    }
}

/// What to look at when the system refuses a file.
pub(super) fn io_hint(path: &Path, error: &io::Error) -> Option<String> {
    let there = path.ancestors().skip(1).find(|dir| dir.exists());
    let there = there.unwrap_or(Path::new("/")).display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Some(format!(
            "ls -ld {there}   # you need to be allowed to write there"
        )),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some(format!("{there} is read-only; choose another directory"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(format!("df -h {there}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_word_and_exit() {
        let table = Code::ALL.map(|code| (code.as_str(), code.exit()));
        let expected = [
            ("failed", 1),
            ("config", 1),
            ("not_found", 1),
            ("ambiguous", 1),
            ("not_running", 1),
            ("conflict", 1),
            ("timeout", 1),
            ("denied", 1),
            ("usage", 2),
            ("unsupported", 8),
            ("attention", 10),
            ("internal", 70),
            ("interrupted", 130),
            ("terminated", 143),
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn an_error_says_what_why_and_what_next() {
        let error = CliError::new(Code::NotRunning, "no supervisor")
            .cause("a\nb")
            .hint("gc start");
        assert_eq!(
            error.text("status"),
            "gc status: no supervisor\n  a\n  b\nhint: gc start\n"
        );
        let json =
            r#"{"error":"no supervisor\na\nb","code":"not_running","hint":"gc start","exit":1}"#;
        assert_eq!(error.json().to_string(), json);
    }
}
