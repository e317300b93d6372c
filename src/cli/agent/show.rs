//! `gc agent show`: all about one agent.

mod text;

use clap::Args;
use serde_json::{Value, json};

use super::logs::{Capture, captures};
use super::roster::Roster;
use crate::cli::context::Context;
use crate::cli::discover::Access;
use crate::cli::error::CliResult;
use crate::control::home::CityDir;
use crate::events::EventLog;
use crate::model::{Event, InstanceView};

/// How many events are shown.
const EVENTS: usize = 10;

/// Arguments of `gc agent show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  gc agent show worker-1\n  gc agent show worker-1 --json")]
pub(super) struct ShowArgs {
    /// The agent
    agent: String,
}

/// Everything that is known of an agent.
#[derive(Debug)]
struct Page<'a> {
    agent: &'a InstanceView,
    provider: &'a str,
    source: &'static str,
    /// Of this agent, oldest first.
    events: Vec<Event>,
    /// Newest first.
    captures: Vec<Capture>,
}

impl ShowArgs {
    /// Shows the agent.
    ///
    /// # Errors
    /// If there is no such agent.
    pub(super) fn run(&self, context: &Context) -> CliResult<u8> {
        let roster = Roster::load(context, Access::Read)?;
        let agent = roster.find(&self.agent)?;
        let log = EventLog::new(CityDir::new(&roster.root).state_dir());
        let mut events = log.last(usize::MAX)?.events;
        events.retain(|event| event.subject == agent.qualified_name.as_str());
        events.drain(..events.len().saturating_sub(EVENTS));
        let page = Page {
            agent,
            provider: agent.provider.as_deref().unwrap_or(&roster.provider),
            source: roster.source.word(),
            events,
            captures: captures(&roster.root, &agent.session)?,
        };
        match context.out.json {
            true => context.out.document(&page.json())?,
            false => context
                .out
                .line(text::page(&page, chrono::Utc::now()).trim_end())?,
        }
        Ok(0)
    }
}

impl Page<'_> {
    fn json(&self) -> Value {
        let mut page = json!(self.agent);
        page["provider"] = json!(self.provider);
        page["why"] = json!(text::why(self.agent, chrono::Utc::now()));
        page["events"] = json!(self.events);
        let files = self.captures.iter().map(|capture| &capture.path);
        page["captures"] = json!(files.collect::<Vec<_>>());
        page["source"] = json!(self.source);
        page
    }
}
