//! Proves that a session provider keeps the contract of [`Sessions`].
//!
//! gc runs this list against every provider of its own; run it against yours. A [`Backend`] says
//! how to build the provider and where its agents may write; [`verify`] then lives every case on
//! a fresh one and reports what broke. What the provider says it cannot do
//! ([`Caps`]) is not asked of it, but it must say so when asked.
//!
//! ```no_run
//! # async fn prove(make: impl Fn() -> Box<dyn gascity::conformance::Backend>) {
//! let report = gascity::conformance::verify(make).await;
//! assert!(report.is_clean(), "{report}");
//! # }
//! ```

mod act;
mod ends;
mod facts;
mod input;
mod lives;
mod output;
mod stage;
mod stops;

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use act::Act;
pub use stage::Stage;

use crate::model::{AgentName, Command};
use crate::ports::{Caps, Sessions};

/// Upper bound of one case; reached only by a provider that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Where the sessions of a provider live: a server, a directory, a cluster.
pub trait Backend: Send + Sync {
    /// A provider on this backend, as a fresh process would build it. Several may exist.
    fn provider(&self) -> Arc<dyn Sessions>;

    /// A directory that agents may use as theirs, and the test may read. Absolute, no links.
    fn dir(&self) -> &Path;

    /// What makes an agent of this name behave like `act` from its next start on. Providers that
    /// run commands need nothing but the command.
    fn prepare(&self, agent: &AgentName, act: &Act) -> Command {
        let _ = agent;
        act.command()
    }

    /// Its agents are processes of this machine, and shell commands mean what they say.
    fn runs_commands(&self) -> bool {
        true
    }

    /// Plants a session that is somebody else's. `false`: there is no such thing here.
    fn plant_foreign(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// A provider of another city on the same backend. `None`: there is no such thing here.
    fn neighbour(&self) -> Option<Arc<dyn Sessions>> {
        None
    }

    /// Makes the backend unreachable. `false`: it cannot be.
    fn break_down(&self) -> bool {
        false
    }

    /// Clears away whatever the provider's own stops left; called after each case.
    fn clean_up(&self) {}
}

impl<B: Backend + ?Sized> Backend for Box<B> {
    fn provider(&self) -> Arc<dyn Sessions> {
        (**self).provider()
    }

    fn dir(&self) -> &Path {
        (**self).dir()
    }

    fn prepare(&self, agent: &AgentName, act: &Act) -> Command {
        (**self).prepare(agent, act)
    }

    fn runs_commands(&self) -> bool {
        (**self).runs_commands()
    }

    fn plant_foreign(&self, name: &str) -> bool {
        (**self).plant_foreign(name)
    }

    fn neighbour(&self) -> Option<Arc<dyn Sessions>> {
        (**self).neighbour()
    }

    fn break_down(&self) -> bool {
        (**self).break_down()
    }

    fn clean_up(&self) {
        (**self).clean_up();
    }
}

type Outcome = anyhow::Result<()>;
type CaseFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One case of the list.
#[derive(Clone, Copy)]
pub struct Case {
    /// Row of the list in the specification.
    pub row: u32,
    /// What must hold.
    pub name: &'static str,
    /// Whether it can be asked of a provider with these abilities.
    needs: fn(Caps) -> bool,
    /// It only makes sense where commands are run.
    commands: bool,
    run: fn(Arc<Stage>) -> CaseFuture,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.row, self.name)
    }
}

/// Lists the cases of a module: row, function, and what it needs.
macro_rules! rows {
    ($($row:literal $run:ident $(needs $needs:expr)? $(, $commands:ident)?;)*) => {
        pub(super) const CASES: &[super::Case] = &[$(super::Case {
            row: $row,
            name: stringify!($run),
            needs: { let _needs: fn(crate::ports::Caps) -> bool = |_| true; $(let _needs: fn(crate::ports::Caps) -> bool = $needs;)? _needs },
            commands: false $(|| { let $commands = true; $commands })?,
            run: |stage| Box::pin($run(stage)),
        },)*];
    };
}
use rows;

/// Every case there is.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    [
        lives::CASES,
        stops::CASES,
        ends::CASES,
        facts::CASES,
        output::CASES,
        input::CASES,
    ]
    .into_iter()
    .flatten()
}

/// What came of the cases.
#[derive(Debug, Default)]
pub struct Report {
    /// Those that hold.
    pub passed: Vec<&'static Case>,
    /// Those that cannot be asked of this provider.
    pub skipped: Vec<&'static Case>,
    /// Those that do not hold, and why.
    pub failed: Vec<(&'static Case, String)>,
}

impl Report {
    /// Nothing failed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, why) in &self.failed {
            writeln!(f, "{case:?}: {why}")?;
        }
        let (passed, skipped) = (self.passed.len(), self.skipped.len());
        let failed = self.failed.len();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Lives every case, each on a backend of its own.
pub async fn verify<B: Backend + 'static>(make: impl Fn() -> B) -> Report {
    verify_some(make, |_| true).await
}

/// Lives the cases that `wanted` picks, each on a backend of its own.
pub async fn verify_some<B: Backend + 'static>(
    make: impl Fn() -> B,
    wanted: impl Fn(&Case) -> bool,
) -> Report {
    let mut report = Report::default();
    for case in cases().filter(|case| wanted(case)) {
        let stage = Arc::new(Stage::new(Arc::new(make())));
        let askable = (case.needs)(stage.caps()) && (!case.commands || stage.runs_commands());
        if !askable {
            report.skipped.push(case);
            continue;
        }
        let lived = tokio::spawn(tokio::time::timeout(LIMIT, (case.run)(stage.clone()))).await;
        stage.clear().await;
        match lived {
            Ok(Ok(Ok(()))) => report.passed.push(case),
            Ok(Ok(Err(error))) => report.failed.push((case, format!("{error:#}"))),
            Ok(Err(_)) => report.failed.push((case, format!("hangs for {LIMIT:?}"))),
            Err(panic) => report.failed.push((case, panic.to_string())),
        }
    }
    report
}
