//! The bytes of a config file: reading, positions, masked values.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gascity_actors::model::sha256_hex;

/// Name of the config file of a city.
pub(super) const FILE: &str = "city.toml";

/// Where the config file of a city is.
pub(super) fn file_of(root: &Path) -> PathBuf {
    root.join(FILE)
}

/// Size above which a file is not a config file.
pub(super) const LARGEST: u64 = 1 << 20;

/// What stands in for a value that nobody may read.
const MASK: &str = "***";

/// The bytes of a source and whether its owner may execute it.
pub(super) struct Bytes {
    pub(super) bytes: Vec<u8>,
    pub(super) executable: bool,
}

impl Bytes {
    /// Reads the file, at most one byte more than it may have.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        // Asked before opening: opening a pipe would wait for its other end.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        let file = File::open(path)?;
        let executable = file.metadata()?.permissions().mode() & 0o100 != 0;
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok(Self { bytes, executable })
    }

    /// What stands for it in a revision (config.md 5).
    pub(super) fn entry(&self) -> String {
        let mode = if self.executable { "755" } else { "644" };
        format!("{mode}:{}", sha256_hex(&self.bytes))
    }
}

/// Why the bytes of a file are no text that could be read.
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
    /// As much of it as can be shown, and where the trouble begins.
    pub(super) text: Text,
    pub(super) at: usize,
}

/// The text of a config file, as people know it.
pub(super) fn decode<'b>(bytes: &'b [u8], shown: &str) -> Result<&'b str, Box<Refusal>> {
    if bytes.len() as u64 > LARGEST {
        return Err(Box::new(Refusal {
            code: "limit",
            message: format!("{shown} is larger than {LARGEST} bytes"),
            text: Text::default(),
            at: 0,
        }));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = good.iter().filter(|b| **b == b'\n').count() + 1;
        // Empty lines: what is on them may be anything, also a secret.
        let text = "\n".repeat(line - 1);
        Box::new(Refusal {
            code: "syntax",
            message: format!("{shown} is not UTF-8, first in line {line}"),
            at: text.len(),
            text: Text::new(&text, Vec::new()),
        })
    })
}

/// The text of a file with what is needed to point into it and to show it.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    line_starts: Vec<usize>,
    shown: String,
    /// Masked range of `text`, and where its replacement begins and ends in `shown`.
    masks: Vec<(Range<usize>, Range<usize>)>,
}

impl Text {
    /// `masks` are ranges whose content is never shown.
    pub(super) fn new(text: &str, mut masks: Vec<Range<usize>>) -> Self {
        masks.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
        let mut this = Self {
            text: text.to_owned(),
            line_starts: std::iter::once(0)
                .chain(text.match_indices('\n').map(|(at, _)| at + 1))
                .collect(),
            ..Self::default()
        };
        let mut done = 0;
        for range in masks {
            if range.start < done {
                continue; // inside a masked range already
            }
            this.shown.push_str(&text[done..range.start]);
            let start = this.shown.len();
            this.shown.push_str(MASK);
            // Line numbers stay true.
            this.shown
                .extend(text[range.clone()].chars().filter(|c| *c == '\n'));
            done = range.end;
            let end = this.shown.len();
            this.masks.push((range, start..end));
        }
        this.shown.push_str(&text[done..]);
        this
    }

    /// Line and column of an offset, from 1, in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self
            .line_starts
            .get(line.saturating_sub(1))
            .copied()
            .unwrap_or(0);
        let column = self
            .text
            .get(start..offset)
            .map_or(0, |before| before.chars().count());
        (line.max(1), column + 1)
    }

    /// The text as it is.
    pub(super) fn raw(&self) -> &str {
        &self.text
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The text with masked values.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The lines of [`Text::shown`] from the one at `first` to the one at `last`, and the number
    /// of the first.
    pub(super) fn shown_lines(&self, first: usize, last: usize) -> (Range<usize>, usize) {
        let first = self.shown_offset(first);
        let start = self.shown[..first].rfind('\n').map_or(0, |at| at + 1);
        let end = self.shown_line_end(self.shown_offset(last)).max(start);
        let number = self.shown[..start].bytes().filter(|b| *b == b'\n').count() + 1;
        (start..end, number)
    }

    /// `span` within a piece of [`Text::shown`] that begins at `base`, up to the end of its line.
    pub(super) fn shown_span(&self, span: &Range<usize>, base: usize) -> Range<usize> {
        let start = self.shown_offset(span.start);
        let eol = self.shown_line_end(start);
        let start = start.min(eol);
        let end = self.shown_offset(span.end).clamp(start, eol);
        start - base..end - base
    }

    /// Where the line at `offset` ends, without its line end.
    fn shown_line_end(&self, offset: usize) -> usize {
        let end = self.shown[offset..]
            .find('\n')
            .map_or(self.shown.len(), |at| offset + at);
        if self.shown[..end].ends_with('\r') {
            end - 1
        } else {
            end
        }
    }

    fn shown_offset(&self, offset: usize) -> usize {
        let before = self
            .masks
            .partition_point(|(range, _)| range.start < offset);
        let Some((range, shown)) = before.checked_sub(1).and_then(|last| self.masks.get(last))
        else {
            return offset.min(self.shown.len());
        };
        let shown_at = if offset < range.end {
            (shown.start + (offset - range.start)).min(shown.end)
        } else {
            shown.end + (offset - range.end)
        };
        shown_at.min(self.shown.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let text = Text::new("ä = 1\nöö = 2", Vec::new());
        assert_eq!(text.position(0), (1, 1));
        assert_eq!(text.position(2), (1, 2));
        assert_eq!(text.position(7), (2, 1));
        assert_eq!(text.position(11), (2, 3));
        assert_eq!(text.position(999), (2, 7));
    }

    #[test]
    fn masked_text_keeps_its_lines_and_its_offsets() {
        let source = "a = 'long secret', b\nc = '''x\ny''' d\n";
        let masks = ["'long secret'", "'''x\ny'''"].map(|part| {
            let at = source.find(part).expect("present");
            at..at + part.len()
        });
        let text = Text::new(source, masks.to_vec());
        assert_eq!(text.shown(), "a = ***, b\nc = ***\n d\n");
        let b = source.find('b').expect("present");
        assert_eq!(text.shown_span(&(b..b + 1), 0), 9..10);
        let d = source.find('d').expect("present");
        assert_eq!(&text.shown()[text.shown_span(&(d..d + 1), 0)], "d");
    }
}
