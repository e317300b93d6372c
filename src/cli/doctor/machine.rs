//! Checks of the machine: the supervisor's home, its files, its process.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::{Value, json};

use super::{Finding, Level};
use crate::cli::context::Context;
use crate::cli::values::count;
use crate::config;
use crate::control::home::Home;
use crate::control::lock::{self, Held};
use crate::daemon::settings::Settings;

/// Programs that some features need.
const PROGRAMS: [(&str, &str); 2] = [
    ("tmux", "for agents in tmux sessions"),
    ("git", "for packs from repositories"),
];

pub(super) fn check(context: &Context, fix: bool) -> Vec<Finding> {
    let home = match context.home() {
        Ok(home) => home,
        Err(error) => return vec![Finding::new("home", Level::Error, error.message)],
    };
    let mut findings = vec![
        directory(&home, fix),
        settings(&home),
        registry(context, &home),
    ];
    findings.extend(cities(context, fix));
    findings.extend(process(context, &home, fix));
    findings.extend(programs());
    findings
}

fn directory(home: &Home, fix: bool) -> Finding {
    let dir = home.dir();
    let meta = match fs::metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("{} does not exist yet", dir.display());
            return Finding::fine("home", message);
        }
        Err(error) => {
            let message = format!("{}: {error}", dir.display());
            return Finding::new("home", Level::Error, message);
        }
    };
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let message = format!("{} belongs to another user", dir.display());
        return Finding::new("home", Level::Error, message).fix("gc --home DIR");
    }
    if meta.mode() & 0o022 != 0 {
        let message = format!("{} is writable for others", dir.display());
        return Finding::new("home", Level::Error, message)
            .fix(format!("chmod 700 {}", dir.display()))
            .fixable(fix, || {
                fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            });
    }
    Finding::fine("home", dir.display().to_string())
}

fn settings(home: &Home) -> Finding {
    match Settings::load(&home.config()) {
        Ok(_) if !home.config().exists() => Finding::fine("settings", "defaults"),
        Ok(_) => Finding::fine("settings", home.config().display().to_string()),
        Err(error) => Finding::new("settings", Level::Error, error.to_string())
            .fix(format!("mend {}", home.config().display())),
    }
}

fn registry(context: &Context, home: &Home) -> Finding {
    let read = context.registry().map(|registry| registry.read());
    match read {
        Ok(Ok(contents)) => {
            let refused = contents.registered.refused.first();
            if let Some((entry, why)) = refused {
                let message = format!("{}: {why}", entry.path.display());
                return Finding::new("registry", Level::Error, message)
                    .fix(format!("mend {}", home.registry().display()));
            }
            if let Some(warning) = contents.warnings.first() {
                return Finding::new("registry", Level::Warning, warning.clone())
                    .fix(format!("mend {}", home.registry().display()));
            }
            let cities = count(contents.registered.cities.len(), "city");
            Finding::fine("registry", cities)
        }
        Ok(Err(error)) => Finding::new("registry", Level::Error, error.to_string())
            .fix(format!("mend {}", home.registry().display())),
        Err(error) => Finding::new("registry", Level::Error, error.message),
    }
}

/// Each registered city, as far as its files tell.
fn cities(context: &Context, fix: bool) -> Vec<Finding> {
    let Ok(registered) = context.registered() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for city in registered {
        let path = &city.path;
        if !path.is_dir() {
            let message = format!("{}: its directory is gone", city.name);
            let forget = || match context.registry() {
                Ok(registry) => registry
                    .unregister(path)
                    .map(drop)
                    .map_err(io::Error::other),
                Err(error) => Err(io::Error::other(error.message)),
            };
            findings.push(
                Finding::new("cities", Level::Error, message)
                    .fix(format!("gc unregister {}", path.display()))
                    .fixable(fix, forget),
            );
        } else if let Err(error) = config::load(path) {
            let first = error.summary.lines().next().unwrap_or_default();
            let message = format!("{}: {first}", city.name);
            findings.push(
                Finding::new("cities", Level::Error, message)
                    .fix(format!("gc start -n {}", path.display())),
            );
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine("cities", "all have a config that loads"));
    }
    findings
}

/// The lock, the socket and whoever is behind them.
fn process(context: &Context, home: &Home, fix: bool) -> Vec<Finding> {
    let held = lock::holder(&home.runtime_lock());
    let socket = home.socket();
    let mut findings = Vec::new();
    match &held {
        Ok(Held::By(holder)) => {
            let pid = holder.as_ref().map_or(0, |holder| holder.pid);
            findings.push(Finding::fine("lock", format!("held by pid {pid}")));
        }
        Ok(Held::No) => findings.push(Finding::fine("lock", "free: no supervisor runs")),
        Err(error) => findings.push(Finding::new("lock", Level::Error, error.to_string())),
    }
    let is_held = matches!(held, Ok(Held::By(_)));
    findings.push(socket_file(&socket, is_held, fix));
    let status = context.supervisor().and_then(|client| match client {
        Some(mut client) => Ok(Some(client.call("status", json!({}))?)),
        None => Ok(None),
    });
    findings.extend(match status {
        Ok(Some(status)) => supervisor(&status),
        Ok(None) if is_held => {
            let message = "a process holds the lock and does not listen";
            vec![Finding::new("supervisor", Level::Error, message).fix("gc supervisor logs")]
        }
        Ok(None) => vec![Finding::fine("supervisor", "not running")],
        Err(error) => {
            let finding = Finding::new("supervisor", Level::Error, error.message);
            vec![finding.fix(error.hint.unwrap_or_else(|| "gc supervisor logs".into()))]
        }
    });
    findings
}

fn socket_file(socket: &Path, held: bool, fix: bool) -> Finding {
    let shown = socket.display();
    let Ok(meta) = fs::symlink_metadata(socket) else {
        return Finding::fine("socket", "none");
    };
    if meta.mode() & 0o077 != 0 {
        let message = format!("{shown} is open to others");
        return Finding::new("socket", Level::Error, message)
            .fix(format!("chmod 600 {shown}"))
            .fixable(fix, || {
                fs::set_permissions(socket, fs::Permissions::from_mode(0o600))
            });
    }
    if !held {
        let message = format!("{shown} is left from a supervisor that was killed");
        return Finding::new("socket", Level::Warning, message)
            .fix("gc supervisor start replaces it")
            .fixable(fix, || fs::remove_file(socket));
    }
    Finding::fine("socket", shown.to_string())
}

fn supervisor(status: &Value) -> Vec<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    let version = status["version"].as_str().unwrap_or("?");
    let mut findings = Vec::new();
    for trouble in status["degraded"].as_array().into_iter().flatten() {
        let text = trouble.as_str().unwrap_or_default();
        findings.push(Finding::new("supervisor", Level::Error, text).fix("gc supervisor logs"));
    }
    if version != own {
        let message = format!("it runs version {version}, this is {own}");
        let finding = Finding::new("supervisor", Level::Warning, message);
        findings.push(finding.fix("gc supervisor upgrade"));
    }
    if findings.is_empty() {
        let text = format!("running, pid {}", status["pid"]);
        findings.push(Finding::fine("supervisor", text));
    }
    findings
}

fn programs() -> impl Iterator<Item = Finding> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        move |program: &str| std::env::split_paths(&path).any(|d| d.join(program).is_file());
    PROGRAMS
        .into_iter()
        .map(move |(program, why)| match found(program) {
            true => Finding::fine("programs", program),
            false => Finding::new("programs", Level::Warning, format!("no {program}, {why}")),
        })
}
