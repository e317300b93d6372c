//! Problems as people read them: the source line, a caret, the path of the key, what helps.

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};

use super::files::{Files, SourceFile};
use super::problem::{Problem, Severity};
use super::tree::Span;

/// Wide enough that no line of a diagnostic is cut short by the width of a terminal.
const WIDTH: usize = 400;

pub(super) fn render(problem: &Problem, files: &Files) -> String {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&problem.message).id(problem.code);
    let mut group = Group::with_title(title);
    let related = problem
        .related
        .as_ref()
        .and_then(|(span, label)| Some((files.locate(span)?, *label)));
    let mut origin = None;
    if let Some((file, span)) = files.locate(&problem.span) {
        let near = related
            .as_ref()
            .filter(|((other, _), _)| std::ptr::eq(*other, file))
            .map(|((_, span), label)| (span.clone(), *label));
        origin = Some(file.text.position(span.start));
        group = group.element(snippet(file, &span, &problem.label, near));
    }
    if let Some(((file, span), label)) = &related {
        let far = files
            .locate(&problem.span)
            .is_none_or(|(own, _)| !std::ptr::eq(own, *file));
        if far {
            group = group.element(snippet(file, span, label, None));
        }
    }
    if !problem.path.is_empty() {
        group = group.element(Level::NOTE.with_name("path").message(&problem.path));
    }
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(help));
    }
    let rendered = Renderer::plain().term_width(WIDTH).render(&[group]);
    match (origin, files.locate(&problem.span)) {
        (Some((line, column)), Some((file, _))) => {
            tighten(&rendered, &format!("--> {}:{line}:{column}", file.shown))
        }
        _ => rendered,
    }
}

fn snippet<'f>(
    file: &'f SourceFile,
    span: &Span,
    label: &'f str,
    near: Option<(Span, &'f str)>,
) -> Snippet<'f, Annotation<'f>> {
    let text = &file.text;
    let other = near.as_ref().map_or(span.start, |(span, _)| span.start);
    let (lines, number) = text.shown_lines(span.start.min(other), span.start.max(other));
    let base = lines.start;
    let snippet = Snippet::source(&text.shown()[lines])
        .path(file.shown.as_str())
        .line_start(number)
        .annotation(
            AnnotationKind::Primary
                .span(text.shown_span(span, base))
                .label(label),
        );
    match near {
        Some((span, label)) => snippet.annotation(
            AnnotationKind::Context
                .span(text.shown_span(&span, base))
                .label(label),
        ),
        None => snippet,
    }
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
