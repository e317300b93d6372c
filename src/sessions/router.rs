//! Several providers as one: agents that name a provider of their own run there, all others on
//! the city's (sessions.md 2.5).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gascity_actors::model::{FailureClass, RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    AttachPlan, Caps, Delivery, Fence, Key, Listing, Liveness, Note, PortFuture, SessionError,
    SessionEvent, SessionEvents, Sessions, StartSpec, Started, Stopped,
};
use tokio::sync::mpsc;

/// Builds a provider by its word.
pub(crate) type Build = dyn Fn(&str) -> Result<Arc<dyn Sessions>, String> + Send + Sync;

/// The city's provider, and those that single agents ask for.
pub(crate) struct Router {
    base: Arc<dyn Sessions>,
    why: String,
    build: Arc<Build>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By their words; the city's own is not among them.
    others: BTreeMap<String, Arc<dyn Sessions>>,
    /// Where sessions were started or found; kept only once there are others.
    routes: HashMap<SessionName, Arc<dyn Sessions>>,
    subscribers: Vec<mpsc::UnboundedSender<SessionEvent>>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Router({})", self.base.provider())
    }
}

impl Router {
    /// A router over the city's provider and, if sessions may be left there, `others`.
    ///
    /// # Errors
    /// If one of the others cannot be built.
    pub(crate) fn new(
        base: Arc<dyn Sessions>,
        why: String,
        build: Arc<Build>,
        others: &[String],
    ) -> Result<Self, String> {
        let router = Self {
            base,
            why,
            build,
            state: Mutex::default(),
        };
        for word in others {
            router.provider_of(Some(word))?;
        }
        Ok(router)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provider for a word, built if need be; the city's without one.
    fn provider_of(&self, word: Option<&str>) -> Result<Arc<dyn Sessions>, String> {
        let Some(word) = word else {
            return Ok(self.base.clone());
        };
        let mut state = self.state();
        if let Some(provider) = state.others.get(word) {
            return Ok(provider.clone());
        }
        let provider = (self.build)(word)?;
        if provider.provider() == self.base.provider() {
            return Ok(self.base.clone());
        }
        for subscriber in &state.subscribers {
            provider.forward(subscriber.clone());
        }
        state.others.insert(word.to_owned(), provider.clone());
        Ok(provider)
    }

    /// All providers, if there are several.
    fn several(&self) -> Option<Vec<Arc<dyn Sessions>>> {
        let state = self.state();
        let others = state.others.values().cloned();
        (!state.others.is_empty())
            .then(|| std::iter::once(self.base.clone()).chain(others).collect())
    }

    /// Where a session is known to be.
    fn known(&self, name: &SessionName) -> Option<Arc<dyn Sessions>> {
        let state = self.state();
        if state.others.is_empty() {
            return Some(self.base.clone());
        }
        state.routes.get(name).cloned()
    }

    fn learn(&self, name: &SessionName, provider: &Arc<dyn Sessions>) {
        let mut state = self.state();
        if !state.others.is_empty() {
            state.routes.insert(name.clone(), provider.clone());
        }
    }

    /// Where a session is: as learnt, else who says so. One that nobody has is the city's.
    async fn find(&self, name: &SessionName) -> Result<Arc<dyn Sessions>, SessionError> {
        if let Some(provider) = self.known(name) {
            return Ok(provider);
        }
        for provider in self.several().unwrap_or_default() {
            let listing = provider.snapshot().await?;
            if listing.owned.iter().any(|facts| facts.session == *name) {
                self.learn(name, &provider);
                return Ok(provider);
            }
        }
        Ok(self.base.clone())
    }

    async fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> Result<Started, StartFailure> {
        let failed = |detail: String| StartFailure {
            stage: "session",
            class: FailureClass::Provider,
            detail,
        };
        let provider = self
            .provider_of(spec.launch.session.as_deref())
            .map_err(failed)?;
        if let Some(before) = self.known(&spec.session)
            && !Arc::ptr_eq(&before, &provider)
        {
            leave(&before, &spec.session).await.map_err(failed)?;
        }
        self.learn(&spec.session, &provider);
        provider.start(token, spec).await
    }

    async fn snapshot(&self) -> Result<Listing, SessionError> {
        let Some(providers) = self.several() else {
            return self.base.snapshot().await;
        };
        let mut all = Listing::default();
        for provider in providers {
            let listing = match provider.snapshot().await {
                Ok(listing) => listing,
                // Nothing is known of those; each of them is asked for before it counts as gone.
                Err(error) if !Arc::ptr_eq(&provider, &self.base) => {
                    tracing::warn!(provider = provider.provider(), %error, "sessions cannot be listed");
                    continue;
                }
                Err(error) => return Err(error),
            };
            for facts in listing.owned {
                let route = self.known(&facts.session);
                if route.is_none_or(|route| Arc::ptr_eq(&route, &provider)) {
                    self.learn(&facts.session, &provider);
                    all.owned.push(facts);
                }
            }
            all.foreign.extend(listing.foreign);
        }
        all.owned.sort_by(|a, b| a.session.cmp(&b.session));
        Ok(all)
    }
}

/// Clears a name away from the provider its agent had before.
async fn leave(before: &Arc<dyn Sessions>, name: &SessionName) -> Result<(), String> {
    let listing = before.snapshot().await.map_err(|error| error.to_string())?;
    let held = listing
        .owned
        .into_iter()
        .find(|facts| facts.session == *name);
    match held {
        None => Ok(()),
        Some(facts) if facts.live => {
            let provider = before.provider();
            Err(format!("{name} is already running on {provider}"))
        }
        Some(facts) => {
            let stop = before.stop(name.clone(), Fence::Token(facts.token));
            stop.await.map(drop).map_err(|error| error.to_string())
        }
    }
}

impl Sessions for Router {
    fn provider(&self) -> &str {
        self.base.provider()
    }

