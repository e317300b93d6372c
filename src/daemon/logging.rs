//! Where the program's own log goes.

use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

use crate::cli::CliResult;
use crate::control::files;

/// Logs to `file`, and to stderr in the foreground. `GC_LOG` filters; the default is `info`.
pub(super) fn start(file: &Path, foreground: bool) -> CliResult {
    let log = files::private().append(true).create(true).open(file)?;
    let filter = EnvFilter::try_from_env("GC_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let to_file = fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(Mutex::new(log));
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
        .with(to_file)
        .with(to_stderr)
        .try_init();
    Ok(())
}
