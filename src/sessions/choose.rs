//! Which provider a word in the config stands for, and why.

/// What a word came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The provider.
    pub(crate) word: String,
    /// Why this one, for a person; empty if the config says so itself.
    pub(crate) why: String,
    /// Why it is not tmux, which is what was wanted.
    pub(crate) degraded: Option<String>,
}

/// `auto` is tmux where a usable one is found, else plain processes; any other word is itself.
pub(crate) fn choose(word: &str) -> Chosen {
    if !matches!(word, "" | "auto") {
        return Chosen {
            word: word.to_owned(),
            why: String::new(),
            degraded: None,
        };
    }
    match usable_tmux() {
        Ok(version) => Chosen {
            word: "tmux".into(),
            why: format!("auto: {version}"),
            degraded: None,
        },
        Err(why) => Chosen {
            word: "subprocess".into(),
            why: format!("auto: {why}"),
            degraded: Some(why),
        },
    }
}

/// The version of a tmux that can be used, or why there is none.
#[cfg(target_os = "linux")]
fn usable_tmux() -> Result<String, String> {
    super::tmux::usable()
}

#[cfg(not(target_os = "linux"))]
fn usable_tmux() -> Result<String, String> {
    Err("tmux sessions need Linux".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_picks_what_works_here_and_says_why() {
        for word in ["", "auto"] {
            let chosen = choose(word);
            assert!(["tmux", "subprocess"].contains(&chosen.word.as_str()));
            assert!(chosen.why.starts_with("auto: "), "{}", chosen.why);
            assert_eq!(chosen.degraded.is_some(), chosen.word == "subprocess");
        }
        // Whoever asks for plain processes gets what was asked for.
        assert_eq!(choose("subprocess").degraded, None);
        let chosen = choose("exec:./run");
        assert_eq!(
            (chosen.word.as_str(), chosen.why.as_str()),
            ("exec:./run", "")
        );
    }
}
