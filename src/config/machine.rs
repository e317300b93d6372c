//! `supervisor.toml`: the settings of the machine-wide supervisor (config.md 3).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use gascity_actors::ports::{Diagnostic, LoadError};

use super::compose;
use super::fields::{Fields, invalid};
use super::files::{Files, Layer};
use super::keys::SUPERVISOR_FILE;
use super::problem::{Problem, Problems};
use super::source::Bytes;
use super::tree::Span;

/// What the file says; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the keys
pub struct SupervisorFile {
    pub port: Option<u16>,
    pub bind: Option<IpAddr>,
    pub patrol_interval: Option<Duration>,
    pub allow_mutations: Option<bool>,
    pub auth: Option<String>,
    pub allowed_hosts: Vec<String>,
    pub allowed_origins: Vec<String>,
    pub city_start_parallelism: Option<usize>,
    pub city_restart_delay: Option<Duration>,
    pub city_restart_delay_max: Option<Duration>,
    pub on_sigterm: Option<String>,
    pub log_level: Option<String>,
    pub log_format: Option<String>,
    /// `[tenants]`, by name.
    pub tenants: BTreeMap<String, Tenant>,
    /// Problems that did not stop the load.
    pub warnings: Vec<Diagnostic>,
}

/// Cities that share limits and keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the keys
pub struct Tenant {
    pub cities: Vec<String>,
    pub max_agents: Option<u32>,
    pub max_cities: Option<u32>,
    pub memory_max: Option<String>,
    pub cpu_max: Option<String>,
    pub api_keys: Vec<String>,
    pub socket: Option<String>,
}

impl SupervisorFile {
    /// Checks the text of the file at `path`.
    ///
    /// # Errors
    /// [`LoadError`] with all problems.
    pub fn parse(path: &Path, text: &str) -> Result<Self, LoadError> {
        let bytes = Bytes {
            bytes: text.as_bytes().to_vec(),
            executable: false,
        };
        let files = Files::of(path.parent().unwrap_or(path));
        let mut problems = Problems::of(files);
        let file = compose::file(path, &bytes, &SUPERVISOR_FILE, Layer::City, &mut problems);
        let read = file.map(|file| Self::read(&file, &mut problems));
        let failed = problems.has_errors();
        let report = problems.report();
        match read.filter(|_| !failed) {
            Some(read) => Ok(Self {
                warnings: report.diagnostics,
                ..read
            }),
            None => Err(report.into()),
        }
    }

    fn read(file: &Fields, problems: &mut Problems) -> Self {
        let none = Fields::default();
        let keys = file.table("supervisor").unwrap_or(&none);
        let text = |key: &str| keys.text(key).map(str::to_owned);
        let delays = ["city_restart_delay", "city_restart_delay_max"];
        let [delay, most] = delays.map(|key| keys.duration(key));
        let defaults = (Duration::from_secs(1), Duration::from_secs(300));
        if delay.unwrap_or(defaults.0) > most.unwrap_or(defaults.1) {
            let spans = delays.map(|key| (key, keys.span(key)));
            let message = "`city_restart_delay` is more than `city_restart_delay_max`";
            problems.push(Problem::conflict("supervisor", spans, message));
        }
        Self {
            port: keys.count("port"),
            bind: bind(keys, problems),
            patrol_interval: keys.duration("patrol_interval"),
            allow_mutations: keys.flag("allow_mutations"),
            auth: text("auth"),
            allowed_hosts: keys.texts("allowed_hosts").unwrap_or_default(),
            allowed_origins: keys.texts("allowed_origins").unwrap_or_default(),
            city_start_parallelism: keys.count("city_start_parallelism"),
            city_restart_delay: delay,
            city_restart_delay_max: most,
            on_sigterm: text("on_sigterm"),
            log_level: text("log_level"),
            log_format: text("log_format"),
            tenants: tenants(file, problems),
            warnings: Vec::new(),
        }
    }
}

fn bind(keys: &Fields, problems: &mut Problems) -> Option<IpAddr> {
    let (text, span) = keys.placed_text("bind")?;
    text.parse()
        .map_err(|_| {
            let message = format!("{text:?} is no IP address");
            problems.push(invalid(span, "supervisor.bind", message));
        })
        .ok()
}

