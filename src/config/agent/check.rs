//! What must hold for the tables of an agent, and between agents.

use std::collections::HashMap;
use std::time::Duration;

use gascity_actors::model::{AgentName, AgentSpec, SessionName};

use super::super::compose::Entry;
use super::super::fields::invalid;
use super::super::problem::{Problem, Problems};
use super::super::tree::Span;
use super::Draft;

pub(super) fn ignored_provider(entry: &Entry, problems: &mut Problems) {
    let (command, provider) = (
        entry.fields.field("start_command"),
        entry.fields.field("provider"),
    );
    let (Some(command), Some(provider)) = (command, provider) else {
        return;
    };
    // A patch may well put a command over the provider of a pack.
    if command.layer == provider.layer {
        let message = "`provider` has no effect beside `start_command`";
        let at = format!("{}.provider", entry.path);
        problems.push(
            Problem::error("ignored-key", provider.span.clone(), at, message)
                .warning()
                .label("ignored")
                .related(command.span.clone(), "this is run"),
        );
    }
}

pub(super) fn ephemeral(entry: &Entry, problems: &mut Problems) {
    let fields = &entry.fields;
    if fields.has("every") && fields.has("pool") {
        let keys = ["every", "pool"].map(|key| (key, fields.span(key)));
        let message = "an agent with `every` cannot be a pool";
        problems.push(Problem::conflict(&entry.path, keys, message));
    }
    if fields.flag("skip_when_idle") == Some(true) && !fields.has("every") {
        let keys = ["skip_when_idle", "every"].map(|key| (key, fields.span(key)));
        let message = "`skip_when_idle` needs `every`";
        problems.push(Problem::conflict(&entry.path, keys, message));
    }
}

pub(super) fn heartbeat(entry: &Entry, problems: &mut Problems) {
    let Some(heartbeat) = entry.fields.table("heartbeat") else {
        return;
    };
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let stale = heartbeat.duration("stale_after").unwrap_or(minutes(5));
    let very = heartbeat
        .duration("very_stale_after")
        .unwrap_or(minutes(15));
    if stale >= very {
        let keys = ["stale_after", "very_stale_after"].map(|key| (key, heartbeat.span(key)));
        let message =
            format!("`stale_after` ({stale:?}) is not less than `very_stale_after` ({very:?})");
        let path = format!("{}.heartbeat", entry.path);
        problems.push(Problem::conflict(&path, keys, message));
    }
}

/// The names of its sessions must be names.
pub(super) fn session(spec: &AgentSpec, span: Span, path: &str, problems: &mut Problems) {
    let instances: Vec<AgentSpec> = match &spec.pool {
        None => vec![spec.clone()],
        Some(pool) => {
            let listed = 1..=u32::try_from(pool.names.len()).unwrap_or(u32::MAX);
            let last = pool.max.unwrap_or(u32::MAX);
            listed
                .chain([last])
                .map(|slot| spec.instance(slot))
                .collect()
        }
    };
    let bad = instances.iter().find_map(|one| {
        let error = SessionName::new(one.session.as_str()).err()?;
        Some(format!(
            "the session of `{}` has no valid name: {error}",
            one.name
        ))
    });
    if let Some(message) = bad {
        problems.push(invalid(span, path, message).help("see `session_template`".to_owned()));
    }
}

/// Sessions must have names of their own, whatever the template makes of those of agents.
pub(super) fn sessions(drafts: &[Draft], problems: &mut Problems) {
    /// Instances that are looked at; more of one pool differ as these do.
    const MOST: u32 = 16;
    let mut taken: HashMap<SessionName, (AgentName, &Draft)> = HashMap::new();
    for draft in drafts {
        let Some(spec) = &draft.spec else {
            continue;
        };
        let sessions: Vec<(SessionName, AgentName)> = match &spec.pool {
            None => vec![(spec.session.clone(), spec.name.clone())],
            Some(pool) => (1..=pool.max.unwrap_or(MOST).min(MOST))
                .map(|slot| spec.instance(slot))
                .map(|instance| (instance.session, instance.name))
                .collect(),
        };
        for (session, name) in sessions {
            // Of equal names everything was said already.
            let first = taken.insert(session.clone(), (name.clone(), draft));
            let Some((_, first)) = first.filter(|(other, _)| *other != name) else {
                continue;
            };
            let message = format!("two agents would have the session `{session}`");
            let problem = Problem::error(
                "duplicate-name",
                draft.name_span.clone(),
                format!("{}.name", draft.path),
                message,
            )
            .label("second session of this name")
            .help("see `session_template`".to_owned());
            let apart = !std::ptr::eq(first, draft);
            problems.push(match apart {
                true => problem.related(first.name_span.clone(), "first session of this name"),
                false => problem,
            });
            break;
        }
    }
}
