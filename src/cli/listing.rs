//! Lists: sorted, cut short, and fitted to the terminal.

use clap::Args;

use super::error::{CliError, CliResult, Code};
use super::output::Output;
use super::values::{did_you_mean, fitted};

/// Flags that every list takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "List options")]
pub(super) struct ListFlags {
    /// No more than this many
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// By this column, e.g. state; -state for the reverse
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub(super) sort: Option<String>,
    /// Rows only
    #[arg(long)]
    pub(super) no_headers: bool,
}

impl ListFlags {
    /// Sorts and cuts `items`, whose cells under `header` are `rows`.
    ///
    /// # Errors
    /// [`Code::Usage`] if there is no such column.
    pub(super) fn arrange<T>(
        &self,
        header: &[&str],
        rows: Vec<Vec<String>>,
        items: Vec<T>,
    ) -> CliResult<(Vec<Vec<String>>, Vec<T>)> {
        let mut both: Vec<(Vec<String>, T)> = rows.into_iter().zip(items).collect();
        if let Some(wanted) = &self.sort {
            let (reverse, name) = match wanted.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, wanted.as_str()),
            };
            let column = header.iter().position(|h| h.eq_ignore_ascii_case(name));
            let Some(column) = column else {
                let known: Vec<String> = header.iter().map(|h| h.to_ascii_lowercase()).collect();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let mut error = CliError::new(Code::Usage, format!("there is no column {name:?}"));
                error.hint = did_you_mean(name, &known);
                return Err(error);
            };
            both.sort_by(|(a, _), (b, _)| compare(&a[column], &b[column]));
            if reverse {
                both.reverse();
            }
        }
        both.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(both.into_iter().unzip())
    }

    /// The table, fitted to the terminal unless `wide`.
    pub(super) fn draw(
        &self,
        out: &Output,
        header: &[&str],
        rows: &[Vec<String>],
        wide: bool,
    ) -> String {
        let text = fitted(header, rows, out.width.filter(|_| !wide));
        match self.no_headers {
            false => text,
            true => text.lines().skip(1).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// Numbers by value, all else by letters.
fn compare(a: &str, b: &str) -> std::cmp::Ordering {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_by_a_column_and_cut() {
        let rows =
            || [["b", "10"], ["a", "9"], ["c", "-"]].map(|row| row.map(str::to_owned).to_vec());
        let sorted = |sort: &str, limit| {
            let flags = ListFlags {
                limit,
                sort: Some(sort.to_owned()),
                no_headers: false,
            };
            let (_, items) =
                flags.arrange(&["NAME", "PID"], rows().to_vec(), vec!['b', 'a', 'c'])?;
            CliResult::Ok(items.into_iter().collect::<String>())
        };
        assert_eq!(sorted("name", None).unwrap(), "abc");
        assert_eq!(sorted("-Name", Some(2)).unwrap(), "cb");
        assert_eq!(sorted("pid", None).unwrap(), "cab");
        let unknown = sorted("nmae", None).unwrap_err();
        assert_eq!(unknown.hint.as_deref(), Some("did you mean `name`?"));
    }
}
