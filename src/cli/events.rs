//! `gc events`: what happened in a city, or in all of them.

mod print;
mod sources;

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::{Value, json};

use super::city_name::city_name;
use super::context::Context;
use super::discover::Access;
use super::error::{CliError, CliResult, Code};
use super::values::{fits, moment, seconds};
use crate::config::duration;
use crate::control::home::CityDir;
use crate::events::EventLog;
use crate::model::Event;
use print::Printer;
pub(super) use print::row;
use sources::{After, Sources, Told};

/// How many events are shown unless told otherwise.
const TAIL: usize = 50;

/// Arguments of `gc events`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  gc events -f\n  gc events --type 'agent.*' --subject hello/worker-1 -n 10\n  gc events --watch --type agent.crashed --timeout 1m\n  gc events --all -f"
)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    filter: Filter,
    /// Of all cities and of the machine itself
    #[arg(long)]
    all: bool,
    /// Only events after this number; with --all after that of each city, e.g. a:12,b:7
    #[arg(long, value_name = "SEQ")]
    after: Option<After>,
    /// How many to show [default: 50; all with --after]
    #[arg(short = 'n', long = "limit", value_name = "N")]
    limit: Option<usize>,
    /// Go on with those to come
    #[arg(short, long)]
    follow: bool,
    /// Wait for the first event that fits; exit 1 if none comes
    #[arg(long, conflicts_with_all = ["follow", "limit"])]
    watch: bool,
    /// How long --watch waits
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse, requires = "watch")]
    timeout: Duration,
    /// Print the number of the newest event
    #[arg(long, conflicts_with_all = ["follow", "watch", "limit", "after"])]
    seq: bool,
}

/// Which events are meant. Patterns may have `*` and `?`.
#[derive(Debug, Clone, Default, Args)]
struct Filter {
    /// Types, e.g. 'agent.*'; any of several
    #[arg(long = "type", value_name = "PATTERN", value_delimiter = ',')]
    types: Vec<String>,
    /// What it is about, e.g. an agent
    #[arg(long, value_name = "PATTERN")]
    subject: Option<String>,
    /// Who caused it
    #[arg(long, value_name = "PATTERN")]
    actor: Option<String>,
    /// Only from then on: a time, or how long ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<DateTime<Utc>>,
    /// Only up to then
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<DateTime<Utc>>,
    /// Only with this in the payload; all of several
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    payload_match: Vec<(String, String)>,
}

impl Filter {
    fn wants(&self, event: &Event) -> bool {
        let kind = self.types.is_empty() || self.types.iter().any(|t| fits(t, &event.kind));
        let one = |pattern: &Option<String>, text| pattern.as_ref().is_none_or(|p| fits(p, text));
        let in_time = self.since.is_none_or(|since| event.ts >= since)
            && self.until.is_none_or(|until| event.ts <= until);
        let mut pairs = self.payload_match.iter();
        kind && in_time
            && one(&self.subject, &event.subject)
            && one(&self.actor, &event.actor)
            && pairs.all(|(key, value)| has(event, key, value))
    }

    fn wants_all(&self) -> bool {
        self.types.is_empty()
            && self.subject.is_none()
            && self.actor.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.payload_match.is_empty()
    }
}

