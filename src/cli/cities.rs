//! `gc cities` and `gc reload`.

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::context::{Context, read};
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::listing::ListFlags;
use super::output::Mark;
use super::query::{city_status, running_city};
use super::status::text::agent_counts;
use super::stop::RELOAD_LIMIT;
use super::values::table;
use crate::model::{CityInfo, CityStatus};

/// Arguments of `gc cities`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc cities\n  gc cities --wide")]
pub(super) struct CitiesArgs {
    /// Also show agents and errors
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    list: ListFlags,
}

/// The cities of this machine.
#[derive(Debug)]
pub(super) struct Known {
    /// Sorted by name.
    pub(super) cities: Vec<CityInfo>,
    /// They come from a supervisor, not from the registry file.
    pub(super) live: bool,
}

/// Asks the supervisor, or else the registry.
pub(super) fn known(context: &Context) -> CliResult<Known> {
    #[derive(Deserialize)]
    struct Status {
        cities: Vec<CityInfo>,
    }
    if let Some(mut client) = context.supervisor()? {
        let Status { mut cities } = read(client.call("status", json!({}))?)?;
        cities.retain(|city| city.status != CityStatus::Stopped); // no longer registered
        cities.sort_by(|a, b| a.name.cmp(&b.name));
        cities.iter_mut().for_each(look_for_directory);
        return Ok(Known { cities, live: true });
    }
    let cities = context.registered()?.into_iter().map(|entry| CityInfo {
        name: entry.name,
        path: entry.path,
        running: false,
        status: CityStatus::Stopped,
        error: None,
        phases_completed: Vec::new(),
        restart_count: None,
        next_retry_at: None,
        stopped: None,
        pending_name: None,
    });
    let mut cities: Vec<CityInfo> = cities.collect();
    cities.iter_mut().for_each(look_for_directory);
    Ok(Known {
        cities,
        live: false,
    })
}

/// A supervisor notices late that a city's directory was deleted; whoever looks sees it at once.
fn look_for_directory(city: &mut CityInfo) {
    if !city.path.is_dir() {
        city.error = Some(GONE.to_owned());
    }
}

const GONE: &str = "its directory is gone";

impl Known {
    /// The table of `gc cities` and `gc supervisor status`.
    pub(super) fn table(&self) -> String {
        table(&["NAME", "PATH", "STATUS"], &self.rows())
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |city: &CityInfo| {
            let mut status = (if self.live { city.status.as_str() } else { "-" }).to_owned();
            if city.error.as_deref() == Some(GONE) {
                status.push_str(" (directory gone)");
            }
            let path = city.path.display().to_string();
            vec![city.name.to_string(), path, status]
        };
        self.cities.iter().map(row).collect()
    }
}

impl CitiesArgs {
    /// Lists the cities.
    ///
    /// # Errors
    /// If neither supervisor nor registry can be read.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let known = known(context)?;
        let out = context.out;
        let mut header = vec!["NAME", "PATH", "STATUS"];
        let mut rows = known.rows();
        if self.wide && !out.json {
            header.extend(["AGENTS", "ERROR"]);
            for (row, city) in rows.iter_mut().zip(&known.cities) {
                row.push(agents(context, city)?);
                let error = city.error.as_deref().and_then(|error| error.lines().next());
                row.push(error.unwrap_or_default().to_owned());
            }
        }
        let total = known.cities.len();
        let (rows, items) = self.list.arrange(&header, rows, known.cities)?;
        if out.json {
            let source = if known.live { "live" } else { "files" };
            out.document(&json!({"items": items, "total": total, "source": source}))?;
        } else if rows.is_empty() {
            out.note("no cities");
        } else {
            out.line(self.list.draw(&out, &header, &rows, self.wide))?;
        }
        Ok(0)
    }
}

fn agents(context: &Context, city: &CityInfo) -> CliResult<String> {
    let state = match context.supervisor()? {
        Some(mut client) if city.running => city_status(&mut client, &city.path)?,
        _ => None,
    };
    let view = state.and_then(|state| state.view);
    Ok(view.map_or_else(|| "-".to_owned(), |view| agent_counts(&view.instances)))
}

/// Arguments of `gc reload`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc reload\n  gc reload bright-lights")]
pub(super) struct ReloadArgs {
    /// The city's directory, or its registered name
    city: Option<String>,
}

impl ReloadArgs {
    /// Loads the city's config again.
    ///
    /// # Errors
    /// If the city does not run, or its config has errors.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let root = context.city(self.city.as_deref(), Access::Change)?;
        let mut client = running_city(context, &root)?;
        let params = json!({"path": root});
        let answer = client.call_within("city.reload", params, Some(RELOAD_LIMIT))?;
        outcome(context, &answer)
    }
}

fn outcome(context: &Context, answer: &Value) -> CliResult<u8> {
    let word = |key: &str| answer[key].as_str().unwrap_or_default();
    let revision: String = word("revision").chars().take(6).collect();
    match word("status") {
        "reloaded" => (context.out).report(Mark::Done, format!("reloaded, config {revision}"))?,
        "unchanged" => (context.out).report(Mark::Done, format!("unchanged, config {revision}"))?,
        "refused" => {
            let message = "the new config needs a restart; the old one stays in force";
            let error = CliError::new(Code::Conflict, message);
            return Err(error.cause(word("error")).hint("gc restart"));
        }
        _ => {
            let message = "the new config has errors; the old one stays in force";
            let error = CliError::new(Code::Config, message);
            return Err(error.cause(word("error")));
        }
    }
    if context.out.json {
        context.out.document(answer)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(live: bool) -> Known {
        let city = |name: &str, status: &str| {
            let info = json!({
                "name": name, "path": format!("/c/{name}"), "running": false, "status": status
            });
            serde_json::from_value(info).unwrap()
        };
        let cities = vec![
            city("bright-lights", "running"),
            city("dark", "init_failed"),
        ];
        Known { cities, live }
    }

    #[test]
    fn cities_are_listed_with_their_status() {
        let expected = "\
NAME           PATH              STATUS
bright-lights  /c/bright-lights  running
dark           /c/dark           init_failed";
        assert_eq!(known(true).table(), expected);
    }

    #[test]
    fn without_a_supervisor_no_status_is_known() {
        let expected = "\
NAME           PATH              STATUS
bright-lights  /c/bright-lights  -
dark           /c/dark           -";
        assert_eq!(known(false).table(), expected);
    }
}
