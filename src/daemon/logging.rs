//! The program's own log: a file that rotates, and stderr in the foreground.

mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use self::file::LogFile;
use super::settings::LogFormat;
use crate::cli::CliResult;

/// The log of this process.
#[derive(Debug, Clone)]
pub(super) struct Log {
    file: Arc<LogFile>,
    filter: reload::Handle<EnvFilter, Registry>,
    json: Arc<AtomicBool>,
}

impl Log {
    /// Logs to `file`, and to stderr in the foreground. `GC_LOG` filters; else `level` counts.
    pub(super) fn start(file: &Path, foreground: bool, level: &str) -> CliResult<Self> {
        let file = Arc::new(LogFile::open(file)?);
        let first =
            EnvFilter::try_from_env("GC_LOG").unwrap_or_else(|_| EnvFilter::new(own(level)));
        let (filter, handle) = reload::Layer::new(first);
        let json = Arc::new(AtomicBool::new(false));
        let (in_text, in_json) = (json.clone(), json.clone());
        let as_text = fmt::layer()
            .with_ansi(false)
            .with_target(false)
            .with_writer(file.clone())
            .with_filter(dynamic_filter_fn(move |_, _| !in_text.load(Relaxed)));
        let as_json = fmt::layer()
            .json()
            .with_target(false)
            .with_writer(file.clone())
            .with_filter(dynamic_filter_fn(move |_, _| in_json.load(Relaxed)));
        let to_stderr = foreground.then(|| {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            fmt::layer()
                .with_ansi(colour)
                .with_target(false)
                .with_writer(std::io::stderr)
        });
        // A second start in one process keeps the first log: only embedders can get here twice.
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(as_text)
            .with(as_json)
            .with(to_stderr)
            .try_init();
        log_panics();
        Ok(Self {
            file,
            filter: handle,
            json,
        })
    }

    /// Logs from `level` on.
    ///
    /// # Errors
    /// If it is no level.
    pub(super) fn level(&self, level: &str) -> Result<(), String> {
        let filter = EnvFilter::try_new(own(level)).map_err(|error| error.to_string())?;
        self.filter
            .reload(filter)
            .map_err(|error| error.to_string())
    }

    /// The level of the settings, unless `GC_LOG` rules.
    pub(super) fn configure(&self, level: &str, format: LogFormat) {
        self.json.store(format == LogFormat::Json, Relaxed);
        if std::env::var_os("GC_LOG").is_none()
            && let Err(error) = self.level(level)
        {
            tracing::warn!(error, "log level not changed");
        }
    }

    /// Opens the file anew, for whoever moved it away.
    pub(super) fn reopen(&self) {
        self.file.reopen();
    }

    /// Why lines are being lost, if so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.file.trouble()
    }
}

/// A panic of an actor is met by its parent; what is left to do is to say where it was.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::force_capture();
        tracing::error!("{panic}\n{backtrace}");
    }));
}

/// The actor framework names its actors by number on every line, which says nothing to anybody.
fn own(level: &str) -> String {
    format!("{level},ractor=warn")
}
