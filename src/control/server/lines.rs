//! Lines from a client that may send too much, too slowly, or nothing.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// A line that did not arrive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineError {
    /// Longer than allowed.
    TooLong,
    /// Not complete in time.
    TooSlow,
    /// The connection is gone.
    Gone,
}

/// Buffered input.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    ended: bool,
}

const CHUNK: usize = 8 * 1024;

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            ended: false,
        }
    }

    /// The first byte of the next line; `None` when there is none in time, or ever.
    /// Cancel-safe.
    pub(super) async fn first(&mut self, limit: Duration) -> Option<u8> {
        if self.buffer.is_empty() {
            timeout(limit, self.fill()).await.ok()?.ok()?;
        }
        self.buffer.first().copied()
    }

    /// The next line without its end; the end of input ends a line, too.
    pub(super) async fn line(&mut self, max: usize, limit: Duration) -> Result<Vec<u8>, LineError> {
        let found = timeout(limit, async {
            let mut searched = 0;
            loop {
                let unseen = &self.buffer[searched..];
                if let Some(at) = unseen.iter().position(|b| *b == b'\n') {
                    return Ok(searched + at);
                }
                searched = self.buffer.len();
                if self.ended || searched > max {
                    return Ok(searched);
                }
                self.fill().await?;
            }
        });
        let end = found.await.map_err(|_| LineError::TooSlow)??;
        if end > max {
            return Err(LineError::TooLong);
        }
        let rest = self.buffer.split_off((end + 1).min(self.buffer.len()));
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(line)
    }

    /// What has been read and not been asked for.
    pub(super) fn pending(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads on while an answer is being sent, so that a client that leaves is noticed. Ends with
    /// the input, or never once `max` bytes wait. Cancel-safe.
    pub(super) async fn until_end(&mut self, max: usize) {
        while !self.ended && self.buffer.len() <= max {
            if self.fill().await.is_err() {
                return;
            }
        }
        if !self.ended {
            std::future::pending::<()>().await;
        }
    }

    /// Throws input away, so that closing does not reset the connection under the last answer.
    pub(super) async fn discard(&mut self, max: usize, limit: Duration) {
        let _ = timeout(limit, async {
            let mut left = max;
            while !self.ended && left > 0 {
                left = left.saturating_sub(self.buffer.len());
                self.buffer.clear();
                if self.fill().await.is_err() {
                    return;
                }
            }
        })
        .await;
    }

    async fn fill(&mut self) -> Result<(), LineError> {
        self.buffer.reserve(CHUNK);
        match self.input.read_buf(&mut self.buffer).await {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(_) => {
                self.ended = true;
                return Err(LineError::Gone);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn lines_end_with_a_newline_or_with_the_input() {
        let mut lines = Lines::new(&b"one\r\ntwo\n\nlast"[..]);
        for expected in [&b"one"[..], b"two", b"", b"last"] {
            assert_eq!(lines.line(10, LIMIT).await.unwrap(), expected);
        }
        assert_eq!(lines.first(LIMIT).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_counts_the_line_alone() {
        let mut lines = Lines::new(&b"four\nlonger\n"[..]);
        assert_eq!(lines.line(4, LIMIT).await.unwrap(), b"four");
        assert_eq!(lines.line(4, LIMIT).await, Err(LineError::TooLong));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_lines_end_at_the_limit() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut lines = Lines::new(server);
        assert_eq!(lines.first(LIMIT).await, None, "silent");
        tokio::io::AsyncWriteExt::write_all(&mut client, b"pi")
            .await
            .unwrap();
        assert_eq!(lines.first(LIMIT).await, Some(b'p'));
        assert_eq!(lines.line(64, LIMIT).await, Err(LineError::TooSlow));
    }
}
