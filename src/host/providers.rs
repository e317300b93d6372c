//! Session providers by their word in the config.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::SessionSettings;
use crate::model::CitySpec;
use crate::ports::{PortFuture, Providers, Sessions};
use crate::sessions::choose::choose;
use crate::sessions::router::Router;
use crate::sessions::{
    Exec, ExecConfig, Fail, Fake, Subprocess, SubprocessConfig, Tmux, TmuxConfig, tmux,
};

/// Builds the providers of one city, each once: asked for again, it is the same one, so that
/// nothing is watched twice and the sessions of `fake` are still there.
#[derive(Debug)]
pub struct HostProviders {
    shop: Arc<Shop>,
    /// Words of agents that do not run on the city's own.
    others: Vec<String>,
}

#[derive(Debug)]
struct Shop {
    config: SubprocessConfig,
    /// As it was loaded last.
    session: Mutex<SessionSettings>,
    built: Mutex<Built>,
}

#[derive(Debug, Default)]
struct Built {
    subprocess: Option<Subprocess>,
    /// With what it was built with.
    tmux: Option<(TmuxKeys, Tmux)>,
    fake: Option<Arc<Fake>>,
    /// By their scripts.
    exec: BTreeMap<String, Arc<Exec>>,
}

/// `session.socket`, `session.tmux_config` and `session.history_lines`.
type TmuxKeys = (Option<String>, String, u32);

fn tmux_keys(session: &SessionSettings) -> TmuxKeys {
    (
        session.socket.clone(),
        session.tmux_config.clone(),
        session.history_lines,
    )
}

impl Built {
    fn exec(
        &mut self,
        script: &str,
        city: &SubprocessConfig,
        session: &SessionSettings,
    ) -> Result<Arc<dyn Sessions>, String> {
        if let Some(provider) = self.exec.get(script) {
            return Ok(provider.clone());
        }
        let mut config = ExecConfig::new(script, city.clone());
        config.timeout = session.exec_timeout;
        config.start_timeout = session.exec_start_timeout;
        let provider = Exec::new(config);
        let provider = provider.map_err(|error| format!("session provider exec:{error}"))?;
        let provider = Arc::new(provider);
        self.exec.insert(script.to_owned(), provider.clone());
        Ok(provider)
    }
}

impl HostProviders {
    /// Providers for the city of these settings. Builds none yet.
    #[must_use]
    pub fn new(config: SubprocessConfig) -> Self {
        let session = SessionSettings {
            env_passthrough: config.env_passthrough.clone(),
            log_bytes: config.log_bytes,
            log_keep: config.log_keep,
            ..SessionSettings::default()
        };
        Self::with(config, session)
    }

    /// The same, with what `[session]` says.
    #[must_use]
    pub fn with(config: SubprocessConfig, session: SessionSettings) -> Self {
        let built = Mutex::default();
        Self {
            shop: Arc::new(Shop {
                config,
                session: Mutex::new(session),
                built,
            }),
            others: Vec::new(),
        }
    }

    /// Providers that sessions may be left on, beside the city's own.
    #[must_use]
    pub fn others(mut self, words: Vec<String>) -> Self {
        self.others = words;
        self
    }

    async fn route(&self, spec: &CitySpec) -> Result<Arc<dyn Sessions>, String> {
        let chosen = choose(&spec.provider);
        let session = self.shop.session_of(spec);
        let base = self.shop.build(&chosen.word, &session)?;
        let shop = self.shop.clone();
        let build = Arc::new(move |word: &str| shop.build(&choose(word).word, &session));
        let mut others = self.others.clone();
        others.extend(self.left_on(&chosen.word).await);
        let router = Router::new(base, chosen.why, build, &others)?;
        Ok(Arc::new(router.degraded(chosen.degraded)))
    }
}

