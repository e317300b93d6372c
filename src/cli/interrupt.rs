//! Ctrl-C while a command only watches work that others do.

use std::io::Write as _;

/// From now on SIGINT ends this process with 130 after saying that the work goes on.
pub(super) fn watching(note: &'static str) {
    // A thread, since the commands block on sockets. Without it, SIGINT still ends the process.
    let wait = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let Ok(runtime) = runtime else { return };
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            let _ = writeln!(std::io::stderr().lock(), "\n{note}"); // nobody to tell
            std::process::exit(130);
        }
    };
    let _ = std::thread::Builder::new()
        .name("sigint".into())
        .spawn(wait);
}
