//! A city's own API port, which means nothing while a supervisor hosts the city.

use std::path::Path;
use std::sync::Arc;

use crate::config::ConfigFiles;
use crate::control::home::CityDir;

/// Warns of `[api] port` now and whenever a load brings another value, for as long as the city is
/// open.
pub(super) fn warn_if_set(files: &Arc<ConfigFiles>) {
    let (mut loaded, root) = (files.loaded(), files.root().to_owned());
    tokio::spawn(async move {
        let mut told = None;
        loop {
            let city = loaded.borrow_and_update().clone();
            let root = root.clone();
            let port = tokio::task::spawn_blocking(move || port(&root)).await;
            let port = port.ok().flatten();
            if let (Some(city), Some(port)) = (city, port)
                && told != Some(port)
            {
                let name = &city.spec.name;
                tracing::warn!(
                    "city '{name}' has [api] port={port} which is ignored under supervisor mode"
                );
            }
            told = port;
            if loaded.changed().await.is_err() {
                return; // closed
            }
        }
    });
}

fn port(root: &Path) -> Option<i64> {
    let text = std::fs::read_to_string(CityDir::new(root).config()).ok()?;
    let config: toml::Table = text.parse().ok()?;
    config.get("api")?.get("port")?.as_integer()
}
