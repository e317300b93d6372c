//! `gc supervisor install` and `uninstall`: the supervisor as a service of the user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::json;

use crate::cli::context::Context;
use crate::cli::error::{CliError, CliResult, Code, io_hint};
use crate::cli::output::Mark;
use crate::control::home::Home;
use crate::control::service::{Service, Unit};

/// Arguments of `gc supervisor install`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc supervisor install\n  gc supervisor install --print   # only show the unit"
)]
pub(super) struct InstallArgs {
    /// Only print the unit
    #[arg(long)]
    print: bool,
}

/// What manages the services of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manager {
    Systemd,
    Launchd,
}

impl InstallArgs {
    /// Writes the unit, and has the manager start it now and at every login.
    ///
    /// # Errors
    /// If there is no service manager, or it refuses.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let out = context.out;
        let (manager, unit) = unit(&context.home()?)?;
        if self.print {
            match out.json {
                true => {
                    let unit = json!({"name": unit.name, "file": unit.file, "text": unit.text});
                    out.document(&unit)?;
                }
                false => out.line(unit.text.trim_end())?,
            }
            return Ok(0);
        }
        let was_there = fs::read_to_string(&unit.file).is_ok_and(|text| text == unit.text);
        if !was_there {
            write(&unit.file, &unit.text)?;
        }
        let running = context.supervisor()?.map(|client| client.hello().pid);
        manager.enable(&unit, running.is_none())?;
        if out.json {
            out.document(&json!({
                "name": unit.name, "file": unit.file, "already": was_there,
                "started": running.is_none(),
            }))?;
        }
        let word = if was_there {
            "already installed"
        } else {
            "installed"
        };
        out.report(Mark::Done, format!("{word} {}", unit.file.display()))?;
        if let Some(pid) = running {
            out.note(format!(
                "the supervisor that runs now (pid {pid}) stays; the service takes over at the next start"
            ));
        }
        if manager == Manager::Systemd {
            out.note("to keep it running when you log out: loginctl enable-linger");
        }
        Ok(0)
    }
}

/// Takes the service out again; a supervisor that runs is left alone.
///
/// # Errors
/// If there is no service manager, or the unit cannot be removed.
pub(super) fn uninstall(context: &Context) -> CliResult<u8> {
    let out = context.out;
    let (manager, unit) = unit(&context.home()?)?;
    let installed = unit.file.exists();
    if installed {
        manager.disable(&unit);
        fs::remove_file(&unit.file).map_err(|error| refused(&unit.file, &error))?;
        manager.forget();
    }
    if out.json {
        out.document(&json!({"name": unit.name, "file": unit.file, "removed": installed}))?;
    }
    let text = match installed {
        true => format!("uninstalled {}", unit.name),
        false => format!("{} is not installed", unit.name),
    };
    out.report(Mark::Done, text)?;
    if installed && let Some(client) = context.supervisor()? {
        let pid = client.hello().pid;
        out.note(format!(
            "the supervisor runs on (pid {pid}); gc supervisor stop ends it"
        ));
    }
    Ok(0)
}

/// Has the service manager start the supervisor; `None` if none is installed for `home`.
pub(crate) fn start_installed(home: &Home) -> Option<io::Result<()>> {
    let (manager, unit) = unit(home).ok()?;
    unit.file.exists().then(|| manager.start(&unit))
}

/// Tells the service manager that its service is stopped.
pub(super) fn stop_installed(home: &Home) {
    if let Ok((manager, unit)) = unit(home)
        && unit.file.exists()
    {
        manager.stop(&unit);
    }
}

fn unit(home: &Home) -> CliResult<(Manager, Unit)> {
    let missing = || CliError::new(Code::Failed, "HOME is not set");
    let user = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let user = PathBuf::from(user.ok_or_else(missing)?);
    let path = std::env::var("PATH").unwrap_or_default();
    let service = Service::new(std::env::current_exe()?, home, &user, path);
    match Manager::here()? {
        Manager::Launchd => Ok((Manager::Launchd, service.launchd(&user))),
        Manager::Systemd => {
            let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
            let data = data.filter(|dir| dir.is_absolute());
            let data = data.unwrap_or_else(|| user.join(".local/share"));
            Ok((Manager::Systemd, service.systemd(&data)))
        }
    }
}

fn write(file: &Path, text: &str) -> CliResult {
    let dir = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(file, text))
        .map_err(|error| refused(file, &error))
}

fn refused(file: &Path, error: &io::Error) -> CliError {
    let mut failure = CliError::new(Code::Failed, format!("{}: {error}", file.display()));
    failure.hint = io_hint(file, error);
    failure
}

impl Manager {
    fn here() -> CliResult<Self> {
        match std::env::consts::OS {
            "linux" => Ok(Self::Systemd),
            "macos" => Ok(Self::Launchd),
            other => {
                let message = format!("no service manager is known for {other}");
                Err(CliError::new(Code::Failed, message).hint("gc supervisor start"))
            }
        }
    }

    fn enable(self, unit: &Unit, start: bool) -> CliResult {
        match self {
            Self::Systemd => {
                systemctl(&["daemon-reload"])?;
                systemctl(&["enable", &unit.name])?;
                if start {
                    systemctl(&["start", &unit.name])?;
                }
                Ok(())
            }
            Self::Launchd if !start => Ok(()), // loaded at the next login
            Self::Launchd => Ok(launchctl(unit, "bootstrap")?),
        }
    }

    /// Its failure is no reason to keep the unit.
    fn disable(self, unit: &Unit) {
        let _ = match self {
            Self::Systemd => systemctl(&["disable", &unit.name]),
            Self::Launchd => launchctl(unit, "bootout").map_err(Into::into),
        };
    }

    fn forget(self) {
        if self == Self::Systemd {
            let _ = systemctl(&["daemon-reload"]);
        }
    }

    fn start(self, unit: &Unit) -> io::Result<()> {
        match self {
            Self::Systemd => run(Command::new("systemctl").args(["--user", "start", &unit.name])),
            Self::Launchd => launchctl(unit, "bootstrap"),
        }
    }

    fn stop(self, unit: &Unit) {
        let _ = match self {
            Self::Systemd => systemctl(&["stop", &unit.name]),
            Self::Launchd => Ok(()), // a clean exit is not restarted
        };
    }
}

fn systemctl(args: &[&str]) -> CliResult {
    run(Command::new("systemctl").arg("--user").args(args)).map_err(|error| {
        let message = format!("systemctl --user {}: {error}", args.join(" "));
        CliError::new(Code::Failed, message)
            .hint("gc supervisor start   # without a service manager")
    })
}

fn launchctl(unit: &Unit, verb: &str) -> io::Result<()> {
    let domain = format!("gui/{}", rustix::process::getuid().as_raw());
    run(Command::new("launchctl")
        .arg(verb)
        .arg(domain)
        .arg(&unit.file))
}

fn run(command: &mut Command) -> io::Result<()> {
    let done = command.output()?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.trim();
            let said = if said.is_empty() { "failed" } else { said };
            Err(io::Error::other(said.to_owned()))
        }
    }
}
