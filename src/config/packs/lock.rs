//! `pack.lock`: which commit each remote pack is pinned to.

use std::path::{Path, PathBuf};

use super::super::compose;
use super::super::fields::Fields;
use super::super::files::Layer;
use super::super::keys::LOCK_FILE;
use super::super::problem::{Problem, Problems};
use super::super::sources::Sources;
use super::Remote;

/// Name of the file.
pub(super) const FILE: &str = "pack.lock";

/// A pinned pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct Locked {
    pub(in crate::config) remote: Remote,
    pub(in crate::config) commit: String,
    /// `sha256:` and the hash of the checkout.
    pub(in crate::config) hash: String,
}

/// The pins of a city.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::config) struct Lock {
    pub(in crate::config) packs: Vec<Locked>,
}

impl Lock {
    /// Reads the lock of the city at `root`; none is an empty one.
    pub(super) fn read(root: &Path, sources: &mut Sources, problems: &mut Problems) -> Self {
        let path = root.join(FILE);
        if !path.exists() {
            sources.awaited(&path);
            return Self::default();
        }
        match sources.bytes(&path) {
            Ok(bytes) => compose::file(&path, &bytes, &LOCK_FILE, Layer::Pack, problems)
                .map(|fields| Self::of(&fields, problems))
                .unwrap_or_default(),
            Err(error) => {
                let message = format!("{FILE} {}", error.why);
                problems.push(Problem::error(error.code, 0..0, "", message));
                Self::default()
            }
        }
    }

    fn of(fields: &Fields, problems: &mut Problems) -> Self {
        let mut packs = Vec::new();
        for item in fields.tables("pack") {
            let text = |key| item.fields.text(key).map(str::to_owned);
            let (Some(name), Some(source), Some(commit), Some(hash)) =
                (text("name"), text("source"), text("commit"), text("hash"))
            else {
                continue;
            };
            if commit.len() < 12 || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
                let span = item.fields.span("commit").unwrap_or(0..0);
                let at = format!("{}.commit", item.path);
                problems.push(super::super::fields::invalid(span, &at, "not a commit"));
                continue;
            }
            let remote = Remote {
                name,
                source,
                reference: text("ref").unwrap_or_default(),
                path: text("path").unwrap_or_default(),
            };
            packs.push(Locked {
                remote,
                commit,
                hash,
            });
        }
        Self { packs }
    }

    /// The pin of a pack, whatever it is called.
    pub(in crate::config) fn find(&self, remote: &Remote) -> Option<&Locked> {
        self.packs.iter().find(|locked| {
            let own = &locked.remote;
            (&own.source, &own.reference, &own.path)
                == (&remote.source, &remote.reference, &remote.path)
        })
    }

    /// The file.
    pub(super) fn to_text(&self) -> String {
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        let mut text =
            String::from("# Written by `gc pack fetch` and `gc pack update`; commit it.\n");
        for locked in &self.packs {
            text.push_str("\n[[pack]]\n");
            let remote = &locked.remote;
            for (key, value) in [
                ("name", &remote.name),
                ("source", &remote.source),
                ("ref", &remote.reference),
                ("path", &remote.path),
                ("commit", &locked.commit),
                ("hash", &locked.hash),
            ] {
                if !value.is_empty() {
                    text.push_str(&format!("{key} = {}\n", quoted(value)));
                }
            }
        }
        text
    }
}

impl Locked {
    /// Where the checkout lies below the cache.
    pub(super) fn checkout(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}@{}", self.remote.name, &self.commit[..12]))
    }
}
