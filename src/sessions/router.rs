//! Several providers as one: agents that name a provider of their own run there, all others on
//! the city's (sessions.md 2.5).

mod port;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gascity_actors::model::{FailureClass, RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    Fence, Listing, SessionError, SessionEvent, Sessions, StartError, StartSpec, Started,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Builds a provider by its word.
pub(crate) type Build = dyn Fn(&str) -> Result<Arc<dyn Sessions>, String> + Send + Sync;

/// The city's provider, and those that single agents ask for.
pub(crate) struct Router {
    base: Arc<dyn Sessions>,
    why: String,
    /// Why it is not the provider that the city wants.
    degraded: Option<String>,
    /// The same for agents that leave the choice to gc themselves.
    auto: OnceLock<Option<String>>,
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
    /// The city's own provider has been listed.
    listed: bool,
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
            degraded: None,
            auto: OnceLock::new(),
            build,
            state: Mutex::default(),
        };
        for word in others {
            router.provider_of(Some(word))?;
        }
        Ok(router)
    }

    /// The same on a provider that is second best, and why.
    pub(crate) fn degraded(mut self, why: Option<String>) -> Self {
        self.degraded = why;
        self
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
            let listing = list(&provider).await?;
            if listing.owned.iter().any(|facts| facts.session == *name) {
                self.learn(name, &provider);
                return Ok(provider);
            }
        }
        Ok(self.base.clone())
    }

    async fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> Result<Started, StartError> {
        let failed = |detail: String| StartFailure::new("session", FailureClass::Provider, detail);
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

    /// All sessions. Of a provider that cannot be asked none is listed, and the listing says so.
    async fn snapshot(&self) -> Result<Listing, SessionError> {
        let Some(providers) = self.several() else {
            return list(&self.base).await;
        };
        let mut asked = JoinSet::new();
        for (at, provider) in providers.iter().cloned().enumerate() {
            asked.spawn(async move { (at, list(&provider).await) });
        }
        let mut all = Listing::default();
        let mut results: Vec<_> = asked.join_all().await;
        results.sort_unstable_by_key(|(at, _)| *at);
        for (at, result) in results {
            let provider = &providers[at];
            match result {
                Ok(listing) => self.take_in(provider, listing, &mut all),
                // What was never seen must not be taken for absent.
                Err(error) if at == 0 && !self.state().listed => return Err(error),
                Err(error) => {
                    let word = provider.provider();
                    all.errors.push(format!("{word}: {error}"));
                }
            }
        }
        all.owned.sort_by(|a, b| a.session.cmp(&b.session));
        Ok(all)
    }

    /// Adds what a provider lists. A name that two of them have is where it was started last.
    fn take_in(&self, provider: &Arc<dyn Sessions>, listing: Listing, all: &mut Listing) {
        self.state().listed |= Arc::ptr_eq(provider, &self.base);
        for facts in listing.owned {
            let route = self.known(&facts.session);
            if route.is_none_or(|route| Arc::ptr_eq(&route, provider)) {
                self.learn(&facts.session, provider);
                all.owned.push(facts);
            }
        }
        all.foreign.extend(listing.foreign);
        all.errors.extend(listing.errors);
    }
}

/// Lists one provider, within its limit.
async fn list(provider: &Arc<dyn Sessions>) -> Result<Listing, SessionError> {
    let listing = timeout(provider.limits().snapshot, provider.snapshot()).await;
    listing.unwrap_or(Err(SessionError::Timeout))
}

/// Clears a name away from the provider its agent had before.
async fn leave(before: &Arc<dyn Sessions>, name: &SessionName) -> Result<(), String> {
    let listing = list(before).await.map_err(|error| error.to_string())?;
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
