//! Black-box tests: the real binary, real processes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod version;
