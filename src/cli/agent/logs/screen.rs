//! Following what an agent prints where there is no file: from what stands on and above its
//! screen.

use std::time::Duration;

/// How often the screen is looked at.
pub(super) const PACE: Duration = Duration::from_millis(200);

/// How much of it is compared with what was there before.
pub(super) const WINDOW: u32 = 1000;

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Lines that were told, as far as they can still stand there.
    told: Vec<String>,
    /// The last line, which may still grow.
    last: Option<String>,
}

impl Seen {
    /// All of what stands there at first.
    pub(super) fn begin(&mut self, text: &str) -> Vec<String> {
        self.told = text.lines().map(str::to_owned).collect();
        self.last = self.told.last().cloned();
        self.told.clone()
    }

    /// What is new in the text that stands there now. A last line is told once it has stood there
    /// for two looks.
    pub(super) fn news(&mut self, text: &str) -> Vec<String> {
        let mut now: Vec<String> = text.lines().map(str::to_owned).collect();
        let last = now.pop();
        if last == self.last || last.as_ref().is_some_and(|last| self.is_told(&now, last)) {
            now.extend(last.clone());
        }
        self.last = last;
        let from = known(&self.told, &now);
        let news = now[from..].to_vec();
        if !news.is_empty() {
            self.told = now;
        }
        news
    }

    fn is_told(&self, before: &[String], last: &str) -> bool {
        let expected = before.len() + 1 == self.told.len();
        expected && self.told.last().is_some_and(|told| told == last)
    }
}

/// How many lines of `now` were told: those that are the end of `told`, or end with all of it.
fn known(told: &[String], now: &[String]) -> usize {
    let common = |end: usize| end.min(told.len());
    let fits = |end: &usize| told.ends_with(&now[end - common(*end)..*end]);
    let ends = (0..=now.len()).rev().filter(fits);
    ends.max_by_key(|end| common(*end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of one look after the other.
    fn told(looks: &[&str]) -> Vec<Vec<String>> {
        let mut seen = Seen::default();
        looks.iter().map(|text| seen.news(text)).collect()
    }

    #[test]
    fn lines_are_told_once_and_the_last_when_it_stands() {
        let found = told(&["a\nb", "a\nb", "a\nb", "a\nb\nc\nd", "a\nb\nc\nd"]);
        let expected: [&[&str]; 5] = [&["a"], &["b"], &[], &["c"], &["d"]];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_that_grows_is_told_when_it_is_whole() {
        let found = told(&["wor", "work", "working", "working\ndone", "working\ndone"]);
        let expected: [&[&str]; 5] = [&[], &[], &[], &["working"], &["done"]];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_has_scrolled_away_does_not_matter() {
        let found = told(&["a\nb\nc\n1", "b\nc\nd\n2", "x\ny\n3"]);
        let expected: [&[&str]; 3] = [&["a", "b", "c"], &["d"], &["x", "y"]];
        assert_eq!(found, expected);
    }

    #[test]
    fn equal_lines_are_told_as_often_as_they_come() {
        let found = told(&["a\na\n1", "a\na\na\na\n2", "a\na\na\na\n2"]);
        let expected: [&[&str]; 3] = [&["a", "a"], &["a", "a"], &["2"]];
        assert_eq!(found, expected);
    }
}
