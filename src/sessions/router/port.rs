//! The port: each call goes where its session is.

use std::collections::BTreeMap;
use std::sync::Arc;

use gascity_actors::model::{Launch, RunToken, SessionName};
use gascity_actors::ports::{
    Caps, Limits, Listing, PortFuture, Probe, SessionError, SessionEvent, SessionEvents, Sessions,
    StartError, StartSpec, Started,
};
use tokio::sync::mpsc;

use super::Router;
use crate::sessions::choose::choose;
use crate::sessions::delegate::delegate;

impl Sessions for Router {
    fn provider(&self) -> &str {
        self.base.provider()
    }

    fn provider_of(&self, name: &SessionName) -> String {
        let provider = self.known(name).unwrap_or_else(|| self.base.clone());
        provider.provider().to_owned()
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

    fn caps_for(&self, launch: &Launch) -> Caps {
        match self.provider_of(launch.session.as_deref()) {
            Ok(provider) => provider.caps_for(launch),
            Err(_) => Caps::default(), // and nothing will start there
        }
    }

    fn degraded(&self, named: Option<&str>) -> Option<String> {
        match named {
            None => self.degraded.clone(),
            Some("" | "auto") => self.auto.get_or_init(|| choose("auto").degraded).clone(),
            Some(_) => None,
        }
    }

    fn vars_of(&self, name: &SessionName) -> BTreeMap<String, String> {
        self.known(name)
            .unwrap_or_else(|| self.base.clone())
            .vars_of(name)
    }

    /// Each provider is held to its own.
    fn limits(&self) -> Limits {
        Limits::NONE
    }

    fn look_every(&self) -> std::time::Duration {
        let providers = self.several().unwrap_or_default();
        let others = providers.iter().map(|provider| provider.look_every());
        others.fold(self.base.look_every(), std::cmp::max)
    }

    fn probe(&self) -> PortFuture<'_, Probe, SessionError> {
        Box::pin(async move {
            let mut probe = self.base.probe().await?;
            let others: Vec<_> = self.state().others.values().cloned().collect();
            for other in others {
                let word = other.provider();
                let found = other.probe().await;
                match found {
                    Ok(found) if found.usable => {}
                    Ok(found) => probe
                        .notes
                        .push(format!("{word}: {}", found.notes.join(", "))),
                    Err(error) => probe.notes.push(format!("{word}: {error}")),
                }
            }
            Ok(probe)
        })
    }

    fn start(&self, token: RunToken, spec: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        // Most agents name no provider, and a start should cost no more for those who do.
        if spec.launch.session.is_none() && self.state().others.is_empty() {
            return self.base.start(token, spec);
        }
        Box::pin(Self::start(self, token, spec))
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        Box::pin(Self::snapshot(self))
    }

    delegate!(limited self name => self.find(&name).await?;
        stop interrupt liveness process_alive clear_scrollback peek set_note nudge send_keys attach
        copy_to);

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
