//! Telling a service manager how things are (`sd_notify`).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::MachineRef;

/// A service manager that listens, or nobody.
#[derive(Debug, Clone, Default)]
pub(super) struct Notifier(Option<Arc<(UnixDatagram, SocketAddr)>>);

impl Notifier {
    /// The manager that started this process, if `NOTIFY_SOCKET` names one.
    pub(super) fn from_env() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let socket = address(&name).and_then(|address| Ok((UnixDatagram::unbound()?, address)));
        match socket {
            Ok(socket) => Self(Some(Arc::new(socket))),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET cannot be used");
                Self::default()
            }
        }
    }

    /// Sends one state, e.g. `READY=1`.
    pub(super) fn tell(&self, state: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.0.send_to_addr(state.as_bytes(), &socket.1)
        {
            tracing::debug!(%error, "the service manager does not listen");
        }
    }

    /// A reload begins; `READY=1` ends it.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Tells how many cities run, and that the root supervisor is alive, until dropped.
    pub(super) fn follow(&self, door: &MachineRef) -> Option<Following> {
        self.0.as_ref()?;
        let mut tasks = vec![tokio::spawn(count_cities(self.clone(), door.clone()))];
        if let Some(period) = watchdog_period() {
            tasks.push(tokio::spawn(beat(self.clone(), door.clone(), period / 2)));
        }
        Some(Following(tasks))
    }
}

/// The tasks of [`Notifier::follow`].
pub(super) struct Following(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn count_cities(notifier: Notifier, door: MachineRef) {
    let mut views = door.views();
    let mut told = String::new();
    loop {
        let view = views.borrow_and_update().clone();
        let running = view.cities.iter().filter(|city| city.running).count();
        let text = format!("STATUS={running}/{} cities running", view.cities.len());
        if text != told {
            notifier.tell(&text);
            told = text;
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}

/// Only a root that handles messages deserves a beat.
async fn beat(notifier: Notifier, door: MachineRef, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    loop {
        ticks.tick().await;
        if door.answers(every).await {
            notifier.tell("WATCHDOG=1");
        }
    }
}

/// `WATCHDOG_USEC`, unless it is meant for another process.
fn watchdog_period() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => abstract_address(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
