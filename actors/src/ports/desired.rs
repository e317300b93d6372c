use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::PortFuture;
use crate::model::CitySpec;

/// The configuration of one city.
pub trait Desired: Send + Sync + 'static {
    /// Loads and validates all sources now.
    fn load(&self) -> PortFuture<'_, Arc<CitySpec>, LoadError>;

    /// Changes whenever the sources may have changed and have been quiet since. The value is a
    /// running count; only its change matters.
    fn changes(&self) -> watch::Receiver<u64>;

    /// A spec that was loaded is in force from now on.
    fn taken(&self, spec: &CitySpec) {
        let _ = spec;
    }

    /// Why changes may be noticed late, while that is so.
    fn watch_trouble(&self) -> watch::Receiver<Option<String>> {
        watch::channel(None).1
    }
}

/// A config that cannot be used; whatever ran before keeps running.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{summary}")]
pub struct LoadError {
    /// All problems for a person, with labelled source lines.
    pub summary: String,
    /// The same for programs.
    pub diagnostics: Vec<Diagnostic>,
}

/// One problem of a config file (config.md 4). Lines and columns count from 1, in characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the field names are the documentation
pub struct Diagnostic {
    pub severity: String,
    pub code: String,
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub end_line: usize,
    pub end_column: usize,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
}

/// A second place a [`Diagnostic`] points to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Related {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub label: String,
}
