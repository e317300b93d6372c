//! Diagnostics of gc itself, on stderr.

use tracing_subscriber::EnvFilter;

use super::error::{CliError, CliResult, Code};

/// Turns on logging for a command, if `-v` or `GC_LOG` asks for it. Not for the commands that
/// become a supervisor: those have a log of their own.
///
/// # Errors
/// If `GC_LOG` is no filter.
pub(super) fn start(verbose: u8, colour: bool) -> CliResult {
    let Some(filter) = filter(verbose, std::env::var("GC_LOG").ok()) else {
        return Ok(());
    };
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        CliError::new(Code::Usage, format!("GC_LOG={filter:?} is no log filter")).cause(error)
    })?;
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    let _ = logging.try_init(); // a library user may have one
    Ok(())
}

/// The flag is the user's word of the moment and wins over the variable.
fn filter(verbose: u8, env: Option<String>) -> Option<String> {
    let level = match verbose {
        0 => return env.filter(|filter| !filter.trim().is_empty()),
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    Some(level.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable() {
        assert_eq!(filter(0, None), None);
        assert_eq!(filter(0, Some(" ".into())), None);
        assert_eq!(filter(0, Some("warn".into())).as_deref(), Some("warn"));
        assert_eq!(filter(2, Some("warn".into())).as_deref(), Some("debug"));
        assert_eq!(filter(9, None).as_deref(), Some("trace"));
    }
}
