//! A bug in gc: where it happened, kept for a report.

use std::backtrace::Backtrace;
use std::path::PathBuf;
use std::sync::Mutex;

/// The file the last panic of this process was written to.
static REPORT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on a panic is written to a file in the temporary directory.
pub(super) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let file = std::env::temp_dir().join(format!("gc-crash-{}.txt", std::process::id()));
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("gc {version}\n{panic}\n\n{}", Backtrace::force_capture());
        eprintln!("{panic}");
        if std::fs::write(&file, text).is_ok()
            && let Ok(mut report) = REPORT.lock()
        {
            *report = Some(file);
        }
    }));
}

/// Where the last panic was written to.
pub(super) fn report() -> Option<PathBuf> {
    REPORT.lock().ok()?.clone()
}
