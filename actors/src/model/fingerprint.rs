//! Canonical hashing: one encoding behind fingerprints, revisions and tree hashes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Hash of the parts of a spec whose change needs a new run, and of each part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `v1:` and the hash of all parts.
    pub hash: String,
    /// Part name to a short hash of its value: tells which part drifted, not what it says.
    pub fields: BTreeMap<String, String>,
}

impl Fingerprint {
    /// The fingerprint of `parts`; empty values count as absent.
    #[must_use]
    pub fn of(parts: &BTreeMap<String, String>) -> Self {
        let present = || parts.iter().filter(|(_, value)| !value.is_empty());
        let hash = canonical_hash(
            "gc-fingerprint-v1",
            present().map(|(key, value)| (key.as_str(), value.as_str())),
        );
        let fields = present()
            .map(|(key, value)| (key.clone(), sha256_hex(value.as_bytes())[..12].to_owned()))
            .collect();
        Self {
            hash: format!("v1:{hash}"),
            fields,
        }
    }

    /// Names of the parts that differ from `other`, sorted.
    #[must_use]
    pub fn differing_keys(&self, other: &Self) -> Vec<String> {
        let mut keys: Vec<String> = self
            .fields
            .iter()
            .filter(|(key, hash)| other.fields.get(*key) != Some(hash))
            .map(|(key, _)| key)
            .chain(
                other
                    .fields
                    .keys()
                    .filter(|key| !self.fields.contains_key(*key)),
            )
            .cloned()
            .collect();
        keys.sort();
        keys
    }
}

/// Hex SHA-256 of `head` and the entries, which must come in byte order of their keys.
///
/// Each entry is `<len key>:<key>=<len value>:<value>\n`, so no two maps share an encoding.
pub fn canonical_hash<'a>(
    head: &str,
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text = format!("{head}\n");
    for (key, value) in entries {
        let _ = writeln!(text, "{}:{key}={}:{value}", key.len(), value.len());
    }
    sha256_hex(text.as_bytes())
}

/// Lower-case hex SHA-256.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn fingerprint_matches_the_published_vector() {
        let fingerprint = Fingerprint::of(&parts(&[
            ("command", "sh -c 'sleep 60'"),
            ("env.A", "1"),
            ("env.B", "${TOKEN}"),
            ("nudge", "go"),
            ("prompt.mode", "none"),
            ("session.provider", "auto"),
            ("session_setup.0000", "echo hi"),
            ("work_dir", "/c"),
        ]));
        assert_eq!(
            fingerprint.hash,
            "v1:f24b1aad71539eec0cb4c89c598376a7cb79a07f033afaea98a4098fd1e252b2"
        );
    }

    #[test]
    fn revision_matches_the_published_vector() {
        let file = format!("644:{}", sha256_hex(b"[workspace]\nname = \"x\"\n"));
        assert_eq!(
            canonical_hash("gc-revision-v1", [("city.toml", file.as_str())]),
            "41ab576a565eb9f3ba0b57ada3ecf71bb0ea182ccbad6390244dad8315d578c8"
        );
    }

    #[test]
    fn empty_values_count_as_absent() {
        assert_eq!(
            Fingerprint::of(&parts(&[("a", "1"), ("b", "")])),
            Fingerprint::of(&parts(&[("a", "1")]))
        );
    }

    #[test]
    fn differing_keys_name_changed_added_and_removed_parts() {
        let old = Fingerprint::of(&parts(&[("a", "1"), ("b", "1"), ("gone", "1")]));
        let new = Fingerprint::of(&parts(&[("a", "1"), ("b", "2"), ("added", "1")]));
        assert_eq!(old.differing_keys(&new), ["added", "b", "gone"]);
        assert!(old.differing_keys(&old).is_empty());
    }
}
