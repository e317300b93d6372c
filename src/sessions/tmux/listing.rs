//! What tmux says of all sessions at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chrono::{DateTime, Utc};
use gascity_actors::model::{AgentName, ExitStatus, RunToken, SessionName};
use gascity_actors::ports::{Facts, Listing, Note, SessionError, SessionEventKind};
use rustix::process::Pid;

use super::line::{Line, decode};
use super::run::{Identity, Pane, Run, Seat};
use super::server::{KEEPER, Server};
use super::start::leader;
use super::{Inner, Slot, backend, lock, lost};
use crate::sessions::processes::Led as _;

/// Facts of tmux itself, before ours. The name comes last: a stranger's may hold anything.
const FACTS: [&str; 8] = [
    "session_id",
    "pane_id",
    "pane_pid",
    "pane_dead",
    "pane_dead_status",
    "pane_dead_signal",
    "window_activity",
    "session_attached",
];

/// What a session is known by.
const MARKS: [&str; 4] = ["pane", "token", "agent", "started"];

/// Metadata that agents and other processes write: read every time.
const CHANGING: [Note; 6] = [
    Note::StopIntent,
    Note::Drain,
    Note::DrainReason,
    Note::DrainTimeout,
    Note::DrainAck,
    Note::RestartRequested,
];

/// Metadata that only the supervisor writes: read when a session is taken in.
const LASTING: [Note; 4] = [
    Note::Generation,
    Note::ConfigHash,
    Note::ConfigHashFields,
    Note::LiveHash,
];

/// The option that holds an entry of our own.
pub(super) fn option(key: &str) -> String {
    format!("@gc_{key}")
}

/// Whether an entry is read with every listing.
pub(super) fn is_changing(note: Note) -> bool {
    CHANGING.contains(&note)
}

/// How much is asked of each session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Tick,
    All,
}

fn notes(depth: Depth) -> impl Iterator<Item = Note> {
    let lasting = LASTING.into_iter().filter(move |_| depth == Depth::All);
    CHANGING.into_iter().chain(lasting)
}

fn format(depth: Depth) -> String {
    let marks = MARKS.iter().map(|key| option(key));
    let notes = notes(depth).map(|note| option(note.key()));
    let names = FACTS.map(str::to_owned).into_iter();
    let names = names.chain(marks).chain(notes);
    let names = names.chain(["session_name".to_owned()]);
    let fields: Vec<String> = names.map(|name| format!("#{{{name}}}")).collect();
    fields.join("|")
}

/// One pane of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    session: String,
    pane: String,
    pid: i32,
    state: Pane,
    activity: i64,
    attached: bool,
    /// The marks, as far as they are set.
    marks: [Option<String>; 4],
    notes: BTreeMap<Note, String>,
    name: String,
}

impl Row {
    fn parse(line: &str, depth: Depth) -> Option<Self> {
        let notes: Vec<Note> = notes(depth).collect();
        let before_name = FACTS.len() + MARKS.len() + notes.len();
        let fields: Vec<&str> = line.splitn(before_name + 1, '|').collect();
        let name = (*fields.get(before_name)?).to_owned();
        let (facts, ours) = fields.split_at(FACTS.len());
        let (marks, values) = ours.split_at(MARKS.len());
        let [session, pane, pid, dead, status, signal, activity, attached] = facts else {
            return None;
        };
        let values = notes.into_iter().zip(values);
        Some(Self {
            session: (*session).to_owned(),
            pane: (*pane).to_owned(),
            pid: pid.parse().ok()?,
            state: Pane::read(dead, status, signal),
            activity: activity.parse().unwrap_or(0),
            attached: is_attached(attached),
            marks: [0, 1, 2, 3].map(|at| decode_mark(at, marks[at])),
            notes: values
                .filter_map(|(note, text)| Some((note, decode(text)?)))
                .collect(),
            name,
        })
    }

    fn token(&self) -> Option<RunToken> {
        RunToken::new(self.marks[1].as_deref()?).ok()
    }

    /// This is the pane the agent was started in; users may have made others.
    fn is_agents(&self) -> bool {
        self.marks[0].as_deref() == Some(&self.pane)
    }

    /// The run in this session; `None` if it is none of ours.
    fn identity(&self, server: i32) -> Option<Identity> {
        let [pane, _, agent, started] = &self.marks;
        let started: i64 = started.as_ref()?.parse().ok()?;
        Some(Identity {
            dir: None,
            name: SessionName::new(&self.name).ok()?,
            token: self.token()?,
            agent: AgentName::new(agent.as_ref()?).ok()?,
            seat: Seat {
                server,
                session: self.session.clone(),
                pane: pane.clone()?,
            },
            pid: Pid::from_raw(self.pid).filter(|_| self.pid > 0)?,
            started_at: DateTime::<Utc>::from_timestamp_millis(started)?,
            attached: self.attached,
            notes: self.notes.clone(),
        })
    }

