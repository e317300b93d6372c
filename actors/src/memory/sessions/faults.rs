//! What goes wrong on purpose.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::{Call, MemorySessions, World};
use crate::mailbox::lock;
use crate::model::{RunToken, SessionName};
use crate::ports::{Caps, SessionError, SessionEvent, SessionEventKind};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It fails.
    Fail(SessionError),
    /// It never ends.
    Hang,
    /// It takes this long.
    Delay(Duration),
}

/// To how many calls it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// To all of them.
    Always,
    /// To the next ones.
    Next(u32),
    /// To this many of a hundred, at random, but always the same ones for a seed.
    Chance {
        /// Of a hundred.
        percent: u32,
        /// Where the row of dice begins.
        seed: u64,
    },
}

impl Times {
    /// Whether it happens this time.
    fn strikes(&mut self) -> bool {
        match self {
            Self::Always => true,
            Self::Next(0) => false,
            Self::Next(left) => {
                *left -= 1;
                true
            }
            Self::Chance { percent, seed } => {
                // Knuth's multiplier; the upper bits are the random ones.
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005);
                *seed = seed.wrapping_add(1_442_695_040_888_963_407);
                (*seed >> 33) % 100 < u64::from(*percent)
            }
        }
    }
}

#[derive(Debug)]
struct Rule {
    op: String,
    pattern: String,
    fault: Fault,
    times: Times,
}

/// All that is to go wrong.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    /// Events that nobody will hear of.
    dropped: u32,
    duplicated: bool,
    /// Until when nothing can be asked.
    away: Option<Instant>,
    /// Sessions that listings leave out, and why.
    hidden: Option<(String, String)>,
    pub(super) mask: Option<Caps>,
}

impl Faults {
    fn strike(&mut self, op: &str, session: &str) -> Option<Fault> {
        let meant = |rule: &&mut Rule| rule.op == op && matches(&rule.pattern, session);
        let mut rules = self.rules.iter_mut().filter(meant);
        let rule = rules.find_map(|rule| rule.times.strikes().then_some(rule))?;
        Some(rule.fault.clone())
    }

    /// Why a listing leaves this session out.
    pub(super) fn hides(&self, session: &SessionName) -> bool {
        let hidden = self.hidden.as_ref();
        hidden.is_some_and(|(pattern, _)| matches(pattern, session.as_str()))
    }

    /// What a listing says of those it leaves out.
    pub(super) fn listing_errors(&self) -> Vec<String> {
        self.hidden.iter().map(|(_, why)| why.clone()).collect()
    }
}

impl World {
    /// Tells everybody who listens, as far as the faults let it through.
    pub(super) fn tell(&mut self, event: &SessionEvent) {
        if self.faults.dropped > 0 {
            self.faults.dropped -= 1;
            return;
        }
        let times = if self.faults.duplicated { 2 } else { 1 };
        self.subscribers
            .retain(|subscriber| (0..times).all(|_| subscriber.send(event.clone()).is_ok()));
    }
}

impl MemorySessions {
    /// Calls of `op` for sessions of these names go wrong. `*` in a pattern is anything; a listing
    /// has the name `""`. Of several faults the one that was asked for first strikes.
    pub fn fault(&self, op: &str, pattern: &str, fault: Fault, times: Times) {
        self.world().faults.rules.push(Rule {
            op: op.to_owned(),
            pattern: pattern.to_owned(),
            fault,
            times,
        });
    }

    /// Calls of `op` fail.
    pub fn fail(&self, op: &str, pattern: &str, error: SessionError, times: Times) {
        self.fault(op, pattern, Fault::Fail(error), times);
    }

    /// Calls of `op` never end.
    pub fn hang(&self, op: &str, pattern: &str) {
        self.fault(op, pattern, Fault::Hang, Times::Always);
    }

    /// Calls of `op` take longer.
    pub fn delay(&self, op: &str, pattern: &str, by: Duration) {
        self.fault(op, pattern, Fault::Delay(by), Times::Always);
    }

    /// Everything works again.
    pub fn heal(&self) {
        self.world().faults = super::Faults::default();
    }

    /// Nobody hears of the next events.
    pub fn drop_events(&self, count: u32) {
        self.world().faults.dropped += count;
    }

    /// Everybody hears of everything twice (or once again).
    pub fn duplicate_events(&self, twice: bool) {
        self.world().faults.duplicated = twice;
    }

