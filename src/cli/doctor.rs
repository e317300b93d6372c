//! `gc doctor`: looks for what is wrong on this machine and in this city.

mod bundle;
mod city;
mod machine;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::listing::ListFlags;
use super::output::Mark;
use super::values::did_you_mean;

/// Arguments of `gc doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc doctor\n  gc doctor --fix\n  gc doctor --only registry\n  gc doctor --bundle report.tar   # logs and masked configs, for a bug report"
)]
pub(super) struct DoctorArgs {
    /// Mend what can be mended without loss
    #[arg(long)]
    fix: bool,
    /// Only this check
    #[arg(long, value_name = "CHECK")]
    only: Option<String>,
    /// Put logs, configs (without values of variables), status and tree into a tar file
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warning,
    Error,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    message: String,
    /// A command that mends it, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    /// `--fix` mends it.
    fixable: bool,
    fixed: bool,
}

impl Finding {
    fn new(check: &'static str, level: Level, message: impl Into<String>) -> Self {
        Self {
            check,
            level,
            message: message.into(),
            fix: None,
            fixable: false,
            fixed: false,
        }
    }

    fn fine(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, message)
    }

    /// Says what to do about it.
    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Mends it now if asked to; `mend` says whether it worked.
    fn fixable(mut self, wanted: bool, mend: impl FnOnce() -> std::io::Result<()>) -> Self {
        self.fixable = true;
        if wanted {
            match mend() {
                Ok(()) => self.fixed = true,
                Err(error) => self.message = format!("{}; not mended: {error}", self.message),
            }
        }
        self
    }

    fn hurts(&self) -> bool {
        self.level == Level::Error && !self.fixed
    }
}

/// Every check by its name.
const CHECKS: [&str; 13] = [
    "home",
    "settings",
    "registry",
    "lock",
    "socket",
    "supervisor",
    "cities",
    "city",
    "config",
    "controller",
    "sessions",
    "events",
    "programs",
];

impl DoctorArgs {
    /// Checks everything, or one thing.
    ///
    /// # Errors
    /// [`Code::Usage`] for a check that does not exist. Findings are no errors; they decide the
    /// exit code.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        if let Some(only) = &self.only
            && !CHECKS.contains(&only.as_str())
        {
            let mut error = CliError::new(Code::Usage, format!("there is no check {only:?}"));
            error.hint = did_you_mean(only, &CHECKS);
            return Err(error);
        }
        let mut findings = machine::check(context, self.fix);
        if let Ok(root) = context.city(None, Access::Read) {
            findings.extend(city::check(context, &root));
        }
        findings.retain(|finding| {
            self.only
                .as_deref()
                .is_none_or(|only| only == finding.check)
        });
        if let Some(file) = &self.bundle {
            let report = json!({ "items": findings });
            bundle::write(context, file, &report)?;
            context.out.note(format!("wrote {}", file.display()));
        }
        report(context, &findings)?;
        match findings.iter().any(Finding::hurts) {
            true => Ok(Code::Attention.exit()),
            false => Ok(0),
        }
    }
}

fn report(context: &Context, findings: &[Finding]) -> CliResult {
    let out = context.out;
    if out.json {
        let document = json!({"items": findings, "total": findings.len()});
        return out.document(&document);
    }
    let row = |finding: &Finding| {
        let mark = match (finding.level, finding.fixed) {
            (Level::Ok, _) | (_, true) => Mark::Done,
            (Level::Warning, _) => Mark::Warn,
            (Level::Error, _) => Mark::Failed,
        };
        let mut message = finding.message.clone();
        if finding.fixed {
            message.push_str(" (mended)");
        }
        let fix = finding.fix.clone().filter(|_| !finding.fixed);
        let check = format!("{} {}", mark.sign(out.unicode, false), finding.check);
        vec![check, message, fix.unwrap_or_default()]
    };
    let rows: Vec<Vec<String>> = findings.iter().map(row).collect();
    let header = ["  CHECK", "FINDING", "FIX"];
    out.line(ListFlags::default().draw(&out, &header, &rows, false))
}
