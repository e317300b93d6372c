//! Problems as people read them: the source line, a caret, the path of the key, what helps.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::problem::{Problem, Severity};
use super::source::{FILE, Text};

/// Wide enough that no line of a diagnostic is cut short by the width of a terminal.
const WIDTH: usize = 400;

pub(super) fn render(problem: &Problem, text: &Text) -> String {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let first = problem
        .related
        .as_ref()
        .map_or(problem.span.start, |(span, _)| {
            span.start.min(problem.span.start)
        });
    let last = problem
        .related
        .as_ref()
        .map_or(problem.span.start, |(span, _)| {
            span.start.max(problem.span.start)
        });
    let (lines, number) = text.shown_lines(first, last);
    let base = lines.start;
    let mut snippet = Snippet::source(&text.shown()[lines])
        .path(FILE)
        .line_start(number)
        .annotation(
            AnnotationKind::Primary
                .span(text.shown_span(&problem.span, base))
                .label(problem.label.as_str()),
        );
    if let Some((span, label)) = &problem.related {
        snippet = snippet.annotation(
            AnnotationKind::Context
                .span(text.shown_span(span, base))
                .label(*label),
        );
    }
    let mut group = level
        .primary_title(&problem.message)
        .id(problem.code)
        .element(snippet);
    if !problem.path.is_empty() {
        group = group.element(Level::NOTE.with_name("path").message(&problem.path));
    }
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(help));
    }
    let rendered = Renderer::plain().term_width(WIDTH).render(&[group]);
    let (line, column) = text.position(problem.span.start);
    tighten(&rendered, &format!("--> {FILE}:{line}:{column}"))
}

/// Sets the true position, which differs behind a masked value, and drops the empty line
/// between the source and the notes.
fn tighten(rendered: &str, origin: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut placed = false;
    for line in rendered.lines() {
        let body = line.trim_start();
        if !placed && body.starts_with("--> ") {
            placed = true;
            out.push(format!("{}{origin}", &line[..line.len() - body.len()]));
            continue;
        }
        if body.starts_with("= ") && out.last().is_some_and(|last| last.trim() == "|") {
            out.pop();
        }
        out.push(line.to_owned());
    }
    out.join("\n")
}