    fn why(&self) -> String {
        let why = self.base.why();
        if why.is_empty() {
            self.why.clone()
        } else {
            why
        }
    }

    fn caps(&self) -> Caps {
        self.base.caps()
    }

    fn caps_of(&self, name: &SessionName) -> Caps {
        self.known(name)
            .unwrap_or_else(|| self.base.clone())
            .caps_of(name)
    }

    fn vars_of(&self, name: &SessionName) -> BTreeMap<String, String> {
        self.known(name)
            .unwrap_or_else(|| self.base.clone())
            .vars_of(name)
    }

    fn start(
        &self,
        token: RunToken,
        spec: Arc<StartSpec>,
    ) -> PortFuture<'_, Started, StartFailure> {
        // Most agents name no provider, and a start should cost no more for those who do.
        if spec.launch.session.is_none() && self.state().others.is_empty() {
            return self.base.start(token, spec);
        }
        Box::pin(Self::start(self, token, spec))
    }

    fn stop(&self, name: SessionName, fence: Fence) -> PortFuture<'_, Stopped, SessionError> {
        Box::pin(async move { self.find(&name).await?.stop(name, fence).await })
    }

    fn interrupt(&self, name: SessionName, fence: Fence) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move { self.find(&name).await?.interrupt(name, fence).await })
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(Self::snapshot(self))
    }

    fn liveness(
        &self,
        name: SessionName,
        token: RunToken,
    ) -> PortFuture<'_, Liveness, SessionError> {
        Box::pin(async move { self.find(&name).await?.liveness(name, token).await })
    }

    fn process_alive(
        &self,
        name: SessionName,
        names: Vec<String>,
    ) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move { self.find(&name).await?.process_alive(name, names).await })
    }

    fn clear_scrollback(&self, name: SessionName) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move { self.find(&name).await?.clear_scrollback(name).await })
    }

    fn peek(&self, name: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
        Box::pin(async move { self.find(&name).await?.peek(name, lines).await })
    }

    fn set_note(
        &self,
        name: SessionName,
        fence: Fence,
        note: Note,
        value: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move {
            let provider = self.find(&name).await?;
            provider.set_note(name, fence, note, value).await
        })
    }

    fn nudge(
        &self,
        name: SessionName,
        fence: Fence,
        text: String,
    ) -> PortFuture<'_, Delivery, SessionError> {
        Box::pin(async move { self.find(&name).await?.nudge(name, fence, text).await })
    }

    fn send_keys(
        &self,
        name: SessionName,
        fence: Fence,
        keys: Vec<Key>,
    ) -> PortFuture<'_, bool, SessionError> {
        Box::pin(async move { self.find(&name).await?.send_keys(name, fence, keys).await })
    }

    fn attach(
        &self,
        name: SessionName,
        read_only: bool,
    ) -> PortFuture<'_, AttachPlan, SessionError> {
        Box::pin(async move { self.find(&name).await?.attach(name, read_only).await })
    }

    fn retire(&self) -> PortFuture<'_, (), SessionError> {
        Box::pin(async move {
            let others: Vec<_> = self.state().others.values().cloned().collect();
            for other in others {
                other.retire().await?;
            }
            self.base.retire().await
        })
    }

    fn subscribe(&self) -> SessionEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.forward(sender);
        receiver
    }

    fn forward(&self, to: mpsc::UnboundedSender<SessionEvent>) {
        let mut state = self.state();
        state
            .subscribers
            .retain(|subscriber| !subscriber.is_closed());
        state.subscribers.push(to.clone());
        for other in state.others.values() {
            other.forward(to.clone());
        }
        self.base.forward(to);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gascity_actors::model::{AgentName, Launch};

    use super::*;
    use crate::sessions::{Fail, Fake};

    /// A router over two providers in memory; `odd` is the second one.
    fn router(others: &[&str]) -> (Router, Arc<Fake>, Arc<Fake>) {
        let (base, odd) = (Arc::new(Fake::new()), Arc::new(Odd::default()));
        let fake = odd.0.clone();
        let build = Arc::new(move |word: &str| match word {
            "odd" => Ok(odd.clone() as Arc<dyn Sessions>),
            "fail" => Ok(Arc::new(Fail::default()) as Arc<dyn Sessions>),
            other => Err(format!("no {other}")),
        });
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        let router = Router::new(base.clone(), "why".into(), build, &others).unwrap();
        (router, base, fake)
    }

    /// Sessions in memory under another word, and without a log.
    #[derive(Debug, Default)]
    struct Odd(Arc<Fake>);

    impl Sessions for Odd {
        fn provider(&self) -> &'static str {
            "odd"
        }
        fn caps(&self) -> Caps {
            Caps::default()
        }
        fn start(&self, t: RunToken, s: Arc<StartSpec>) -> PortFuture<'_, Started, StartFailure> {
            self.0.start(t, s)
        }
        fn stop(&self, n: SessionName, f: Fence) -> PortFuture<'_, Stopped, SessionError> {
            self.0.stop(n, f)
        }
        fn interrupt(&self, n: SessionName, f: Fence) -> PortFuture<'_, bool, SessionError> {
            self.0.interrupt(n, f)
        }
        fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
            self.0.snapshot()
        }
        fn liveness(&self, n: SessionName, t: RunToken) -> PortFuture<'_, Liveness, SessionError> {
            self.0.liveness(n, t)
        }
        fn process_alive(
            &self,
            n: SessionName,
            names: Vec<String>,
        ) -> PortFuture<'_, bool, SessionError> {
            self.0.process_alive(n, names)
        }
        fn clear_scrollback(&self, n: SessionName) -> PortFuture<'_, (), SessionError> {
            self.0.clear_scrollback(n)
        }
        fn peek(&self, n: SessionName, lines: u32) -> PortFuture<'_, String, SessionError> {
            self.0.peek(n, lines)
        }
        fn set_note(
            &self,
            n: SessionName,
            f: Fence,
            note: Note,
            value: Option<String>,
        ) -> PortFuture<'_, (), SessionError> {
            self.0.set_note(n, f, note, value)
        }
        fn subscribe(&self) -> SessionEvents {
            self.0.subscribe()
        }
    }

    fn spec(agent: &str, provider: Option<&str>) -> Arc<StartSpec> {
        Arc::new(StartSpec {
            session: SessionName::new(agent).unwrap(),
            agent: AgentName::new(agent).unwrap(),
            template: AgentName::new(agent).unwrap(),
            generation: 1,
            launch: Arc::new(Launch {
                session: provider.map(str::to_owned),
                ..Launch::default()
            }),
            setup_timeout: std::time::Duration::from_secs(10),
            notes: BTreeMap::new(),
        })
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.owned.iter().map(|f| f.session.as_str()).collect()
    }

    async fn start(router: &Router, agent: &str, provider: Option<&str>) -> RunToken {
        let token = RunToken::new(format!("run-of-{agent}")).unwrap();
        let started = Sessions::start(router, token.clone(), spec(agent, provider)).await;
        started.unwrap();
        token
    }

    #[tokio::test]
    async fn an_agent_runs_where_it_says_and_all_are_one_listing() {
        let (router, base, odd) = router(&[]);
        let mut events = router.subscribe();
        start(&router, "a", None).await;
        let b = start(&router, "b", Some("odd")).await;
        start(&router, "c", None).await;
        assert_eq!(names(&base.snapshot().await.unwrap()), ["a", "c"]);
        assert_eq!(names(&odd.snapshot().await.unwrap()), ["b"]);
        assert_eq!(
            names(&Sessions::snapshot(&router).await.unwrap()),
            ["a", "b", "c"]
        );
        let name = |text: &str| SessionName::new(text).unwrap();
        assert!(router.caps_of(&name("a")).log && !router.caps_of(&name("b")).log);
        let look = router.liveness(name("b"), b.clone()).await.unwrap();
        assert!(matches!(look, Liveness::Live { .. }));
        // Its exit arrives, although it was built after somebody listened.
        router
            .stop(name("b"), Fence::Token(b.clone()))
            .await
            .unwrap();
        assert_eq!(events.recv().await.unwrap().token, b);
        assert_eq!(names(&odd.snapshot().await.unwrap()), [""; 0]);
        assert_eq!((router.provider(), router.why().as_str()), ("fake", "why"));
    }

    #[tokio::test]
    async fn what_an_earlier_supervisor_started_elsewhere_is_found() {
        let (router, _, odd) = router(&["odd"]);
        let token = RunToken::new("old").unwrap();
        odd.start(token.clone(), spec("b", None)).await.unwrap();
        let name = SessionName::new("b").unwrap();
        let look = router.liveness(name.clone(), token.clone()).await.unwrap();
        assert!(matches!(look, Liveness::Live { .. }));
        router.stop(name, Fence::Token(token)).await.unwrap();
        assert_eq!(names(&odd.snapshot().await.unwrap()), [""; 0]);
    }

    #[tokio::test]
    async fn an_agent_that_moves_is_never_in_two_places() {
        let (router, base, odd) = router(&["odd"]);
        let token = start(&router, "a", Some("odd")).await;
        let again = Sessions::start(&router, RunToken::new("x").unwrap(), spec("a", None)).await;
        let failure = again.unwrap_err();
        assert!(
            failure.detail.contains("already running on odd"),
            "{failure}"
        );
        odd.memory()
            .exit("a", gascity_actors::model::ExitStatus::Code(1));
        start(&router, "a", None).await;
        assert_eq!(names(&odd.snapshot().await.unwrap()), [""; 0]);
        assert_eq!(names(&base.snapshot().await.unwrap()), ["a"]);
        let name = SessionName::new("a").unwrap();
        assert_eq!(
            router
                .liveness(name, token.clone())
                .await
                .map(|l| l != Liveness::Absent),
            Ok(true)
        );
    }

    #[tokio::test]
    async fn a_provider_that_fails_leaves_the_others_alone() {
        let (router, _, _) = router(&["fail"]);
        start(&router, "a", None).await;
        assert_eq!(names(&Sessions::snapshot(&router).await.unwrap()), ["a"]);
        let b = Sessions::start(
            &router,
            RunToken::new("x").unwrap(),
            spec("b", Some("fail")),
        )
        .await;
        assert_eq!(b.unwrap_err().class, FailureClass::Provider);
        let name = SessionName::new("b").unwrap();
        let look = router.liveness(name, RunToken::new("x").unwrap()).await;
        assert!(look.is_err(), "what cannot be seen is not dead: {look:?}");
        let none = Sessions::start(
            &router,
            RunToken::new("y").unwrap(),
            spec("c", Some("none")),
        );
        assert_eq!(none.await.unwrap_err().detail, "no none");
    }
}
