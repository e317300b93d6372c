//! Who needs whom: references of `depends_on`, and circles among them.

use std::collections::{HashMap, HashSet};

use gascity_actors::model::AgentName;

use super::agent::Draft;
use super::keys::nearest;
use super::pool::{self, qualified};
use super::problem::{MOST, Problem, Problems};
use super::tree::Span;

/// A reference that names an agent.
struct Edge {
    /// Index of the agent it names.
    to: usize,
    span: Span,
    path: String,
}

/// Resolves all references, in place, and reports those that lead nowhere, in a circle or, if
/// `running`, to an agent that does not run.
pub(super) fn resolve(drafts: &mut [Draft], running: bool, problems: &mut Problems) {
    let index: HashMap<AgentName, usize> = drafts
        .iter()
        .enumerate()
        .map(|(i, draft)| (draft.name.clone(), i))
        .collect();
    let mut helped = 0;
    let edges: Vec<Vec<Edge>> = drafts
        .iter()
        .map(|draft| edges(draft, drafts, &index, &mut helped, problems))
        .collect();
    Circles::new(drafts, &edges).report(problems);
    check_triage(drafts, &index, problems);
    for (i, edges) in edges.iter().enumerate() {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        for edge in edges {
            let on = &drafts[edge.to];
            if running && on.suspended && !drafts[i].suspended {
                problems.push(suspended(on, edge));
            }
            if seen.insert(edge.to) {
                names.push(on.name.clone());
            }
        }
        if let Some(spec) = &mut drafts[i].spec {
            spec.depends_on = names;
        }
    }
}

fn edges(
    draft: &Draft,
    drafts: &[Draft],
    index: &HashMap<AgentName, usize>,
    helped: &mut usize,
    problems: &mut Problems,
) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (i, (text, span)) in draft.refs.iter().enumerate() {
        let path = format!("{}.depends_on[{i}]", draft.path);
        match target(text, &draft.dir, index) {
            Some(to) => edges.push(Edge {
                to,
                span: span.clone(),
                path,
            }),
            None => {
                // Help costs a look at all agents, and more problems are not reported.
                *helped += 1;
                let help = (*helped <= MOST)
                    .then(|| help(text, draft, drafts))
                    .flatten();
                let message = format!("there is no agent {text:?}");
                problems.push(
                    Problem::error("unknown-ref", span.clone(), path, message)
                        .label("unknown agent")
                        .help(help),
                );
            }
        }
    }
    edges
}

/// Who judges a stuck agent must be there, and run at intervals.
fn check_triage(drafts: &[Draft], index: &HashMap<AgentName, usize>, problems: &mut Problems) {
    for draft in drafts {
        let Some((text, span)) = &draft.triage else {
            continue;
        };
        let path = format!("{}.heartbeat.triage", draft.path);
        let problem = match target(text, &draft.dir, index) {
            Some(to) if drafts[to].ephemeral => continue,
            Some(_) => Problem::error(
                "conflict",
                span.clone(),
                path,
                format!("agent {text:?} cannot judge others, since it has no `every`"),
            )
            .label("needs `every`"),
            None => Problem::error(
                "unknown-ref",
                span.clone(),
                path,
                format!("there is no agent {text:?}"),
            )
            .label("unknown agent")
            .help(help(text, draft, drafts)),
        };
        problems.push(problem);
    }
}

/// A bare name is looked for in the same directory, then in the city; one that starts with `/` in
/// the city only. Any other `/` makes it a full name.
fn target(text: &str, dir: &str, index: &HashMap<AgentName, usize>) -> Option<usize> {
    let find = |name: &str| index.get(name).copied();
    if let Some(name) = text.strip_prefix('/') {
        return find(name).filter(|_| !name.contains('/'));
    }
    if text.contains('/') {
        return find(text);
    }
    find(&qualified(dir, text)).or_else(|| find(text))
}

fn help(text: &str, from: &Draft, drafts: &[Draft]) -> Option<String> {
    // As this agent would write each of the others.
    let written: Vec<String> = drafts
        .iter()
        .filter(|draft| draft.name != from.name)
        .map(|draft| match draft.name.as_str().rsplit_once('/') {
            None if text.starts_with('/') => format!("/{}", draft.name),
            Some((dir, name)) if dir == from.dir => name.to_owned(),
            _ => draft.name.to_string(),
        })
        .collect();
    let here = AgentName::new(qualified(&from.dir, text));
    let pool = [here, AgentName::new(text.trim_start_matches('/'))]
        .into_iter()
        .flatten()
        .find_map(|name| pool::pool_of(&name, drafts));
    match pool {
        Some(pool) => Some(format!("it is an instance; name its pool, `{}`", pool.name)),
        None => nearest(text, written.iter().map(String::as_str))
            .map(|meant| format!("did you mean \"{meant}\"?")),
    }
}

fn suspended(on: &Draft, edge: &Edge) -> Problem {
    Problem::error(
        "dependency-suspended",
        edge.span.clone(),
        edge.path.clone(),
        format!("agent `{}` is suspended, so this one waits for it", on.name),
    )
    .warning()
    .label("suspended")
}

/// A walk along the references that finds circles.
struct Circles<'a> {
    drafts: &'a [Draft],
    edges: &'a [Vec<Edge>],
    /// Agents from which everything was seen.
    done: HashSet<usize>,
    /// Agents of circles that are reported: one report for a tangle is enough.
    reported: HashSet<usize>,
}

impl<'a> Circles<'a> {
    fn new(drafts: &'a [Draft], edges: &'a [Vec<Edge>]) -> Self {
        Self {
            drafts,
            edges,
            done: HashSet::new(),
            reported: HashSet::new(),
        }
    }

    fn report(mut self, problems: &mut Problems) {
        for start in 0..self.edges.len() {
            self.walk(start, problems);
        }
    }

    /// Depth first, with a stack of its own: a file may hold a chain of any length.
    fn walk(&mut self, start: usize, problems: &mut Problems) {
        if self.done.contains(&start) {
            return;
        }
        let mut path = vec![(start, 0)];
        let mut on_path = HashSet::from([start]);
        while let Some((at, next)) = path.last_mut() {
            let at = *at;
            let Some(edge) = self.edges[at].get(*next) else {
                path.pop();
                on_path.remove(&at);
                self.done.insert(at);
                continue;
            };
            *next += 1;
            if on_path.contains(&edge.to) && !self.reported.contains(&edge.to) {
                let circle = path.iter().map(|(agent, _)| *agent);
                let circle: Vec<usize> = circle.skip_while(|agent| *agent != edge.to).collect();
                self.found(&circle, edge, problems);
            } else if !self.done.contains(&edge.to) && on_path.insert(edge.to) {
                path.push((edge.to, 0));
            }
        }
    }

    /// `edge` leads from the last agent of the circle to the first.
    fn found(&mut self, circle: &[usize], edge: &Edge, problems: &mut Problems) {
        if circle.iter().any(|agent| self.reported.contains(agent)) {
            return;
        }
        self.reported.extend(circle);
        let names: Vec<&str> = circle
            .iter()
            .chain(circle.first())
            .map(|agent| self.drafts[*agent].name.as_str())
            .collect();
        problems.push(
            Problem::error(
                "dependency-cycle",
                edge.span.clone(),
                edge.path.clone(),
                format!("agents wait for each other: {}", names.join(" -> ")),
            )
            .label("closes the circle"),
        );
    }
}