    fn facts(&self, run: &Run) -> Facts {
        let active = DateTime::<Utc>::from_timestamp(self.activity, 0);
        let mut notes = lock(&run.notes).clone();
        notes.retain(|note, _| !is_changing(*note));
        let changing = self.notes.iter().filter(|(note, _)| is_changing(**note));
        notes.extend(changing.map(|(note, value)| (*note, value.clone())));
        Facts {
            session: run.name.clone(),
            agent: run.agent.clone(),
            token: run.token.clone(),
            live: run.is_live(),
            pid: Some(run.raw_pid().cast_unsigned()),
            started_at: run.started_at,
            last_activity: active.map(|at| at.max(run.started_at)),
            attached: self.attached,
            notes,
        }
    }
}

/// Reads `session_attached`, which counts terminals.
fn is_attached(clients: &str) -> bool {
    clients.parse().is_ok_and(|clients: u32| clients > 0)
}

/// The pane's id is tmux's own word and not encoded.
fn decode_mark(at: usize, text: &str) -> Option<String> {
    match at {
        0 => Some(text.to_owned()).filter(|text| !text.is_empty()),
        _ => decode(text),
    }
}

/// Sessions of a listing, each with the row of its agent's pane if that is still there.
fn sessions(rows: Vec<Row>) -> Vec<Row> {
    let mut found: Vec<Row> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    for mut row in rows {
        match at.get(&row.session) {
            Some(at) if row.is_agents() => found[*at] = row,
            Some(_) => {}
            None => {
                if !row.is_agents() {
                    row.state = Pane::Gone; // until its own row comes
                }
                at.insert(row.session.clone(), found.len());
                found.push(row);
            }
        }
    }
    found
}

impl Inner {
    pub(super) async fn snapshot(self: &Arc<Self>) -> Result<Listing, SessionError> {
        let server = self.server().await?;
        server.check_socket().await;
        let rows = list(&server, None, Depth::Tick).await?;
        if rows.iter().any(|row| self.is_news(&server, row)) {
            self.resync(&server).await?;
        }
        let mut listing = Listing::default();
        let mut listed = Vec::with_capacity(rows.len());
        for row in &rows {
            let slot = SessionName::new(&row.name)
                .ok()
                .map(|name| self.slot(&name));
            let run = slot.and_then(|slot| slot.run());
            match run.filter(|run| row.token().as_ref() == Some(&run.token)) {
                Some(run) => {
                    self.note_attached(&run, row.attached);
                    listing.owned.push(row.facts(&run));
                    listed.push(run.name.clone());
                }
                None if row.name == KEEPER => {}
                // One of ours that is just being started.
                None if row.token().is_some() => {
                    listing
                        .owned
                        .extend(found(row, server.pid).map(|run| row.facts(&run)));
                }
                None => listing.foreign.push(row.name.clone()),
            }
        }
        self.forget_all_but(&listed);
        listing.owned.sort_by(|a, b| a.session.cmp(&b.session));
        Ok(listing)
    }

    /// Asks who has a terminal on a session, and tells what has changed.
    pub(super) async fn look_for_terminals(&self, server: &Server) -> Result<(), SessionError> {
        let format = "#{session_id}|#{session_attached}";
        let line = Line::new(["list-sessions", "-F", format]);
        let blocks = server.link.ask(line).await.map_err(lost)?;
        let lines = blocks.iter().filter(|block| block.ok);
        let lines = lines.flat_map(|block| &block.lines);
        let attached: HashMap<String, bool> = lines
            .filter_map(|line| {
                let (session, clients) = std::str::from_utf8(line).ok()?.split_once('|')?;
                Some((session.to_owned(), is_attached(clients)))
            })
            .collect();
        let runs = self.slots.all();
        let runs = runs.iter().filter_map(|slot| slot.run());
        for run in runs.filter(|run| run.seat.server == server.pid) {
            if let Some(attached) = attached.get(&run.seat.session) {
                self.note_attached(&run, *attached);
            }
        }
        Ok(())
    }

    fn note_attached(&self, run: &Run, attached: bool) {
        if run.attached.swap(attached, Ordering::AcqRel) != attached {
            let kind = SessionEventKind::Attached(attached);
            self.subscribers.send(&run.event(kind));
        }
    }

    /// A run that is not known yet.
    fn is_news(&self, server: &Server, row: &Row) -> bool {
        let Some(token) = row.token() else {
            return false;
        };
        let Ok(name) = SessionName::new(&row.name) else {
            return false;
        };
        let run = self.slot(&name).run();
        !run.is_some_and(|run| run.token == token && run.seat.server == server.pid)
    }

