//! `[session]`: what the session providers need, which the supervision tree does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gascity_actors::model::{AgentSpec, Stdin};

use super::super::fields::Fields;
use super::super::files::Files;
use super::super::problem::{Problem, Problems};
use crate::sessions::DEFAULT_PASSTHROUGH;

/// Settings of the session provider, which the supervision tree does not need (`[session]`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSettings {
    /// Configured provider; `auto` if none is.
    pub provider: String,
    /// Standard input of agents that do not say themselves.
    pub stdin: Stdin,
    /// Size at which an output log is rotated.
    pub log_bytes: u64,
    /// Rotated output logs that are kept.
    pub log_keep: u32,
    /// Names of variables agents inherit; `*` stands for any characters.
    pub env_passthrough: Vec<String>,
    /// Name of the tmux socket; the city's name if not set.
    pub socket: Option<String>,
    /// Config of the tmux server: `user`, `none` or an absolute path.
    pub tmux_config: String,
    /// Lines of scrollback a tmux session keeps.
    pub history_lines: u32,
    /// How long one setup command may take (`pre_start`, `session_setup`, `session_live`).
    pub setup_timeout: Duration,
    /// How long one call of an exec provider may take.
    pub exec_timeout: Duration,
    /// How long its `start` may take.
    pub exec_start_timeout: Duration,
    /// How long a nudge waits for the program to be ready.
    pub nudge_ready_timeout: Duration,
    /// Time between two looks at it.
    pub nudge_retry_interval: Duration,
    /// How long a nudge waits for another one to finish.
    pub nudge_lock_timeout: Duration,
    /// Time between typed text and Enter (`debounce_ms`).
    pub debounce: Duration,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            provider: "auto".into(),
            stdin: Stdin::default(),
            log_bytes: 8 << 20,
            log_keep: 3,
            env_passthrough: DEFAULT_PASSTHROUGH.map(str::to_owned).to_vec(),
            socket: None,
            tmux_config: "user".into(),
            history_lines: 10_000,
            setup_timeout: Duration::from_secs(10),
            exec_timeout: Duration::from_secs(30),
            exec_start_timeout: Duration::from_secs(120),
            nudge_ready_timeout: Duration::from_secs(10),
            nudge_retry_interval: Duration::from_millis(500),
            nudge_lock_timeout: Duration::from_secs(30),
            debounce: Duration::from_millis(500),
        }
    }
}

/// The settings as the files have them; the provider is chosen elsewhere.
pub(super) fn settings(fields: &Fields, files: &Files) -> SessionSettings {
    let default = SessionSettings::default();
    let millis = |key: &str| fields.count(key).map(Duration::from_millis);
    let limit = |key: &str, otherwise| fields.duration(key).unwrap_or(otherwise);
    SessionSettings {
        stdin: stdin(fields).unwrap_or(default.stdin),
        log_bytes: fields.count("log_bytes").unwrap_or(default.log_bytes),
        log_keep: fields.count("log_keep").unwrap_or(default.log_keep),
        env_passthrough: fields
            .texts("env_passthrough")
            .unwrap_or(default.env_passthrough),
        socket: fields.text("socket").map(str::to_owned),
        tmux_config: match fields.placed_text("tmux_config") {
            Some((word @ ("user" | "none"), _)) => word.to_owned(),
            Some((path, span)) => files.resolve(path, &span).to_string_lossy().into_owned(),
            None => default.tmux_config,
        },
        history_lines: fields
            .count("history_lines")
            .unwrap_or(default.history_lines),
        setup_timeout: limit("setup_timeout", default.setup_timeout),
        exec_timeout: limit("exec_timeout", default.exec_timeout),
        exec_start_timeout: limit("exec_start_timeout", default.exec_start_timeout),
        nudge_ready_timeout: limit("nudge_ready_timeout", default.nudge_ready_timeout),
        nudge_retry_interval: limit("nudge_retry_interval", default.nudge_retry_interval),
        nudge_lock_timeout: limit("nudge_lock_timeout", default.nudge_lock_timeout),
        debounce: millis("debounce_ms").unwrap_or(default.debounce),
        provider: default.provider,
    }
}

/// `stdin` of a table.
pub(in crate::config) fn stdin(fields: &Fields) -> Option<Stdin> {
    fields.text("stdin").map(|word| {
        if word == "null" {
            Stdin::Null
        } else {
            Stdin::Fifo
        }
    })
}

/// What the session providers in use are built with, so that a change needs others.
pub(super) fn provider_settings(
    session: &Fields,
    settings: &SessionSettings,
    agents: &[Arc<AgentSpec>],
) -> BTreeMap<String, String> {
    let own = agents
        .iter()
        .filter_map(|agent| agent.launch.session.as_deref());
    let words: Vec<&str> = own.chain([settings.provider.as_str()]).collect();
    let mut found = BTreeMap::new();
    if words.iter().any(|word| ["", "auto", "tmux"].contains(word)) {
        let socket = settings.socket.iter();
        found.extend(socket.map(|name| ("session.socket".to_owned(), name.clone())));
        let (config, lines) = (&settings.tmux_config, settings.history_lines);
        found.insert("session.tmux_config".to_owned(), config.clone());
        found.insert("session.history_lines".to_owned(), lines.to_string());
    }
    if let Some(k8s) = session.table("k8s").filter(|_| words.contains(&"k8s")) {
        let keys = k8s
            .iter()
            .filter_map(|(name, _)| Some((name, k8s.text(name)?)));
        found.extend(keys.map(|(name, value)| (format!("session.k8s.{name}"), value.to_owned())));
    }
    found
}

/// Pods need an image.
pub(super) fn check_k8s(session: &Fields, settings: &SessionSettings, problems: &mut Problems) {
    let image = session.table("k8s").is_some_and(|k8s| k8s.has("image"));
    if settings.provider == "k8s" && !image {
        let span = session.span("provider").unwrap_or(0..0);
        let message = "`provider = \"k8s\"` needs an image";
        problems.push(
            Problem::error("missing-key", span, "session.k8s.image", message)
                .label("no `image`")
                .help("set `image` in [session.k8s]".to_owned()),
        );
    }
}
