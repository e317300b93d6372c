use std::collections::HashMap;
use std::sync::Arc;

use super::slot::Want;
use crate::model::{AgentName, AgentSpec, CitySpec, PoolSpec};

/// How many members of an unlimited pool are looked at before its size is known.
const FROZEN_SEEN: u32 = 1000;

/// One instance the config knows, and whether it should run.
pub type Wanted = (Arc<AgentSpec>, Want);

/// The desired set: a pure function of config, pool counts and limits, in config order.
///
/// `counts` holds the size of each pool that has one yet; `is_running` tells who keeps a place
/// when there are not enough.
pub fn desired(
    spec: &CitySpec,
    counts: &HashMap<AgentName, u32>,
    is_running: impl Fn(&AgentName) -> bool,
) -> Vec<Wanted> {
    let mut set = Vec::new();
    // Runs of pools whose size is not known yet: they stay, so they take places.
    let mut frozen = 0;
    for agent in &spec.agents {
        let want = base_want(spec, agent);
        match &agent.pool {
            None => set.push((agent.clone(), want)),
            Some(pool) => {
                let count = clamp(pool, counts.get(&agent.name).copied().unwrap_or(pool.min));
                let unknown = is_unsized(agent, pool, counts);
                // A pool of unknown size has no instances but those that are there already.
                if !unknown || want != Want::Yes {
                    let instances = (1..=count).map(|slot| Arc::new(agent.instance(slot)));
                    set.extend(instances.map(|instance| (instance, want.clone())));
                } else if spec.max_agents.is_some() {
                    let most = pool.max.unwrap_or(FROZEN_SEEN);
                    let runs = |slot: &u32| is_running(&agent.instance(*slot).name);
                    frozen += (1..=most).filter(runs).count();
                }
            }
        }
    }
    apply_limit(spec, &mut set, frozen, is_running);
    set
}

fn base_want(spec: &CitySpec, agent: &AgentSpec) -> Want {
    match &agent.held {
        _ if spec.suspended || agent.suspended => Want::Suspended,
        Some(why) => Want::Held(why.clone()),
        None => Want::Yes,
    }
}

/// The first check of the pool is still to end. A disabled pool has none to wait for.
fn is_unsized(template: &AgentSpec, pool: &PoolSpec, counts: &HashMap<AgentName, u32>) -> bool {
    pool.check.is_some() && pool.max != Some(0) && !counts.contains_key(&template.name)
}

/// What becomes of an instance that the desired set does not name.
#[must_use]
pub fn unnamed(spec: &CitySpec, instance: &AgentSpec, counts: &HashMap<AgentName, u32>) -> Want {
    let template = spec
        .agents
        .iter()
        .find(|agent| agent.name == instance.template);
    match template.and_then(|template| Some((template, template.pool.as_ref()?))) {
        Some((template, _)) if spec.suspended || template.suspended => Want::Suspended,
        Some((template, _)) if template.held.is_some() => {
            Want::Held(template.held.clone().unwrap_or_default())
        }
        Some((template, pool)) if is_unsized(template, pool, counts) => Want::Frozen,
        Some(_) => Want::Excess,
        None => Want::Gone,
    }
}

/// Brings a count into the pool's bounds.
#[must_use]
pub fn clamp(pool: &PoolSpec, count: u32) -> u32 {
    match pool.max {
        Some(0) => 0,
        Some(max) => count.clamp(pool.min.min(max), max),
        None => count.max(pool.min),
    }
}

/// Reads what a pool check printed. Negative numbers mean as few as possible.
///
/// # Errors
/// What is wrong with the output.
pub fn parse_count(output: &str) -> Result<u32, String> {
    let text = output.trim();
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Ok(0),
        Ok(number) => u32::try_from(number).map_err(|_| format!("{number} is too large")),
        Err(_) if text.is_empty() => Err("the check printed nothing".into()),
        Err(_) => {
            let shown: String = text.chars().take(40).collect();
            Err(format!("the check printed {shown:?}, not a number"))
        }
    }
}

