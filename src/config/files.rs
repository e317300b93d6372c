//! All files of a load, one after the other, so that a place is a plain range of numbers.

use std::path::{Path, PathBuf};

use super::source::Text;
use super::tree::Span;

/// Where a value comes from, from low to high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Pack,
    City,
    Fragment,
    /// A file named on the command line.
    Flag,
    Override,
    Patch,
}

impl Layer {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::City => "city",
            Self::Fragment => "fragment",
            Self::Flag => "-f",
            Self::Override => "rig override",
            Self::Patch => "patch",
        }
    }
}

/// One file.
#[derive(Debug)]
pub(super) struct SourceFile {
    base: usize,
    /// As people know it: relative to the city if it lies there.
    pub(super) shown: String,
    /// Its directory, against which its paths are resolved.
    pub(super) dir: PathBuf,
    pub(super) text: Text,
}

/// The files in the order they were read.
#[derive(Debug, Default)]
pub(super) struct Files {
    list: Vec<SourceFile>,
    root: PathBuf,
    next: usize,
}

impl Files {
    /// The files of the city at `root`.
    pub(super) fn of(root: &Path) -> Self {
        Self {
            list: Vec::new(),
            root: root.to_owned(),
            next: 0,
        }
    }

    /// The root of the city.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// How people know a path.
    pub(super) fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    }

    /// Where the next file begins.
    pub(super) fn next_base(&self) -> usize {
        self.next
    }

    /// Where the last file begins.
    pub(super) fn last_base(&self) -> usize {
        self.list.last().map_or(0, |file| file.base)
    }

    /// Adds a file; its first byte is at the answer.
    pub(super) fn add(&mut self, path: &Path, text: Text) -> usize {
        let base = self.next;
        self.next += text.len() + 1;
        self.list.push(SourceFile {
            base,
            shown: self.shown(path),
            dir: path.parent().unwrap_or(&self.root).to_owned(),
            text,
        });
        base
    }

    /// The file at a place, and the place within it.
    pub(super) fn locate(&self, span: &Span) -> Option<(&SourceFile, Span)> {
        let at = self.list.partition_point(|file| file.base <= span.start);
        let file = self.list.get(at.checked_sub(1)?)?;
        let end = span.end.min(file.base + file.text.len()).max(span.start);
        Some((file, span.start - file.base..end - file.base))
    }

    /// The directory against which a path written at `span` is resolved.
    pub(super) fn dir(&self, span: &Span) -> &Path {
        self.locate(span).map_or(&self.root, |(file, _)| &file.dir)
    }

    /// The path written as `text` at `span`: `//x` starts at the city's root, others at the
    /// directory of their file.
    pub(super) fn resolve(&self, text: &str, span: &Span) -> PathBuf {
        let joined = match text.strip_prefix("//") {
            Some(rest) => self.root.join(rest.trim_start_matches('/')),
            None => self.dir(span).join(text),
        };
        // Without `.` and doubled slashes; `..` stays, since behind a link it cannot be folded.
        joined.components().collect()
    }

    /// The place of bytes `start..end` of a string that is written at `span`.
    pub(super) fn inside(&self, span: &Span, value: &str, start: usize, end: usize) -> Span {
        let Some((file, local)) = self.locate(span) else {
            return span.clone();
        };
        let raw = file.text.raw().get(local).unwrap_or_default();
        // Written without escapes, the value stands in the file as it is.
        if let Some(at) = raw.find(value).filter(|_| !value.is_empty()) {
            return span.start + at + start..span.start + at + end;
        }
        match value.get(start..end).and_then(|part| raw.find(part)) {
            Some(at) => span.start + at..span.start + at + (end - start),
            None => span.clone(),
        }
    }

    /// `file:line:column` of a place.
    pub(super) fn position(&self, span: &Span) -> (String, usize, usize) {
        match self.locate(span) {
            Some((file, local)) => {
                let (line, column) = file.text.position(local.start);
                (file.shown.clone(), line, column)
            }
            None => (String::new(), 0, 0),
        }
    }
}