    /// Whoever listens is told that events were lost, beginning with one of this agent.
    pub fn lag(&self, agent: &str) {
        let mut world = self.world();
        let held = world
            .sessions
            .iter()
            .find(|(_, held)| held.agent.as_str() == agent);
        let Some(event) = held.map(|(session, held)| SessionEvent {
            session: session.clone(),
            token: held.token.clone(),
            kind: SessionEventKind::Lagged,
        }) else {
            return;
        };
        world.tell(&event);
    }

    /// The backend cannot be asked for this long. Unless it is the same one that comes back, all its
    /// sessions end now. Needs a tokio runtime.
    pub fn lose_backend(&self, away: Duration, same_server: bool) {
        let mut world = self.world();
        let first = world.sessions.iter().next();
        let back = first.map(|(session, held)| SessionEvent {
            session: session.clone(),
            token: held.token.clone(),
            kind: SessionEventKind::BackendBack { same_server },
        });
        if !same_server {
            for (session, held) in std::mem::take(&mut world.sessions) {
                if held.exit.is_none() {
                    world.tell(&SessionEvent {
                        session,
                        token: held.token,
                        kind: SessionEventKind::BackendLost("the server has died".to_owned()),
                    });
                }
            }
        }
        let until = Instant::now() + away;
        world.faults.away = Some(until);
        let world = self.world.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(back) = back {
                lock(&world).tell(&back);
            }
        });
    }

    /// Listings leave out sessions of these names, and say so (or show all again).
    pub fn partial_listing(&self, pattern: Option<&str>) {
        let hidden = pattern.map(|pattern| (pattern.to_owned(), "not all were listed".to_owned()));
        self.world().faults.hidden = hidden;
    }

    /// It can do this, and no more (or all again).
    pub fn mask_caps(&self, caps: Option<Caps>) {
        self.world().faults.mask = caps;
    }

    /// Notes a call, and says what is to become of it.
    pub(super) fn enter(
        &self,
        op: &'static str,
        session: &str,
        token: Option<&RunToken>,
        args: impl Into<String>,
    ) -> Entered {
        let mut world = self.world();
        world.called += 1;
        let id = world.called;
        world.calls.push(Call {
            at: Instant::now(),
            op,
            session: session.to_owned(),
            token: token.cloned(),
            args: args.into(),
            outcome: None,
            id,
        });
        let away = world.faults.away;
        let fault = match away.is_some_and(|until| Instant::now() < until) {
            true => Some(Fault::Fail(SessionError::Backend(
                "the server has died".to_owned(),
            ))),
            false => world.faults.strike(op, session),
        };
        let world = self.world.clone();
        Entered { fault, world, id }
    }
}

/// A call that has begun.
#[must_use = "faults strike when it is run"]
pub(super) struct Entered {
    fault: Option<Fault>,
    world: Arc<Mutex<World>>,
    id: u64,
}

impl Entered {
    /// Goes on as the faults have it, and notes what came of it.
    pub(super) async fn run<T>(
        self,
        call: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        self.run_as(|error| error, call).await
    }

    /// The same for a call that fails in a way of its own.
    pub(super) async fn run_as<T, E: std::fmt::Display>(
        self,
        failed: impl FnOnce(SessionError) -> E,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let result = match self.fault {
            Some(Fault::Fail(error)) => Err(failed(error)),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by).await;
                call.await
            }
            None => call.await,
        };
        let outcome = result.as_ref().map(drop).map_err(ToString::to_string);
        let mut world = lock(&self.world);
        // Oldest first; it may have been forgotten meanwhile.
        if let Ok(at) = world.calls.binary_search_by_key(&self.id, |call| call.id) {
            world.calls[at].outcome = Some(outcome);
        }
        drop(world);
        result
    }
}

/// Whether a text is like a pattern, in which `*` stands for anything.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.any(|at| matches(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything() {
        for (pattern, text, like) in [
            ("*", "", true),
            ("*", "db", true),
            ("db", "db", true),
            ("db", "db2", false),
            ("db*", "db2", true),
            ("*2", "db2", true),
            ("d*2", "db2", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("", "db", false),
        ] {
            assert_eq!(matches(pattern, text), like, "{pattern} ~ {text}");
        }
    }

    #[test]
    fn chance_is_the_same_for_a_seed_and_keeps_its_share() {
        let strikes = |seed| {
            let mut times = Times::Chance { percent: 30, seed };
            (0..1000).map(|_| times.strikes()).collect::<Vec<_>>()
        };
        assert_eq!(strikes(7), strikes(7));
        assert_ne!(strikes(7), strikes(8));
        let share = strikes(7).iter().filter(|strike| **strike).count();
        assert!((200..400).contains(&share), "{share} of 1000");
        let mut next = Times::Next(2);
        assert_eq!([0; 4].map(|_| next.strikes()), [true, true, false, false]);
    }
}
