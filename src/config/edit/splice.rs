//! Where in the text of a file the key is, or would be.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike};

use super::{PATCHES, Place, SUSPENDED, Target};

/// The text with the key set to a value, or without it. `None` if the place was not found.
pub(super) fn set(
    text: &str,
    place: Place,
    target: &Target,
    value: Option<bool>,
) -> Option<String> {
    if place == Place::NewPatch {
        let names = target.identity();
        let names = ["name", "dir"].into_iter().filter_map(|key| {
            let text = names.get(key)?.as_str()?;
            Some((key, toml_edit::Value::from(text)))
        });
        let flag = (SUSPENDED, toml_edit::Value::from(value?));
        let pairs: Vec<_> = names.chain([flag]).collect();
        return Some(append(text, "[[patches.agent]]", &pairs));
    }
    let document = Document::parse(text).ok()?;
    let Some(table) = Written::find(document.as_table(), place) else {
        // Only the table of the city may be missing. A dotted key needs no table that would be
        // left over later; keys stand before all tables.
        let start = line_start(text, 0);
        let line = format!(
            "workspace.{SUSPENDED} = {}{}",
            value?,
            line_end(text, start)
        );
        return (place == Place::Workspace).then(|| splice(text, start..start, &line));
    };
    match (table.span(SUSPENDED), value) {
        (Some((_, at)), Some(value)) => Some(splice(text, at, &value.to_string())),
        (Some((key, at)), None) => Some(match table.is_bare_patch(place) {
            true => table.remove_whole(text)?,
            false => table.remove(text, key.start..at.end),
        }),
        (None, Some(value)) => table.insert(text, value),
        (None, None) => None,
    }
}

/// The text without the table at `place` and those below it. Comments around it stay. `None` if
/// it was not found.
pub(super) fn remove(text: &str, place: Place) -> Option<String> {
    let document = Document::parse(text).ok()?;
    let table = Written::find(document.as_table(), place)?;
    let span = table.span.clone()?;
    if table.style == Style::Inline {
        return Some(table.remove(text, span));
    }
    let last = last(table.table).unwrap_or(0).max(span.end);
    Some(remove_lines(text, span.start, last))
}

/// Where the last key of a table, or of one below it, ends.
fn last(table: &dyn TableLike) -> Option<usize> {
    let ends = table.iter().filter_map(|(_, item)| {
        let below = match item {
            Item::ArrayOfTables(tables) => tables.iter().filter_map(ended).max(),
            Item::Table(table) => ended(table),
            _ => None,
        };
        below.max(item.span().map(|span| span.end))
    });
    ends.max()
}

fn ended(table: &toml_edit::Table) -> Option<usize> {
    last(table).max(table.span().map(|span| span.end))
}

/// The text without the lines from that at `first` to that at `last`, and without an empty line
/// before them.
fn remove_lines(text: &str, first: usize, last: usize) -> String {
    let start = line_start(text, first);
    let end = text[last..]
        .find('\n')
        .map_or(text.len(), |at| last + at + 1);
    let before = &text[..start];
    let gap = ["\r\n", "\n"].into_iter().find(|gap| {
        before
            .strip_suffix(gap)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('\n'))
    });
    splice(text, start - gap.map_or(0, str::len)..end, "")
}

/// The text with a table at its end.
pub(super) fn append(text: &str, header: &str, pairs: &[(&str, toml_edit::Value)]) -> String {
    let end = line_end(text, text.len());
    let mut new = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        new.push_str(end);
    }
    if !text.is_empty() {
        new.push_str(end);
    }
    new.push_str(header);
    new.push_str(end);
    for (key, value) in pairs {
        new.push_str(&format!("{key} = {value}{end}"));
    }
    new
}

/// A table as it is written down.
struct Written<'d> {
    table: &'d dyn TableLike,
    style: Style,
    /// The header, the braces, or nothing for dotted keys.
    span: Option<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `[workspace]`, keys on lines of their own below it.
    Header,
    /// `workspace.name = "x"`.
    Dotted,
    /// `{ name = "x" }`.
    Inline,
}

impl<'d> Written<'d> {
    fn find(file: &'d toml_edit::Table, place: Place) -> Option<Self> {
        match place {
            Place::Workspace => Self::of(file.get("workspace")?),
            Place::NewPatch => None,
            Place::Item(path, index) => match find(file, path)? {
                Item::ArrayOfTables(tables) => Some(Self::header(tables.get(index)?)),
                Item::Value(list) => {
                    let table = list.as_array()?.get(index)?.as_inline_table()?;
                    Some(Self::inline(table))
                }
                _ => None,
            },
        }
    }

    fn of(item: &'d Item) -> Option<Self> {
        match item {
            Item::Table(table) => Some(Self::header(table)),
            Item::Value(value) => value.as_inline_table().map(Self::inline),
            _ => None,
        }
    }

    fn header(table: &'d toml_edit::Table) -> Self {
        let style = if table.is_dotted() {
            Style::Dotted
        } else {
            Style::Header
        };
        Self {
            table,
            style,
            span: table.span(),
        }
    }

    fn inline(table: &'d toml_edit::InlineTable) -> Self {
        Self {
            table,
            style: Style::Inline,
            span: table.span(),
        }
    }

