use super::*;
use crate::model::FailureClass;

const CODE_1: ExitStatus = ExitStatus::Code(1);

fn up() -> Began {
    Began {
        pid: Some(7),
        ..Began::default()
    }
}

fn started() -> Effect {
    Effect::Report(Report::Started(up()))
}

fn exited(status: ExitStatus) -> Effect {
    Effect::End {
        how: EndKind::Exited(status),
        tail: String::new(),
    }
}

fn stopped(status: Option<ExitStatus>, forced: bool) -> Effect {
    let how = EndKind::Stopped {
        reason: StopReason::Drift,
        status,
        forced,
    };
    Effect::End {
        how,
        tail: String::new(),
    }
}

fn finish(forced: bool) -> Effect {
    Effect::Finish {
        reason: StopReason::Drift,
        forced,
    }
}

fn running() -> RunState {
    let mut run = RunState::new(Mode::Start, false);
    assert_eq!(run.on_start_done(Ok(up())), [started()]);
    run
}

#[test]
fn an_exit_known_before_the_start_returns_is_reported_after_it() {
    let mut run = RunState::new(Mode::Start, false);
    assert_eq!(run.on_begin(), [Effect::Start]);
    assert_eq!(run.on_exit(CODE_1), []);
    assert_eq!(run.on_start_done(Ok(up())), [started(), exited(CODE_1)]);
}

#[test]
fn a_failed_start_ends_the_run_without_announcing_it() {
    let mut run = RunState::new(Mode::Start, true);
    let failure = StartFailure::new("spawn", FailureClass::Agent, "no");
    let how = EndKind::StartFailed(failure.clone());
    assert_eq!(
        run.on_start_done(Err(failure)),
        [Effect::End {
            how,
            tail: String::new()
        }]
    );
}

#[test]
fn a_crash_is_reported_with_its_last_words_and_a_clean_exit_without() {
    let mut run = RunState::new(Mode::Adopt, true);
    assert_eq!(run.on_probed(Ok(Liveness::Live { pid: None })), []);
    assert_eq!(run.on_exit(CODE_1), [Effect::Capture]);
    assert_eq!(run.on_exit(CODE_1), [], "told twice, ended once");
    let end = Effect::End {
        how: EndKind::Exited(CODE_1),
        tail: "oops".into(),
    };
    assert_eq!(run.on_captured("oops".into()), [end]);

    let mut run = running();
    assert_eq!(
        run.on_exit(ExitStatus::Code(0)),
        [exited(ExitStatus::Code(0))]
    );
}

#[test]
fn a_stop_interrupts_waits_and_forces() {
    let mut run = running();
    let grace = Grace::For(Duration::from_secs(5));
    assert_eq!(
        run.on_stop(StopReason::Drift, grace),
        [Effect::Interrupt(StopReason::Drift)]
    );
    assert_eq!(
        run.on_interrupted(),
        [
            Effect::Report(Report::Interrupted),
            Effect::ArmGrace(Duration::from_secs(5))
        ]
    );
    assert_eq!(run.on_force(), [finish(true)]);
    assert_eq!(
        run.on_exit(ExitStatus::Signal(9)),
        [],
        "the final stop is under way already"
    );
    assert_eq!(
        run.on_stop_done(Ok(Stopped::Forced)),
        [stopped(Some(ExitStatus::Signal(9)), true)]
    );
}

#[test]
fn an_exit_after_the_intent_is_planned_whatever_its_status() {
    let mut run = running();
    let _ = run.on_stop(StopReason::Drift, Grace::UntilTold);
    assert_eq!(run.on_exit(CODE_1), [finish(false)], "sweeps up strays");
    assert_eq!(
        run.on_stop_done(Ok(Stopped::Clean)),
        [stopped(Some(CODE_1), false)]
    );
}

#[test]
fn an_exit_before_the_stop_arrives_is_unplanned_and_the_stop_finds_nothing() {
    let mut run = RunState::new(Mode::Start, true);
    let _ = run.on_start_done(Ok(up()));
    let _ = run.on_exit(CODE_1);
    assert_eq!(run.on_stop(StopReason::Drift, Grace::None), []);
    let how = EndKind::Exited(CODE_1);
    assert_eq!(
        run.on_captured(String::new()),
        [Effect::End {
            how,
            tail: String::new()
        }]
    );
}

#[test]
fn a_stop_during_the_start_cancels_it_and_ignores_its_result() {
    let mut run = RunState::new(Mode::Start, false);
    let grace = Grace::For(Duration::from_secs(5));
    assert_eq!(run.on_stop(StopReason::Drift, grace), [finish(true)]);
    assert_eq!(run.on_start_done(Ok(up())), []);
    assert_eq!(run.on_stop_done(Ok(Stopped::Absent)), [stopped(None, true)]);
}

#[test]
fn a_failed_stop_leaves_the_run_running() {
    let mut run = running();
    let _ = run.on_stop(StopReason::Drift, Grace::None);
    assert_eq!(
        run.on_stop_done(Err(SessionError::Timeout)),
        [Effect::Report(Report::StopFailed(SessionError::Timeout))]
    );
    assert_eq!(run.on_exit(CODE_1), [exited(CODE_1)]);
}

#[test]
fn an_adopted_run_that_cannot_be_observed_is_asked_again_not_declared_dead() {
    let mut run = RunState::new(Mode::Adopt, false);
    assert_eq!(run.on_begin(), [Effect::Probe]);
    assert_eq!(
        run.on_probed(Err(SessionError::Timeout)),
        [Effect::ProbeLater]
    );
    assert_eq!(
        run.on_probed(Ok(Liveness::Absent)),
        [exited(ExitStatus::Vanished)]
    );
}

#[test]
fn a_resumed_start_begins_anew_only_if_nothing_was_started() {
    let mut run = RunState::new(Mode::Resume, false);
    assert_eq!(run.on_probed(Ok(Liveness::Absent)), [Effect::Start]);
    let mut run = RunState::new(Mode::Resume, false);
    assert_eq!(
        run.on_probed(Ok(Liveness::Live { pid: Some(7) })),
        [started()]
    );
}
