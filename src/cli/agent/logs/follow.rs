//! Following a log that grows.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::changes::Changes;
use crate::cli::context::Context;
use crate::cli::error::CliResult;
use crate::sessions::{clean, tail_across};

/// How much is read at once.
const CHUNK: u64 = 256 << 10;

/// Prints the last `lines` lines, then what comes, until the process is ended.
///
/// # Errors
/// If the file cannot be read or nobody can be told.
pub(super) fn follow(context: &Context, name: &str, log: &Path, lines: u32) -> CliResult<u8> {
    let say = |line: &str| match context.out.json {
        true => context.out.document(&json!({"agent": name, "line": line})),
        false => context.out.line(line),
    };
    let mut growing = Growing::at_end(log)?;
    for line in tail_across(log, 0, Some(0), lines)?.lines() {
        say(line)?;
    }
    let changes = Changes::around(log);
    loop {
        for line in growing.lines()? {
            say(&line)?;
        }
        changes.wait();
    }
}

/// A file that somebody appends to.
#[derive(Debug)]
struct Growing {
    path: PathBuf,
    offset: u64,
}

impl Growing {
    /// Behind what is there now.
    fn at_end(path: &Path) -> io::Result<Self> {
        let offset = match path.metadata() {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let path = path.to_owned();
        Ok(Self { path, offset })
    }

    /// The complete lines that came since; an incomplete one waits for its end.
    fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < self.offset {
            self.offset = 0; // begun anew
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let end = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if bytes.len() as u64 == CHUNK => bytes.len(), // nobody waits for such a line
            None => return Ok(Vec::new()),
        };
        self.offset += end as u64;
        let text = clean(&bytes[..end]);
        Ok(text.lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn complete_lines_come_once_also_after_a_new_begin() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut growing = Growing::at_end(&path).unwrap();
        assert_eq!(growing.lines().unwrap(), [""; 0]);
        fs::write(&path, "one\ntwo\nthr").unwrap();
        assert_eq!(growing.lines().unwrap(), ["one", "two"]);
        assert_eq!(growing.lines().unwrap(), [""; 0]);
        fs::write(&path, "one\ntwo\n\x1b[1mthree\x1b[0m\n").unwrap();
        assert_eq!(growing.lines().unwrap(), ["three"]);
        fs::write(&path, "new\n").unwrap();
        assert_eq!(growing.lines().unwrap(), ["new"]);
    }
}
