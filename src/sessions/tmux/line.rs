//! Command lines for a tmux server, and values it keeps for us.

/// Commands that are carried out one after the other, up to the first that fails.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<u8>);

impl Line {
    /// A line of one command.
    pub(super) fn new<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::default().and(words)
    }

    /// Adds a command.
    pub(super) fn and<W: AsRef<[u8]>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b" ;");
        }
        for word in words {
            if !self.0.is_empty() {
                self.0.push(b' ');
            }
            quote(word.as_ref(), &mut self.0);
        }
        self
    }

    /// The bytes, without a newline.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Puts a word into double quotes. What has a meaning there, and whatever could end the line, is
/// written as an octal escape.
fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in word {
        match byte {
            0..0x20 | 0x7f | b'"' | b'\\' | b'$' | b'~' => {
                out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// A value as an option keeps it: printable ASCII without `%` and `|`, so that it never breaks a
/// listing. The empty value is a lone `%`, which tells it from none.
pub(super) fn encode(value: &str) -> String {
    if value.is_empty() {
        return "%".to_owned();
    }
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'%' | b'|' | 0..0x20 | 0x7f.. => out.push_str(&format!("%{byte:02x}")),
            _ => out.push(char::from(byte)),
        }
    }
    out
}

/// The value behind an option; `None` if it is not set, or by somebody else.
pub(super) fn decode(text: &str) -> Option<String> {
    match text {
        "" => return None,
        "%" => return Some(String::new()),
        _ => {}
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_quoted_and_commands_separated() {
        let line = Line::new(["set", "@x", "a \"b\" $c ~ ;#\n\\"]).and(["kill", "=n:"]);
        let expected = r#""set" "@x" "a \042b\042 \044c \176 ;#\012\134" ; "kill" "=n:""#;
        assert_eq!(String::from_utf8_lossy(line.bytes()), expected);
    }

    #[test]
    fn unset_and_empty_values_differ() {
        assert_eq!(decode(""), None);
        assert_eq!(decode(&encode("")), Some(String::new()));
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%4"), None);
        assert_eq!(decode("%ff"), None, "not text");
    }

    /// What tmux makes of a quoted word.
    fn unquote(line: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = &line[1..line.len() - 1];
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte == b'\\' {
                let digits = std::str::from_utf8(&rest[..3]).unwrap();
                out.push(u8::from_str_radix(digits, 8).unwrap());
                rest = &rest[3..];
            } else {
                out.push(byte);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn words_come_back_as_they_were(word in proptest::collection::vec(1_u8.., 0..100)) {
            let line = Line::new([&word]);
            prop_assert!(!line.bytes().contains(&b'\n'));
            prop_assert_eq!(unquote(line.bytes()), word);
        }

        #[test]
        fn values_come_back_as_they_were(value in any::<String>()) {
            let kept = encode(&value);
            prop_assert!(kept.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'|'));
            prop_assert_eq!(decode(&kept), Some(value));
        }
    }
}
