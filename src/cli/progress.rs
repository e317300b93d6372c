//! Long work on the terminal: a spinner where somebody watches, plain lines otherwise.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{Mark, Output};
use super::values::seconds;

/// Plain lines come at most this often.
const PACE: Duration = Duration::from_millis(100);

/// Steps of one piece of work, told on stderr.
#[derive(Debug)]
pub(super) struct Progress {
    out: Output,
    began: Instant,
    step: Instant,
    bar: Option<ProgressBar>,
    told: Option<(Instant, String)>,
}

impl Progress {
    /// Work that begins now.
    #[must_use]
    pub(super) fn new(out: Output) -> Self {
        let now = Instant::now();
        Self {
            out,
            began: now,
            step: now,
            bar: None,
            told: None,
        }
    }

    /// Since the work began.
    #[must_use]
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A step is over; the next one begins.
    pub(super) fn step(&mut self, mark: Mark, what: &str, detail: &str) {
        self.clear();
        let took = seconds(self.step.elapsed());
        self.step = Instant::now();
        let sign = mark.sign(self.out.unicode, self.out.colour_err);
        let line = format!("  {sign} {what:<18}  {detail:<10}  {took}");
        self.out.note(line.trim_end());
    }

    /// What is going on. Where lines cannot be redrawn, each change is a line of its own, and
    /// changes in quick succession are passed over.
    pub(super) fn now(&mut self, what: &str, detail: &str) {
        let text = format!("{what:<18}  {detail}");
        let text = text.trim_end();
        if self.out.live() {
            let bar = self.bar.get_or_insert_with(|| spinner(self.out.unicode));
            bar.set_message(text.to_owned());
            return;
        }
        let stale = |(at, last): &(Instant, String)| at.elapsed() >= PACE && last != text;
        if self.told.as_ref().is_none_or(stale) {
            let dots = if self.out.unicode { "…" } else { "." };
            self.out.note(format!("  {dots} {text}"));
            self.told = Some((Instant::now(), text.to_owned()));
        }
    }

    /// Takes the spinner away, before something else is printed.
    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn spinner(unicode: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    let ticks = if unicode {
        "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "
    } else {
        "|/-\\ "
    };
    let style = ProgressStyle::with_template("  {spinner} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.set_style(style.tick_chars(ticks));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
