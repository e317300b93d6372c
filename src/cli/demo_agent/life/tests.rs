use std::cell::RefCell;

use super::*;
use crate::cli::demo_agent::script;

const MS: Duration = Duration::from_millis(1);
/// Longer than any test should take.
const LONG: Duration = Duration::from_secs(60);

fn quiet(work: Work) -> Life {
    Life {
        name: Some("scout".into()),
        start_delay: Duration::ZERO,
        work,
        crash: None,
        hang_after: None,
        ignore_interrupt: false,
        drain: None,
    }
}

fn crash(after: Duration) -> Option<Fate> {
    Some(Fate {
        after,
        say: Some("no such model".into()),
        code: 7,
    })
}

/// Lets the agent act, having been told `nudges`, for at most `limit`.
fn act_out(life: &Life, nudges: &[&str], limit: Duration) -> (Option<u8>, Vec<String>) {
    let lines = RefCell::new(Vec::new());
    let say = |text: &str| {
        lines.borrow_mut().extend(text.lines().map(str::to_owned));
        Ok(())
    };
    let (sender, receiver) = mpsc::channel(16);
    for nudge in nudges {
        sender.try_send((*nudge).to_owned()).unwrap();
    }
    drop(sender);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let code = runtime.block_on(async { timeout(limit, act(life, &say, || Ok(receiver))).await });
    (code.ok().map(Result::unwrap), lines.into_inner())
}

#[test]
fn it_works_step_by_step_and_task_by_task() {
    let mut life = quiet(Work::Steps(MS));
    life.crash = crash(200 * MS);
    let (code, lines) = act_out(&life, &[], LONG);
    assert_eq!(code, Some(7));
    assert_eq!(
        lines[0],
        format!("demo: scout is up, pid {}", std::process::id())
    );
    assert_eq!(lines[1], "demo: step 1 of task 1");
    assert_eq!(lines[7], "demo: step 2 of task 2");
    assert_eq!(lines.last().unwrap(), "no such model");
}

#[test]
fn a_crash_at_once_says_its_last_words_only() {
    let mut life = quiet(Work::Steps(MS));
    life.crash = crash(Duration::ZERO);
    let (code, lines) = act_out(&life, &["hello"], LONG);
    assert_eq!((code, lines), (Some(7), vec!["no such model".to_owned()]));
}

#[test]
fn nudges_are_echoed_also_after_the_last_of_them_was_sent() {
    let life = quiet(Work::Steps(LONG));
    let (code, lines) = act_out(&life, &["hello", "again"], 50 * MS);
    assert_eq!(code, None, "end of input does not end the agent");
    assert!(lines.contains(&"demo: got nudge: hello".to_owned()));
    assert!(lines.contains(&"demo: got nudge: again".to_owned()));
}

#[test]
fn a_hanging_agent_is_silent_and_can_still_crash() {
    let mut life = quiet(Work::Steps(MS));
    life.hang_after = Some(20 * MS);
    let (code, lines) = act_out(&life, &[], 300 * MS);
    assert_eq!(code, None);
    assert!(lines.len() < 60, "{} lines in 20 ms", lines.len());
    life.crash = crash(60 * MS);
    assert_eq!(act_out(&life, &[], LONG).0, Some(7));
}

#[test]
fn a_script_is_followed_to_its_end() {
    for (text, code, said) in [
        ("print a\nsleep 1ms\nexit 3\nprint b", Some(3), vec!["a"]),
        ("print a", Some(0), vec!["a"]),
        ("hang\nexit 3", None, vec![]),
        ("run true\nprint a", Some(0), vec!["a"]),
        ("run exit 4", Some(0), vec!["demo: exit 4: exit status: 4"]),
    ] {
        let life = quiet(Work::Script(script::parse(text).unwrap()));
        // Only a script that hangs takes all of its time.
        let limit = if code.is_none() { 50 * MS } else { LONG };
        let (found, lines) = act_out(&life, &[], limit);
        assert_eq!(found, code, "{text}");
        assert_eq!(lines[1..], said, "{text}");
    }
}

#[test]
fn a_slow_start_is_silent() {
    let mut life = quiet(Work::Steps(MS));
    life.start_delay = LONG;
    life.crash = crash(Duration::ZERO);
    assert_eq!(act_out(&life, &[], 50 * MS), (None, vec![]));
}

#[test]
fn spam_keeps_its_rate() {
    for (rate, millis, expected) in [
        (1, 999, 0),
        (1, 1000, 1),
        (10, 250, 2),
        (1_000_000, 20, 20_000),
    ] {
        let elapsed = Duration::from_millis(millis);
        assert_eq!(lines_due(rate, elapsed), expected, "{rate} for {millis} ms");
    }
    let (_, lines) = act_out(&quiet(Work::Spam(1000)), &[], 300 * MS);
    assert!(lines.len() > 100, "{} lines", lines.len());
    assert_eq!(lines[1], "demo: spam line 1");
}