    /// Where a key and its value stand.
    fn span(&self, key: &str) -> Option<(Range<usize>, Range<usize>)> {
        let (key, item) = self.table.get_key_value(key)?;
        Some((key.span()?, item.span()?))
    }

    /// The key after which a new one goes: the name, or the first there is.
    fn anchor(&self) -> Option<(Range<usize>, Range<usize>)> {
        let first = || {
            self.table
                .iter()
                .filter_map(|(key, _)| self.span(key))
                .min_by_key(|(key, _)| key.start)
        };
        self.span("name").or_else(first)
    }

    /// A patch that does nothing but set the key.
    fn is_bare_patch(&self, place: Place) -> bool {
        let bare = |(key, _): (&str, &Item)| ["name", "dir", SUSPENDED].contains(&key);
        matches!(place, Place::Item(PATCHES, _))
            && self.style == Style::Header
            && self.table.iter().all(bare)
    }

    /// The text without the table: its header and keys, and an empty line before it.
    fn remove_whole(&self, text: &str) -> Option<String> {
        let keys = self.table.iter().filter_map(|(key, _)| self.span(key));
        let last = keys.map(|(_, value)| value.end).max()?;
        let first = self.span.clone()?.start;
        let end = text[last..].find('\n').map_or(text.len(), |at| last + at);
        let lines = text[line_start(text, first)..end].lines();
        let plain = lines
            .skip(1)
            .all(|line| !line.contains('#') && line.contains('='));
        // A comment in it is the user's.
        plain.then(|| remove_lines(text, first, last))
    }

    /// The text with the key, behind the name.
    fn insert(&self, text: &str, value: bool) -> Option<String> {
        let anchor = self.anchor();
        if self.style == Style::Inline {
            return match anchor {
                Some((_, at)) => {
                    let pair = format!(", {SUSPENDED} = {value}");
                    Some(splice(text, at.end..at.end, &pair))
                }
                None => {
                    let inside = self.span.clone()?.start + 1;
                    Some(splice(
                        text,
                        inside..inside,
                        &format!("{SUSPENDED} = {value}"),
                    ))
                }
            };
        }
        let (key, end) = match anchor {
            Some((key, at)) => (key.start, at.end),
            None => self.span.clone().map(|span| (span.start, span.end))?,
        };
        // What stands before the key is its indentation and, if it is dotted, its table.
        let before = &text[line_start(text, key)..key];
        let prefix = if self.style == Style::Header {
            &before[..before.len() - before.trim_start().len()]
        } else {
            before
        };
        let line = format!("{prefix}{SUSPENDED} = {value}");
        let newline = line_end(text, end);
        Some(match text[end..].find('\n') {
            Some(at) => splice(
                text,
                end + at + 1..end + at + 1,
                &format!("{line}{newline}"),
            ),
            None => format!("{text}{newline}{line}"),
        })
    }

    /// The text without the pair at `pair`, and without its line if nothing is left of it.
    fn remove(&self, text: &str, pair: Range<usize>) -> String {
        let blank = |c: char| c.is_ascii_whitespace();
        let (before, after) = (&text[..pair.start], &text[pair.end..]);
        if self.style == Style::Inline {
            // With the comma before it, else with the one behind it.
            let cut = if before.trim_end_matches(blank).ends_with(',') {
                before.trim_end_matches(blank).len() - 1..pair.end
            } else if let Some(rest) = after.trim_start_matches(blank).strip_prefix(',') {
                pair.start..text.len() - rest.trim_start_matches([' ', '\t']).len()
            } else {
                pair
            };
            return splice(text, cut, "");
        }
        let start = line_start(text, pair.start);
        let rest = after.split('\n').next().unwrap_or_default();
        if !rest.trim().is_empty() {
            // A comment stays, in place of the pair.
            let spaces = rest.len() - rest.trim_start().len();
            let indent = before[start..].len() - before[start..].trim_start().len();
            return splice(text, start + indent..pair.end + spaces, "");
        }
        let end = pair.end + rest.len();
        if end < text.len() {
            return splice(text, start..end + 1, "");
        }
        // The last line, and it has no end of its own: the one before it loses its end.
        let before = &before[..start];
        match before.strip_suffix('\n') {
            Some(line) => line.strip_suffix('\r').unwrap_or(line).to_owned(),
            None => before.to_owned(),
        }
    }
}

/// The item at the end of a path of keys.
fn find<'d>(file: &'d toml_edit::Table, path: &[&str]) -> Option<&'d Item> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(file.get(first)?, |at, key| at.get(key))
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

/// Where the line at `at` begins; in the first line, behind a byte order mark.
fn line_start(text: &str, at: usize) -> usize {
    const MARK: char = '\u{feff}';
    let mark = if text.starts_with(MARK) {
        MARK.len_utf8()
    } else {
        0
    };
    text[..at].rfind('\n').map_or(mark, |newline| newline + 1)
}

/// How the line at `at` ends, or the one before it if it is the last.
fn line_end(text: &str, at: usize) -> &'static str {
    let newline = text[at..]
        .find('\n')
        .map(|next| at + next)
        .or_else(|| text[..at].rfind('\n'));
    match newline {
        Some(newline) if text[..newline].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}
