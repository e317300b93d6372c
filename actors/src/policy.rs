//! Pure decisions. No async, no clock, no I/O: time is an argument, effects are return values.

mod admit;
mod backoff;
mod ledger;
mod plan;
mod slot;
mod supervise;
mod tick;
mod waves;

pub use admit::{Admission, admit};
pub use backoff::{Pacing, doubling};
pub use ledger::Ledger;
pub use plan::{Action, Observed, plan};
pub use slot::{Phase, Run, Slot};
pub use supervise::{Verdict, supervise};
pub use tick::{TickGate, Trigger};
pub use waves::{Graph, check_dependencies};
