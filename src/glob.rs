//! Patterns in which `*` stands for any run and `?` for one.

/// Whether the whole `text` fits `pattern`. Time grows with the product of their lengths at worst:
/// only the last `*` is ever tried again.
#[must_use]
pub(crate) fn fits<T: Copy + Eq + From<u8>>(pattern: &[T], text: &[T]) -> bool {
    let (any, one) = (T::from(b'*'), T::from(b'?'));
    let (mut p, mut t) = (0, 0);
    // Where to resume when what follows the last `*` turns out not to fit.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(c) if *c == any => {
                retry = Some((p, t));
                p += 1;
            }
            Some(c) if *c == one || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == any)
}

/// The same for text, where `?` stands for one character.
#[must_use]
pub(crate) fn fits_text(pattern: &str, text: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<char>>();
    fits(&chars(pattern), &chars(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_texts() {
        for (pattern, text) in [
            ("agent.*", "agent.crashed"),
            ("*", ""),
            ("demo/*", "demo/rig/w-1"),
            ("*a*b", "xaxxb"),
            ("w-?", "w-ä"),
            ("same", "same"),
        ] {
            assert!(fits_text(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("agent.*", "agents"), ("a", "ab"), ("?", ""), ("*b", "ba")] {
            assert!(!fits_text(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_their_product() {
        // A matcher that tries every star again would not be done before the sun is.
        let pattern = "*a".repeat(2_000) + "b";
        let text = "a".repeat(20_000);
        assert!(!fits(pattern.as_bytes(), text.as_bytes()));
    }
}
