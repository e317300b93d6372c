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
