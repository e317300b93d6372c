//! From `[agent.pool]` to the size of a pool and the names of its instances.

use std::collections::HashMap;

use gascity_actors::model::{AgentName, PoolSpec};

use super::agent::{Defaults, Draft};
use super::fields::{Fields, invalid};
use super::problem::{Problem, Problems};
use super::sources::Sources;
use super::tree::Span;

/// Reads the pool of an agent in `dir`; `path` is that of the pool's table.
pub(super) fn read(
    fields: &Fields,
    path: &str,
    dir: &str,
    defaults: &Defaults<'_>,
    sources: &mut Sources,
    problems: &mut Problems,
) -> PoolSpec {
    let default = PoolSpec::default();
    let min = fields.count("min").unwrap_or(default.min);
    let max = fields.limit("max").unwrap_or(Some(min.max(1)));
    // A disabled pool may keep the rest of its settings.
    if let Some(max) = max.filter(|max| *max > 0 && min > *max) {
        let keys = ["min", "max"].map(|key| (key, fields.span(key)));
        let message = format!("`min` ({min}) is more than `max` ({max})");
        problems.push(Problem::conflict(path, keys, message));
    }
    let rig = defaults.rigs.find(dir).map(|(_, rig)| rig);
    PoolSpec {
        min,
        max,
        check: fields.text("check").map(str::to_owned),
        dir: rig.map_or(defaults.root, |rig| &rig.root).to_owned(),
        check_timeout: fields
            .duration("check_timeout")
            .unwrap_or(defaults.check_timeout),
        drain_timeout: fields
            .duration("drain_timeout")
            .map_or(default.drain_timeout, |limit| {
                Some(limit).filter(|limit| !limit.is_zero())
            }),
        on_boot: fields.text("on_boot").map(str::to_owned),
        on_death: fields.text("on_death").map(str::to_owned),
        names: names(fields, path, dir, max, sources, problems),
    }
}

/// The names in the file that `namepool` names, as many as there can be instances.
fn names(
    fields: &Fields,
    path: &str,
    dir: &str,
    max: Option<u32>,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Vec<AgentName> {
    let (Some(text), Some(span)) = (fields.text("namepool"), fields.span("namepool")) else {
        return Vec::new();
    };
    let Some(max) = max.filter(|max| *max > 0) else {
        let keys = ["max", "namepool"].map(|key| (key, fields.span(key)));
        let message = "`namepool` needs a `max` of at least 1";
        problems.push(Problem::conflict(path, keys, message));
        return Vec::new();
    };
    let file = problems.files.resolve(text, &span);
    let at = format!("{path}.namepool");
    match sources.text(&file) {
        Ok(listed) => {
            let mut names = Vec::new();
            for (number, line) in listed.lines().enumerate() {
                let name = line.split('#').next().unwrap_or_default().trim();
                if name.is_empty() {
                    continue;
                }
                match AgentName::new(qualified(dir, name)) {
                    Ok(full) if !name.contains('/') => names.push(full),
                    _ => problems.push(invalid(
                        span.clone(),
                        &at,
                        format!("{name:?} in line {} of {text} is no name", number + 1),
                    )),
                }
            }
            names.truncate(usize::try_from(max).unwrap_or(usize::MAX));
            names
        }
        Err(error) => {
            let message = format!("{} {}", file.display(), error.why);
            problems.push(Problem::error(error.code, span, at, message).label("no names"));
            Vec::new()
        }
    }
}

/// The full name of an agent.
pub(super) fn qualified(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// Whether instance `number` of the pool has a number for a name.
fn is_numbered(pool: &PoolSpec, number: u32) -> bool {
    pool.max != Some(1)
        && pool.max.is_none_or(|max| number <= max)
        && usize::try_from(number).is_ok_and(|number| number > pool.names.len())
}

/// The pool and number of a name such as `w-2`.
fn numbered<'d>(name: &AgentName, pools: &HashMap<&str, &'d Draft>) -> Option<&'d Draft> {
    let (base, digits) = name.as_str().rsplit_once('-')?;
    let number: u32 = digits.parse().ok()?;
    let draft = *pools.get(base)?;
    let pool = draft.pool.as_ref()?;
    // Compared as text: `w-02` is no instance.
    (is_numbered(pool, number) && draft.name.numbered(number) == *name).then_some(draft)
}

/// What an agent may be mistaken for: the pool whose instance has that name.
pub(super) fn pool_of<'d>(name: &AgentName, drafts: &'d [Draft]) -> Option<&'d Draft> {
    let pools = by_name(drafts);
    let listed = |draft: &&Draft| draft.pool.as_ref().is_some_and(|p| p.names.contains(name));
    numbered(name, &pools).or_else(|| drafts.iter().find(listed))
}

fn by_name(drafts: &[Draft]) -> HashMap<&str, &Draft> {
    drafts
        .iter()
        .map(|draft| (draft.name.as_str(), draft))
        .collect()
}

/// Instances of pools must have names of their own.
pub(super) fn check_instances(drafts: &[Draft], problems: &mut Problems) {
    let pools = by_name(drafts);
    // Names that are written down somewhere, with who has them.
    let mut taken: HashMap<&AgentName, &Draft> =
        drafts.iter().map(|draft| (&draft.name, draft)).collect();
    for draft in drafts {
        if let Some(pool) = numbered(&draft.name, &pools) {
            problems.push(same(&draft.name, draft, pool));
        }
        let Some(pool) = &draft.pool else {
            continue;
        };
        for name in &pool.names {
            if let Some(other) = numbered(name, &pools) {
                problems.push(same(name, draft, other));
            }
            // The only instance of a pool may be called as the pool itself is.
            match taken.insert(name, draft) {
                Some(first) if pool.max != Some(1) || !std::ptr::eq(first, draft) => {
                    problems.push(same(name, draft, first));
                }
                _ => {}
            }
        }
    }
}

/// The problem of two agents, at least one of them a pool, with an instance of the same name.
fn same(name: &AgentName, one: &Draft, other: &Draft) -> Problem {
    let (first, second) = if one.name_span.start <= other.name_span.start {
        (one, other)
    } else {
        (other, one)
    };
    let problem = Problem::error(
        "duplicate-name",
        second.name_span.clone(),
        format!("{}.name", second.path),
        format!("two agents would be named `{name}`, one of them an instance of a pool"),
    )
    .label("second agent of this name");
    if std::ptr::eq(first, second) {
        problem.help(
            "the pool lists a name twice, its own name, or that of a numbered instance".to_owned(),
        )
    } else {
        problem.related(first.name_span.clone(), "first agent of this name")
    }
}

/// Instances must have names that are names.
pub(super) fn check_names(
    name: &AgentName,
    pool: Option<&PoolSpec>,
    span: Span,
    path: &str,
    problems: &mut Problems,
) {
    // The longest one, as its number is.
    let last = pool
        .filter(|pool| !matches!(pool.max, Some(0 | 1)))
        .map(|pool| name.numbered(pool.max.unwrap_or(u32::MAX)));
    if let Some(bad) = last
        .as_ref()
        .filter(|last| AgentName::new(last.as_str()).is_err())
    {
        let message = format!("an instance of the pool would be named `{bad}`, which is no name");
        problems.push(invalid(span, path, message));
    }
}