    /// Takes in every run that is not known yet.
    pub(super) async fn resync(self: &Arc<Self>, server: &Server) -> Result<(), SessionError> {
        for row in list(server, None, Depth::All).await? {
            if !self.is_news(server, &row) {
                continue;
            }
            let Some(run) = found(&row, server.pid) else {
                continue;
            };
            let slot = self.slot(&run.name);
            // A gate that is held: someone is at work on it and knows better.
            if let Ok(_gate) = slot.gate.try_lock() {
                self.hold(&slot, run)?;
            }
        }
        Ok(())
    }

    /// The run of ours in the session of that name, if there is one.
    pub(super) async fn look_for(
        &self,
        server: &Server,
        name: &SessionName,
    ) -> Result<Option<Run>, SessionError> {
        let rows = list(server, Some(name), Depth::All).await?;
        Ok(rows.iter().find_map(|row| found(row, server.pid)))
    }

    /// Drops runs that are over, told, and no longer there.
    fn forget_all_but(&self, listed: &[SessionName]) {
        let slots: Vec<(SessionName, Arc<Slot>)> = {
            let slots = lock(&self.slots.0);
            let all = slots
                .iter()
                .map(|(name, slot)| (name.clone(), slot.clone()));
            all.collect()
        };
        for (name, slot) in slots {
            let over = |run: &Arc<Run>| !run.is_live() && run.is_told();
            if !listed.contains(&name)
                && slot.run().as_ref().is_none_or(over)
                && let Ok(_gate) = slot.gate.try_lock()
                && slot.run().as_ref().is_none_or(over)
            {
                *lock(&slot.held) = None;
            }
            drop(slot);
            self.forget(&name);
        }
    }
}

/// The run a row tells of; `None` if it is not ours.
fn found(row: &Row, server: i32) -> Option<Run> {
    let identity = row.identity(server)?;
    let unknown = ExitStatus::Unknown;
    Some(match row.state {
        Pane::Dead(status) => Run::dead(identity, status.unwrap_or(unknown)),
        Pane::Gone => Run::dead(identity, unknown),
        Pane::Alive => match leader(identity.pid, server) {
            Some((pidfd, start)) => Run::live(identity, pidfd, start),
            None => Run::dead(identity, unknown),
        },
    })
}

/// Asks for all sessions, or for one, in one go.
async fn list(
    server: &Server,
    name: Option<&SessionName>,
    depth: Depth,
) -> Result<Vec<Row>, SessionError> {
    let format = format(depth);
    let target = name.map(|name| format!("={name}:"));
    let line = match &target {
        Some(target) => Line::new(["list-panes", "-s", "-t", target, "-F", &format]),
        None => Line::new(["list-panes", "-a", "-F", &format]),
    };
    let blocks = server.link.ask(line).await.map_err(lost)?;
    let Some(block) = blocks.first() else {
        return Err(backend("tmux gives no listing"));
    };
    if !block.ok && name.is_some() {
        return Ok(Vec::new());
    }
    if !block.ok {
        return Err(backend(format!("tmux: {}", block.text())));
    }
    let lines = block.lines.iter().map(|line| String::from_utf8_lossy(line));
    let rows = lines.filter_map(|line| Row::parse(&line, depth));
    Ok(sessions(rows.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(facts: &str, marks: &str, name: &str) -> String {
        format!("{facts}|{marks}|1||user|||%|{name}")
    }

    #[test]
    fn a_line_is_read_whatever_the_name_holds() {
        let text = line("$3|%5|77|1|3||1700000000|2", "%5|tok|rig/a|123", "a|b c");
        let row = Row::parse(&text, Depth::Tick).unwrap();
        assert_eq!(
            (row.session.as_str(), row.pane.as_str(), row.pid),
            ("$3", "%5", 77)
        );
        assert_eq!(row.state, Pane::Dead(Some(ExitStatus::Code(3))));
        assert!(row.attached && row.is_agents());
        assert_eq!(row.name, "a|b c");
        let notes = [
            (Note::StopIntent, "1".to_owned()),
            (Note::DrainReason, "user".to_owned()),
            (Note::RestartRequested, String::new()),
        ];
        assert_eq!(row.notes, notes.into());
        assert!(row.identity(1).is_none(), "no session name of ours");
        assert_eq!(Row::parse("$1|%1", Depth::Tick), None);
        assert_eq!(Row::parse("", Depth::Tick), None);
    }

    #[test]
    fn a_session_is_known_by_its_agents_pane() {
        let rows = ["%1", "%2", "%3"].map(|pane| {
            let facts = format!("$1|{pane}|7|0|||0|0");
            Row::parse(&line(&facts, "%2|t|a|1", "a"), Depth::Tick).unwrap()
        });
        let found = sessions(rows.to_vec());
        assert_eq!((found.len(), found[0].pane.as_str()), (1, "%2"));
        assert_eq!(found[0].state, Pane::Alive);
        let without = sessions(vec![rows[0].clone(), rows[2].clone()]);
        assert_eq!(without[0].state, Pane::Gone);
    }
}
