//! Texts with variables (config.md 2.10): `{{.Var}}`, `{{q .Var}}`, `{{{{`; no logic.

use std::borrow::Cow;

use super::launch::shell_quote;

/// A text with variables in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable { name: String, quoted: bool },
    Fragment(String),
}

/// A text that is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong.
    pub message: String,
    /// Where it begins, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Template {
    /// A text without variables.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        let text = text.into();
        let pieces = if text.is_empty() {
            Vec::new()
        } else {
            vec![Piece::Text(text)]
        };
        Self { pieces }
    }

    /// Reads a text in which `allows` says which variables there are.
    ///
    /// # Errors
    /// [`TemplateError`] for the first place that is not as it should be.
    pub fn parse(text: &str, allows: impl Fn(&str) -> bool) -> Result<Self, TemplateError> {
        Self::read(text, &allows, false)
    }

    /// Like [`Template::parse`], and `{{fragment "name"}}` stands for another text.
    ///
    /// # Errors
    /// [`TemplateError`] for the first place that is not as it should be.
    pub fn parse_prompt(text: &str, allows: impl Fn(&str) -> bool) -> Result<Self, TemplateError> {
        Self::read(text, &allows, true)
    }

    fn read(
        text: &str,
        allows: &dyn Fn(&str) -> bool,
        fragments: bool,
    ) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut at = 0;
        while let Some(found) = text[at..].find("{{") {
            plain.push_str(&text[at..at + found]);
            let open = at + found;
            if text[open..].starts_with("{{{{") {
                plain.push_str("{{");
                at = open + 4;
                continue;
            }
            let failed = |message: String, end: usize| TemplateError {
                message,
                start: open,
                end,
            };
            let Some(length) = text[open + 2..].find("}}") else {
                return Err(failed("`{{` is not closed".into(), open + 2));
            };
            let close = open + 2 + length;
            let piece = action(&text[open + 2..close], allows, fragments)
                .map_err(|message| failed(message, close + 2))?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
            at = close + 2;
        }
        plain.push_str(&text[at..]);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// This text, then another one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.pieces.extend(other.pieces);
        self
    }

    /// The names of its variables, in order of use.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    /// The names of its fragments, in order of use.
    pub fn fragments(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Fragment(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Puts the texts of fragments in; one without a text stays out.
    #[must_use]
    pub fn with_fragments(self, mut text: impl FnMut(&str) -> Option<Self>) -> Self {
        let mut pieces = Vec::new();
        for piece in self.pieces {
            match piece {
                Piece::Fragment(name) => {
                    pieces.extend(text(&name).map(|other| other.pieces).unwrap_or_default());
                }
                piece => pieces.push(piece),
            }
        }
        Self { pieces }
    }

    /// Adds another text at the end.
    pub fn push(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
    }

    /// Puts in the variables that `value` knows; the others stay variables.
    #[must_use]
    pub fn fill<'v>(&self, value: impl Fn(&str) -> Option<Cow<'v, str>>) -> Self {
        let mut filled = Self::default();
        for piece in &self.pieces {
            let text = match piece {
                Piece::Variable { name, quoted } => value(name).map(|value| {
                    if *quoted {
                        shell_quote(&value).into_owned()
                    } else {
                        value.into_owned()
                    }
                }),
                Piece::Text(text) => Some(text.clone()),
                Piece::Fragment(_) => None,
            };
            match (text, filled.pieces.last_mut()) {
                (Some(text), Some(Piece::Text(last))) => last.push_str(&text),
                (Some(text), _) => filled.pieces.push(Piece::Text(text)),
                (None, _) => filled.pieces.push(piece.clone()),
            }
        }
        filled
    }

    /// The text; a variable that `value` does not know is empty.
    pub fn render<'v>(&self, value: impl Fn(&str) -> Option<Cow<'v, str>>) -> String {
        let filled = self.fill(|name| Some(value(name).unwrap_or_default()));
        filled
            .pieces
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Text(text) => Some(text),
                _ => None,
            })
            .collect()
    }
}

fn action(inside: &str, allows: &dyn Fn(&str) -> bool, fragments: bool) -> Result<Piece, String> {
    let words: Vec<&str> = inside.split_ascii_whitespace().collect();
    let (quoted, variable) = match words[..] {
        ["fragment", name] if fragments => {
            let bare = name
                .strip_prefix('"')
                .and_then(|name| name.strip_suffix('"'))
                .filter(|name| is_fragment(name));
            return bare
                .map(|name| Piece::Fragment(name.to_owned()))
                .ok_or_else(|| format!("{name} is no name of a fragment"));
        }
        ["q", variable] => (true, variable),
        [variable] => (false, variable),
        _ => return Err(format!("`{{{{{inside}}}}}` is no variable")),
    };
    match variable.strip_prefix('.') {
        Some(name) if allows(name) => Ok(Piece::Variable {
            name: name.to_owned(),
            quoted,
        }),
        Some(name) => Err(format!("there is no variable `.{name}` here")),
        None => Err(format!("`{{{{{inside}}}}}` is no variable")),
    }
}

/// Letters, digits, `_`, `-`, `.`, not starting with a dot: no way out of its directory.
fn is_fragment(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let values = |name: &str| match name {
            "Name" => Some(Cow::Borrowed("a b")),
            _ => None,
        };
        Template::parse(text, |name| name == "Name" || name == "Later")
            .unwrap()
            .render(values)
    }

    #[test]
    fn variables_are_put_in_raw_or_quoted() {
        for (text, expected) in [
            ("", ""),
            ("plain }} text", "plain }} text"),
            ("x {{.Name}}!", "x a b!"),
            ("x {{ q .Name }}!", "x 'a b'!"),
            ("{{{{.Name}}", "{{.Name}}"),
            ("{{.Later}}|", "|"),
        ] {
            assert_eq!(rendered(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_known_yet_stays_a_variable() {
        let template = Template::parse("{{.Name}} {{.Later}}", |_| true).unwrap();
        let filled = template.fill(|name| (name == "Name").then(|| "n".into()));
        assert_eq!(filled.variables().collect::<Vec<_>>(), ["Later"]);
        assert_eq!(filled.render(|_| Some("l".into())), "n l");
    }

    #[test]
    fn a_bad_place_is_named() {
        for (text, start, end) in [
            ("x {{.Nope}} y", 2, 11),
            ("x {{", 2, 4),
            ("{{if .Name}}", 0, 12),
            ("{{Name}}", 0, 8),
            ("{{fragment \"f\"}}", 0, 16),
        ] {
            let error = Template::parse(text, |name| name == "Name").unwrap_err();
            assert_eq!((error.start, error.end), (start, end), "{text}: {error}");
        }
        assert!(Template::parse_prompt("{{fragment \"../f\"}}", |_| true).is_err());
    }

    #[test]
    fn fragments_are_texts_of_their_own() {
        let prompt = Template::parse_prompt("a {{fragment \"f\"}} b", |_| true).unwrap();
        assert_eq!(prompt.fragments().collect::<Vec<_>>(), ["f"]);
        let whole = prompt.with_fragments(|_| Template::parse("<{{.X}}>", |_| true).ok());
        assert_eq!(whole.render(|_| Some("1".into())), "a <1> b");
    }
}
