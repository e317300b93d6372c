//! Pure decisions. No async, no clock, no I/O: time is an argument, effects are return values.

mod admit;
mod backoff;
mod desired;
mod fit;
mod history;
mod ledger;
mod plan;
mod prompt;
mod slot;
mod supervise;
mod tick;
mod waves;

pub use admit::{Admission, admit, missing_dependency};
pub use backoff::{Pacing, doubling};
pub use desired::{Wanted, clamp, desired, parse_count, unnamed};
pub use fit::{fit_first_message, without_terminal};
pub use history::{parse_history, render_history};
pub use ledger::Ledger;
pub use plan::{Action, Observed, plan, plan_running};
pub use prompt::shows_prompt;
pub use slot::{Drain, DrainReason, Failure, Phase, Run, Slot, Want};
pub use supervise::{Verdict, classify, supervise};
pub use tick::{TickGate, Trigger};
pub use waves::{Graph, check_dependencies};
