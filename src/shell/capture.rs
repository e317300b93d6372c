//! What comes out of a pipe, within bounds.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// Which part is kept.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keep {
    First(usize),
    Last(usize),
}

/// A pipe and what was kept of it so far.
#[derive(Debug)]
pub(super) struct Capture {
    pipe: Receiver,
    keep: Keep,
    kept: Vec<u8>,
}

impl Capture {
    /// Takes over the reading end. Needs a tokio runtime.
    pub(super) fn new(pipe: OwnedFd, keep: Keep) -> io::Result<Self> {
        Ok(Self {
            pipe: Receiver::from_owned_fd(pipe)?,
            keep,
            kept: Vec::new(),
        })
    }

    /// Reads to the end. Can be dropped at any time without losing what was kept.
    pub(super) async fn read_on(&mut self) {
        let mut chunk = vec![0; 8 << 10];
        // An error is the end as well: there is nothing more to be had.
        while let Ok(read @ 1..) = self.pipe.read(&mut chunk).await {
            self.add(&chunk[..read]);
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        match self.keep {
            Keep::First(limit) => {
                let room = limit.saturating_sub(self.kept.len());
                self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Keep::Last(limit) => {
                self.kept.extend_from_slice(bytes);
                let surplus = self.kept.len().saturating_sub(limit);
                self.kept.drain(..surplus);
            }
        }
    }

    /// What was kept.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// What was kept, as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}
