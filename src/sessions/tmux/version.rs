//! Which tmux can be used.

/// Option `-e` of `new-session`, and flags of clients.
const LEAST: (u32, u32) = (3, 2);

/// A version that is new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// As the program says it, e.g. `3.3a`.
    pub(super) text: String,
    /// It has `remain-on-exit-format`.
    pub(super) blank_on_exit: bool,
}

impl Version {
    /// Reads the answer to `tmux -V`.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub(super) fn parse(answer: &str) -> Result<Self, String> {
        let text = answer.trim().trim_start_matches("tmux ").to_owned();
        let number = text.strip_prefix("next-").unwrap_or(&text);
        if number == "master" {
            let blank_on_exit = true;
            return Ok(Self {
                text,
                blank_on_exit,
            });
        }
        let Some(found) = numbers(number) else {
            return Err(format!("{answer:?} is no version of tmux"));
        };
        if found < LEAST {
            let (major, minor) = LEAST;
            return Err(format!("tmux {text} is too old: {major}.{minor} is needed"));
        }
        Ok(Self {
            blank_on_exit: found >= (3, 3),
            text,
        })
    }
}

/// `3.3a` is 3 and 3.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_3_2_on_are_usable() {
        for usable in [
            "tmux 3.2",
            "tmux 3.3a\n",
            "tmux next-3.6",
            "tmux master",
            "tmux 10.0",
        ] {
            assert!(Version::parse(usable).is_ok(), "{usable}");
        }
        for unusable in [
            "tmux 3.1c",
            "tmux 2.9a",
            "tmux",
            "",
            "screen 4.09",
            "tmux x.y",
        ] {
            assert!(Version::parse(unusable).is_err(), "{unusable}");
        }
        let old = Version::parse("tmux 3.1c").unwrap_err();
        assert_eq!(old, "tmux 3.1c is too old: 3.2 is needed");
        assert!(!Version::parse("tmux 3.2a").unwrap().blank_on_exit);
        assert!(Version::parse("tmux 3.3a").unwrap().blank_on_exit);
    }
}
