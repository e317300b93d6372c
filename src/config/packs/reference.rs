//! What an entry of `includes` names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::super::fields::{Item, invalid};
use super::super::keys::nearest;
use super::super::problem::{Problem, Problems};
use super::super::tree::Span;

/// A pack as a file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum Reference {
    Local(PathBuf),
    Remote(Remote),
}

/// A pack in a git repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::config) struct Remote {
    /// Name of its checkout.
    pub(in crate::config) name: String,
    /// URL of the repository.
    pub(in crate::config) source: String,
    /// Branch, tag or commit; empty is HEAD.
    pub(in crate::config) reference: String,
    /// Directory of the pack within it; empty is the top.
    pub(in crate::config) path: String,
}

impl Remote {
    /// Repository and directory.
    pub(super) fn address(&self) -> String {
        match self.path.as_str() {
            "" => self.source.clone(),
            path => format!("{}//{path}", self.source),
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())?;
        if !self.reference.is_empty() {
            write!(f, "#{}", self.reference)?;
        }
        Ok(())
    }
}

const SCHEMES: [&str; 5] = ["https://", "ssh://", "file://", "http://", "git@"];

impl Reference {
    /// A key of `[packs]`, a URL, or a local path.
    pub(in crate::config) fn parse(
        text: &str,
        span: &Span,
        named: &BTreeMap<String, Item>,
        at: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        if let Some(item) = named.get(text) {
            return Self::named(text, item, problems);
        }
        if is_url(text) {
            let (source, path, reference) = split(text);
            let remote = Remote {
                name: short_name(&source, &path),
                source,
                reference,
                path,
            };
            return check(&remote, span, at, problems).then_some(Self::Remote(remote));
        }
        let dir = problems.files.resolve(text, span);
        let plain = !text.contains(['/', '.']);
        if plain && !dir.is_dir() {
            let meant = nearest(text, named.keys().map(String::as_str));
            let help = meant.map_or_else(
                || "name a key of [packs], a directory or a URL".to_owned(),
                |meant| format!("did you mean \"{meant}\"?"),
            );
            let message = format!("there is no pack {text:?}");
            problems.push(
                Problem::error("unknown-ref", span.clone(), at, message)
                    .label("unknown pack")
                    .help(help),
            );
            return None;
        }
        Some(Self::Local(dir))
    }

    fn named(name: &str, item: &Item, problems: &mut Problems) -> Option<Self> {
        let (source, span) = item.fields.placed_text("source")?;
        let at = format!("{}.source", item.path);
        let reference = item.fields.text("ref").unwrap_or_default().to_owned();
        let path = item.fields.text("path").unwrap_or_default().to_owned();
        if !is_url(source) {
            let dir = problems.files.resolve(source, &span).join(path);
            return Some(Self::Local(dir.components().collect()));
        }
        let (source, inner_path, inner_reference) = split(source);
        let remote = Remote {
            name: name.to_owned(),
            source,
            reference: if reference.is_empty() {
                inner_reference
            } else {
                reference
            },
            path: if path.is_empty() { inner_path } else { path },
        };
        check(&remote, &span, &at, problems).then_some(Self::Remote(remote))
    }
}

fn is_url(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// The parts of `URL[//subdir][#ref]`.
fn split(text: &str) -> (String, String, String) {
    let (rest, reference) = text.split_once('#').unwrap_or((text, ""));
    let body = rest.find("://").map_or(0, |at| at + 3);
    let (source, path) = match rest[body..].find("//") {
        Some(at) => (&rest[..body + at], &rest[body + at + 2..]),
        None => (rest, ""),
    };
    (
        source.to_owned(),
        path.trim_matches('/').to_owned(),
        reference.to_owned(),
    )
}

fn check(remote: &Remote, span: &Span, at: &str, problems: &mut Problems) -> bool {
    let refused = |message: &str| Some(invalid(span.clone(), at, message));
    let problem = if remote.reference.starts_with('-') {
        refused("a ref must not start with `-`")
    } else if remote.path.split('/').any(|part| part == "..") || remote.path.starts_with('/') {
        refused("the directory of a pack must stay within its repository")
    } else if remote.source.contains("/tree/") || remote.source.contains("/blob/") {
        refused("this is a page about a directory, not a repository")
            .map(|problem| problem.help("use URL//dir#ref".to_owned()))
    } else {
        None
    };
    if remote.source.starts_with("http://") {
        let message = "the pack is fetched without encryption";
        problems.push(
            Problem::error("insecure-url", span.clone(), at, message)
                .warning()
                .label("use https"),
        );
    }
    let good = problem.is_none();
    problem
        .into_iter()
        .for_each(|problem| problems.push(problem));
    good
}

/// A name for the checkout of an unnamed pack: the last word of its address.
fn short_name(source: &str, path: &str) -> String {
    let address = if path.is_empty() { source } else { path };
    let last = address.trim_end_matches('/').rsplit(['/', ':']).next();
    let last = last.unwrap_or_default().trim_end_matches(".git");
    let name: String = last
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    let name = name.trim_matches('-').replace("--", "-");
    if name.is_empty() { "pack".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_up_to_three_parts() {
        for (text, source, path, reference) in [
            ("https://h/o/r.git", "https://h/o/r.git", "", ""),
            ("https://h/o/r//a/b#v1", "https://h/o/r", "a/b", "v1"),
            ("git@h:o/r#main", "git@h:o/r", "", "main"),
            ("file:///tmp/r//p", "file:///tmp/r", "p", ""),
        ] {
            let parts = (source.to_owned(), path.to_owned(), reference.to_owned());
            assert_eq!(split(text), parts, "{text}");
        }
    }

    #[test]
    fn checkouts_are_named_after_the_last_word() {
        assert_eq!(short_name("https://h/o/my.repo.git", ""), "my-repo");
        assert_eq!(short_name("git@h:r", ""), "r");
        assert_eq!(short_name("https://h/r", "packs/base"), "base");
        assert_eq!(short_name("https://", ""), "pack");
    }
}
