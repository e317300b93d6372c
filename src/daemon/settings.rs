//! `supervisor.toml`: the settings of the machine-wide supervisor.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::OnSigterm;
use crate::MachineSettings;
use crate::config::duration;

/// What a log line looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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
        let written: Written = toml::from_str(text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start.min(text.len()))];
            let line_start = before.rfind('\n').map_or(0, |end| end + 1);
            SettingsError::Invalid {
                file: file.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message: error.message().lines().collect::<Vec<_>>().join(" "),
            }
        })?;
        let Keys {
            patrol_interval,
            city_start_parallelism,
            city_restart_delay,
            city_restart_delay_max,
            on_sigterm,
            log_level,
            log_format,
            ..
        } = written.supervisor;
        let defaults = Self::default();
        let span = |written: Option<Span>, default| written.map_or(default, |span| span.0);
        Ok(Self {
            machine: MachineSettings {
                patrol_interval: span(patrol_interval, defaults.machine.patrol_interval),
                city_start_parallelism: city_start_parallelism
                    .map_or(defaults.machine.city_start_parallelism, |count| {
                        usize::from(count.0)
                    }),
                city_restart_delay: span(city_restart_delay, defaults.machine.city_restart_delay),
                city_restart_delay_max: span(
                    city_restart_delay_max,
                    defaults.machine.city_restart_delay_max,
                ),
                ..defaults.machine
            },
            on_sigterm: on_sigterm.unwrap_or(defaults.on_sigterm),
            log_level: log_level.map_or(defaults.log_level, |level| level.0),
            log_format: log_format.unwrap_or(defaults.log_format),
        })
    }
}

/// The file. Keys of the HTTP API and of tenants are known, so that a file written for them is no
/// mistake, and have no effect here.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(dead_code)] // read by nobody yet
struct Written {
    supervisor: Keys,
    tenants: toml::Table,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(dead_code)] // as above
struct Keys {
    port: Option<u16>,
    bind: Option<std::net::IpAddr>,
    allow_mutations: Option<bool>,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    auth: Option<Auth>,
    patrol_interval: Option<Span>,
    city_start_parallelism: Option<Positive>,
    city_restart_delay: Option<Span>,
    city_restart_delay_max: Option<Span>,
    on_sigterm: Option<OnSigterm>,
    log_level: Option<Level>,
    log_format: Option<LogFormat>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Auth {
    None,
    Auto,
    Required,
}

#[derive(Debug)]
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let span = duration::parse(&text).map_err(serde::de::Error::custom)?;
        match span.is_zero() {
            false => Ok(Self(span)),
            true => Err(serde::de::Error::custom("must be longer than zero")),
        }
    }
}

#[derive(Debug)]
struct Positive(u16);

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u16::deserialize(deserializer)? {
            0 => Err(serde::de::Error::custom("must be at least 1")),
            count => Ok(Self(count)),
        }
    }
}

#[derive(Debug)]
struct Level(String);

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "error" | "warn" | "info" | "debug" | "trace" => Ok(Self(text)),
            _ => Err(serde::de::Error::custom(
                "expected error, warn, info, debug or trace",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
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
