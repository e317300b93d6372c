use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::model::{AgentName, AgentSpec, SpecError, Strategy};

/// The `depends_on` graph over templates.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Template to the templates it needs.
    needs: HashMap<AgentName, Vec<AgentName>>,
    /// Template to the templates that need it.
    needed_by: HashMap<AgentName, Vec<AgentName>>,
    /// Templates whose end takes everybody along that they are connected with.
    one_for_all: HashSet<AgentName>,
}

impl Graph {
    /// The graph of these templates. Dependencies on unknown ones are kept: they are never up.
    pub fn new<S: Borrow<AgentSpec>>(templates: impl IntoIterator<Item = S>) -> Self {
        let mut graph = Self::default();
        for spec in templates {
            let spec = spec.borrow();
            for on in &spec.depends_on {
                graph
                    .needed_by
                    .entry(on.clone())
                    .or_default()
                    .push(spec.template.clone());
            }
            if spec.strategy == Strategy::OneForAll {
                graph.one_for_all.insert(spec.template.clone());
            }
            graph
                .needs
                .insert(spec.template.clone(), spec.depends_on.clone());
        }
        graph
    }

    /// Templates that `template` needs directly.
    #[must_use]
    pub fn needs(&self, template: &AgentName) -> &[AgentName] {
        self.needs.get(template).map_or(&[], Vec::as_slice)
    }

    /// Others may wait for `template` to come up: who needs it, or who its end took along.
    #[must_use]
    pub fn is_awaited(&self, template: &AgentName) -> bool {
        self.needed_by.contains_key(template) || self.one_for_all.contains(template)
    }

    /// Templates that need `template`, directly or not.
    #[must_use]
    pub fn dependents(&self, template: &AgentName) -> BTreeSet<AgentName> {
        self.reach(template, |graph, at| graph.needed_by.get(at))
    }

    /// Everybody connected with `template`, without itself.
    fn connected(&self, template: &AgentName) -> BTreeSet<AgentName> {
        let mut seen = BTreeSet::from([template.clone()]);
        let mut queue = vec![template.clone()];
        while let Some(at) = queue.pop() {
            let around = self
                .needs
                .get(&at)
                .into_iter()
                .chain(self.needed_by.get(&at))
                .flatten();
            for next in around {
                if self.needs.contains_key(next) && seen.insert(next.clone()) {
                    queue.push(next.clone());
                }
            }
        }
        seen.remove(template);
        seen
    }

    fn reach<'a>(
        &'a self,
        from: &AgentName,
        step: impl Fn(&'a Self, &AgentName) -> Option<&'a Vec<AgentName>>,
    ) -> BTreeSet<AgentName> {
        let mut seen = BTreeSet::new();
        let mut queue = vec![from.clone()];
        while let Some(at) = queue.pop() {
            for next in step(self, &at).into_iter().flatten() {
                if next != from && seen.insert(next.clone()) {
                    queue.push(next.clone());
                }
            }
        }
        seen
    }

    /// Who is stopped and started again along with a template that died.
    #[must_use]
    pub fn cascade(&self, strategy: Strategy, template: &AgentName) -> BTreeSet<AgentName> {
        match strategy {
            Strategy::OneForOne => BTreeSet::new(),
            Strategy::RestForOne => self.dependents(template),
            Strategy::OneForAll => self.connected(template),
        }
    }

    /// Groups `templates` so that each comes after everything in the set that it needs, directly
    /// or through templates outside the set.
    #[must_use]
    pub fn waves(&self, templates: &HashSet<AgentName>) -> Vec<Vec<AgentName>> {
        let mut depth: HashMap<&AgentName, usize> = HashMap::new();
        for template in templates {
            self.depth(template, templates, &mut depth, &mut HashSet::new());
        }
        let mut waves: Vec<Vec<AgentName>> = Vec::new();
        for template in templates {
            let at = depth.get(template).copied().unwrap_or(0);
            if waves.len() <= at {
                waves.resize(at + 1, Vec::new());
            }
            waves[at].push(template.clone());
        }
        waves.retain(|wave| !wave.is_empty());
        for wave in &mut waves {
            wave.sort();
        }
        waves
    }

    /// Longest path below `at`, counting only members of the set. A cycle counts as its end: a
    /// graph that is unusable must not hang.
    fn depth<'a>(
        &'a self,
        at: &'a AgentName,
        set: &HashSet<AgentName>,
        known: &mut HashMap<&'a AgentName, usize>,
        on_path: &mut HashSet<&'a AgentName>,
    ) -> usize {
        if let Some(depth) = known.get(at) {
            return *depth;
        }
        if !on_path.insert(at) {
            return 0;
        }
        let below = self
            .needs(at)
            .iter()
            .map(|on| self.depth(on, set, known, on_path) + usize::from(set.contains(on)))
            .max()
            .unwrap_or(0);
        on_path.remove(at);
        known.insert(at, below);
        below
    }
}