impl EventsArgs {
    /// Shows events.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let sources = match self.all {
            true => Sources::of_machine(context)?,
            false => {
                let root = context.existing_city(None, Access::Read)?;
                // The log outlives a config that cannot be read.
                let city = city_name(&root).map_or_else(|_| String::new(), |name| name.to_string());
                Sources::one(city, EventLog::new(CityDir::new(&root).state_dir()))
            }
        };
        if self.seq {
            return print_newest(context, &sources);
        }
        let after = self.after.as_ref();
        let after = after.map(|after| sources.places(after)).transpose()?;
        if self.watch {
            let places = match after {
                Some(after) => after,
                None => sources.newest()?,
            };
            return self.watch(context, sources, places);
        }
        let (events, places) = self.select_all(&sources, after.as_deref())?;
        if events.is_empty() && !self.follow {
            context.out.note("no events");
        }
        let mut printer = Printer {
            context,
            places: match &after {
                Some(after) => after.clone(),
                None => behind(&events, &places),
            },
            sources,
        };
        if !self.follow && !context.out.json && !events.is_empty() {
            let rows: Vec<String> = events.iter().map(|told| printer.row(told)).collect();
            context.page(&rows.join("\n"))?;
            return Ok(0);
        }
        for told in &events {
            printer.print(told)?;
        }
        if self.follow {
            printer.places.clone_from(&places);
            block_on(self.follow(printer))??;
        }
        Ok(0)
    }

    /// The events of all logs by their time, and the place in each up to which it was looked at.
    fn select_all(
        &self,
        sources: &Sources,
        after: Option<&[u64]>,
    ) -> CliResult<(Vec<Told>, Vec<u64>)> {
        let (mut all, mut places) = (Vec::new(), Vec::new());
        for (index, source) in sources.all.iter().enumerate() {
            let (events, seen) = self.select(&source.log, after.map(|after| after[index]))?;
            all.extend(events.into_iter().map(|event| (index, event)));
            places.push(seen);
        }
        if sources.several {
            all.sort_by_key(|(_, event)| event.ts);
            self.limit_to(&mut all, after.is_some());
        }
        Ok((all, places))
    }

    fn limit_to<T>(&self, events: &mut Vec<T>, after: bool) {
        match (after, self.limit) {
            // After a known event the next ones are asked for, otherwise the newest.
            (true, Some(limit)) if !self.follow => events.truncate(limit),
            (true, _) => {}
            (false, _) => {
                let limit = self.limit.unwrap_or(TAIL);
                drop(events.drain(..events.len().saturating_sub(limit)));
            }
        }
    }

    /// The events that are there and meant, and the number up to which they were looked at.
    fn select(&self, log: &EventLog, after: Option<u64>) -> CliResult<(Vec<Event>, u64)> {
        let limit = self.limit.unwrap_or(TAIL);
        let mut events = match after {
            Some(after) => log.read_after(after, usize::MAX)?.events,
            None if self.filter.wants_all() => log.last(limit.max(1))?.events,
            None => log.last(usize::MAX)?.events,
        };
        let seen = events.last().map(|event| event.seq);
        let seen = seen.or(after).unwrap_or_default();
        events.retain(|event| self.filter.wants(event));
        self.limit_to(&mut events, after.is_some());
        Ok((events, seen))
    }

    async fn follow(&self, mut printer: Printer<'_>) -> CliResult {
        let mut news = printer.sources.follow(&printer.places)?;
        while let Some(events) = news.recv().await {
            for told in events? {
                if self.filter.wants(&told.1) {
                    printer.print(&told)?;
                } else {
                    printer.pass(&told);
                }
            }
        }
        Ok(())
    }

    fn watch(&self, context: &Context, sources: Sources, places: Vec<u64>) -> CliResult<u8> {
        let first = async {
            let mut news = sources.follow(&places)?;
            while let Some(events) = news.recv().await {
                let hit = events?.into_iter().find(|told| self.filter.wants(&told.1));
                if let Some(told) = hit {
                    return Ok(told);
                }
            }
            Err(CliError::new(Code::Failed, "the log cannot be followed"))
        };
        match block_on(async { tokio::time::timeout(self.timeout, first).await })? {
            Ok(told) => {
                let told = told?;
                let mut printer = Printer {
                    context,
                    sources,
                    places,
                };
                printer.print(&told)?;
                Ok(0)
            }
            Err(_) => {
                let limit = seconds(self.timeout);
                context.out.note(format!("no event within {limit}"));
                Ok(1)
            }
        }
    }
}

fn print_newest(context: &Context, sources: &Sources) -> CliResult<u8> {
    let newest = sources.newest()?;
    let cursor = sources.cursor(&newest);
    match (sources.several, newest.first()) {
        (false, Some(seq)) if context.out.json => context.out.document(&json!({"seq": seq}))?,
        (false, Some(seq)) => context.out.line(seq.to_string())?,
        _ if context.out.json => context.out.document(&json!({"cursor": cursor}))?,
        _ => context.out.line(cursor)?,
    }
    Ok(0)
}

