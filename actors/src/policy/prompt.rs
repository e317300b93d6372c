/// Whether a line of the screen begins with the prompt. Hard blanks count as blanks.
#[must_use]
pub fn shows_prompt(screen: &str, prefix: &str) -> bool {
    let plain = |text: &str| text.replace('\u{a0}', " ");
    let prefix = plain(prefix);
    screen.lines().any(|line| {
        let line = plain(line);
        // A screen cuts the blanks at the end of a line.
        line.starts_with(&prefix) || line == prefix.trim_end()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_at_the_start_of_a_line() {
        for (screen, shows) in [
            ("hello\n❯ \n", true),
            ("❯\u{a0}go", true),
            ("❯", true),
            (" ❯ 1. Yes", false),
            ("a ❯ b", false),
            ("❯x", false),
            ("", false),
        ] {
            assert_eq!(shows_prompt(screen, "❯ "), shows, "{screen:?}");
        }
    }
}
