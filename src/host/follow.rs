//! What a city takes from the config in force besides what the tree runs, while it is open.

use std::sync::Arc;

use super::providers::HostProviders;
use crate::config::ConfigFiles;
use crate::events::EventLog;
use crate::shell::ProcessShell;

/// Puts `events.rotate_bytes` and `events.rotate_keep` in force, now and after every change.
pub(super) fn rotation(files: &Arc<ConfigFiles>, log: EventLog) {
    let mut loaded = files.in_force();
    tokio::spawn(async move {
        loop {
            if let Some(city) = loaded.borrow_and_update().as_ref() {
                log.rotate_at(city.rotation);
            }
            if loaded.changed().await.is_err() {
                return; // closed
            }
        }
    });
}

/// Hands settings of sessions that may change at any time to the providers.
pub(super) fn sessions(
    files: &Arc<ConfigFiles>,
    providers: &Arc<HostProviders>,
    shell: &Arc<ProcessShell>,
) {
    let (mut loaded, providers) = (files.in_force(), Arc::downgrade(providers));
    let shell = Arc::downgrade(shell);
    tokio::spawn(async move {
        while loaded.changed().await.is_ok() {
            let session = loaded.borrow().as_ref().map(|city| city.session.clone());
            let (Some(providers), Some(session)) = (providers.upgrade(), session) else {
                return;
            };
            providers.apply(&session);
            if let Some(shell) = shell.upgrade() {
                shell.set_passthrough(&session.env_passthrough);
            }
        }
    });
}

/// Warns of `[api] port`, which means nothing while a supervisor hosts the city: now, and whenever a
/// load brings another value.
pub(super) fn ignored_port(files: &Arc<ConfigFiles>) {
    let mut loaded = files.in_force();
    tokio::spawn(async move {
        let mut told = None;
        loop {
            if let Some(city) = loaded.borrow_and_update().as_ref() {
                let (name, port) = (&city.spec.name, city.api_port);
                if let Some(port) = port.filter(|port| told != Some(*port)) {
                    tracing::warn!(
                        "city '{name}' has [api] port={port} which is ignored under supervisor mode"
                    );
                }
                told = port;
            }
            if loaded.changed().await.is_err() {
                return; // closed
            }
        }
    });
}
