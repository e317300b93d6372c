//! The first prompt of an agent: a file, and the command that takes it from there.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use gascity_actors::model::{Command, PromptMode, StartFailure};
use gascity_actors::ports::StartSpec;

use super::{Preparer, agent_failure, provider_failure};
use crate::control::files;
use crate::sessions::environment::Environment;
use crate::shell;

/// The most that fits into one argument; the kernel's own limit is a little higher.
const ARGUMENT: usize = 120 << 10;

/// How long it may take to ask git for a branch.
const GIT_LIMIT: Duration = Duration::from_secs(5);

impl Preparer {
    /// Writes the prompt to its file, tells the environment, and returns the command that takes
    /// it; `None` if the command takes none.
    pub(super) async fn write_prompt(
        &self,
        spec: &StartSpec,
        dir: &Path,
        env: &mut Environment,
    ) -> Result<Option<Command>, StartFailure> {
        let Some(template) = &spec.launch.prompt.text else {
            return Ok(None);
        };
        let branch = match template.variables().any(|name| name == "DefaultBranch") {
            true => default_branch(dir, env).await,
            false => String::new(),
        };
        self.prompt_with(spec, &branch, env)
    }

    /// The same for a run that is launched elsewhere: nothing is asked of its directory.
    pub(crate) fn prompt_for(
        &self,
        spec: &StartSpec,
        mut env: Environment,
    ) -> Result<(Environment, Option<Command>), StartFailure> {
        let command = self.prompt_with(spec, "main", &mut env)?;
        Ok((env, command))
    }

    fn prompts(&self) -> PathBuf {
        self.config.root.join(".gc/runtime/prompts")
    }

    /// Where the prompt of a session is written (`GC_PROMPT_FILE`).
    pub(super) fn prompt_file(&self, spec: &StartSpec) -> PathBuf {
        self.prompts().join(format!("{}.md", spec.session))
    }

    fn prompt_with(
        &self,
        spec: &StartSpec,
        branch: &str,
        env: &mut Environment,
    ) -> Result<Option<Command>, StartFailure> {
        let prompt = &spec.launch.prompt;
        let Some(template) = &prompt.text else {
            return Ok(None);
        };
        let text = template.render(|name| match name {
            "DefaultBranch" => Some(Cow::Borrowed(branch)),
            name => env
                .get(OsStr::new(name))
                .map(|value| value.to_string_lossy()),
        });
        let time = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
        let (city, agent) = (&self.config.city_name, &spec.agent);
        let text = format!("[{city}] {agent} • {time}\n\n{text}");
        if matches!(prompt.mode, PromptMode::Arg | PromptMode::Flag) && text.len() > ARGUMENT {
            let detail = format!(
                "the prompt has {} bytes, an argument holds {ARGUMENT}; use prompt_mode = \"file\"",
                text.len()
            );
            return Err(agent_failure("prompt", detail));
        }
        let path = self.prompt_file(spec);
        let written = files::create_private_dir(&self.prompts())
            .and_then(|()| files::replace(&path, text.as_bytes()));
        written
            .map_err(|error| provider_failure("prompt", format!("{}: {error}", path.display())))?;
        env.insert("GC_PROMPT_FILE".into(), path.clone().into());
        Ok(with_prompt(
            &spec.launch.command,
            prompt.mode,
            &prompt.flag,
            &path,
        ))
    }
}

/// The command with its prompt; `None` if it takes none.
fn with_prompt(command: &Command, mode: PromptMode, flag: &str, path: &Path) -> Option<Command> {
    let flag = match mode {
        PromptMode::Flag => format!(" {}", Command::Words(vec![flag.to_owned()])),
        _ => String::new(),
    };
    let file = path.to_string_lossy().into_owned();
    match (mode, command) {
        (PromptMode::None, _) => None,
        (PromptMode::File, Command::Words(words)) => {
            let words = words.iter().cloned().chain([file]);
            Some(Command::Words(words.collect()))
        }
        (PromptMode::File, Command::Shell(line)) => {
            let file = Command::Words(vec![file]);
            Some(Command::Shell(format!("{line} {file}")))
        }
        // A program of its own takes the shell's place; a line may be more than one program.
        (PromptMode::Arg | PromptMode::Flag, command) => {
            let exec = match command {
                Command::Words(_) => "exec ",
                Command::Shell(_) => "",
            };
            let prompt = "\"$(cat \"$GC_PROMPT_FILE\")\"";
            Some(Command::Shell(format!("{exec}{command}{flag} {prompt}")))
        }
    }
}

/// The branch others start from, as far as git knows.
async fn default_branch(dir: &Path, env: &Environment) -> String {
    let line = "git symbolic-ref --quiet --short refs/remotes/origin/HEAD \
                || git config --get init.defaultBranch || echo main";
    let line = shell::line(line.into(), dir.to_owned(), env.clone(), GIT_LIMIT);
    let branch = shell::output_of(line).await.unwrap_or_default();
    let branch = branch.trim();
    match branch.strip_prefix("origin/").unwrap_or(branch) {
        "" => "main".to_owned(),
        branch => branch.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_hands_the_prompt_over_in_its_own_way() {
        let words = Command::Words(["claude", "--fast", "a b"].map(String::from).to_vec());
        let shell = Command::Shell("cd x && run".into());
        let path = Path::new("/c/p q.md");
        let line = |command: &Command, mode, flag| {
            with_prompt(command, mode, flag, path).map(|command| command.to_string())
        };
        let cat = "\"$(cat \"$GC_PROMPT_FILE\")\"";
        let cases = [
            (&words, PromptMode::None, "", None),
            (
                &words,
                PromptMode::Arg,
                "",
                Some(format!("exec claude --fast 'a b' {cat}")),
            ),
            (
                &shell,
                PromptMode::Arg,
                "",
                Some(format!("cd x && run {cat}")),
            ),
            (
                &words,
                PromptMode::Flag,
                "-p",
                Some(format!("exec claude --fast 'a b' -p {cat}")),
            ),
            (
                &words,
                PromptMode::File,
                "",
                Some("claude --fast 'a b' '/c/p q.md'".into()),
            ),
            (
                &shell,
                PromptMode::File,
                "",
                Some("cd x && run '/c/p q.md'".into()),
            ),
        ];
        for (command, mode, flag, want) in cases {
            assert_eq!(line(command, mode, flag), want, "{mode:?} {command}");
        }
    }
}
