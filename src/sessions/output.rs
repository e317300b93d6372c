//! What an agent wrote, made fit for people: the last lines, without escapes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How much of a log's end is looked at for a number of lines.
const WINDOW: u64 = 256 << 10;

/// The same when all of it is asked for.
const WINDOW_ALL: u64 = 1 << 20;

/// Up to this much is read on the spot.
const SHORT: u64 = 32 << 10;

/// How much was written to a file after an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    /// So little that to read it takes less time than to have another thread do it.
    Little,
    Much,
}

/// How much was written to `path` after `offset`.
pub(super) fn written(path: &Path, offset: u64) -> Written {
    let size = path.metadata().map_or(0, |meta| meta.len());
    // One that is shorter than it was has been truncated by someone meanwhile.
    match size.checked_sub(offset).unwrap_or(size) {
        0 => Written::Nothing,
        1..=SHORT => Written::Little,
        _ => Written::Much,
    }
}

/// The last `lines` lines of what was written to `path` after `offset`, all of it for 0.
/// A missing file has no lines.
pub(super) fn tail(path: &Path, offset: u64, lines: u32) -> io::Result<String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    let begin = if offset > size { 0 } else { offset }; // truncated by someone meanwhile
    let window = if lines == 0 { WINDOW_ALL } else { WINDOW };
    let from = begin.max(size.saturating_sub(window));
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes)?;
    let whole = if from > begin {
        whole_lines(&bytes)
    } else {
        &bytes
    };
    Ok(last_lines(capped(&clean(whole), window), lines))
}

/// The same of a log that may have been begun anew: what is missing comes from the old one before
/// it, from `rotated` on.
pub(crate) fn tail_across(
    path: &Path,
    offset: u64,
    rotated: Option<u64>,
    lines: u32,
) -> io::Result<String> {
    let text = tail(path, offset, lines)?;
    let missing = match (lines, u32::try_from(text.lines().count())) {
        (0, _) => 0,
        (lines, Ok(count)) if count < lines => lines - count,
        _ => return Ok(text),
    };
    let Some(begin) = rotated else {
        return Ok(text);
    };
    let mut old = path.as_os_str().to_owned();
    old.push(".1");
    let before = tail(Path::new(&old), begin, missing)?;
    if before.is_empty() || text.is_empty() {
        return Ok(before + &text);
    }
    Ok(capped(&format!("{before}\n{text}"), WINDOW_ALL).to_owned())
}

/// The last `lines` lines of what somebody else has read, all of it for 0, within bounds.
pub(super) fn last(bytes: &[u8], lines: u32) -> String {
    last_lines(capped(&clean(bytes), WINDOW_ALL), lines)
}

/// The end of a text that grew when it was made readable.
fn capped(text: &str, limit: u64) -> &str {
    let surplus = text
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    let from = (surplus..text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

/// Drops a first line that may have been cut, unless there is nothing else.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if end + 1 < bytes.len() => &bytes[end + 1..],
        _ => bytes,
    }
}

/// The last lines of a text, all for 0, without blank ones at the end.
pub(super) fn last_lines(text: &str, lines: u32) -> String {
    let text = text.trim_end();
    let all: Vec<&str> = text.lines().collect();
    let keep = match lines {
        0 => all.len(),
        n => all.len().min(n as usize),
    };
    all[all.len() - keep..].join("\n")
}

/// Removes terminal escapes and control characters other than newline and tab; invalid UTF-8
/// becomes U+FFFD.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            0x1b => rest = skip_escape(rest),
            b'\n' | b'\t' => plain.push(byte),
            0..0x20 | 0x7f => {}
            _ => plain.push(byte),
        }
    }
    let mut text = String::from_utf8_lossy(&plain).into_owned();
    text.retain(|c| !('\u{80}'..'\u{a0}').contains(&c));
    text
}

/// What follows the escape sequence whose ESC has just been read.
fn skip_escape(bytes: &[u8]) -> &[u8] {
    let after = |end: Option<usize>| end.map_or(&[][..], |end| &bytes[end + 1..]);
    match bytes.first() {
        // Control sequence: parameters, then one final byte.
        Some(b'[') => {
            let is_part = |byte: &u8| (0x20..0x40).contains(byte);
            match bytes[1..].iter().position(|byte| !is_part(byte)) {
                Some(at) if (0x40..0x7f).contains(&bytes[1 + at]) => &bytes[at + 2..],
                Some(at) => &bytes[at + 1..], // broken off: that byte is text again
                None => &[],
            }
        }
        // Strings for the terminal: titles and the like, up to BEL or ESC \.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let stop = bytes
                .iter()
                .position(|byte| matches!(byte, 0x07 | 0x1b | b'\n'));
            match stop {
                Some(at) if bytes[at] == 0x1b && bytes.get(at + 1) == Some(&b'\\') => {
                    &bytes[at + 2..]
                }
                Some(at) if bytes[at] == 0x07 => &bytes[at + 1..],
                Some(at) => &bytes[at..],
                None => &[],
            }
        }
        Some(0x20..0x30) => after(bytes.iter().position(|byte| (0x30..0x7f).contains(byte))),
        Some(0x30..0x7f) => &bytes[1..],
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_control_bytes_are_removed() {
        let cases: [(&[u8], &str); 9] = [
            (b"plain\ttext\n", "plain\ttext\n"),
            (b"\x1b[1;31mred\x1b[0m", "red"),
            (b"\x1b]0;title\x07after", "after"),
            (b"\x1b]8;;http://x\x1b\\link", "link"),
            (b"\x1b(Bset\x1b7", "set"),
            (b"a\r\nb\x00\x7f\x08", "a\nb"),
            (b"\xff\xfeok", "\u{fffd}\u{fffd}ok"),
            ("\u{9b}x".as_bytes(), "x"),
            (b"cut \x1b[3", "cut "),
        ];
        for (bytes, text) in cases {
            assert_eq!(clean(bytes), text, "{bytes:?}");
        }
    }

    #[test]
    fn the_last_lines_come_without_trailing_blank_ones() {
        assert_eq!(last_lines("a\nb\nc\n\n \n", 2), "b\nc");
        assert_eq!(last_lines("a\nb\n", 0), "a\nb");
        assert_eq!(last_lines("", 3), "");
    }

    #[test]
    fn one_endless_line_is_capped_and_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "x".repeat(3 << 20)).unwrap();
        assert_eq!(tail(&path, 0, 5).unwrap().len() as u64, WINDOW);
        assert_eq!(tail(&path, 0, 0).unwrap().len() as u64, WINDOW_ALL);
    }

    #[test]
    fn output_before_the_offset_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(tail(&path, 0, 5).unwrap(), "");
        std::fs::write(&path, "old\nnew\n").unwrap();
        assert_eq!(tail(&path, 4, 5).unwrap(), "new");
        assert_eq!(tail(&path, 99, 5).unwrap(), "old\nnew");
    }
}