impl HostProviders {
    /// Agents may run elsewhere than on `base`: another provider was chosen when they started.
    /// They are not started twice, but stay there until they are restarted.
    async fn left_on(&self, base: &str) -> Vec<String> {
        let root = &self.shop.config.root;
        let mut words = Vec::new();
        if base != "subprocess" && self.is_left_as_processes().await {
            words.push("subprocess".to_owned());
        }
        if base != "tmux" && Tmux::is_left(root) {
            words.push("tmux".to_owned());
        }
        // Of a script that is gone nothing can be learnt.
        let scripts = Exec::left(root).into_iter().filter(|word| word != base);
        let session = self.shop.latest().clone();
        words.extend(scripts.filter(|word| self.shop.build(word, &session).is_ok()));
        words
    }

    async fn is_left_as_processes(&self) -> bool {
        let noted = self.shop.config.root.join(".gc/runtime/sessions");
        if std::fs::read_dir(noted).is_ok_and(|mut noted| noted.next().is_none()) {
            return false;
        }
        let session = self.shop.latest().clone();
        let Ok(sessions) = self.shop.build("subprocess", &session) else {
            return false;
        };
        let listing = sessions.snapshot().await;
        listing.is_ok_and(|listing| listing.owned.iter().any(|facts| facts.live))
    }

    /// Settings that may change while the city runs.
    pub(super) fn apply(&self, session: &SessionSettings) {
        self.shop.latest().clone_from(session);
        let built = self.shop.built.lock();
        let built = built.unwrap_or_else(PoisonError::into_inner);
        if let Some(subprocess) = &built.subprocess {
            subprocess.set_log_bounds(session.log_bytes, session.log_keep);
            subprocess.set_passthrough(&session.env_passthrough);
        }
        if let Some((_, tmux)) = &built.tmux {
            tmux.set_passthrough(&session.env_passthrough);
        }
        for exec in built.exec.values() {
            exec.set_timeouts(session.exec_timeout, session.exec_start_timeout);
            exec.set_passthrough(&session.env_passthrough);
        }
        if let Some((_, tmux)) = &built.tmux {
            tmux.set_nudging(session.nudge_lock_timeout, session.debounce);
        }
    }
}

impl Shop {
    fn latest(&self) -> MutexGuard<'_, SessionSettings> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every provider needs to know of the city, as of now.
    fn config(&self) -> SubprocessConfig {
        let mut config = self.config.clone();
        let session = self.latest();
        config.env_passthrough.clone_from(&session.env_passthrough);
        (config.log_bytes, config.log_keep) = (session.log_bytes, session.log_keep);
        config
    }

    /// The settings with what `spec` says of those that need another provider.
    fn session_of(&self, spec: &CitySpec) -> SessionSettings {
        let mut session = self.latest().clone();
        let said = |key: &str| spec.provider_settings.get(key).cloned();
        if let Some(config) = said("session.tmux_config") {
            session.socket = said("session.socket");
            session.tmux_config = config;
        }
        let lines = said("session.history_lines").and_then(|lines| lines.parse().ok());
        session.history_lines = lines.unwrap_or(session.history_lines);
        session
    }

    fn build(&self, word: &str, session: &SessionSettings) -> Result<Arc<dyn Sessions>, String> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        match word {
            "subprocess" => {
                let provider = match &built.subprocess {
                    Some(provider) => provider.clone(),
                    None => Subprocess::new(self.config())
                        .map_err(|error| format!("session provider subprocess: {error}"))?,
                };
                built.subprocess = Some(provider.clone());
                Ok(Arc::new(provider))
            }
            "tmux" => {
                let keys = tmux_keys(session);
                let provider = match &built.tmux {
                    Some((with, provider)) if *with == keys => provider.clone(),
                    _ => self.tmux(session)?,
                };
                built.tmux = Some((keys, provider.clone()));
                Ok(Arc::new(provider))
            }
            "fake" => {
                let provider = match &built.fake {
                    Some(provider) => provider.clone(),
                    None => Fake::scripted(&self.config.root)
                        .map(Arc::new)
                        .map_err(|why| format!("session provider fake: {why}"))?,
                };
                built.fake = Some(provider.clone());
                Ok(provider)
            }
            "fail" => Ok(Arc::new(Fail::default())),
            other => match other.strip_prefix("exec:") {
                Some(script) => built.exec(script, &self.config(), &self.latest()),
                None => Err(format!(
                    "there is no session provider {other:?}; available: auto, tmux, subprocess, \
                     exec:<script>, fake, fail"
                )),
            },
        }
    }
}

