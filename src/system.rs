//! The machine's own clock and randomness, as ports.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};

use crate::model::RunToken;
use crate::ports::{Clock, Tokens};

/// The system's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// Tokens of 128 random bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomTokens;

impl Tokens for RandomTokens {
    fn fresh(&self) -> RunToken {
        let mut bytes = [0_u8; 16];
        // Without randomness no two runs could be told apart, and every fence would be a lie.
        #[allow(clippy::expect_used)]
        getrandom::fill(&mut bytes).expect("the system has no randomness");
        let hex = bytes
            .iter()
            .fold(String::with_capacity(32), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        #[allow(clippy::expect_used)] // digits and letters only
        RunToken::new(hex).expect("a valid token")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tokens_do_not_repeat() {
        let tokens: HashSet<_> = (0..1000).map(|_| RandomTokens.fresh()).collect();
        assert_eq!(tokens.len(), 1000);
        assert!(tokens.iter().all(|token| token.as_str().len() == 32));
    }
}
