//! What of a running supervisor can change: its settings, its log, and what is wrong with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::OnSigterm;
use super::logging::Log;
use super::notify::Notifier;
use super::settings::{Settings, SettingsError};
use crate::MachineRef;
use crate::control::home::Home;

/// Shared by whoever reloads, asks or leaves.
#[derive(Debug, Clone)]
pub(super) struct Live(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Of the machine-wide supervisor; a standalone city has none.
    home: Option<Home>,
    log: Log,
    notifier: Notifier,
    /// `--on-sigterm`, which wins over the file.
    on_sigterm: Option<OnSigterm>,
    settings: Mutex<Settings>,
    /// Why the file on disk is not in force.
    refused: Mutex<Option<String>>,
    /// Why the last upgrade did not happen.
    upgrade: Mutex<Option<String>>,
}

impl Live {
    /// The state of the supervisor of `home`, or of a standalone city.
    pub(super) fn new(
        home: Option<Home>,
        log: Log,
        notifier: Notifier,
        on_sigterm: Option<OnSigterm>,
        settings: Settings,
    ) -> Self {
        log.configure(&settings.log_level, settings.log_format);
        Self(Arc::new(Inner {
            home,
            log,
            notifier,
            on_sigterm,
            settings: Mutex::new(settings),
            refused: Mutex::default(),
            upgrade: Mutex::default(),
        }))
    }

    pub(super) fn home(&self) -> Option<&Home> {
        self.0.home.as_ref()
    }

    pub(super) fn log(&self) -> &Log {
        &self.0.log
    }

    pub(super) fn notifier(&self) -> &Notifier {
        &self.0.notifier
    }

    pub(super) fn settings(&self) -> Settings {
        lock(&self.0.settings).clone()
    }

    pub(super) fn on_sigterm(&self) -> OnSigterm {
        let written = lock(&self.0.settings).on_sigterm;
        self.0.on_sigterm.unwrap_or(written)
    }

    /// Takes `supervisor.toml` as it is now; a broken one changes nothing and is reported.
    pub(super) fn reload(&self, door: &MachineRef) {
        let Some(home) = &self.0.home else { return };
        match Settings::load(&home.config()) {
            Ok(settings) => {
                self.0
                    .log
                    .configure(&settings.log_level, settings.log_format);
                door.configure(settings.machine.clone());
                *lock(&self.0.settings) = settings;
                *lock(&self.0.refused) = None;
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&self, error: &SettingsError) {
        tracing::warn!(%error, "supervisor.toml is not taken; the old settings stay");
        *lock(&self.0.refused) = Some(error.to_string());
    }

    /// Says why an upgrade did not happen, or that it did.
    pub(super) fn upgraded(&self, outcome: Result<(), String>) {
        *lock(&self.0.upgrade) = outcome.err();
    }

    /// What is wrong with the process itself.
    pub(super) fn degraded(&self) -> Vec<String> {
        let refused = lock(&self.0.refused).clone();
        let upgrade = lock(&self.0.upgrade).clone();
        [
            refused.map(|error| format!("settings: {error}")),
            upgrade.map(|error| format!("upgrade failed: {error}")),
            self.0.log.trouble(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
