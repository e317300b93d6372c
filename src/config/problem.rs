//! Problems of a file, collected while it is read and turned into diagnostics at the end.

use std::ops::Range;

use gascity_actors::ports::{Diagnostic, LoadError, Related};

use super::render;
use super::source::{FILE, Text};

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
    pub(super) span: Range<usize>,
    pub(super) path: String,
    pub(super) message: String,
    pub(super) label: String,
    pub(super) expected: Option<String>,
    pub(super) found: Option<String>,
    pub(super) help: Option<String>,
    pub(super) related: Option<(Range<usize>, &'static str)>,
}

impl Problem {
    /// An error; `label` stands at the caret.
    pub(super) fn error(
        code: &'static str,
        span: Range<usize>,
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

    pub(super) fn related(mut self, span: Range<usize>, label: &'static str) -> Self {
        self.related = Some((span, label));
        self
    }

    /// Two keys of the table at `path` that do not go together: the later one is in conflict. At
    /// least one of them is set.
    pub(super) fn conflict(
        path: &str,
        keys: [(&str, Option<Range<usize>>); 2],
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

    fn diagnostic(&self, text: &Text) -> Diagnostic {
        let (line, column) = text.position(self.span.start);
        let (end_line, end_column) = text.position(self.span.end);
        Diagnostic {
            severity: match self.severity {
                Severity::Error => "error".into(),
                Severity::Warning => "warning".into(),
            },
            code: self.code.into(),
            file: FILE.into(),
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
                    let (line, column) = text.position(span.start);
                    Related {
                        file: FILE.into(),
                        line,
                        column,
                        label: (*label).into(),
                    }
                })
                .collect(),
        }
    }
}

/// All problems of a load.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

/// What a load has to say, for people and for programs.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) text: String,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Problems {
    pub(super) fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    pub(super) fn has_errors(&self) -> bool {
        self.0
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    /// The first problems in the order of the file.
    pub(super) fn report(mut self, text: &Text) -> Report {
        self.0.sort_by_key(|problem| problem.span.start);
        self.0.truncate(MOST);
        Report {
            text: self
                .0
                .iter()
                .map(|problem| render::render(problem, text))
                .collect::<Vec<_>>()
                .join("\n\n"),
            diagnostics: self
                .0
                .iter()
                .map(|problem| problem.diagnostic(text))
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
