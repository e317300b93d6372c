//! `supervisor.toml`: the settings of the machine-wide supervisor.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::OnSigterm;
use crate::MachineSettings;
use crate::config::SupervisorFile;

/// What a log line looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

/// The settings in force. All of them can change while the supervisor runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the tree needs.
    pub machine: MachineSettings,
    /// What SIGTERM does, unless `--on-sigterm` says it.
    pub on_sigterm: OnSigterm,
    /// Least level that is logged, unless `GC_LOG` says it.
    pub log_level: String,
    /// Form of the log.
    pub log_format: LogFormat,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            machine: MachineSettings {
                mode: "supervisor".into(),
                ..MachineSettings::default()
            },
            on_sigterm: OnSigterm::default(),
            log_level: "info".into(),
            log_format: LogFormat::default(),
        }
    }
}

/// A file that cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// It has a mistake.
    #[error("{}:{line}:{column}: {message}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong, with the key.
        message: String,
    },
    /// It cannot be read.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Settings {
    /// Reads `file`; one that is missing means the defaults.
    ///
    /// # Errors
    /// [`SettingsError::Invalid`] names line and key.
    pub fn load(file: &Path) -> Result<Self, SettingsError> {
        match fs::read_to_string(file) {
            Ok(text) => Self::parse(file, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(SettingsError::Io {
                file: file.to_owned(),
                source,
            }),
        }
    }

    fn parse(file: &Path, text: &str) -> Result<Self, SettingsError> {
        let written = SupervisorFile::parse(file, text).map_err(|error| {
            let errors = error.diagnostics.iter();
            let mut errors = errors.filter(|found| found.severity == "error");
            let first = errors.next().cloned().unwrap_or_default();
            let help = first
                .help
                .map_or_else(String::new, |help| format!("; {help}"));
            let more = match errors.count() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            SettingsError::Invalid {
                file: file.to_owned(),
                line: first.line,
                column: first.column,
                message: format!("{}{help}{more}", first.message),
            }
        })?;
        let defaults = Self::default();
        let machine = defaults.machine;
        Ok(Self {
            machine: MachineSettings {
                patrol_interval: written.patrol_interval.unwrap_or(machine.patrol_interval),
                city_start_parallelism: written
                    .city_start_parallelism
                    .unwrap_or(machine.city_start_parallelism),
                city_restart_delay: written
                    .city_restart_delay
                    .unwrap_or(machine.city_restart_delay),
                city_restart_delay_max: written
                    .city_restart_delay_max
                    .unwrap_or(machine.city_restart_delay_max),
                ..machine
            },
            on_sigterm: match written.on_sigterm.as_deref() {
                Some("detach") => OnSigterm::Detach,
                Some(_) => OnSigterm::Stop,
                None => defaults.on_sigterm,
            },
            log_level: written.log_level.unwrap_or(defaults.log_level),
            log_format: match written.log_format.as_deref() {
                Some("json") => LogFormat::Json,
                Some(_) => LogFormat::Text,
                None => defaults.log_format,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(Path::new("s.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let settings = parse("").unwrap();
        assert_eq!(settings.machine.patrol_interval, Duration::from_secs(10));
        assert_eq!(settings.machine.city_start_parallelism, 4);
        assert_eq!(settings.machine.city_restart_delay, Duration::from_secs(1));
        let most = settings.machine.city_restart_delay_max;
        assert_eq!(most, Duration::from_secs(300));
        assert_eq!(settings.on_sigterm, OnSigterm::Stop);
        assert_eq!(settings.log_level, "info");
        assert_eq!(settings.machine.mode, "supervisor");
    }

    #[test]
    fn keys_are_taken_and_those_of_later_features_tolerated() {
        let settings = parse(
            "[supervisor]\nport = 0\nbind = \"127.0.0.1\"\nauth = \"auto\"\n\
             patrol_interval = \"2s\"\non_sigterm = \"detach\"\nlog_level = \"debug\"\n\
             log_format = \"json\"\ncity_start_parallelism = 2\n[tenants.acme]\ncities = [\"a\"]\n",
        )
        .unwrap();
        assert_eq!(settings.machine.patrol_interval, Duration::from_secs(2));
        assert_eq!(settings.on_sigterm, OnSigterm::Detach);
        assert_eq!(settings.log_level, "debug");
        assert_eq!(settings.log_format, LogFormat::Json);
        assert_eq!(settings.machine.city_start_parallelism, 2);
    }

    #[test]
    fn mistakes_name_file_line_and_key() {
        for (text, at, says) in [
            ("[supervisor]\nprot = 1\n", "s.toml:2:1", "prot"),
            (
                "[supervisor]\n\npatrol_interval = \"soon\"\n",
                "s.toml:3:19",
                "unit",
            ),
            (
                "[supervisor]\nlog_level = \"loud\"\n",
                "s.toml:2:13",
                "debug",
            ),
            (
                "[supervisor]\ncity_start_parallelism = 0\n",
                "s.toml:2:26",
                "at least 1",
            ),
            ("[supervisor\n", "s.toml:1:", ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(at) && error.contains(says), "{error}");
        }
    }
}
