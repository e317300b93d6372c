//! From text to a table in which every key and value knows its place.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::mask;
use super::problem::{MOST, Problem, Problems};
use super::source::Text;
use super::tree::Table;

/// Reads the text of the file at `path` and adds it to the files of the load. A file with syntax
/// errors has no table.
pub(super) fn parse(source: &str, path: &Path, problems: &mut Problems) -> Option<Table> {
    let base = problems.files.next_base();
    let (table, errors) = DeTable::parse_recoverable(source);
    let table = Table::new(&table.into_inner(), base);
    let mut masks = mask::secrets(&table, base);
    if !errors.is_empty() {
        masks.extend(mask::suspect_values(source));
    }
    let text = Text::new(source, masks);
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| (error.span().unwrap_or(0..0), error.message()))
        .collect();
    errors.sort_by_key(|(span, _)| span.start);
    // What follows on the same line is nearly always an echo of the first.
    errors.dedup_by_key(|(span, _)| text.position(span.start).0);
    // More are not reported, and each may cost another look at the whole file.
    errors.truncate(MOST);
    problems.files.add(path, text);
    for (span, message) in &errors {
        problems.push(problem(source, base, span.clone(), message));
    }
    errors.is_empty().then_some(table)
}

fn problem(source: &str, base: usize, span: Range<usize>, message: &str) -> Problem {
    let at = |span: Range<usize>| span.start + base..span.end + base;
    if message != "duplicate key" {
        return Problem::error("syntax", at(span), "", message);
    }
    let key = source
        .get(span.clone())
        .unwrap_or_default()
        .escape_debug()
        .to_string();
    let problem = Problem::error(
        "duplicate-key",
        at(span.clone()),
        "",
        format!("`{key}` is defined twice"),
    )
    .label("second definition");
    match first_definition(source, &span) {
        Some(first) => problem.related(at(first), "first definition"),
        None => problem,
    }
}

/// Where the key at `span` was first defined. The parser does not tell, but with another word in
/// its place, the first one is the sibling of that word.
fn first_definition(source: &str, span: &Range<usize>) -> Option<Range<usize>> {
    const MARK: &str = "gc-second-definition";
    let name = key_name(source.get(span.clone())?)?;
    let marked = format!(
        "{}{MARK}{}",
        source.get(..span.start)?,
        source.get(span.end..)?
    );
    let (table, _) = DeTable::parse_recoverable(&marked);
    sibling(table.get_ref(), MARK, &name).filter(|first| first.start < span.start)
}

/// A key without the quotes it may be written in.
fn key_name(written: &str) -> Option<String> {
    let line = format!("{written} = 0");
    let table = DeTable::parse(&line).ok()?;
    table
        .get_ref()
        .keys()
        .next()
        .map(|key| key.get_ref().to_string())
}

fn sibling(table: &DeTable<'_>, mark: &str, name: &str) -> Option<Range<usize>> {
    if table.get(mark).is_some() {
        return table
            .keys()
            .find(|key| key.get_ref() == name)
            .map(|key| key.span());
    }
    table
        .values()
        .find_map(|value| below(value.get_ref(), mark, name))
}

fn below(value: &DeValue<'_>, mark: &str, name: &str) -> Option<Range<usize>> {
    match value {
        DeValue::Table(table) => sibling(table, mark, name),
        DeValue::Array(array) => array
            .iter()
            .find_map(|item| below(item.get_ref(), mark, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_definitions_is_found() {
        for (source, first) in [
            ("[workspace]\nname = 'x'\n[workspace]\n", 1),
            ("a = 1\na = 2\n", 0),
            ("[x]\na = 1\n[y]\na = 1\n\"a\" = 2\n", 14),
            ("i = { a = 1, a = 2 }", 6),
            ("[[t]]\na = 1\n[[t]]\na = 1\na = 2\n", 18),
        ] {
            let mut problems = Problems::default();
            let parsed = parse(source, Path::new("/c/city.toml"), &mut problems);
            assert!(parsed.is_none());
            let report = problems.report();
            let [diagnostic] = &report.diagnostics[..] else {
                panic!("{source}: {report:?}")
            };
            assert_eq!(diagnostic.code, "duplicate-key", "{source}");
            let (line, column) = Text::new(source, Vec::new()).position(first);
            let related = diagnostic.related.first().expect("the first definition");
            assert_eq!((related.line, related.column), (line, column), "{source}");
        }
    }
}
