//! Which parts of a file hold values that nobody may read: environment variables and key hashes.

use std::ops::Range;

use toml::de::DeTable;

use super::tree::{Node, Table, Val};

/// The values of all environment tables and key hashes, wherever they stand: a misplaced or
/// misspelt table holds the same secrets. In bytes of a file that begins at `base`.
pub(super) fn secrets(table: &Table, base: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    collect(table, false, base, &mut found);
    found
}

/// The text of a file with all such values taken out.
pub(crate) fn masked(text: &str) -> String {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut hidden = match errors.is_empty() {
        true => secrets(&Table::new(table.get_ref(), 0), 0),
        false => suspect_values(text),
    };
    hidden.sort_by_key(|range| range.start);
    let mut shown = String::new();
    let mut at = 0;
    for range in hidden {
        if range.start >= at {
            shown.push_str(&text[at..range.start]);
            shown.push_str("\"***\"");
            at = range.end;
        }
    }
    shown.push_str(&text[at..]);
    shown
}

fn collect(table: &Table, secret: bool, base: usize, found: &mut Vec<Range<usize>>) {
    for pair in &table.0 {
        let secret = secret || names_secret(&pair.key);
        visit(&pair.node, secret, base, found);
    }
}

fn visit(node: &Node, secret: bool, base: usize, found: &mut Vec<Range<usize>>) {
    match &node.value {
        Val::Table(table) => collect(table, secret, base, found),
        Val::Array(array) => {
            for item in array {
                visit(item, secret, base, found);
            }
        }
        _ if secret => found.push(node.span.start - base..node.span.end - base),
        _ => {}
    }
}

fn names_secret(key: &str) -> bool {
    let key_like = || {
        // Asked first: the distance is costly, and most keys are far off.
        let lower = key.to_ascii_lowercase();
        lower.contains("key") || (lower.starts_with("api") && lower.len() > 4)
    };
    names_env(key) || key_like()
}

fn names_env(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    !["env_passthrough", "env_remove"].contains(&key.as_str())
        && (key.starts_with("env")
            || (key.len() <= 4 && strsim::damerau_levenshtein(&key, "env") <= 1))
}

/// The same for a file that cannot be parsed: everything that might be such a value.
pub(super) fn suspect_values(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut secret = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let body = line.trim_end();
        let key = body.split('=').next().unwrap_or(body);
        if is_header(body) {
            secret = body.split(|c: char| !is_bare(c)).any(names_secret);
        } else {
            secret |= key
                .split(|c: char| !is_bare(c))
                .any(|part| !part.is_empty() && names_secret(part));
            let value = if key.len() < body.len() {
                key.len() + 1
            } else {
                0
            };
            let value = value + (body[value..].len() - body[value..].trim_start().len());
            if secret && value < body.len() {
                found.push(at + value..at + body.len());
            }
        }
        at += line.len();
    }
    found
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn is_header(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or(line).trim();
    line.starts_with('[')
        && line.ends_with(']')
        && line.chars().all(|c| is_bare(c) || "[]. \"'".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_values_are_found_wherever_they_stand() {
        let text = "
            [[agent]]
            env = { A = \"secret\", B = 12 }
            evn.C = 'secret'
            args = ['public']
            [agent.env]
            [environment]
            D = ['secret', '''secret
            secret''']
            [session]
            env_passthrough = ['public']
        "
        .replace("[agent.env]", "");
        let table = DeTable::parse(&text).expect("valid");
        let mut found: Vec<&str> = secrets(&Table::new(table.get_ref(), 0), 0)
            .into_iter()
            .map(|r| &text[r])
            .collect();
        found.sort_unstable();
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(
            found
                .iter()
                .all(|value| value.contains("secret") || *value == "12")
        );
    }

    #[test]
    fn a_broken_file_shows_no_possible_value() {
        let text = "[[agent]]\nargs = ['public']\nenv = {\n  A = \"secret\n  \"secret\n[agent.env]\nB = secret\n[daemon]\nx = public\n";
        let shown = super::super::source::Text::new(text, suspect_values(text));
        assert!(!shown.shown().contains("secret"), "{}", shown.shown());
        assert_eq!(shown.shown().matches("public").count(), 2);
    }
}
