//! Small forms shared by commands: patterns, suggestions, tables.

use std::time::Duration;

use chrono::{DateTime, Local, NaiveTime, TimeZone, Utc};

use crate::config::duration;
pub(super) use crate::glob::fits_text as fits;

/// A time: RFC 3339, `HH:MM` of today here, how long ago (`5m`), or in how long (`+2h`).
pub(super) fn moment(text: &str) -> Result<DateTime<Utc>, String> {
    moment_at(text, Local::now())
}

fn moment_at<Z: TimeZone>(text: &str, now: DateTime<Z>) -> Result<DateTime<Utc>, String> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(at.to_utc());
    }
    if let Ok(time) = NaiveTime::parse_from_str(text, "%H:%M") {
        let at = now.with_time(time).earliest();
        return at
            .map(|at| at.to_utc())
            .ok_or_else(|| format!("{text} does not exist today"));
    }
    let (later, span) = match text.strip_prefix('+') {
        Some(span) => (true, span),
        None => (false, text),
    };
    let span = duration::parse(span)
        .map_err(|_| "expected a time (2026-03-18T10:00:00Z, 14:30) or a span (5m, 1h30m)")?;
    let span = chrono::TimeDelta::from_std(span).map_err(|error| error.to_string())?;
    let now = now.to_utc();
    Ok(if later { now + span } else { now - span })
}

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
    fitted(header, rows, None)
}

/// The same within `width` columns: the last cell goes on below itself, and what is still too
/// long is cut.
#[must_use]
pub(super) fn fitted(header: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let Some(width) = width else {
        return aligned(header, rows);
    };
    let last = header.len().saturating_sub(1);
    let cell =
        |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| cell(row, column));
        cells
            .chain([header[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let before: usize = (0..last).map(|column| widest(column) + 2).sum();
    let room = width.saturating_sub(before);
    let mut all = Vec::new();
    for row in rows {
        let pieces = match row.get(last) {
            Some(text) if room >= LEAST_ROOM => wrapped(text, room),
            Some(text) => vec![text.clone()],
            None => vec![String::new()],
        };
        for (n, piece) in pieces.into_iter().enumerate() {
            let mut line = if n == 0 {
                row.clone()
            } else {
                vec![String::new(); last + 1]
            };
            line.truncate(last);
            line.resize(last, String::new());
            line.push(piece);
            all.push(line);
        }
    }
    let text = aligned(header, &all);
    text.lines()
        .map(|line| clipped(line, width))
        .collect::<Vec<_>>()
        .join("\n")
}

/// With less room than this the last column is not worth wrapping.
const LEAST_ROOM: usize = 12;

/// The line as far as it fits, with a sign that there was more.
#[must_use]
pub(super) fn clipped(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Words in lines of at most `width` characters; longer words are broken.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        } else if used > 0 {
            line.push(' ');
        }
        while word.len() > width {
            let rest = word.split_off(width);
            lines.push(word.into_iter().collect());
            word = rest;
        }
        line.extend(word);
    }
    lines.push(line);
    lines
}

fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
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
    fn tables_fit_the_terminal() {
        let rows = [
            vec!["worker".into(), "no such model, and a word".into()],
            vec!["b".into(), String::new()],
        ];
        let expected = "N       NOTE\nworker  no such model,\n        and a word\nb";
        assert_eq!(fitted(&["N", "NOTE"], &rows, Some(22)), expected);
        let narrow = "N       N…\nworker  n…\nb";
        assert_eq!(fitted(&["N", "NOTE"], &rows, Some(10)), narrow);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
    }

    #[test]
    fn moments_are_times_or_spans() {
        let now = DateTime::parse_from_rfc3339("2026-03-18T10:00:00+02:00").unwrap();
        for (text, expected) in [
            ("2026-03-17T10:00:00Z", "2026-03-17T10:00:00Z"),
            ("09:15", "2026-03-18T07:15:00Z"),
            ("1h30m", "2026-03-18T06:30:00Z"),
            ("+2h", "2026-03-18T10:00:00Z"),
        ] {
            let found = moment_at(text, now).unwrap();
            assert_eq!(found, expected.parse::<DateTime<Utc>>().unwrap(), "{text}");
        }
        assert!(moment_at("soon", now).is_err());
    }

    #[test]
    fn counts_have_plurals() {
        assert_eq!(count(1, "city"), "1 city");
        assert_eq!(count(2, "city"), "2 cities");
        assert_eq!(count(0, "agent"), "0 agents");
    }
}