/// The place in each log just before the first of these events; where there is none, the end.
fn behind(events: &[Told], ends: &[u64]) -> Vec<u64> {
    let place = |(index, end): (usize, &u64)| {
        let first = events.iter().find(|(source, _)| *source == index);
        first.map_or(*end, |(_, event)| event.seq.saturating_sub(1))
    };
    ends.iter().enumerate().map(place).collect()
}

/// `key=value`, as `--payload-match` takes it.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Whether a payload has that value; of texts the text, of all else the JSON form counts.
fn has(event: &Event, key: &str, wanted: &str) -> bool {
    match event.payload.get(key) {
        Some(Value::String(text)) => fits(wanted, text),
        Some(value) => serde_json::from_str(wanted).is_ok_and(|wanted: Value| wanted == *value),
        None => false,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> CliResult<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| CliError::new(Code::Failed, error.to_string()))?;
    Ok(runtime.block_on(future))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EventDraft;
    use chrono::DateTime;

    fn event(seq: u64, kind: &str, subject: &str) -> Event {
        let at = DateTime::from_timestamp(1_773_828_131, 0).unwrap();
        EventDraft::new(kind, subject)
            .message("exit 1 after 12s")
            .record(seq, at)
    }

    #[test]
    fn an_event_is_one_line_whatever_the_agent_said() {
        let mut crash = event(1, "agent.crashed", "a");
        crash.message = "exit 3\ntrying\n\u{1b}[31mno such model\n\n".into();
        assert!(row(&crash).ends_with("  exit 3: [31mno such model"));
        assert_eq!(row(&crash).lines().count(), 1);
    }

    fn args(words: &[&str]) -> EventsArgs {
        #[derive(clap::Parser)]
        struct Just {
            #[command(flatten)]
            args: EventsArgs,
        }
        let words = std::iter::once("events").chain(words.iter().copied());
        <Just as clap::Parser>::try_parse_from(words).unwrap().args
    }

    fn selected(words: &[&str]) -> (Vec<u64>, u64) {
        let dir = tempfile::tempdir().unwrap();
        let events = [
            event(1, "agent.started", "a"),
            event(2, "agent.crashed", "a"),
            event(3, "agent.started", "b"),
            event(4, "city.running", ""),
        ];
        let lines = events.map(|event| serde_json::to_string(&event).unwrap() + "\n");
        std::fs::write(dir.path().join("events.jsonl"), lines.concat()).unwrap();
        let args = args(words);
        let sources = Sources::one(String::new(), EventLog::new(dir.path()));
        let after = args.after.as_ref();
        let after = after.map(|after| sources.places(after).unwrap()[0]);
        let (events, seen) = args.select(&sources.all[0].log, after).unwrap();
        (events.iter().map(|event| event.seq).collect(), seen)
    }

    #[test]
    fn the_newest_events_that_fit_are_selected() {
        assert_eq!(selected(&[]), (vec![1, 2, 3, 4], 4));
        assert_eq!(selected(&["-n", "2"]), (vec![3, 4], 4));
        assert_eq!(selected(&["-n", "0"]), (vec![], 4));
        assert_eq!(selected(&["--type", "agent.*", "-n", "2"]), (vec![2, 3], 4));
        assert_eq!(selected(&["--subject", "b"]), (vec![3], 4));
        assert_eq!(selected(&["--type", "x", "--type", "city.*"]), (vec![4], 4));
        assert_eq!(selected(&["--actor", "human"]), (vec![], 4));
    }

    #[test]
    fn after_a_number_the_next_events_are_selected() {
        assert_eq!(selected(&["--after", "1"]), (vec![2, 3, 4], 4));
        assert_eq!(selected(&["--after", "1", "-n", "1"]), (vec![2], 4));
        assert_eq!(selected(&["--after", "9"]), (vec![], 9));
    }

    #[test]
    fn a_row_is_short() {
        let text = row(&event(1, "agent.crashed", "hello/worker-1"));
        let expected = "10:02:11Z agent.crashed       hello/worker-1  exit 1 after 12s";
        assert_eq!(text, expected);
        let mut planned = event(1, "agent.stopped", "a");
        planned.message.clear();
        planned.payload.insert("reason".into(), json!("shutdown"));
        assert!(row(&planned).ends_with("shutdown"));
    }
}
