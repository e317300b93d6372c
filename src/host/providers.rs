//! Session providers by their word in the config.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ports::{PortFuture, Providers, Sessions};
use crate::sessions::choose::choose;
use crate::sessions::router::Router;
use crate::sessions::{Fail, Fake, Subprocess, SubprocessConfig};

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
    built: Mutex<Built>,
}

#[derive(Debug, Default)]
struct Built {
    subprocess: Option<Subprocess>,
    fake: Option<Arc<Fake>>,
}

impl HostProviders {
    /// Providers for the city of these settings. Builds none yet.
    #[must_use]
    pub fn new(config: SubprocessConfig) -> Self {
        let built = Mutex::default();
        Self {
            shop: Arc::new(Shop { config, built }),
            others: Vec::new(),
        }
    }

    /// Providers that sessions may be left on, beside the city's own.
    #[must_use]
    pub fn others(mut self, words: Vec<String>) -> Self {
        self.others = words;
        self
    }

    fn route(&self, word: &str) -> Result<Arc<dyn Sessions>, String> {
        let chosen = choose(word);
        let base = self.shop.build(&chosen.word)?;
        let shop = self.shop.clone();
        let build = Arc::new(move |word: &str| shop.build(&choose(word).word));
        let router = Router::new(base, chosen.why, build, &self.others)?;
        Ok(Arc::new(router))
    }
}

impl Shop {
    fn build(&self, word: &str) -> Result<Arc<dyn Sessions>, String> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        match word {
            "subprocess" => {
                let provider = match &built.subprocess {
                    Some(provider) => provider.clone(),
                    None => Subprocess::new(self.config.clone())
                        .map_err(|error| format!("session provider subprocess: {error}"))?,
                };
                built.subprocess = Some(provider.clone());
                Ok(Arc::new(provider))
            }
            "fake" => Ok(built.fake.get_or_insert_with(Arc::default).clone()),
            "fail" => Ok(Arc::new(Fail::default())),
            other => Err(format!(
                "there is no session provider {other:?}; available: auto, subprocess, fake, fail"
            )),
        }
    }
}

impl Providers for HostProviders {
    fn provide(&self, word: String) -> PortFuture<'_, Arc<dyn Sessions>, String> {
        Box::pin(async move { self.route(&word) })
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

    #[tokio::test]
    async fn words_name_providers() {
        let dir = tempfile::tempdir().unwrap();
        let providers = providers(dir.path());
        for (word, provider) in [
            ("auto", "subprocess"),
            ("subprocess", "subprocess"),
            ("fake", "fake"),
            ("fail", "fail"),
        ] {
            let sessions = providers.provide(word.into()).await.unwrap();
            assert_eq!(sessions.provider(), provider);
            assert_eq!(sessions.snapshot().await.is_err(), word == "fail");
        }
        let Err(error) = providers.provide("tmux".into()).await else {
            panic!("there is no such provider");
        };
        assert!(error.contains("tmux") && error.contains("subprocess, fake, fail"));
    }

    #[tokio::test]
    async fn a_provider_that_fails_says_so_instead_of_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let fail = providers(dir.path()).provide("fail".into()).await.unwrap();
        let error = fail.snapshot().await.unwrap_err();
        assert_eq!(error, SessionError::Backend("session unavailable".into()));
    }
}
