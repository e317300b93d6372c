//! Agents of packs and of the city, with overrides and patches.

use std::collections::{HashMap, HashSet};

use super::super::fields::Item;
use super::super::files::Layer;
use super::super::keys::nearest;
use super::super::pool::qualified;
use super::super::problem::{Problem, Problems};
use super::{Composed, Entry, no_target, without_identity};

impl Composed {
    /// Stamps the agents of packs, adds the city's own, and lets fallbacks give way.
    pub(super) fn join_agents(&mut self, problems: &mut Problems) {
        let mut all = self.stamped(&self.city_packs, None, problems);
        for rig in &self.rigs {
            let Some(name) = rig.fields.text("name") else {
                continue;
            };
            let scope = self.rig_packs.get(name).cloned().unwrap_or_default();
            all.extend(self.stamped(&scope, Some(name), problems));
        }
        all.extend(self.city.tables("agent").iter().map(Entry::new));
        let is_fallback =
            |entry: &Entry| entry.pack.is_some() && entry.fields.flag("fallback") == Some(true);
        let mut firm: HashMap<String, bool> = HashMap::new();
        for entry in &all {
            if let Some(name) = entry.full_name() {
                *firm.entry(name).or_default() |= !is_fallback(entry);
            }
        }
        let mut taken = HashSet::new();
        all.retain(|entry| match entry.full_name() {
            Some(name) if is_fallback(entry) => !firm[&name] && taken.insert(name),
            _ => true,
        });
        self.agents = all;
    }

    fn stamped(&self, scope: &[usize], rig: Option<&str>, problems: &mut Problems) -> Vec<Entry> {
        let mut made: Vec<Entry> = Vec::new();
        for index in scope {
            let Some(pack) = self.packs.get(*index) else {
                continue;
            };
            for item in pack.fields.tables("agent") {
                let fits = match item.fields.text("scope") {
                    Some("city") => rig.is_none(),
                    Some("rig") => rig.is_some(),
                    _ => true,
                };
                if !fits {
                    continue;
                }
                let mut entry = Entry::new(item);
                entry.pack = Some(*index);
                if let Some(rig) = rig {
                    entry.dir = qualified(rig, &entry.dir).trim_end_matches('/').to_owned();
                }
                made.push(entry);
            }
            let patches = pack.fields.table("patches");
            for patch in patches
                .map(|patches| patches.tables("agent"))
                .unwrap_or_default()
            {
                let dir = patch.fields.text("dir").unwrap_or_default();
                let dir = match rig {
                    Some(rig) => qualified(rig, dir).trim_end_matches('/').to_owned(),
                    None => dir.to_owned(),
                };
                patch_agents(&mut made, &dir, "name", patch, Layer::Patch, problems);
            }
        }
        made
    }

    pub(super) fn apply_overrides(&mut self, problems: &mut Problems) {
        for rig in self.rigs.clone() {
            let Some(dir) = rig.fields.text("name") else {
                continue;
            };
            for change in rig.fields.tables("overrides") {
                patch_agents(
                    &mut self.agents,
                    dir,
                    "agent",
                    change,
                    Layer::Override,
                    problems,
                );
            }
        }
    }

    pub(super) fn apply_patches(&mut self, problems: &mut Problems) {
        for patch in self.patches("agent") {
            let misplaced = patch.fields.has("dir") && patch.fields.text("dir").is_none();
            if !misplaced {
                let dir = patch.fields.text("dir").unwrap_or_default();
                patch_agents(
                    &mut self.agents,
                    dir,
                    "name",
                    &patch,
                    Layer::Patch,
                    problems,
                );
            }
        }
    }

    /// `[[pack.requires]]`: agents that must be there.
    pub(super) fn check_requirements(&self, problems: &mut Problems) {
        let names: Vec<String> = self.agents.iter().filter_map(Entry::full_name).collect();
        let city = self.city_packs.iter().map(|pack| (*pack, ""));
        let rigs = self.rig_packs.iter();
        let rigs =
            rigs.flat_map(|(rig, packs)| packs.iter().map(move |pack| (*pack, rig.as_str())));
        for (pack, rig) in city.chain(rigs) {
            let Some(pack) = self
                .packs
                .get(pack)
                .and_then(|pack| pack.fields.table("pack"))
            else {
                continue;
            };
            for item in pack.tables("requires") {
                let Some((agent, span)) = item.fields.placed_text("agent") else {
                    continue;
                };
                let dir = match item.fields.text("scope") {
                    Some("rig") => rig,
                    _ => "",
                };
                let wanted = qualified(dir, agent);
                if !names.contains(&wanted) {
                    let message = format!("the pack needs an agent `{wanted}`, and there is none");
                    let at = format!("{}.agent", item.path);
                    let meant = nearest(&wanted, names.iter().map(String::as_str));
                    problems.push(
                        Problem::error("unknown-ref", span, at, message)
                            .label("no such agent")
                            .help(meant.map(|meant| format!("did you mean \"{meant}\"?"))),
                    );
                }
            }
        }
    }
}

/// Changes the agent that an override or patch names by `key`.
fn patch_agents(
    agents: &mut [Entry],
    dir: &str,
    key: &str,
    patch: &Item,
    layer: Layer,
    problems: &mut Problems,
) {
    let Some((name, span)) = patch.fields.placed_text(key) else {
        return;
    };
    let wanted = qualified(dir, name);
    let mut change = without_identity(&patch.fields);
    change.raise(layer);
    let mut hit = false;
    for entry in agents.iter_mut() {
        if entry.full_name().as_deref() == Some(&wanted) {
            entry.fields.change(&change, problems);
            hit = true;
        }
    }
    if !hit {
        let names: Vec<String> = agents.iter().filter_map(Entry::full_name).collect();
        let names = names.iter().map(String::as_str);
        problems.push(no_target("agent", &wanted, span, patch, names));
    }
}