impl Shop {
    fn tmux(&self, session: &SessionSettings) -> Result<Tmux, String> {
        let failed = |why: String| format!("session provider tmux: {why}");
        let program = tmux::find().map_err(failed)?;
        let config = tmux_config(self.config(), program, session);
        let tmux = Tmux::new(config).map_err(failed)?;
        tmux.probe().map_err(failed)?;
        Ok(tmux)
    }
}

/// Whatever still runs in the city of these settings. Starts nothing.
///
/// # Errors
/// If the system does not say, or tmux cannot be used although agents run there.
pub(super) fn left(config: SubprocessConfig) -> Result<Arc<dyn Sessions>, String> {
    let failed = |error: std::io::Error| format!("session provider subprocess: {error}");
    let processes = Arc::new(Subprocess::new(config.clone()).map_err(failed)?);
    let mut others: Vec<String> = Exec::left(&config.root).into_iter().collect();
    let base: Arc<dyn Sessions> = if Tmux::is_left(&config.root) {
        others.push("subprocess".to_owned());
        Arc::new(Tmux::new(TmuxConfig::new(config.clone(), tmux::find()?))?)
    } else {
        processes.clone()
    };
    if others.is_empty() {
        return Ok(base);
    }
    let build = move |word: &str| -> Result<Arc<dyn Sessions>, String> {
        match word.strip_prefix("exec:") {
            None => Ok(processes.clone()),
            Some(script) => match Exec::new(ExecConfig::new(script, config.clone())) {
                Ok(exec) => Ok(Arc::new(exec)),
                Err(error) => Err(format!("session provider exec:{error}")),
            },
        }
    };
    let router = Router::new(base, String::new(), Arc::new(build), &others)?;
    Ok(Arc::new(router))
}

/// Settings of a tmux provider, as `[session]` has them.
fn tmux_config(city: SubprocessConfig, program: PathBuf, session: &SessionSettings) -> TmuxConfig {
    let mut config = TmuxConfig::new(city, program);
    config.socket.clone_from(&session.socket);
    config.tmux_config.clone_from(&session.tmux_config);
    config.history_lines = session.history_lines;
    config.nudge_lock = session.nudge_lock_timeout;
    config.debounce = session.debounce;
    config
}

impl Providers for HostProviders {
    fn provide(&self, spec: Arc<CitySpec>) -> PortFuture<'_, Arc<dyn Sessions>, String> {
        Box::pin(async move { self.route(&spec).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CityName;
    use crate::ports::SessionError;

    fn providers(root: &std::path::Path) -> HostProviders {
        let name = CityName::new("test").unwrap();
        HostProviders::new(SubprocessConfig::new(root.into(), name, "gc".into()))
    }

    fn asking_for(word: &str) -> Arc<CitySpec> {
        Arc::new(CitySpec::builder("test").provider(word).build().unwrap())
    }

    #[tokio::test]
    async fn words_name_providers() {
        let dir = tempfile::tempdir().unwrap();
        let providers = providers(dir.path());
        for (word, provider) in [
            ("subprocess", "subprocess"),
            ("fake", "fake"),
            ("fail", "fail"),
        ] {
            let sessions = providers.provide(asking_for(word)).await.unwrap();
            assert_eq!(sessions.provider(), provider);
            assert_eq!(sessions.snapshot().await.is_err(), word == "fail");
        }
        let Err(error) = providers.provide(asking_for("screen")).await else {
            panic!("there is no such provider");
        };
        assert!(error.contains("screen"));
        assert!(error.contains("tmux, subprocess, exec:<script>, fake, fail"));
    }

    #[tokio::test]
    async fn a_provider_that_fails_says_so_instead_of_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let providers = providers(dir.path());
        let fail = providers.provide(asking_for("fail")).await.unwrap();
        let error = fail.snapshot().await.unwrap_err();
        assert_eq!(error, SessionError::Backend("session unavailable".into()));
    }
}
