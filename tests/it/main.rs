//! Black-box tests: the real binary, real processes, the library as its users see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod library;
mod lifecycle;
mod util;
mod version;
