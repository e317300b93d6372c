//! The provider `fail`: nothing works. For seeing how everything else copes.

use std::sync::{Arc, Mutex, PoisonError};

use gascity_actors::model::{FailureClass, RunToken, SessionName, StartFailure};
use gascity_actors::ports::{
    AttachPlan, Caps, Delivery, Fence, Key, Listing, Liveness, Note, PortFuture, Probe,
    SessionError, SessionEvent, SessionEvents, Sessions, StartError, StartSpec, Started, Stopped,
};
use tokio::sync::mpsc;

const UNAVAILABLE: &str = "session unavailable";

/// A backend that is never there. Every call fails, which says nothing about any session.
#[derive(Debug, Default)]
pub struct Fail {
    /// Kept, so that streams stay silent instead of ending.
    subscribers: Mutex<Vec<mpsc::UnboundedSender<SessionEvent>>>,
}

fn unavailable<'a, T: Send + 'a>() -> PortFuture<'a, T, SessionError> {
    Box::pin(async { Err(SessionError::Backend(UNAVAILABLE.to_owned())) })
}

impl Sessions for Fail {
    fn provider(&self) -> &'static str {
        "fail"
    }

    fn caps(&self) -> Caps {
        Caps::default()
    }

    fn probe(&self) -> PortFuture<'_, Probe, SessionError> {
        Box::pin(async {
            Ok(Probe {
                notes: vec![UNAVAILABLE.to_owned()],
                ..Probe::default()
            })
        })
    }

    fn start(&self, _: RunToken, _: Arc<StartSpec>) -> PortFuture<'_, Started, StartError> {
        Box::pin(async {
            let failure = StartFailure::new("session", FailureClass::Provider, UNAVAILABLE);
            Err(failure.into())
        })
    }

    fn stop(&self, _: SessionName, _: Fence) -> PortFuture<'_, Stopped, SessionError> {
        unavailable()
    }

    fn interrupt(&self, _: SessionName, _: Fence) -> PortFuture<'_, bool, SessionError> {
        unavailable()
    }

    fn snapshot(&self) -> PortFuture<'_, Listing, SessionError> {
        unavailable()
    }

    fn liveness(&self, _: SessionName, _: RunToken) -> PortFuture<'_, Liveness, SessionError> {
        unavailable()
    }

    fn process_alive(&self, _: SessionName, _: Vec<String>) -> PortFuture<'_, bool, SessionError> {
        unavailable()
    }

    fn clear_scrollback(&self, _: SessionName) -> PortFuture<'_, (), SessionError> {
        unavailable()
    }

    fn peek(&self, _: SessionName, _: u32) -> PortFuture<'_, String, SessionError> {
        unavailable()
    }

    fn set_note(
        &self,
        _: SessionName,
        _: Fence,
        _: Note,
        _: Option<String>,
    ) -> PortFuture<'_, (), SessionError> {
        unavailable()
    }

    fn nudge(&self, _: SessionName, _: Fence, _: String) -> PortFuture<'_, Delivery, SessionError> {
        unavailable()
    }

    fn send_keys(
        &self,
        _: SessionName,
        _: Fence,
        _: Vec<Key>,
    ) -> PortFuture<'_, bool, SessionError> {
        unavailable()
    }

    fn attach(&self, _: SessionName, _: bool) -> PortFuture<'_, AttachPlan, SessionError> {
        unavailable()
    }

    fn copy_to(
        &self,
        _: SessionName,
        _: std::path::PathBuf,
        _: String,
    ) -> PortFuture<'_, usize, SessionError> {
        unavailable()
    }

    fn subscribe(&self) -> SessionEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut subscribers = self
            .subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|subscriber| !subscriber.is_closed());
        subscribers.push(sender);
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_call_fails_and_the_stream_is_silent() {
        let fail = Fail::default();
        let name = || SessionName::new("a").unwrap();
        let token = || RunToken::new("t").unwrap();
        let broken = SessionError::Backend(UNAVAILABLE.to_owned());
        assert_eq!(fail.snapshot().await, Err(broken.clone()));
        assert_eq!(fail.liveness(name(), token()).await, Err(broken.clone()));
        assert_eq!(
            fail.process_alive(name(), vec![]).await,
            Err(broken.clone())
        );
        assert_eq!(fail.stop(name(), Fence::Any).await, Err(broken.clone()));
        assert_eq!(
            fail.interrupt(name(), Fence::Any).await,
            Err(broken.clone())
        );
        assert_eq!(fail.peek(name(), 1).await, Err(broken.clone()));
        let told = fail.nudge(name(), Fence::Any, "a".into()).await;
        assert_eq!(told, Err(broken.clone()));
        let pressed = fail.send_keys(name(), Fence::Any, vec![Key::ENTER]).await;
        assert_eq!(pressed, Err(broken.clone()));
        assert_eq!(fail.attach(name(), false).await, Err(broken));
        let mut events = fail.subscribe();
        assert_eq!(events.try_recv(), Err(mpsc::error::TryRecvError::Empty));
    }
}
