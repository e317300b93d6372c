//! `gc status`: how a city is.

pub(super) mod text;

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::city_name::city_name;
use super::context::{Context, Seat};
use super::discover::{Access, is_city};
use super::error::{CliError, CliResult, Code};
use super::query::{CityState, city_detail, city_status};
use super::values::{count, table};
use crate::control::detail::{CityDetail, Controller};
use crate::control::home::CityDir;
use crate::control::lock::{self, Held};
use crate::model::{AgentState, CityInfo, CityStatus, CityView, ConfigState, InstanceView};

/// Clears the terminal and goes to its top.
const REDRAW: &str = "\u{1b}[2J\u{1b}[H";
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `gc status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc status\n  gc status bright-lights --json\n  gc status --check && echo healthy\n  gc status --all"
)]
pub(super) struct StatusArgs {
    /// The city's directory, or its registered name
    path: Option<String>,
    /// A line for each city of this machine
    #[arg(long, conflicts_with = "path")]
    all: bool,
    /// Exit 1 unless the city runs and nothing is wrong
    #[arg(long, conflicts_with = "watch")]
    check: bool,
    /// Look again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl StatusArgs {
    /// Shows the city, or all of them.
    ///
    /// # Errors
    /// If no city is meant, or whoever runs it does not answer.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        if !self.watch {
            return self.show(context);
        }
        let redraw = !context.out.json && std::io::stdout().is_terminal();
        loop {
            if redraw {
                context.out.line(REDRAW)?;
            }
            self.show(context)?;
            std::thread::sleep(WATCH_EVERY);
        }
    }

    fn show(&self, context: &Context) -> CliResult<u8> {
        if self.all {
            return self.run_all(context);
        }
        let root = context.city(self.path.as_deref(), Access::Read)?;
        if context.out.json && !self.check {
            return pass_on(context, &root).map(|()| 0);
        }
        let report = Report::of(context, &root)?;
        if context.out.json {
            context.out.document(&report.detail())?;
        } else {
            let now = chrono::Utc::now();
            let (view, instances) = (report.view.as_ref(), report.instances());
            let text = text::city(&report.city, view, instances, &report.controller, now);
            context.out.line(text.trim_end())?;
            if !report.controller.running {
                context.out.note("hint: gc start");
            }
        }
        Ok(u8::from(self.check && !report.is_healthy()))
    }

    fn run_all(&self, context: &Context) -> CliResult<u8> {
        let mut reports = Vec::new();
        for city in super::cities::known(context)?.cities {
            reports.push(Report::of(context, &city.path)?);
        }
        let healthy = reports.iter().all(Report::is_healthy);
        if context.out.json {
            let items: Vec<CityDetail> = reports.iter().map(Report::detail).collect();
            let document = json!({"items": items, "total": items.len()});
            context.out.document(&document)?;
        } else if reports.is_empty() {
            context.out.note("no cities");
        } else {
            let row = |report: &Report| {
                let agents = Some(text::agent_counts(report.instances()));
                let agents = agents.filter(|counts| !counts.is_empty());
                let error = report.city.error.as_deref().and_then(|e| e.lines().next());
                vec![
                    report.city.name.to_string(),
                    report.word().to_owned(),
                    agents.unwrap_or_else(|| "-".to_owned()),
                    error.unwrap_or_default().to_owned(),
                ]
            };
            let rows: Vec<Vec<String>> = reports.iter().map(row).collect();
            let header = ["NAME", "STATUS", "AGENTS", "NOTE"];
            context.out.line(table(&header, &rows))?;
            let running = reports.iter().filter(|report| report.city.running).count();
            let total = count(reports.len(), "city");
            context.out.line(format!("{total}, {running} running"))?;
        }
        Ok(u8::from(self.check && !healthy))
    }
}

/// Prints the document of a city; one that comes from a supervisor is not taken apart, since with
/// many agents that costs more than all else.
fn pass_on(context: &Context, root: &Path) -> CliResult {
    let detail = match context.seat(root)? {
        Seat::Standalone(mut client) | Seat::Supervisor(mut client) => {
            city_detail(&mut client, root)?
        }
        Seat::Nobody => None,
    };
    match detail {
        Some(detail) => context.out.line(detail.get()),
        None => {
            let report = Report::from_files(context, root)?;
            context.out.document(&report.detail())
        }
    }
}

/// One city, from whoever runs it or from its files.
#[derive(Debug)]
struct Report {
    city: CityInfo,
    view: Option<CityView>,
    /// What still lives of a city that nobody runs.
    left: Vec<InstanceView>,
    controller: Controller,
    live: bool,
}

impl Report {
    fn of(context: &Context, root: &Path) -> CliResult<Self> {
        let (mut client, mode) = match context.seat(root)? {
            Seat::Standalone(client) => (client, "standalone"),
            Seat::Supervisor(client) => (client, "supervisor"),
            Seat::Nobody => return Self::from_files(context, root),
        };
        let Some(CityState { city, view }) = city_status(&mut client, root)? else {
            return Self::from_files(context, root);
        };
        // A city that is down has no controller, whoever would run it.
        let down = matches!(city.status, CityStatus::Stopped);
        Ok(Self {
            city,
            view,
            left: Vec::new(),
            controller: Controller {
                running: !down,
                pid: (!down).then(|| client.hello().pid),
                mode: (!down).then(|| mode.to_owned()),
            },
            live: true,
        })
    }

    fn from_files(context: &Context, root: &Path) -> CliResult<Self> {
        let registered = context.registered()?;
        let entry = registered.into_iter().find(|city| city.path == root);
        let name = match (entry, is_city(root)) {
            (Some(entry), _) => entry.name,
            (None, true) => city_name(root)?,
            (None, false) => {
                let message = format!("{} has no city.toml", root.display());
                let hint = format!("gc init {}", root.display());
                return Err(CliError::new(Code::NotFound, message).hint(hint));
            }
        };
        // The lock is the proof of life, even of a controller that does not answer.
        let held = match lock::holder(&CityDir::new(root).lock()) {
            Ok(Held::By(holder)) => Some(holder.map(|holder| holder.pid)),
            _ => None,
        };
        let (left, problem) = match super::agent::left(context, root) {
            Ok(left) => (left, None),
            Err(error) => (Vec::new(), Some(error.message)),
        };
        let silent = held.map(|_| "its controller does not answer".to_owned());
        let city = CityInfo {
            name,
            path: root.to_owned(),
            running: false,
            status: CityStatus::Stopped,
            error: silent.or(problem),
            phases_completed: Vec::new(),
            restart_count: None,
            next_retry_at: None,
            stopped: None,
            pending_name: None,
        };
        Ok(Self {
            city,
            view: None,
            left,
            controller: Controller {
                running: held.is_some(),
                pid: held.flatten(),
                mode: None,
            },
            live: false,
        })
    }

    fn word(&self) -> &'static str {
        if self.live {
            self.city.status.as_str()
        } else {
            "not running"
        }
    }

    fn instances(&self) -> &[InstanceView] {
        self.view
            .as_ref()
            .map_or(&self.left, |view| &view.instances)
    }

    fn detail(&self) -> CityDetail<'_> {
        match self.live {
            true => CityDetail::live(&self.city, self.view.as_ref(), &self.controller),
            false => CityDetail::from_files(&self.city, &self.left, &self.controller),
        }
    }

    fn is_healthy(&self) -> bool {
        let Some(view) = self.view.as_ref().filter(|_| self.city.running) else {
            return false;
        };
        let fine = |state| !matches!(state, AgentState::Quarantined | AgentState::Backoff);
        view.instances.iter().all(|instance| fine(instance.state))
            && view.degraded.is_empty()
            && view.config.state == ConfigState::Ok
    }
}
