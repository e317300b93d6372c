//! Whether a program runs in a session, by the names people know it by.

use std::io;
use std::path::Path;

use super::census::Census;
use super::{Led, Mark, sweep};
use crate::sessions::proc;

/// Programs that run others: what matters is what they run.
const INTERPRETERS: [&str; 4] = ["node", "bun", "deno", "npx"];

/// Words of theirs that come before the program.
const VERBS: [&str; 3] = ["run", "exec", "x"];

/// Whether a process of the run goes by one of `names`. Blocks.
pub(in crate::sessions) fn any_alive(
    mark: &Mark,
    census: &Census,
    run: &dyn Led,
    names: &[String],
) -> io::Result<bool> {
    for process in sweep::belonging(census, mark, run)? {
        // One that ends meanwhile has no names.
        let comm = proc::comm(process.pid)?.unwrap_or_default();
        let is_it = |known: &str| names.iter().any(|name| name == known);
        if is_it(&comm) || known_as(&proc::words(process.pid)?).any(is_it) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names a command line stands for: its program and, if that is an interpreter, the script.
fn known_as(words: &[String]) -> impl Iterator<Item = &str> {
    let program = words.first().and_then(|word| file_name(word));
    let script = program.filter(|name| interprets(name)).and_then(|_| {
        let mut rest = words[1..].iter();
        let script = rest.find(|word| {
            !word.is_empty() && !word.starts_with('-') && !VERBS.contains(&word.as_str())
        })?;
        Path::new(script).file_stem()?.to_str()
    });
    program.into_iter().chain(script)
}

fn file_name(word: &str) -> Option<&str> {
    // A login shell's name begins with a dash.
    let name = Path::new(word).file_name()?.to_str()?;
    Some(name.strip_prefix('-').unwrap_or(name))
}

fn interprets(program: &str) -> bool {
    INTERPRETERS.contains(&program) || program.starts_with("python")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_known_by_program_and_script() {
        let cases: [(&[&str], &[&str]); 12] = [
            (&["/usr/bin/claude", "--x"], &["claude"]),
            (&["-bash"], &["bash"]),
            (&["node", "/opt/lib/cli.js", "x"], &["node", "cli"]),
            (&["/bin/node", "--inspect", "agent.mjs"], &["node", "agent"]),
            (&["bun", "run", "tool.ts"], &["bun", "tool"]),
            (&["bun", "x", "codex"], &["bun", "codex"]),
            (&["deno", "run", "-A", "a/b.ts"], &["deno", "b"]),
            (&["npx", "@some/agent"], &["npx", "agent"]),
            (&["python3.12", "-m", "aider"], &["python3.12", "aider"]),
            (&["node"], &["node"]),
            (&["sh", "tool.sh"], &["sh"]),
            (&[], &[]),
        ];
        for (line, want) in cases {
            let line: Vec<String> = line.iter().map(ToString::to_string).collect();
            assert_eq!(known_as(&line).collect::<Vec<_>>(), want, "{line:?}");
        }
    }
}
