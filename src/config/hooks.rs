//! Hook sets that gc brings along: small files by which coding programs tell the city what they do,
//! as events `hook.session_start`, `hook.turn_end`, `hook.attention` and `hook.session_end`.
//!
//! They lie in `.gc/system/hooks/` of a city that runs and are applied like any other overlay.

use std::io;
use std::path::{Path, PathBuf};

use gascity_actors::model::canonical_hash;

use crate::control::files;

/// One set: its name, where its file goes, and what is in it.
struct Set {
    name: &'static str,
    path: &'static str,
    text: &'static str,
}

const SETS: [Set; 6] = [
    Set {
        name: "claude",
        path: ".claude/settings.local.json",
        text: include_str!("../templates/hooks/claude.json"),
    },
    Set {
        name: "codex",
        path: ".codex/hooks.json",
        text: include_str!("../templates/hooks/codex.json"),
    },
    Set {
        name: "gemini",
        path: ".gemini/settings.json",
        text: include_str!("../templates/hooks/gemini.json"),
    },
    Set {
        name: "opencode",
        path: ".opencode/plugins/gc.js",
        text: include_str!("../templates/hooks/opencode.js"),
    },
    Set {
        name: "copilot",
        path: ".github/hooks/gc.json",
        text: include_str!("../templates/hooks/copilot.json"),
    },
    Set {
        name: "cursor",
        path: ".cursor/hooks.json",
        text: include_str!("../templates/hooks/cursor.json"),
    },
];

/// The names of all sets.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SETS.iter().map(|set| set.name)
}

/// Where a set lies in the city at `root`; `None` if there is none of that name.
pub(super) fn dir(root: &Path, name: &str) -> Option<PathBuf> {
    let set = SETS.iter().find(|set| set.name == name)?;
    Some(root.join(".gc/system/hooks").join(set.name))
}

/// What stands for a set in a fingerprint: its name alone, since another version of gc with
/// better files must not restart anybody.
pub(super) fn hash(name: &str) -> String {
    canonical_hash("gc-hooks-v1", [("name", name)])
}

/// Puts all sets in place in the city at `root`, where they are not there already.
///
/// # Errors
/// If they cannot be written.
pub(crate) fn install(root: &Path) -> io::Result<()> {
    for set in &SETS {
        let Some(file) = dir(root, set.name).map(|dir| dir.join(set.path)) else {
            continue;
        };
        if std::fs::read(&file).is_ok_and(|found| found == set.text.as_bytes()) {
            continue;
        }
        if let Some(parent) = file.parent() {
            files::create_private_dir(parent)?;
        }
        files::replace(&file, set.text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_in_json_is_json_and_tells_of_the_start() {
        for set in &SETS {
            assert!(set.text.contains("hook.session_start"), "{}", set.name);
            if set.path.ends_with(".json") {
                let found: Result<serde_json::Value, _> = serde_json::from_str(set.text);
                assert!(found.is_ok_and(|v| v["hooks"].is_object()), "{}", set.name);
            }
        }
    }

    #[test]
    fn sets_are_put_in_place_and_brought_up_to_date() {
        let city = tempfile::tempdir().unwrap();
        install(city.path()).unwrap();
        let file = city
            .path()
            .join(".gc/system/hooks/claude/.claude/settings.local.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, "old").unwrap();
        install(city.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