/// A city belongs to one tenant at most.
fn tenants(file: &Fields, problems: &mut Problems) -> BTreeMap<String, Tenant> {
    let mut owners: BTreeMap<String, (String, Span)> = BTreeMap::new();
    let mut tenants = BTreeMap::new();
    for (name, item) in file.dict("tenants").into_iter().flatten() {
        for (i, (city, span)) in item.fields.placed("cities").iter().enumerate() {
            let own = (name.clone(), span.clone());
            let Some((other, first)) = owners.insert(city.clone(), own) else {
                continue;
            };
            let at = format!("{}.cities[{i}]", item.path);
            let message = match other == *name {
                true => format!("city {city:?} is listed twice"),
                false => format!("city {city:?} belongs to the tenants `{other}` and `{name}`"),
            };
            problems.push(
                Problem::error("duplicate-name", span.clone(), at, message)
                    .label("second tenant")
                    .related(first, "first tenant"),
            );
        }
        let none = Fields::default();
        let limit = item.fields.table("resource_limit").unwrap_or(&none);
        let text = |fields: &Fields, key: &str| fields.text(key).map(str::to_owned);
        let tenant = Tenant {
            cities: item.fields.texts("cities").unwrap_or_default(),
            max_agents: limit.count("max_agents"),
            max_cities: limit.count("max_cities"),
            memory_max: text(limit, "memory_max"),
            cpu_max: text(limit, "cpu_max"),
            api_keys: item.fields.texts("api_keys").unwrap_or_default(),
            socket: text(&item.fields, "socket"),
        };
        tenants.insert(name.clone(), tenant);
    }
    tenants
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> LoadError {
        SupervisorFile::parse(Path::new("/h/supervisor.toml"), text).expect_err("refused")
    }

    #[test]
    fn every_key_is_read() {
        let file = SupervisorFile::parse(
            Path::new("/h/supervisor.toml"),
            "[supervisor]\nport = 0\nbind = '::1'\npatrol_interval = '2s'\non_sigterm = 'detach'\n\
             [tenants.acme]\ncities = ['a']\nresource_limit = { max_agents = 3, memory_max = '1GiB', cpu_max = '50%' }\n",
        )
        .expect("valid");
        assert_eq!(
            (file.port, file.patrol_interval),
            (Some(0), Some(Duration::from_secs(2)))
        );
        let tenant = &file.tenants["acme"];
        assert_eq!(
            (tenant.max_agents, tenant.memory_max.as_deref()),
            (Some(3), Some("1GiB"))
        );
        assert_eq!(
            SupervisorFile::parse(Path::new("/h/s"), "").expect("valid"),
            SupervisorFile::default()
        );
    }

    #[test]
    fn a_key_instead_of_its_hash_is_refused_and_not_shown() {
        // Row 45.
        let error = refused("[tenants.a]\napi_keys = [\"secret\"]\n");
        let codes: Vec<&str> = error.diagnostics.iter().map(|d| d.code.as_str()).collect();
        assert_eq!(codes, ["ignored-key", "invalid-value"]);
        let shown = error.summary + &serde_json::to_string(&error.diagnostics).expect("text");
        assert!(
            shown.contains("***") && !shown.contains("secret"),
            "{shown}"
        );
        let hash = format!("[tenants.a]\napi_keys = [\"sha256:{}\"]\n", "0".repeat(64));
        assert!(SupervisorFile::parse(Path::new("/h/s"), &hash).is_ok());
    }

    #[test]
    fn mistakes_are_all_named() {
        let error = refused(
            "[supervisor]\nprot = 1\nbind = 'here'\ncity_restart_delay = '1h'\n[tenants.a]\ncities = ['x']\n[tenants.b]\ncities = ['x']\nresource_limit = { memory_max = '1 GB' }\n",
        );
        let codes: Vec<String> = error
            .diagnostics
            .iter()
            .filter(|found| found.severity == "error")
            .map(|found| format!("{} {}", found.code, found.line))
            .collect();
        assert_eq!(
            codes,
            [
                "unknown-key 2",
                "invalid-value 3",
                "conflict 4",
                "duplicate-name 8",
                "invalid-value 9"
            ]
        );
    }

    #[test]
    fn tables_of_the_older_tool_are_ignored() {
        let file =
            SupervisorFile::parse(Path::new("/h/s"), "[publication]\nx = 1\n").expect("valid");
        assert_eq!(file.warnings[0].code, "unsupported-key");
    }
}
