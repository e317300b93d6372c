//! The first prompt of an agent: its template and the fragments in it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gascity_actors::model::{Template, canonical_hash, sha256_hex};

use super::problem::{Problem, Problems};
use super::source::Text;
use super::sources::Sources;
use super::tree::Span;

/// Variables that prompts have beyond those of other texts.
const MORE: [&str; 3] = ["TemplateName", "IssuePrefix", "DefaultBranch"];

/// What a prompt is made of.
pub(super) struct Request<'a> {
    /// The template file, with where it is named.
    pub(super) file: Option<(PathBuf, Span)>,
    /// Fragments to append, with where they are named and the path of that key.
    pub(super) fragments: Vec<(String, Span, String)>,
    /// Directories that may have fragments, the nearest first.
    pub(super) layers: Vec<Cow<'a, Path>>,
    /// Names of the agent's variables.
    pub(super) env: Vec<&'a str>,
    /// Path of the agent's table.
    pub(super) path: &'a str,
}

/// A prompt and what stands for it in the fingerprint.
pub(super) struct Made {
    pub(super) text: Template,
    pub(super) source: String,
}

/// Reads a prompt. `None` if none is configured, or if it cannot be read, which is reported.
pub(super) fn make(
    request: &Request<'_>,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<Made> {
    if request.file.is_none() && request.fragments.is_empty() {
        return None;
    }
    let mut hashes = Vec::new();
    let mut whole = Template::default();
    if let Some((file, span)) = &request.file {
        let at = format!("{}.prompt_template", request.path);
        let text = read(file, span, &at, sources, problems)?;
        hashes.push(sha256_hex(text.as_bytes()));
        let template = request.parse(file, &text, true, problems)?;
        let used: Vec<String> = template.fragments().map(str::to_owned).collect();
        let mut texts = Vec::new();
        for name in used {
            let (text, hash) = request.fragment(&name, span, &at, sources, problems)?;
            hashes.push(hash);
            texts.push(text);
        }
        let mut texts = texts.into_iter();
        whole = template.with_fragments(|_| texts.next());
    }
    for (name, span, at) in &request.fragments {
        let (text, hash) = request.fragment(name, span, at, sources, problems)?;
        hashes.push(hash);
        if !hashes.is_empty() && whole != Template::default() {
            whole.push(Template::plain("\n\n"));
        }
        whole.push(text);
    }
    let keys: Vec<String> = (0..hashes.len()).map(|i| format!("{i:04}")).collect();
    let entries = keys
        .iter()
        .map(String::as_str)
        .zip(hashes.iter().map(String::as_str));
    Some(Made {
        text: whole,
        source: canonical_hash("gc-prompt-v1", entries),
    })
}

fn read(
    file: &Path,
    span: &Span,
    at: &str,
    sources: &mut Sources,
    problems: &mut Problems,
) -> Option<std::sync::Arc<str>> {
    sources
        .text(file)
        .map_err(|error| {
            let message = format!("{} {}", file.display(), error.why);
            problems
                .push(Problem::error(error.code, span.clone(), at, message).label("no such file"));
        })
        .ok()
}

impl Request<'_> {
    /// Variables are filled in only in files that say so by their name.
    fn parse(
        &self,
        file: &Path,
        text: &str,
        fragments: bool,
        problems: &mut Problems,
    ) -> Option<Template> {
        if file.extension().is_none_or(|extension| extension != "tmpl") {
            return Some(Template::plain(text));
        }
        let known = |name: &str| {
            super::keys::VARIABLES.contains(&name)
                || MORE.contains(&name)
                || self.env.contains(&name)
        };
        let parsed = match fragments {
            true => Template::parse_prompt(text, known),
            false => Template::parse(text, known),
        };
        parsed
            .map_err(|error| {
                let base = problems.files.add(file, Text::new(text, Vec::new()));
                let at = base + error.start..base + error.end;
                let help = format!(
                    "variables: .{} .{}, and names of `env`",
                    super::keys::VARIABLES.join(" ."),
                    MORE.join(" .")
                );
                problems.push(
                    Problem::error(
                        "bad-template",
                        at,
                        format!("{}.prompt_template", self.path),
                        error.message,
                    )
                    .label("in this template")
                    .help(help),
                );
            })
            .ok()
    }

    fn fragment(
        &self,
        name: &str,
        span: &Span,
        at: &str,
        sources: &mut Sources,
        problems: &mut Problems,
    ) -> Option<(Template, String)> {
        let files = self.layers.iter().flat_map(|dir| {
            ["md.tmpl", "md"]
                .map(|extension| dir.join(format!("prompts/shared/{name}.{extension}")))
        });
        let plain = !name.contains('/') && !name.starts_with('.');
        for file in files.filter(|_| plain) {
            if !sources.has_file(file.clone()) {
                continue;
            }
            let text = read(&file, span, at, sources, problems)?;
            let template = self.parse(&file, &text, false, problems)?;
            return Some((template, sha256_hex(text.as_bytes())));
        }
        // Its coming is a change.
        for dir in self.layers.iter().filter(|_| plain) {
            sources.awaited(&dir.join(format!("prompts/shared/{name}.md")));
        }
        let message = format!("there is no prompt fragment {name:?}");
        problems.push(
            Problem::error("unknown-ref", span.clone(), at, message)
                .label("unknown fragment")
                .help(format!(
                    "looked for prompts/shared/{name}.md and {name}.md.tmpl"
                )),
        );
        None
    }
}