/// Refuses dependencies on agents that do not exist and circles.
///
/// # Errors
/// [`SpecError`] names the agents.
pub fn check_dependencies<S: Borrow<AgentSpec>>(templates: &[S]) -> Result<(), SpecError> {
    let graph = Graph::new(templates.iter().map(Borrow::borrow));
    for spec in templates.iter().map(Borrow::borrow) {
        if let Some(on) = spec
            .depends_on
            .iter()
            .find(|on| !graph.needs.contains_key(*on))
        {
            return Err(SpecError::UnknownDependency(spec.name.clone(), on.clone()));
        }
    }
    for spec in templates.iter().map(Borrow::borrow) {
        if let Some(path) = graph.circle(&spec.template) {
            return Err(SpecError::DependencyCycle(path));
        }
    }
    Ok(())
}

impl Graph {
    /// A path from `start` back to itself, as text.
    fn circle(&self, start: &AgentName) -> Option<String> {
        let mut came_from: HashMap<&AgentName, &AgentName> = HashMap::new();
        let mut queue = vec![start];
        while let Some(at) = queue.pop() {
            for on in self.needs(at) {
                if on == start {
                    let mut path = vec![start.to_string()];
                    let mut back = at;
                    while back != start {
                        path.insert(0, back.to_string());
                        back = came_from.get(back)?;
                    }
                    path.insert(0, start.to_string());
                    return Some(path.join(" -> "));
                }
                if !came_from.contains_key(on) {
                    came_from.insert(on, at);
                    queue.push(on);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Strategy;

    fn name(text: &str) -> AgentName {
        AgentName::new(text).unwrap()
    }

    fn spec(agent: &str, needs: &[&str]) -> AgentSpec {
        let builder = AgentSpec::command(agent, ["x"]);
        needs
            .iter()
            .fold(builder, |b, on| b.depends_on(*on))
            .build()
            .unwrap()
    }

    /// web -> api -> db, and alone.
    fn chain() -> Vec<AgentSpec> {
        vec![
            spec("web", &["api"]),
            spec("api", &["db"]),
            spec("db", &[]),
            spec("alone", &[]),
        ]
    }

    fn waves(graph: &Graph, of: &[&str]) -> Vec<Vec<String>> {
        let set = of.iter().map(|agent| name(agent)).collect();
        let text = |wave: Vec<AgentName>| wave.iter().map(ToString::to_string).collect();
        graph.waves(&set).into_iter().map(text).collect()
    }

    #[test]
    fn waves_follow_dependencies_also_through_agents_outside_the_set() {
        let graph = Graph::new(chain());
        assert_eq!(
            waves(&graph, &["web", "api", "db", "alone"]),
            [vec!["alone", "db"], vec!["api"], vec!["web"]]
        );
        assert_eq!(waves(&graph, &["web", "db"]), [["db"], ["web"]]);
        assert_eq!(waves(&graph, &["web"]), [["web"]]);
    }

    #[test]
    fn each_strategy_takes_its_set_along() {
        let graph = Graph::new(chain());
        let taken = |strategy, agent| -> Vec<String> {
            graph
                .cascade(strategy, &name(agent))
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(taken(Strategy::OneForOne, "db"), [""; 0]);
        assert_eq!(taken(Strategy::RestForOne, "db"), ["api", "web"]);
        assert_eq!(taken(Strategy::RestForOne, "api"), ["web"]);
        assert_eq!(taken(Strategy::OneForAll, "web"), ["api", "db"]);
        assert_eq!(taken(Strategy::OneForAll, "alone"), [""; 0]);
    }

    #[test]
    fn unknown_dependencies_and_circles_are_refused() {
        let unknown = check_dependencies(&[spec("a", &["b"])]).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "agent a depends on b, which does not exist"
        );
        let circle = [spec("a", &["b"]), spec("b", &["c"]), spec("c", &["a"])];
        let circle = check_dependencies(&circle).unwrap_err();
        assert_eq!(circle.to_string(), "dependency cycle: a -> b -> c -> a");
        assert!(check_dependencies(&chain()).is_ok());
    }

    proptest! {
        /// Invariant I28, seen from the graph: nobody shares a wave with, or comes before, what it needs.
        #[test]
        fn in_random_graphs_everybody_comes_after_what_it_needs(edges in prop::collection::vec((0_usize..12, 0_usize..12), 0..40)) {
            let specs: Vec<AgentSpec> = (0..12).map(|i| {
                // Edges go from higher to lower numbers only, so there is no circle.
                let needs: Vec<String> = edges.iter().filter(|(a, b)| *a == i && b < a).map(|(_, b)| format!("n{b}")).collect();
                spec(&format!("n{i}"), &needs.iter().map(String::as_str).collect::<Vec<_>>())
            }).collect();
            prop_assert!(check_dependencies(&specs).is_ok());
            let graph = Graph::new(&specs);
            let all: HashSet<AgentName> = specs.iter().map(|s| s.name.clone()).collect();
            let waves = graph.waves(&all);
            let at = |agent: &AgentName| waves.iter().position(|wave| wave.contains(agent)).unwrap();
            for spec in &specs {
                for on in &spec.depends_on {
                    prop_assert!(at(on) < at(&spec.name));
                }
            }
        }
    }
}
