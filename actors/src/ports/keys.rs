use std::fmt;

use super::SessionError;

/// The most keys and text that are sent at once, in bytes.
const LIMIT: usize = 64 << 10;

/// One key of [`Sessions::send_keys`](super::Sessions::send_keys), or some text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
    /// A key by its name, one of [`Key::NAMES`].
    Named(&'static str),
    /// A letter together with Ctrl.
    Ctrl(char),
    /// Text as it is; nothing is added to it.
    Text(String),
}

impl Key {
    /// Keys that have names.
    pub const NAMES: [&'static str; 9] = [
        "Enter", "Escape", "Tab", "Up", "Down", "Left", "Right", "Space", "BSpace",
    ];

    /// The Enter key.
    pub const ENTER: Self = Self::Named(Self::NAMES[0]);

    /// What a terminal sends for it, unless the program has asked for something else.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Named(name) => match *name {
                "Enter" => "\r",
                "Escape" => "\x1b",
                "Tab" => "\t",
                "Up" => "\x1b[A",
                "Down" => "\x1b[B",
                "Right" => "\x1b[C",
                "Left" => "\x1b[D",
                "Space" => " ",
                _ => "\x7f",
            }
            .into(),
            Self::Ctrl(letter) => vec![u8::try_from(*letter).unwrap_or_default() & 0x1f],
            Self::Text(text) => text.clone().into_bytes(),
        }
    }

    /// Whether these can be sent at once.
    ///
    /// # Errors
    /// [`SessionError::TooLarge`], and [`SessionError::Invalid`] for a NUL byte.
    pub fn check(keys: &[Self]) -> Result<(), SessionError> {
        let mut size = 0;
        for key in keys {
            if let Self::Text(text) = key {
                if text.contains('\0') {
                    return Err(SessionError::Invalid("the keys hold a NUL byte"));
                }
                size += text.len();
            } else {
                size += 1;
            }
        }
        match size {
            0..=LIMIT => Ok(()),
            _ => Err(SessionError::TooLarge(LIMIT)),
        }
    }
}

/// A name, `C-` with a letter, or else the text itself.
impl From<&str> for Key {
    fn from(text: &str) -> Self {
        if let Some(name) = Self::NAMES.into_iter().find(|name| *name == text) {
            return Self::Named(name);
        }
        let ctrl = text.strip_prefix("C-").map(|rest| rest.chars());
        match ctrl.map(|mut rest| (rest.next(), rest.next())) {
            Some((Some(letter), None)) if letter.is_ascii_alphabetic() => {
                Self::Ctrl(letter.to_ascii_lowercase())
            }
            _ => Self::Text(text.to_owned()),
        }
    }
}

/// As [`Key::from`] reads it.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Ctrl(letter) => write!(f, "C-{letter}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ctrl_are_keys_and_all_else_is_text() {
        for (text, bytes) in [
            ("Enter", "\r"),
            ("Escape", "\x1b"),
            ("Tab", "\t"),
            ("Up", "\x1b[A"),
            ("Down", "\x1b[B"),
            ("Right", "\x1b[C"),
            ("Left", "\x1b[D"),
            ("Space", " "),
            ("BSpace", "\x7f"),
            ("C-c", "\x03"),
            ("C-C", "\x03"),
            ("C-1", "C-1"),
            ("C-cc", "C-cc"),
            ("enter", "enter"),
            ("y", "y"),
            ("", ""),
        ] {
            assert_eq!(Key::from(text).bytes(), bytes.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_no_terminal_takes_is_refused() {
        let long = Key::Text("x".repeat(LIMIT));
        assert_eq!(Key::check(std::slice::from_ref(&long)), Ok(()));
        let more = Key::check(&[long, Key::ENTER]);
        assert_eq!(more, Err(SessionError::TooLarge(LIMIT)));
        let nul = Key::check(&[Key::from("a\0b")]);
        assert!(matches!(nul, Err(SessionError::Invalid(_))), "{nul:?}");
    }
}
