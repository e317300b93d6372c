//! Problems of a file, collected while it is read and turned into diagnostics at the end.

use gascity_actors::ports::{Diagnostic, LoadError, Related};

use super::files::Files;
use super::render;
use super::tree::Span;

/// As many problems as one load reports.
pub(super) const MOST: usize = 100;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Error,
    Warning,
}

/// One problem, by byte offsets.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) severity: Severity,
    pub(super) code: &'static str,
    pub(super) span: Span,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) label: String,
    pub(super) expected: Option<String>,
    pub(super) found: Option<String>,
    pub(super) help: Option<String>,
    pub(super) related: Option<(Span, &'static str)>,
    /// An error that does not stop the load.
    pub(super) soft: bool,
}

impl Problem {
    /// An error; `label` stands at the caret.
    pub(super) fn error(
        code: &'static str,
        span: Span,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            code,
            span,
            path: path.into(),
            message: message.into(),
            label: String::new(),
            expected: None,
            found: None,
            help: None,
            related: None,
            soft: false,
        }
    }

    pub(super) fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(super) fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    pub(super) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }

    pub(super) fn related(mut self, span: Span, label: &'static str) -> Self {
        self.related = Some((span, label));
        self
    }

    /// Two keys of the table at `path` that do not go together: the later one is in conflict. At
    /// least one of them is set.
    pub(super) fn conflict(
        path: &str,
        keys: [(&str, Option<Span>); 2],
        message: impl Into<String>,
    ) -> Self {
        let mut set: Vec<_> = keys
            .into_iter()
            .filter_map(|(key, span)| span.map(|span| (key, span)))
            .collect();
        set.sort_by_key(|(_, span)| span.start);
        let (key, span) = set.pop().unwrap_or(("", 0..0));
        let problem =
            Self::error("conflict", span, format!("{path}.{key}"), message).label("in conflict");
        match set.pop() {
            Some((_, first)) => problem.related(first, "with this"),
            None => problem,
        }
    }

    fn diagnostic(&self, files: &Files) -> Diagnostic {
        let (file, line, column) = files.position(&self.span);
        let (_, end_line, end_column) = match files.locate(&self.span) {
            Some((file, local)) => {
                let (line, column) = file.text.position(local.end);
                ("", line, column)
            }
            None => ("", line, column),
        };
        Diagnostic {
            severity: match self.severity {
                Severity::Error => "error".into(),
                Severity::Warning => "warning".into(),
            },
            code: self.code.into(),
            file,
            line,
            column,
            end_line,
            end_column,
            path: self.path.clone(),
            message: self.message.clone(),
            expected: self.expected.clone(),
            found: self.found.clone(),
            help: self.help.clone(),
            related: self
                .related
                .iter()
                .map(|(span, label)| {
                    let (file, line, column) = files.position(span);
                    Related {
                        file,
                        line,
                        column,
                        label: (*label).into(),
                    }
                })
                .collect(),
        }
    }
}

/// All problems of a load, and the files they are in.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) files: Files,
    found: Vec<Problem>,
}

/// What a load has to say, for people and for programs.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) text: String,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Problems {
    pub(super) fn of(files: Files) -> Self {
        Self {
            files,
            found: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.found.push(problem);
    }

    pub(super) fn has_errors(&self) -> bool {
        self.found
            .iter()
            .any(|problem| problem.severity == Severity::Error && !problem.soft)
    }

    /// How many there are so far.
    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// Lets the errors from number `since` on not stop the load. Says whether there are any.
    pub(super) fn soften(&mut self, since: usize) -> bool {
        let late = self.found.iter_mut().skip(since);
        let errors = late.filter(|problem| problem.severity == Severity::Error);
        errors.map(|problem| problem.soft = true).count() > 0
    }

    /// The first problems, by file, then by place; errors before warnings are dropped.
    pub(super) fn report(&mut self) -> Report {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(|problem| problem.span.start);
        if found.len() > MOST {
            // Stable, so each kind stays in the order of the files.
            found.sort_by_key(|problem| problem.severity == Severity::Warning);
            found.truncate(MOST);
            found.sort_by_key(|problem| problem.span.start);
        }
        Report {
            text: found
                .iter()
                .map(|problem| render::render(problem, &self.files))
                .collect::<Vec<_>>()
                .join("\n\n"),
            diagnostics: found
                .iter()
                .map(|problem| problem.diagnostic(&self.files))
                .collect(),
        }
    }
}

impl From<Report> for LoadError {
    fn from(report: Report) -> Self {
        Self {
            summary: report.text,
            diagnostics: report.diagnostics,
        }
    }
}
