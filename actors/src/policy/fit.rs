use std::sync::Arc;

use crate::model::{Launch, PromptMode, Stdin, Template};
use crate::ports::Caps;

/// A launch without the terminal it was meant for: nothing can be typed, so its input is empty, and
/// it is told (sessions.md 1, degraded mode).
#[must_use]
pub fn without_terminal(launch: &Launch) -> Launch {
    let mut launch = launch.clone();
    launch.stdin = Stdin::Null;
    for name in ["GC_DEGRADED", "GT_DEGRADED"] {
        launch.env.insert(name.into(), "true".into());
    }
    launch
}

/// Where nothing can be typed, the first message goes with the prompt. A program that takes no
/// prompt does without, which is a warning.
#[must_use]
pub fn fit_first_message(launch: Arc<Launch>, caps: Caps) -> (Arc<Launch>, Option<String>) {
    if launch.nudge.is_empty() || caps.nudge {
        return (launch, None);
    }
    let mut fitted = (*launch).clone();
    let nudge = std::mem::take(&mut fitted.nudge);
    if fitted.prompt.mode == PromptMode::None {
        let warning = "prompt-undelivered: its first message cannot be typed in this session, and \
                       its program takes no prompt";
        return (Arc::new(fitted), Some(warning.into()));
    }
    let prompt = fitted.prompt.text.take();
    let nudge = Template::plain(nudge);
    fitted.prompt.text = Some(match prompt {
        Some(prompt) => prompt.and(Template::plain("\n\n")).and(nudge),
        None => nudge,
    });
    (Arc::new(fitted), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Prompt;

    fn launch(mode: PromptMode, text: Option<&str>) -> Arc<Launch> {
        Arc::new(Launch {
            nudge: "go {{ $on".into(),
            prompt: Prompt {
                mode,
                text: text.map(|text| Template::parse_prompt(text, |_| true).unwrap()),
                ..Prompt::default()
            },
            ..Launch::default()
        })
    }

    fn fitted(mode: PromptMode, text: Option<&str>, nudge: bool) -> (String, String, bool) {
        let caps = Caps {
            nudge,
            ..Caps::default()
        };
        let (launch, warning) = fit_first_message(launch(mode, text), caps);
        let text = launch.prompt.text.as_ref();
        let prompt = text.map(|text| text.render(|name| Some(format!("<{name}>").into())));
        let prompt = prompt.unwrap_or_default();
        (launch.nudge.clone(), prompt, warning.is_some())
    }

    #[test]
    fn a_message_that_cannot_be_typed_goes_with_the_prompt_if_there_can_be_one() {
        let check = |mode, text, nudge, want: (&str, &str, bool)| {
            let want = (want.0.to_owned(), want.1.to_owned(), want.2);
            assert_eq!(fitted(mode, text, nudge), want, "{mode:?} {text:?}");
        };
        let told = "go {{ $on";
        check(
            PromptMode::Arg,
            Some("be {{.X}}"),
            true,
            (told, "be <X>", false),
        );
        check(PromptMode::None, None, true, (told, "", false));
        let both = "be <X>\n\ngo {{ $on";
        check(PromptMode::Arg, Some("be {{.X}}"), false, ("", both, false));
        check(PromptMode::File, None, false, ("", told, false));
        check(PromptMode::None, None, false, ("", "", true));
        check(PromptMode::None, Some("x"), false, ("", "x", true));
    }

    #[test]
    fn without_a_terminal_the_input_is_empty_and_the_agent_knows() {
        let launch = without_terminal(&Launch::default());
        assert_eq!(launch.stdin, Stdin::Null);
        let env: Vec<_> = launch.env.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(env, [("GC_DEGRADED", "true"), ("GT_DEGRADED", "true")]);
    }
}
