//! The one connection of a provider: made when it is needed, made anew when it is lost.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use gascity_actors::ports::{SessionError, SessionEventKind};
use tokio::time::{sleep, timeout};

use super::server::{self, ConnectError, Server};
use super::{Inner, Slot, backend};
use crate::sessions::processes::{Led as _, has_fired, lock, sweep};

/// When a lost connection is made anew.
const RETRIES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// How long the ends of runs that went down with a server are waited for.
const ENDING: Duration = Duration::from_secs(5);

impl Inner {
    /// The city's server. [`SessionError::NotFound`] if there is none.
    pub(super) async fn server(&self) -> Result<Arc<Server>, SessionError> {
        self.connected(false).await
    }

    /// The city's server. Connects if need be, and takes in what runs there.
    pub(super) async fn connected(&self, start: bool) -> Result<Arc<Server>, SessionError> {
        let mut held = self.server.lock().await;
        if let Some(server) = held.as_ref().filter(|server| !server.link.is_lost()) {
            return Ok(server.clone());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(backend("the provider is closed"));
        }
        // One that lives must not be taken for gone because somebody removed its socket.
        let lost = held.as_ref().filter(|server| !has_fired(&server.pidfd));
        if let Some(lost) = lost {
            lost.check_socket().await;
        }
        let server = match self.connector.connect(start && lost.is_none()).await {
            Ok(server) => Arc::new(server),
            Err(ConnectError::NoServer) if lost.is_some_and(|s| !has_fired(&s.pidfd)) => {
                return Err(backend("the tmux server cannot be reached"));
            }
            Err(ConnectError::NoServer) => return Err(SessionError::NotFound),
            Err(ConnectError::Failed(why)) => return Err(SessionError::Backend(why)),
        };
        let me = self.me.upgrade();
        let me = me.ok_or_else(|| backend("the provider is gone"))?;
        me.resync(&server).await?;
        let before = held.replace(server.clone());
        drop(held);
        if let Some(before) = before {
            me.tell_back(before.pid, before.pid == server.pid);
        }
        {
            let mut known = lock(&self.servers);
            known.retain(|_, pidfd| !has_fired(pidfd));
            known.insert(server.pid, server.pidfd.clone());
        }
        me.end_outlived(Some(&server));
        tokio::spawn(reconnect(self.me.clone(), server.clone()));
        tokio::spawn(watch_terminals(self.me.clone(), server.clone()));
        Ok(server)
    }

    /// The connection to the server of that process id, if it is in use.
    pub(super) async fn connection(&self, server: i32) -> Option<Arc<Server>> {
        let held = self.server.lock().await.clone();
        held.filter(|held| held.pid == server && !held.link.is_lost())
    }

    /// Whether a server has died, or does so within this time.
    pub(super) async fn dies(&self, server: i32, limit: Duration) -> bool {
        let pidfd = lock(&self.servers).get(&server).cloned();
        match pidfd {
            Some(pidfd) => timeout(limit, server::gone(pidfd)).await.is_ok(),
            None => true, // it was forgotten because it was dead
        }
    }

    /// Tells that the backend can be asked again, after everybody who went down with a server.
    fn tell_back(self: &Arc<Self>, before: i32, same_server: bool) {
        let kind = SessionEventKind::BackendBack { same_server };
        let Some(back) = lock(&self.latest).as_ref().map(|run| run.event(kind)) else {
            return; // it had no session
        };
        if same_server {
            return self.subscribers.send(&back);
        }
        let runs = self.slots.all().into_iter().filter_map(|slot| slot.run());
        let lost: Vec<_> = runs.filter(|run| run.seat.server == before).collect();
        let me = self.clone();
        tokio::spawn(async move {
            let all = async {
                for run in lost {
                    run.ended().await;
                }
            };
            let _ = timeout(ENDING, all).await; // who is not told yet is found by a listing
            me.subscribers.send(&back);
        });
    }

    /// Runs whose server has died are over, also those that did not die with it.
    pub(super) fn end_outlived(self: &Arc<Self>, server: Option<&Server>) {
        let server = server.map(|server| server.pid);
        let slots: Vec<Arc<Slot>> = self.slots.all();
        let runs = slots.iter().filter_map(|slot| slot.run());
        for run in runs.filter(|run| Some(run.seat.server) != server && run.is_live()) {
            let (mark, census) = (self.mark.clone(), self.census.clone());
            tokio::task::spawn_blocking(move || {
                if let Err(error) = sweep::end_all(&mark, &census, &*run) {
                    tracing::warn!(session = %run.name, %error, "outlived its tmux server");
                }
            });
        }
    }
}

/// Connects anew when a connection is lost, as long as anybody cares. Boxed, because a new
/// connection is looked after in the same way.
fn reconnect(
    inner: Weak<Inner>,
    server: Arc<Server>,
) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(reconnected(inner, server))
}

async fn reconnected(inner: Weak<Inner>, server: Arc<Server>) {
    let why = server.link.lost().await;
    for delay in RETRIES {
        sleep(delay).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let held = inner.server.lock().await.clone();
        if !held.is_some_and(|held| Arc::ptr_eq(&held, &server)) {
            return; // retired, or somebody was quicker
        }
        match inner.server().await {
            Ok(_) => {
                tracing::warn!(%why, "connected to tmux again");
                return;
            }
            Err(SessionError::NotFound) => {
                tracing::warn!(%why, "the tmux server has died");
                inner.end_outlived(None);
                let mut held = inner.server.lock().await;
                // Another one is started with the next session.
                if held.take_if(|held| Arc::ptr_eq(held, &server)).is_some() {
                    inner.tell_back(server.pid, false);
                }
                return;
            }
            Err(error) => tracing::warn!(%why, %error, "failed to connect to tmux again"),
        }
    }
}

/// Tells of terminals that come and go, for as long as a connection lasts.
async fn watch_terminals(inner: Weak<Inner>, server: Arc<Server>) {
    loop {
        tokio::select! {
            () = server.link.clients_changed() => {}
            _ = server.link.lost() => return,
        }
        let Some(inner) = inner.upgrade() else {
            return;
        };
        if inner.look_for_terminals(&server).await.is_err() {
            return; // the connection is lost, and with the next one all is listed
        }
    }
}