/// Who is let in when there is not room for all: those who run, then those who do not; among
/// either, fixed agents, then the minimum of each pool, then the rest.
fn apply_limit(
    spec: &CitySpec,
    set: &mut [Wanted],
    frozen: usize,
    is_running: impl Fn(&AgentName) -> bool,
) {
    let Some(max) = spec.max_agents else { return };
    let rank = |agent: &AgentSpec| match (&agent.pool, agent.pool_slot) {
        (Some(pool), Some(slot)) if slot > pool.min => 2,
        (Some(_), Some(_)) => 1,
        _ => 0,
    };
    let mut candidates: Vec<(bool, u8, usize)> = set
        .iter()
        .enumerate()
        .filter(|(_, (_, want))| *want == Want::Yes)
        .map(|(index, (agent, _))| (!is_running(&agent.name), rank(agent), index))
        .collect();
    candidates.sort_unstable();
    for (place, (down, rank, index)) in candidates.into_iter().enumerate() {
        // Only a fixed agent that runs comes before those that cannot be judged yet.
        let before = if !down && rank == 0 { 0 } else { frozen };
        if place + before >= max {
            set[index].1 = Want::Limited;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(min: u32, max: Option<u32>) -> PoolSpec {
        PoolSpec {
            min,
            max,
            check: Some("count".into()),
            ..PoolSpec::default()
        }
    }

    fn city(max_agents: Option<usize>) -> CitySpec {
        let mut spec = CitySpec::builder("a")
            .agent(AgentSpec::command("fixed", ["x"]))
            .agent(AgentSpec::command("w", ["x"]).pool(pool(1, Some(3))))
            .agent(AgentSpec::command("off", ["x"]).suspended(true))
            .agent(AgentSpec::command("far", ["x"]).held("gone"))
            .build()
            .unwrap();
        spec.max_agents = max_agents;
        spec
    }

    fn names(spec: &CitySpec, count: Option<u32>, running: &[&str]) -> Vec<String> {
        let counts = count
            .map(|n| (AgentName::new("w").unwrap(), n))
            .into_iter()
            .collect();
        let runs = |name: &AgentName| running.contains(&name.as_str());
        let line = |(agent, want): &Wanted| match want {
            Want::Yes => agent.name.to_string(),
            other => format!("{} {other:?}", agent.name),
        };
        desired(spec, &counts, runs).iter().map(line).collect()
    }

    #[test]
    fn fixed_agents_and_pools_are_listed_in_config_order() {
        let rest = ["off Suspended", "far Held(\"gone\")"];
        assert_eq!(
            names(&city(None), Some(2), &[])[..3],
            ["fixed", "w-1", "w-2"]
        );
        assert_eq!(names(&city(None), Some(2), &[])[3..], rest);
        assert_eq!(
            names(&city(None), Some(9), &[])[..4],
            ["fixed", "w-1", "w-2", "w-3"]
        );
        assert_eq!(names(&city(None), None, &[])[1..], rest, "size unknown");
    }

    #[test]
    fn a_limit_lets_in_who_runs_then_fixed_then_minimum_then_extra() {
        let spec = city(Some(2));
        assert_eq!(
            names(&spec, Some(3), &[])[..4],
            ["fixed", "w-1", "w-2 Limited", "w-3 Limited"]
        );
        assert_eq!(
            names(&spec, Some(3), &["w-3"])[..4],
            ["fixed", "w-1 Limited", "w-2 Limited", "w-3"]
        );
    }

    #[test]
    fn runs_of_pools_of_unknown_size_take_places_but_not_those_of_running_fixed_agents() {
        let (frozen, spec) = (["w-1", "w-2", "w-3"], city(Some(2)));
        assert_eq!(names(&spec, None, &frozen)[0], "fixed Limited");
        let all = ["fixed", "w-1", "w-2", "w-3"];
        assert_eq!(names(&spec, None, &all)[0], "fixed");
    }

    #[test]
    fn a_suspended_city_wants_nobody() {
        let mut spec = city(None);
        spec.suspended = true;
        assert!(
            desired(&spec, &HashMap::new(), |_| false)
                .iter()
                .all(|(_, w)| *w == Want::Suspended)
        );
    }

    #[test]
    fn counts_are_read_and_clamped() {
        let table = [("7\n", Ok(5)), (" 3 ", Ok(3)), ("-4", Ok(1)), ("0", Ok(1))];
        for (output, expected) in table {
            assert_eq!(
                parse_count(output).map(|n| clamp(&pool(1, Some(5)), n)),
                expected,
                "{output:?}"
            );
        }
        for bad in ["", "x", "1.5", "99999999999"] {
            assert!(parse_count(bad).is_err(), "{bad:?}");
        }
        assert_eq!(clamp(&pool(2, None), 100), 100);
        assert_eq!(clamp(&pool(0, Some(0)), 3), 0);
    }

    proptest! {
        #[test]
        fn clamped_counts_stay_in_bounds(min in 0_u32..10, extra in 0_u32..10, count in any::<u32>()) {
            let pool = pool(min, Some(min + extra));
            let clamped = clamp(&pool, count);
            prop_assert!(clamped >= min && clamped <= min + extra);
            prop_assert!(count < min || count > min + extra || clamped == count);
        }
    }
}
