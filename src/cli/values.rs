//! Small forms shared by commands: patterns, suggestions, tables.

use std::time::Duration;

pub(super) use crate::glob::fits_text as fits;

/// What to write after a name that does not exist: the nearest one, else some that do.
#[must_use]
pub(super) fn did_you_mean(asked: &str, known: &[&str]) -> Option<String> {
    let limit = (asked.chars().count() / 3).max(1);
    let nearest = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(asked, name), *name))
        .filter(|(distance, _)| *distance <= limit)
        .min();
    match nearest {
        Some((_, name)) => Some(format!("did you mean `{name}`?")),
        None if known.is_empty() => None,
        None => {
            let some: Vec<&str> = known.iter().take(5).copied().collect();
            Some(format!("there is: {}", some.join(", ")))
        }
    }
}

/// Rows in aligned columns, each line without trailing blanks.
#[must_use]
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let all = || std::iter::once(&header).chain(rows);
    let width = |column: usize| {
        let cells = all().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// `1 agent`, `2 agents`.
#[must_use]
pub(crate) fn count(n: usize, thing: &str) -> String {
    let ies = thing.strip_suffix('y');
    match (n, ies) {
        (1, _) => format!("1 {thing}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        (_, None) => format!("{n} {thing}s"),
    }
}

/// `3.2s`
#[must_use]
pub(super) fn seconds(span: Duration) -> String {
    format!("{:.1}s", span.as_secs_f64())
}

/// Whole milliseconds, for JSON.
#[must_use]
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_others_listed() {
        let known = ["worker", "planner"];
        let found = did_you_mean("wroker", &known);
        assert_eq!(found.as_deref(), Some("did you mean `worker`?"));
        let found = did_you_mean("zzz", &known);
        assert_eq!(found.as_deref(), Some("there is: worker, planner"));
        assert_eq!(did_you_mean("zzz", &[]), None);
    }

    #[test]
    fn tables_align_and_do_not_trail() {
        let rows = [
            vec!["a".into(), "long".into()],
            vec!["bcd".into(), String::new()],
        ];
        assert_eq!(table(&["N", "V"], &rows), "N    V\na    long\nbcd");
    }

    #[test]
    fn counts_have_plurals() {
        assert_eq!(count(1, "city"), "1 city");
        assert_eq!(count(2, "city"), "2 cities");
        assert_eq!(count(0, "agent"), "0 agents");
    }
}
